#include "disk/hdd.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::disk {

namespace {

// A read streams to the host while it comes off the platter: what is left to send when the last
// sector has passed is one chunk.
constexpr Bytes kLinkChunk{4096};

}  // namespace

Hdd::Hdd(const HddParameters& p, Host& host)
    : parameters_(p),
      mechanics_(p.geometry, p.seek, p.start_angle),
      scheduler_(make_scheduler(p.scheduler)),
      host_(host),
      read_cache_(static_cast<std::size_t>(std::max<std::int64_t>(p.read_segments - 1, 0))) {
  require(p.link_rate.count() >= 1'000'000, "link_rate: must be at least 1 MB/s");
  require(p.command_overhead >= Nanos{0}, "command_overhead: must not be negative");
  require(p.cache.count() >= 0, "cache: must not be negative");
  require(p.read_segments >= 1 && p.read_segments <= 1024,
          "read_segments: must lie between 1 and 1024");
  require(p.write_share >= 0.0 && p.write_share < 1.0, "write_share: must lie between 0 and 1");
  require(p.destage_idle >= Nanos{0}, "destage_idle: must not be negative");
  require(p.queue_depth >= 1 && p.queue_depth <= kQueueDepthMost,
          "queue_depth: a SATA disk has 1 to 32");
}

void Hdd::submit(Tag tag, const Request& request, Nanos now) {
  advance(now);
  changed_at_ = now;
  const Command command = command_of(tag, request, now);
  if (flush_) {
    held_.push_back(command);
  } else {
    accept(command);
  }
  advance(now);
  ask_for_wake();
}

Hdd::Command Hdd::command_of(Tag tag, const Request& request, Nanos now) const {
  const Extent extent{request.lba, request.lba + request.sectors};
  const auto fits = [&](const Extent& e) {
    return Lba{0} <= e.begin && e.begin < e.end && to_bytes(e.end) <= capacity();
  };
  FLASHLAB_CHECK(request.op == Op::flush || fits(extent));
  FLASHLAB_CHECK(std::all_of(request.ranges.begin(), request.ranges.end(), fits));
  Bytes bytes = to_bytes(extent.length());
  if (!request.ranges.empty()) {
    bytes = Bytes{0};
    for (const Extent& range : request.ranges) bytes += to_bytes(range.length());
  }
  const Nanos arrival = std::max(now + parameters_.command_overhead, barrier_);
  return {tag, request.op, request.fua, extent, bytes, arrival};
}

void Hdd::wake(Nanos now) {
  advance(now);
  ask_for_wake();
}

void Hdd::accept(const Command& command) {
  DeviceCounters& count = counters_.device;
  const Bytes bytes = command.bytes;
  switch (command.op) {
    case Op::read:
      ++count.read_ios;
      count.read_bytes += bytes;
      return accept_read(command);
    case Op::write:
      ++count.write_ios;
      count.write_bytes += bytes;
      return accept_write(command);
    case Op::trim:  // a disk keeps no map: the command is accepted and changes nothing
      ++count.trim_ios;
      count.trim_bytes += bytes;
      return finish(command.tag, command.arrival);
    case Op::flush:
      ++count.flush_ios;
      return accept_flush(command);
  }
}

void Hdd::accept_read(const Command& command) {
  const Extent extent = command.extent;
  const Nanos now = command.arrival;
  quiet_since_ = std::max(quiet_since_, now);
  const bool streamed = read_ahead_ && read_ahead_holds(now).contains(extent);
  if (streamed || read_cache_.use(extent) || dirty_.contains(extent)) {
    ++counters_.buffer_hits;
    if (streamed) slide_read_ahead(extent.end, now);
    return complete_over_link(command, now, command.bytes);
  }
  enqueue(command);
}

void Hdd::accept_write(const Command& command) {
  read_cache_.invalidate(command.extent);
  if (has_to_wait(command)) {
    blocked_writes_.push_back(command);
  } else {
    admit_write(command, command.arrival);
  }
}

// To the platters before it is answered. A write must not pass a direct one to the same sectors
// through the cache; one that is larger than the cache would wait for ever.
bool Hdd::goes_direct(const Command& write) const {
  return !parameters_.write_cache || write.fua || write.bytes > write_room() ||
         std::any_of(queue_.begin(), queue_.end(), [&](const Command& queued) {
           return queued.op == Op::write && queued.conflicts(write);
         });
}

bool Hdd::has_to_wait(const Command& write) const {
  if (goes_direct(write)) {
    return std::any_of(blocked_writes_.begin(), blocked_writes_.end(),
                       [&](const Command& blocked) { return blocked.conflicts(write); });
  }
  const Bytes needed = to_bytes(dirty_.missing(write.extent));
  return !blocked_writes_.empty() || dirty_.bytes() + needed > write_room();
}

void Hdd::admit_write(const Command& write, Nanos when) {
  if (!goes_direct(write)) return cache_write(write, when);
  Command direct = write;
  direct.arrival = when;
  enqueue(direct);
}

void Hdd::enqueue(const Command& command) {
  const auto later =
      std::upper_bound(queue_.begin(), queue_.end(), command,
                       [](const Command& a, const Command& b) { return a.arrival < b.arrival; });
  queue_.insert(later, command)->target = mechanics_.target(command.extent.begin);
}

// ATA FLUSH CACHE is not queued: what came before is finished first, what comes after waits.
void Hdd::accept_flush(const Command& command) {
  flush_ = command;
  finish_flush(command.arrival);
}

void Hdd::cache_write(const Command& command, Nanos when) {
  const Extent extent = command.extent;
  dirty_.insert(extent);
  if (read_ahead_ && Extent{read_ahead_holds(when).begin, read_ahead_->limit}.overlaps(extent)) {
    stop_read_ahead(when);
    read_cache_.invalidate(extent);
  }
  complete_over_link(command, when, command.bytes);
}

// Replays every decision of the arm that was due by now.
void Hdd::advance(Nanos now) {
  while (step(now)) {
  }
}

bool Hdd::step(Nanos now) {
  if (destage_ && destage_->end <= now) {
    finish_destage(destage_->end);
    return true;
  }
  if (destage_) return false;
  const std::optional<Nanos> queued = queue_start();
  const std::optional<Nanos> destage = destage_start();
  // The host's commands come first, but a cache that presses gets every second turn, or waiting
  // writes would starve behind a queue of reads.
  const bool turn = destage_presses() && !destaged_last_;
  const bool take_destage =
      destage && (!queued || *destage < *queued || (*destage == *queued && turn));
  const std::optional<Nanos> start = take_destage ? destage : queued;
  if (!start || *start > now) return false;
  destaged_last_ = take_destage;
  if (take_destage) {
    start_destage(*start);
  } else {
    serve_queue(*start);
    finish_flush(*start);
  }
  return true;
}

std::optional<Nanos> Hdd::queue_start() const {
  if (queue_.empty()) return std::nullopt;
  return std::max(arm_free_, queue_.front().arrival);
}

bool Hdd::destage_presses() const {
  return flush_ || !blocked_writes_.empty() || 4 * dirty_.bytes() >= 3 * write_room();
}

std::optional<Nanos> Hdd::destage_start() const {
  if (dirty_.empty()) return std::nullopt;
  if (destage_presses()) return std::max(arm_free_, changed_at_);
  return std::max({arm_free_, changed_at_, quiet_since_ + parameters_.destage_idle});
}

void Hdd::serve_queue(Nanos start) {
  const Command command = take_next(start);
  if (command.op == Op::read) {
    serve_read(command, start);
  } else {
    serve_write(command, start);
  }
  quiet_since_ = std::max(quiet_since_, arm_free_);
}

// The scheduler's choice among the commands that no older one with the same sectors holds back.
Hdd::Command Hdd::take_next(Nanos start) {
  std::size_t choices = 0;
  bool writes = false;
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const Command& c = queue_[i];
    if (c.arrival > start || i == parameters_.queue_depth) break;
    writes = writes || c.op == Op::write;
    const auto here = queue_.begin() + static_cast<std::ptrdiff_t>(i);
    if (writes && std::any_of(queue_.begin(), here,
                              [&](const Command& older) { return older.conflicts(c); })) {
      continue;
    }
    choice_[choices] = {c.extent.begin, c.extent.length(), c.op == Op::write, c.arrival, c.target};
    places_[choices] = i;
    ++choices;
  }
  const std::size_t chosen =
      scheduler_->choose({std::span(choice_).first(choices), head_at(start), start, mechanics_});
  FLASHLAB_CHECK(chosen < choices);
  const auto place = queue_.begin() + static_cast<std::ptrdiff_t>(places_[chosen]);
  const Command command = *place;
  queue_.erase(place);
  return command;
}

void Hdd::serve_read(const Command& command, Nanos start) {
  if (follow_read_ahead(command, start)) return;
  const Extent extent = command.extent;
  const MediaAccess access = move(start, extent, false);
  ++counters_.media_reads;
  counters_.media_read_bytes += to_bytes(extent.length());
  read_ahead_ = ReadAhead{extent.begin, extent.end, access.end, extent.end};
  slide_read_ahead(extent.end, start);
  complete_from_media(command, access.end);
}

// The read-ahead is on its way and may pass the wanted sectors before the arm could be placed anew:
// then the drive just waits for it.
bool Hdd::follow_read_ahead(const Command& command, Nanos start) {
  if (!read_ahead_) return false;
  const Extent extent = command.extent;
  ReadAhead& ahead = *read_ahead_;
  const bool running = read_ahead_at(start) < ahead.limit;
  const Lba last = running ? ahead.limit : Lba{-1};
  if (extent.begin < read_ahead_holds(start).begin || extent.begin > last) return false;
  const Nanos swept = extent.end <= ahead.origin ? ahead.begin
                                                 : mechanics_.stream_end(ahead.begin, ahead.origin,
                                                                         extent.end - ahead.origin);
  const Nanos passed = std::max(start, swept);
  const Nanos placed =
      mechanics_.access(head_at(start), start, extent.begin, extent.length(), false).end;
  if (placed < passed) return false;
  ++counters_.stream_hits;
  slide_read_ahead(extent.end, start);
  if (extent.end > ahead.origin) {
    ahead.origin = extent.end;
    ahead.begin = swept;
  }
  arm_free_ = passed;
  complete_from_media(command, passed);
  return true;
}

void Hdd::serve_write(const Command& command, Nanos start) {
  const Extent extent = command.extent;
  const MediaAccess access = move(start, extent, true);
  written_to_ = extent.end;
  read_cache_.invalidate(extent);  // what was read ahead since the command came is stale
  ++counters_.media_writes;
  counters_.media_write_bytes += command.bytes;
  direct_ = MediaWrite{extent, access.end};
  finish(command.tag, access.end);
  dirty_.erase(extent);  // superseded: written back later, it would undo this write
  admit_blocked_writes(start);
}

void Hdd::start_destage(Nanos start) {
  const Lba last{to_lba(capacity()).index() - 1};  // a read-ahead may have run beyond it
  const Lba here = read_ahead_ ? std::min(read_ahead_at(start), last)
                               : mechanics_.geometry().first_lba(head_at(start).track);
  // At most one track at a time, so that a command never waits for a whole cache.
  const std::int64_t track = mechanics_.geometry().locate(here).sectors_per_track;
  const std::optional<Extent> extent = dirty_.take(here, Sectors{track});
  FLASHLAB_CHECK(extent.has_value());
  // Where the arm has just stopped writing it goes on: the skews allow for that, and nothing
  // settles.
  const bool goes_on = extent->begin == written_to_ && start == arm_free_;
  const MediaAccess access = move(start, *extent, !goes_on);
  written_to_ = extent->end;
  ++counters_.media_writes;
  counters_.media_write_bytes += to_bytes(extent->length());
  destage_ = MediaWrite{*extent, access.end};
}

void Hdd::finish_destage(Nanos now) {
  destage_.reset();
  admit_blocked_writes(now);
  finish_flush(now);
}

void Hdd::admit_blocked_writes(Nanos when) {
  std::deque<Command> waiting;
  waiting.swap(blocked_writes_);  // a write waits for older ones only
  while (!waiting.empty() && !has_to_wait(waiting.front())) {
    admit_write(waiting.front(), std::max(when, waiting.front().arrival));
    waiting.pop_front();
  }
  blocked_writes_.swap(waiting);
}

void Hdd::finish_flush(Nanos now) {
  if (!flush_ || !queue_.empty() || !blocked_writes_.empty() || !dirty_.empty() || destage_) return;
  const Nanos end = std::max({now, flush_->arrival, arm_free_});
  finish(flush_->tag, end);
  flush_.reset();
  barrier_ = end;
  changed_at_ = std::max(changed_at_, end);
  while (!held_.empty() && !flush_) {
    Command next = held_.front();
    held_.pop_front();
    next.arrival = std::max(next.arrival, barrier_);
    accept(next);
  }
}

MediaAccess Hdd::move(Nanos start, const Extent& extent, bool settles) {
  stop_read_ahead(start);
  written_to_.reset();
  const MediaAccess access =
      mechanics_.access(head_, start, extent.begin, extent.length(), settles);
  counters_.positioning += access.begin - start;
  counters_.transferring += access.end - access.begin;
  const Lba last = extent.begin + (extent.length() - Sectors{1});
  head_ = {mechanics_.geometry().locate(last).track, access.end};
  arm_free_ = access.end;
  return access;
}

Lba Hdd::read_ahead_at(Nanos when) const {
  if (when < read_ahead_->begin) return read_ahead_->first;  // the access is still under way
  return mechanics_.stream_reached(read_ahead_->begin, read_ahead_->origin, when,
                                   read_ahead_->limit);
}

// What is left in the segment, a ring, of all that has passed under the head.
Extent Hdd::read_ahead_holds(Nanos when) const {
  const Lba reached = read_ahead_at(when);
  const Lba oldest{reached.index() - segment().count()};
  return {std::max(read_ahead_->first, oldest), reached};
}

// The host has consumed up to `host_reached`: there is room for one more segment behind that. A
// read-ahead that has already filled its segment has stopped, and only a new access starts it.
void Hdd::slide_read_ahead(Lba host_reached, Nanos when) {
  ReadAhead& ahead = *read_ahead_;
  const bool stopped = ahead.limit > ahead.origin && read_ahead_at(when) >= ahead.limit;
  if (stopped) return;
  ahead.limit = std::max(ahead.limit, std::min(host_reached + segment(), to_lba(capacity())));
}

// Of the cache: reads and writes share one buffer.
Bytes Hdd::write_room() const {
  if (parameters_.write_share == 0.0) return parameters_.cache;
  const double bytes = parameters_.write_share * static_cast<double>(parameters_.cache.count());
  return Bytes{static_cast<std::int64_t>(bytes)};
}

Sectors Hdd::segment() const {
  const bool shared = parameters_.write_share > 0.0;
  const Bytes reads = shared ? parameters_.cache - write_room() : parameters_.cache;
  return to_sectors(reads / parameters_.read_segments);
}

HeadState Hdd::head_at(Nanos when) const {
  if (!read_ahead_) return head_;
  const Lba last = std::max(read_ahead_->first, Lba{read_ahead_at(when).index() - 1});
  return {mechanics_.geometry().locate(last).track, when};
}

void Hdd::stop_read_ahead(Nanos when) {
  if (!read_ahead_) return;
  head_ = head_at(when);
  read_cache_.keep(read_ahead_holds(when));
  read_ahead_.reset();
}

void Hdd::complete_from_media(const Command& command, Nanos end) {
  complete_over_link(command, end, std::min(command.bytes, kLinkChunk));
}

void Hdd::complete_over_link(const Command& command, Nanos ready, Bytes bytes) {
  link_free_ = std::max(ready, link_free_) + transfer_time(bytes, parameters_.link_rate);
  finish(command.tag, link_free_);
}

void Hdd::finish(Tag tag, Nanos when) { host_.done(tag, when); }

// Only what a host can be waiting for needs a wake-up: queued commands, blocked writes, a flush.
// Idle destaging is replayed by the next call, whenever that comes.
void Hdd::ask_for_wake() {
  if (destage_ && (!blocked_writes_.empty() || flush_ || !queue_.empty())) {
    host_.wake_at(destage_->end);
  } else if (const std::optional<Nanos> queued = queue_start()) {
    host_.wake_at(*queued);
  } else if (flush_ || !blocked_writes_.empty()) {
    if (const std::optional<Nanos> due = destage_start()) host_.wake_at(*due);
  }
}

// The last content of these sectors is in the cache, on its way to the platters, or in a command
// that the drive has not served.
std::vector<Extent> Hdd::in_doubt(Nanos now) {
  wake(now);
  ExtentSet doubt = dirty_;
  if (destage_) doubt.insert(destage_->extent);
  if (direct_ && direct_->end > now) doubt.insert(direct_->extent);
  const auto add = [&](const Command& c) {
    if (c.op == Op::write) doubt.insert(c.extent);
  };
  std::for_each(queue_.begin(), queue_.end(), add);
  std::for_each(blocked_writes_.begin(), blocked_writes_.end(), add);
  std::for_each(held_.begin(), held_.end(), add);
  return doubt.extents();
}

// All but the counters; the platters' angle follows from the clock.
void Hdd::restart(Nanos now) {
  scheduler_ = make_scheduler(parameters_.scheduler);
  head_ = {0, now};
  arm_free_ = link_free_ = quiet_since_ = changed_at_ = barrier_ = now;
  destaged_last_ = false;
  queue_.clear();
  blocked_writes_.clear();
  flush_.reset();
  held_.clear();
  read_cache_.clear();
  read_ahead_.reset();
  written_to_.reset();
  dirty_.clear();
  destage_.reset();
  direct_.reset();
}

void Hdd::archive(Archive& a) {
  scheduler_->archive(a);
  a.all(counters_, head_, arm_free_, link_free_, quiet_since_, changed_at_, barrier_);
  a.all(destaged_last_, queue_, blocked_writes_, flush_, held_, read_ahead_, destage_, direct_);
  a.one(written_to_);
  read_cache_.archive(a);
  dirty_.archive(a);
}

}  // namespace flashlab::disk
