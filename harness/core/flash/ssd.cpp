#include "flash/ssd.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "flash/steady_state.hpp"
#include "flash/timeless.hpp"

namespace flashlab::flash {

namespace {

// Of a request that is announced, so much is looked at: the rest of it comes later.
constexpr Sectors kExpected{128};

TrimDrive trim_drive(const SsdParameters& p) {
  return {p.geometry.capacity, p.geometry.map_unit, p.write_buffer};
}

// Throws OperatingError for ranges that a drive of these parameters cannot have.
std::vector<Attribution::Range> in_pages(const SsdParameters& p,
                                         std::span<const NamedRange> ranges) {
  std::vector<Attribution::Range> pages;
  Lba last;
  for (const NamedRange& range : ranges) {
    const Bytes begin = to_bytes(range.extent.begin);
    const Bytes end = to_bytes(range.extent.end);
    require(range.extent.begin >= last && begin < end && end <= p.geometry.capacity,
            "range " + range.name + ": ranges must ascend, be disjoint and lie on the device");
    require(begin % p.geometry.map_unit == Bytes{0} && end % p.geometry.map_unit == Bytes{0},
            "range " + range.name + ": must begin and end at a multiple of map_unit");
    require(range.stream < p.ftl.streams, "range " + range.name + ": the drive has streams 0 to " +
                                              std::to_string(p.ftl.streams - 1) + ", not " +
                                              std::to_string(range.stream));
    require(range.name.find('\0') == std::string::npos, "range: a name must not hold a zero byte");
    pages.push_back({static_cast<Lpn>(begin / p.geometry.map_unit),
                     static_cast<Lpn>(end / p.geometry.map_unit)});
    last = range.extent.end;
  }
  return pages;
}

// So many units may wait for their rest: half the buffer, the other half keeps the dies busy;
// nobody documents how many. With open pages they never fill it: a program must be able to make
// room.
std::uint32_t most_partial(std::uint32_t buffer_units, StreamId streams, std::uint32_t per_page) {
  return std::min(buffer_units / 2, buffer_units - streams * (per_page - 1) - 1);
}

void validate(const SsdParameters& p) {
  require(p.link_rate.count() >= 1'000'000, "link_rate: must be at least 1 MB/s");
  require(p.command_time >= Nanos{0} && p.write_command_time.value_or(Nanos{0}) >= Nanos{0} &&
              p.read_latency >= Nanos{0} && p.write_latency >= Nanos{0},
          "command_time, write_command_time, read_latency and write_latency: must not be negative");
  require(p.trim.max_ranges >= 1, "trim_max_ranges: must be at least 1");
  require(p.background_idle >= Nanos{0}, "background_idle: must not be negative");
  require(p.queue_depth >= 1, "queue_depth: must be at least 1");
  const Bytes page = p.geometry.page * p.geometry.planes;
  require(p.write_buffer >= page * (std::int64_t{p.ftl.streams} + 1),
          "write_buffer: must hold a page (all planes of a die) for each stream, and one more");
}

}  // namespace

// The dies, behind whatever must happen before a block is chosen.
class Ssd::Backend {
 public:
  // The host's page, if it is completed, can be programmed from `filled` on.
  explicit Backend(Ssd& ssd, Nanos filled = Nanos{}) : ssd_(ssd), filled_(filled) {}
  void program(Page page, Die die, Work work) {
    if (work == Work::host) {
      if (ssd_.slc_) ssd_.nand_.set_slc(ssd_.slc_->takes(ssd_, page));
      ssd_.nand_.delay_until(filled_);
    }
    ssd_.nand_.program(page, die, work);
  }
  void copies(Die die, Page to, std::uint32_t pages) { ssd_.nand_.copies(die, to, pages); }
  void read(Die die, std::uint32_t units) { ssd_.nand_.read(die, units); }
  void erase(Block block) { ssd_.nand_.erase(block); }
  void settle(Block block, const PageMap& map) { ssd_.nand_.settle(block, map); }
  void before_choice() { ssd_.apply_pending(); }

 private:
  Ssd& ssd_;
  Nanos filled_;
};

Ssd::Ssd(const SsdParameters& p, Host& host)
    : parameters_((validate(p), p)),
      host_(host),
      placement_(find_placement(p.placement)),
      trim_(make_trim_policy(p.trim.policy, p.trim, trim_drive(p))),
      ftl_(Geometry(p.geometry), p.ftl, in_pages(p, p.ranges)),
      slc_(make_slc_policy(p.slc, ftl_.geometry())),
      nand_(ftl_.geometry(), p.nand),
      link_time_(p.link_rate),
      buffer_units_(static_cast<std::uint32_t>(p.write_buffer / p.geometry.map_unit)),
      partial_(ftl_.geometry()),
      partial_most_(most_partial(buffer_units_, p.ftl.streams, ftl_.geometry().slots_per_page())),
      filled_(p.ftl.streams),
      trimmed_(ftl_.geometry()) {
  adopt(p.ranges);
}

void Ssd::submit(Tag tag, const Request& request, Nanos now) {
  FLASHLAB_CHECK(request.op == Op::flush ||
                 (request.sectors > Sectors{0} && request.lba >= Lba{0} &&
                  to_bytes(request.lba + request.sectors) <= capacity()));
  arrive(now);
  link_.forget_before(now);
  while (!unanswered_.empty() && unanswered_.front().done <= now) unanswered_.pop_front();
  // A command that is not queued waits for all others, and they for it.
  const bool alone =
      (request.op == Op::trim || request.op == Op::flush) && !parameters_.trim.queued;
  const Nanos begin = alone ? std::max(now, last_done_) : now;
  const Nanos handling = command_time(request.op);
  firmware_free_ = std::max(firmware_free_, begin) + handling;
  counters_.command_time += handling;
  const Nanos end = serve(request, firmware_free_);
  if (alone) firmware_free_ = end;
  last_done_ = std::max(last_done_, end);
  quiet_since_ = std::max(quiet_since_, last_done_);
  host_.done(tag, end);
}

Nanos Ssd::command_time(Op op) const {
  const Nanos any = parameters_.command_time;
  return op == Op::write ? parameters_.write_command_time.value_or(any) : any;
}

// Nobody needs to call it: it brings the counters up to date.
void Ssd::wake(Nanos now) {
  arrive(now);
  nand_.catch_up(now);
}

// What the drive had to decide before a command that comes now.
void Ssd::arrive(Nanos now) {
  apply_steps_until(now);
  if (parameters_.background_gc || slc_) idle_until(now);
  nand_.present(now);
}

void Ssd::expect(const Request& request) {
  if (request.op == Op::flush) return;
  ftl_.expect(ftl_.geometry().lpn_of(to_bytes(request.lba)));
}

void Ssd::expect_next(const Request& request) {
  if (request.op == Op::flush) return;
  expect_units({request.lba, request.lba + std::min(request.sectors, kExpected)});
}

// What these units' places are asked when they are read or written again: a word of bits and a
// count or two for each place that is not beside the one before.
void Ssd::expect_units(const Extent& extent) const {
  const Geometry& geometry = ftl_.geometry();
  const Lpn first = geometry.lpn_of(to_bytes(extent.begin));
  const Lpn last = geometry.lpn_of(to_bytes(extent.end) - Bytes{1});
  Slot before = kNoSlot;
  for (Lpn lpn = first; lpn <= last; ++lpn) {
    const Slot slot = ftl_.map().find(lpn);
    if (slot == kNoSlot || PageMap::are_beside(slot, before)) continue;
    before = slot;
    const Block block = geometry.block_of(slot);
    ftl_.map().expect_release(slot, block);
    nand_.expect(block);
  }
}

Nanos Ssd::serve(const Request& request, Nanos begin) {
  DeviceCounters& count = counters_.device;
  const Bytes bytes = to_bytes(request.sectors);
  switch (request.op) {
    case Op::read:
      ++count.read_ios;
      count.read_bytes += bytes;
      return read(request, begin);
    case Op::write: {
      ++count.write_ios;
      count.write_bytes += bytes;
      Nanos end = write(request, begin);
      if (request.fua) end = flush(end);
      unanswered_.push_back({{request.lba, request.lba + request.sectors}, end});
      return end;
    }
    case Op::trim:
      ++count.trim_ios;
      return trim(request, begin);
    case Op::flush: {
      ++count.flush_ios;
      const Nanos end = flush(begin);
      trimmed_.clear();
      return end;
    }
  }
  FLASHLAB_CHECK(false);
}

// Neighbouring units on one physical page are one read of it.
Nanos Ssd::read(const Request& request, Nanos begin) {
  const Geometry& geometry = ftl_.geometry();
  const Bytes first = to_bytes(request.lba);
  const Bytes last = first + to_bytes(request.sectors);
  firmware_free_ +=
      trim_->reading({request.lba, request.lba + request.sectors}, *this, counters_.trim);
  begin = firmware_free_;
  Nanos end = begin;
  Bytes at = first;
  while (at < last) {
    const Lpn lpn = geometry.lpn_of(at);
    Bytes to = std::min(last, geometry.unit() * (std::int64_t{lpn} + 1));
    if (partial_.holds(lpn)) {
      const Nanos there = read_part(lpn, {to_lba(at), to_lba(to)}, begin);
      end = std::max(end, over_link(to - at, there));
      begin = std::max(begin, firmware_free_);
      at = to;
      continue;
    }
    const Slot slot = ftl_.map().find(lpn);
    // From the page's first slot on; none is as far behind it as an unmapped unit's.
    const Slot page = slot == kNoSlot ? kNoSlot : geometry.first_of_page(slot);
    for (Lpn next = lpn + 1; to < last && !partial_.holds(next); ++next) {
      const Slot other = ftl_.map().find(next);
      if (slot == kNoSlot ? other != kNoSlot : other - page >= geometry.slots_per_page()) break;
      to = std::min(last, geometry.unit() * (std::int64_t{next} + 1));
    }
    end = std::max(end, over_link(to - at, read_page(to - at, slot, begin)));
    at = to;
  }
  return std::max(end, begin) + parameters_.read_latency;
}

Nanos Ssd::read_page(Bytes bytes, Slot slot, Nanos begin) {
  if (slot == kNoSlot) {
    ++counters_.unmapped_reads;
    return begin;
  }
  if (in_ram(slot, begin)) {
    ++counters_.buffer_hits;
    return begin;
  }
  return nand_.host_read(ftl_.geometry().die_of(slot), bytes, begin);
}

// Of a unit that is in the buffer in part. What is missing is read where there is something to be
// read: then the unit is complete, and waits for nothing any more.
Nanos Ssd::read_part(Lpn lpn, const Extent& sectors, Nanos begin) {
  if (!partial_.contains(sectors) && ftl_.map().find(lpn) != kNoSlot) return leave(lpn, begin);
  ++counters_.buffer_hits;
  return begin;
}

Nanos Ssd::write(const Request& request, Nanos begin) {
  const Geometry& geometry = ftl_.geometry();
  const Bytes last = to_bytes(request.lba + request.sectors);
  const Extent written{request.lba, request.lba + request.sectors};
  const Extent touched = in_units(written);
  // The rest of a unit that is written in part is read before.
  if (touched.begin < written.begin || written.end < touched.end) {
    firmware_free_ += trim_->reading(touched, *this, counters_.trim);
  }
  firmware_free_ += trim_->written(written, *this, counters_.trim);
  if (!trimmed_.empty()) trimmed_.erase(touched);
  const Destination destination = destination_of(request);
  Nanos end = begin;
  Lpn lpn = geometry.lpn_of(to_bytes(request.lba));
  for (Bytes at = to_bytes(request.lba); at < last; ++lpn) {
    const Bytes to = std::min(last, geometry.unit() * (std::int64_t{lpn} + 1));
    const bool whole = to - at == geometry.unit();
    // Later than `begin` where TRIMs that were put off stood in the way.
    const Nanos there =
        whole ? write_unit(destination, lpn, firmware_free_)
              : write_part(destination, lpn, {to_lba(at), to_lba(to)}, firmware_free_);
    end = std::max(end, there);
    at = to;
    if (at + geometry.unit() > last) continue;
    // The rest of the page that is open now, at once.
    const std::uint32_t units = plain_units(destination, lpn + 1, geometry.lpn_of(last) - lpn - 1);
    if (units == 0) continue;
    if (!link_.row_fits(std::max(admitted_, firmware_free_))) continue;
    end = std::max(end, write_units(destination, lpn + 1, units, firmware_free_));
    at += geometry.unit() * units;
    lpn += units;
  }
  return std::max(end, firmware_free_) + parameters_.write_latency;
}

// How many units from this one on, at most so many, have their place in the buffer and on the open
// page already, and replace nothing that is in RAM.
std::uint32_t Ssd::plain_units(const Destination& destination, Lpn lpn, std::uint32_t most) const {
  if (!partial_.empty()) return 0;
  const std::uint32_t room = buffer_units_ - std::min(buffered_, buffer_units_);
  most = std::min({most, room, ftl_.open_units(destination.stream)});
  for (std::uint32_t units = 0; units < most; ++units) {
    const Slot old = ftl_.map().find(lpn + units);
    if (old == kNoSlot) continue;
    if (nand_.remembers(ftl_.geometry().block_of(old)) || ftl_.in_open_host_page(old)) return units;
  }
  return most;
}

// What `write_unit` does, for all of these, where the link has room for all of them in a row;
// returns when the last of them is in the buffer.
Nanos Ssd::write_units(const Destination& destination, Lpn lpn, std::uint32_t units, Nanos begin) {
  admitted_ = std::max(admitted_, begin);
  const Nanos arrived = link_.take_row(admitted_, link_time_(ftl_.geometry().unit()), units);
  buffered_ += units;
  nand_.set_ready(arrived);
  Backend backend(*this, page_filled(destination.stream, arrived));
  ftl_.write_more(backend, lpn, units, destination.stream, destination.label);
  return arrived;
}

// Returns when the unit's data is in the buffer.
Nanos Ssd::write_unit(const Destination& destination, Lpn lpn, Nanos begin) {
  const bool waits = partial_.holds(lpn);
  const bool replaces = waits || is_replaceable(ftl_.map().find(lpn), begin);
  if (replaces) count_coalesced(destination, lpn);
  if (waits) partial_.take(lpn);  // whose place in the buffer it gets
  const Nanos room = replaces ? begin : admit_unit(begin);
  const Nanos arrived = over_link(ftl_.geometry().unit(), room);
  if (waits || !replaces) place(lpn, destination, arrived, arrived);
  return arrived;
}

// The same for sectors of one, not all: it waits in the buffer for the others.
Nanos Ssd::write_part(const Destination& destination, Lpn lpn, const Extent& sectors, Nanos begin) {
  const Bytes bytes = to_bytes(sectors.length());
  if (!partial_.holds(lpn)) {
    if (is_replaceable(ftl_.map().find(lpn), begin)) {
      count_coalesced(destination, lpn);
      return over_link(bytes, begin);
    }
    while (partial_.size() >= partial_most_) leave(partial_.oldest(), begin);
    begin = admit_unit(std::max(begin, firmware_free_));
  }
  const Nanos arrived = over_link(bytes, begin);
  const bool again = partial_.add({lpn, destination.stream, destination.label, arrived}, sectors);
  if (again) count_coalesced(destination, lpn);
  if (partial_.is_whole(lpn)) leave(lpn, begin);
  return arrived;
}

// Whether a unit's content is in RAM, and can still be another one.
bool Ssd::is_replaceable(Slot slot, Nanos begin) {
  if (slot == kNoSlot) return false;
  const Geometry& geometry = ftl_.geometry();
  return ftl_.in_open_host_page(slot) ||
         nand_.replaceable(geometry.page_of(slot), geometry.block_of(slot), begin);
}

void Ssd::count_coalesced(const Destination& destination, Lpn lpn) {
  ++counters_.coalesced_units;
  ftl_.coalesced(lpn, destination.label);
}

// A unit that was written in part goes to its page, with the rest of its old content where that is
// missing. Returns when all of it is in RAM.
Nanos Ssd::leave(Lpn lpn, Nanos begin) {
  const bool whole = partial_.is_whole(lpn);
  if (!whole) {
    // What a TRIM that was put off has taken is not read, nor written.
    firmware_free_ += trim_->reading(partial_.extent_of(lpn), *this, counters_.trim);
    begin = std::max(begin, firmware_free_);
    if (!partial_.holds(lpn)) return begin;
  }
  const PartialUnits::Unit unit = partial_.take(lpn);
  const Slot old = ftl_.map().find(lpn);
  const Nanos arrived = std::max(begin, unit.arrived);
  const bool merges = !whole && old != kNoSlot;
  const Nanos complete = merges ? std::max(arrived, merge_read(old, begin)) : arrived;
  place(lpn, {unit.stream, unit.label}, arrived, complete);
  return complete;
}

// The rest of its old content, which a unit needs before it can be programmed.
Nanos Ssd::merge_read(Slot slot, Nanos begin) {
  if (in_ram(slot, begin)) return begin;
  ++counters_.merge_reads;
  return nand_.host_read(ftl_.geometry().die_of(slot), ftl_.geometry().unit(), begin);
}

void Ssd::place(Lpn lpn, const Destination& destination, Nanos arrived, Nanos whole) {
  nand_.set_ready(arrived);
  Backend backend(*this, page_filled(destination.stream, whole));
  ftl_.write(backend, lpn, destination.stream, destination.label);
}

// A unit that goes to the stream's open page, or to a new one, can be programmed from `whole` on:
// from when on the page can.
Nanos Ssd::page_filled(StreamId stream, Nanos whole) {
  Nanos& filled = filled_[stream];
  filled = ftl_.open_units(stream) == 0 ? whole : std::max(filled, whole);
  return filled;
}

Bytes Ssd::unmapped() const {
  std::int64_t live = 0;
  for (Group group = 0; group < ftl_.geometry().groups(); ++group) live += ftl_.live_units(group);
  return capacity() - ftl_.geometry().unit() * live;
}

std::uint32_t Ssd::erases_of(Page page) const {
  const Geometry& geometry = ftl_.geometry();
  return ftl_.blocks().erases(geometry.block_of(page * geometry.slots_per_page()));
}

bool Ssd::wanted(Page page) const {
  const Slot first = page * ftl_.geometry().slots_per_page();
  for (Slot slot = first; slot < first + ftl_.geometry().slots_per_page(); ++slot) {
    if (ftl_.map().is_valid(slot)) return true;
  }
  return false;
}

void Ssd::fold(Die die) {
  nand_.fold(die);
  ++counters_.folded_pages;
}

// A place in the buffer for one unit, and from when on. Writes get their places in order, whichever
// page makes the room.
Nanos Ssd::admit_unit(Nanos begin) {
  admitted_ = std::max(admitted_, begin);
  while (buffered_ >= buffer_units_) {
    admitted_ = std::max(admitted_, nand_.release_first());
    buffered_ -= ftl_.geometry().slots_per_page();
  }
  ++buffered_;
  return admitted_;
}

void Ssd::pad(Nanos ready) {
  const FtlCounters before = ftl_.counters();
  for (StreamId stream = 0; stream < parameters_.ftl.streams; ++stream) {
    nand_.set_ready(ready);
    Backend backend(*this, filled_[stream]);
    ftl_.pad_host_page(backend, stream);
  }
  buffered_ += static_cast<std::uint32_t>(ftl_.counters().padded_units - before.padded_units);
}

Nanos Ssd::flush(Nanos begin) {
  if (parameters_.power_loss_protection) return begin;
  while (!partial_.empty()) leave(partial_.oldest(), begin);
  begin = std::max(begin, firmware_free_);
  pad(begin);
  return nand_.drain(begin);
}

Nanos Ssd::trim(const Request& request, Nanos begin) {
  const Extent single{request.lba, request.lba + request.sectors};
  const std::span<const Extent> ranges =
      request.ranges.empty() ? std::span(&single, 1) : request.ranges;
  require(ranges.size() <= parameters_.trim.max_ranges,
          "TRIM: " + std::to_string(ranges.size()) + " ranges in one command; the drive takes " +
              std::to_string(parameters_.trim.max_ranges));
  for (const Extent& range : ranges) {
    FLASHLAB_CHECK(range.begin >= Lba{0} && to_bytes(range.end) <= capacity());
    counters_.device.trim_bytes += to_bytes(range.length());
  }
  firmware_free_ = begin + trim_->command(ranges, *this, counters_.trim);
  for (const Extent& range : ranges) unanswered_.push_back({range, firmware_free_});
  return firmware_free_;
}

// The units that an extent touches: they are programmed as a whole.
Extent Ssd::in_units(const Extent& extent) const {
  const std::int64_t unit = to_sectors(ftl_.geometry().unit()).count();
  return {Lba{extent.begin.index() / unit * unit}, Lba{ceil_div(extent.end.index(), unit) * unit}};
}

void Ssd::unmap(const Extent& extent) {
  const std::int64_t unit = ftl_.geometry().unit().count();
  const auto first = static_cast<Lpn>(ceil_div(to_bytes(extent.begin).count(), unit));
  const auto last = static_cast<Lpn>(to_bytes(extent.end).count() / unit);
  for (const Lpn lpn : partial_.between(first, last)) {
    ftl_.coalesced(lpn, partial_.take(lpn).label);
    ++counters_.coalesced_units;
    --buffered_;
    trimmed_.insert(partial_.extent_of(lpn));
  }
  for (Lpn lpn = first; lpn < last;) {
    const Lpn begin = lpn;
    while (lpn < last && ftl_.trim(lpn)) ++lpn;
    if (begin < lpn) trimmed_.insert({to_lba(Bytes{begin * unit}), to_lba(Bytes{lpn * unit})});
    while (lpn < last && ftl_.map().find(lpn) == kNoSlot) ++lpn;
  }
}

// TRIMs that were put off, in the time in which no command wants the firmware, up to `now`: what
// comes then waits for the end of one step at most.
void Ssd::apply_steps_until(Nanos now) {
  while (firmware_free_ < now) {
    const Nanos spent = trim_->idle(*this, counters_.trim);
    if (spent == Nanos{0}) return;
    firmware_free_ += spent;
  }
}

// All of them at once, before a block is collected: neither the collection nor any command goes on
// meanwhile.
void Ssd::apply_pending() {
  const Nanos spent = trim_->before_collection(*this, counters_.trim);
  if (spent == Nanos{0}) return;
  firmware_free_ += spent;
  nand_.delay_until(firmware_free_);
}

// What the drive does for itself in the time nobody asked for, up to `now`; not before the firmware
// has applied what it had put off. Whenever a die has nothing to do it is given a step.
void Ssd::idle_until(Nanos now) {
  Nanos when = std::max({quiet_since_ + parameters_.background_idle, firmware_free_, stepped_});
  for (; when < now; when = nand_.next_idle(when, now)) {
    nand_.catch_up(when);
    while (work_when_idle(when)) stepped_ = when;
  }
}

// A step is a page that is folded, or if no idle die has any, a block that is collected.
bool Ssd::work_when_idle(Nanos when) {
  nand_.set_ready(when);
  if (slc_ && slc_->fold_idle(*this)) return true;
  if (!parameters_.background_gc) return false;
  const std::uint32_t width = ftl_.geometry().width();
  const auto is_idle_group = [&](Group group) {
    const Die end = (group + 1) * width;
    for (Die die = group * width; die < end; ++die) {
      if (!nand_.is_idle(die)) return false;
    }
    return true;
  };
  Backend backend(*this);
  return ftl_.collect_ahead(backend, ftl_.reserve_blocks() + parameters_.background_target,
                            is_idle_group);
}

bool Ssd::in_ram(Slot slot, Nanos now) {
  return ftl_.in_open_host_page(slot) ||
         nand_.holds(ftl_.geometry().page_of(slot), ftl_.geometry().block_of(slot), now);
}

// Writes are attributed to the stream that the drive put them in, or, where it ignores streams, to
// the one that the host named.
Ssd::Destination Ssd::destination_of(const Request& request) const {
  const StreamId streams = parameters_.ftl.streams;
  const StreamId placed = placement_.stream_of(request, ranges_, streams);
  const StreamId named = request.stream < streams ? request.stream : StreamId{0};
  return {placed, placement_.keeps_apart ? placed : named};
}

Nanos Ssd::over_link(Bytes bytes, Nanos ready) {
  const Nanos length = link_time_(bytes);
  return link_.take(ready, length) + length;
}

void Ssd::assume_written(const Extent& extent) {
  const Geometry& geometry = ftl_.geometry();
  const auto last =
      static_cast<Lpn>(ceil_div(to_bytes(extent.end).count(), geometry.unit().count()));
  Timeless timeless;
  retire_pending();
  std::vector<Slot> open;
  ftl_.open_host_slots(open);
  for (Lpn lpn = geometry.lpn_of(to_bytes(extent.begin)); lpn < last; ++lpn) {
    if (ftl_.map().find(lpn) == kNoSlot) ftl_.write(timeless, lpn, 0, 0);
  }
  ftl_.pad_host_pages(timeless);
  buffered_ -= static_cast<std::uint32_t>(open.size());  // no program will make their room free
  reset_counters();
}

std::vector<Extent> Ssd::in_doubt(Nanos now) {
  wake(now);
  ExtentSet doubt;
  const auto unit = to_sectors(ftl_.geometry().unit());
  for (std::size_t i = 0; i < unanswered_.size(); ++i) {
    if (unanswered_[i].done > now) doubt.insert(unanswered_[i].extent);
  }
  if (!parameters_.power_loss_protection) {
    std::vector<Lpn> lpns;
    nand_.unprogrammed(now, ftl_.map(), lpns);
    std::vector<Slot> open;
    ftl_.open_host_slots(open);
    for (const Slot slot : open) {
      if (ftl_.map().is_valid(slot)) lpns.push_back(ftl_.map().lpn_at(slot));
    }
    for (const PartialUnits::Unit& part : partial_.by_age()) lpns.push_back(part.lpn);
    for (const Lpn lpn : lpns) {
      const Lba begin{lpn * unit.count()};
      doubt.insert({begin, begin + unit});
    }
    for (const Extent& extent : trimmed_.extents()) doubt.insert(extent);
  }
  trim_->add_pending(doubt);
  return doubt.extents();
}

void Ssd::restart(Nanos now) {
  Timeless timeless;
  // As with capacitors, which program it; without, only what it holds is in doubt.
  for (const PartialUnits::Unit& unit : partial_.by_age()) {
    ftl_.write(timeless, unit.lpn, unit.stream, unit.label);
  }
  partial_.clear();
  ftl_.pad_host_pages(timeless);
  nand_.restart(now);
  buffered_ = 0;
  link_.reset(now);
  firmware_free_ = last_done_ = quiet_since_ = stepped_ = admitted_ = now;
  unanswered_.clear();
  trimmed_.clear();
  trim_->restart();
}

// Without taking time: the drive is given another state.
void Ssd::retire_pending() { trim_->retire(*this, counters_.trim); }

void Ssd::precondition(double fill_ratio, double overwrites, std::uint64_t seed) {
  require(fill_ratio >= 0.0 && fill_ratio <= 1.0, "fill_ratio: must lie between 0 and 1");
  require(overwrites >= 0.0 && overwrites <= 1000.0, "overwrites: must lie between 0 and 1000");
  retire_pending();
  restart(last_done_);
  const std::uint64_t before = ftl_.counters().host_units;
  const auto filled = static_cast<Lpn>(fill_ratio * ftl_.geometry().lpns());
  write_in_order(ftl_, filled);
  Prng random(seed);
  if (filled > 0) {
    write_at_random(ftl_, filled, static_cast<std::uint64_t>(overwrites * filled), random);
  }
  const auto written = static_cast<std::int64_t>(ftl_.counters().host_units - before);
  if (slc_) slc_->conditioned(ftl_.geometry().unit() * written);
  conditioned();
}

void Ssd::to_steady_state(std::uint64_t seed) {
  require(partial_.empty(), "to_steady_state: the drive must be new");
  reach_steady_state(ftl_, parameters_.geometry, parameters_.ftl, seed);
  if (slc_) slc_->conditioned(capacity());
  conditioned();
}

// Nothing of what conditioning wrote is in RAM any more.
void Ssd::conditioned() {
  restart(last_done_);
  reset_counters();
}

void Ssd::set_trim_policy(std::string_view name, Nanos now) {
  set_trim_policy(make_trim_policy(name, parameters_.trim, trim_drive(parameters_)), now);
}

void Ssd::set_trim_policy(std::unique_ptr<TrimPolicy> policy, Nanos now) {
  wake(now);
  firmware_free_ = std::max(firmware_free_, now) + trim_->retire(*this, counters_.trim);
  trim_ = std::move(policy);
}

void Ssd::set_ranges(std::vector<NamedRange> ranges, Nanos now) {
  std::vector<Attribution::Range> pages = in_pages(parameters_, ranges);
  wake(now);  // what the drive did for itself until now is not the new ranges'
  ftl_.set_ranges(std::move(pages));
  adopt(std::move(ranges));
}

void Ssd::adopt(std::vector<NamedRange> ranges) {
  parameters_.ranges = std::move(ranges);
  ranges_.clear();
  for (const NamedRange& r : parameters_.ranges) ranges_.push_back({r.extent, r.stream});
}

void Ssd::slow_die(std::int64_t die, std::int64_t thousandths, Nanos now) {
  const std::int64_t dies = ftl_.geometry().dies();
  require(die >= 0 && die < dies,
          "die " + std::to_string(die) + ": the drive has dies 0 to " + std::to_string(dies - 1));
  require(thousandths >= 1000 && thousandths <= 1'000'000,
          "factor: a die can be 1 to 1000 times as slow");
  wake(now);
  nand_.slow(static_cast<Die>(die), thousandths, now);
}

void Ssd::reset_counters() {
  counters_ = {};
  trim_->reset_status();
  if (slc_) slc_->reset_status();
  ftl_.reset_counters();
  nand_.reset_counters();
}

void Ssd::archive(Archive& a) {
  archive_ranges(a);
  ftl_.archive(a);
  nand_.archive(a);
  partial_.archive(a);
  archive_trim(a);
  a.one(counters_);
  link_.archive(a);
  if (slc_) slc_->archive(a);
  a.all(buffered_, admitted_, filled_, firmware_free_, last_done_, quiet_since_, stepped_);
  unanswered_.archive(a);
  trimmed_.archive(a);
}

// Begin, end and stream of each; and the names, each with a zero behind it.
void Ssd::archive_ranges(Archive& a) {
  std::vector<std::int64_t> numbers;
  std::vector<char> names;
  for (const NamedRange& r : parameters_.ranges) {
    numbers.insert(numbers.end(), {r.extent.begin.index(), r.extent.end.index(), r.stream});
    names.insert(names.end(), r.name.begin(), r.name.end());
    names.push_back('\0');
  }
  a.all(numbers, names);
  if (!a.is_restoring()) return;
  std::vector<NamedRange> ranges;
  auto name = names.begin();
  for (std::size_t i = 0; i + 3 <= numbers.size(); i += 3) {
    const auto end = std::find(name, names.end(), '\0');
    require(end != names.end(), "the saved state is damaged: a range has no name");
    const Extent extent{Lba{numbers[i]}, Lba{numbers[i + 1]}};
    ranges.push_back({std::string(name, end), extent, static_cast<StreamId>(numbers[i + 2])});
    name = end + 1;
  }
  ftl_.set_ranges(in_pages(parameters_, ranges));
  adopt(std::move(ranges));
}

void Ssd::archive_trim(Archive& a) {
  const std::string_view current = trim_->name();
  std::vector<char> saved(current.begin(), current.end());
  a.one(saved);
  const std::string_view name(saved.data(), saved.size());
  if (a.is_restoring() && name != current) {
    require(is_trim_policy(name), "the saved state is of a device with other parameters");
    trim_ = make_trim_policy(name, parameters_.trim, trim_drive(parameters_));
  }
  trim_->archive(a);
}

}  // namespace flashlab::flash
