#include "live/device.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/check.hpp"
#include "live/priority.hpp"

namespace flashlab::live {

namespace {

std::chrono::steady_clock::time_point at(Nanos real) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(real.count()));
}

Extent extent_of(Bytes offset, std::size_t length) {
  return {to_lba(offset), to_lba(offset + Bytes{static_cast<std::int64_t>(length)})};
}

}  // namespace

LiveDevice::LiveDevice(const MakeDevice& make_device, int store_fd, Bytes visible)
    : store_(store_fd),
      visible_(visible),
      model_(make_device(*this)),
      clock_(Nanos{0}, real_now(), 1),
      asleep_till_(0),
      next_due_(INT64_MAX) {
  require(visible > Bytes{0} && visible <= model_->capacity(),
          "size: must be above zero and at most the profile's capacity");
  require(visible.count() % 4096 == 0, "size: must be a multiple of 4 KiB");
  pending_.resize(model_->queue_depth());
  for (Tag tag = model_->queue_depth(); tag > 0; --tag) free_tags_.push_back(tag - 1);
}

LiveDevice::~LiveDevice() { stop(); }

void LiveDevice::start() {
  pacer_ = std::thread([this] { pace(); });
}

void LiveDevice::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (pacer_.joinable()) pacer_.join();
}

void LiveDevice::read(Bytes offset, std::span<std::byte> into, std::unique_ptr<Ticket> ticket) {
  const Extent extent = extent_of(offset, into.size());
  Pending pending = begin(Op::read, extent, std::move(ticket));
  pending.error = fault_of(Op::read, extent);
  if (pending.error == 0) pending.error = checked(store_.read(offset, into));
  ask(std::move(pending));
}

void LiveDevice::write(Bytes offset, std::span<const std::byte> data,
                       std::unique_ptr<Ticket> ticket, bool fua) {
  Pending pending = begin(Op::write, extent_of(offset, data.size()), std::move(ticket));
  pending.request.fua = fua && honest_flush_;
  if (pace_.load(std::memory_order_relaxed) == Pace::constant) {
    // What measures the path writes behind the visible end.
    pending.error = checked(store_.write(offset + visible_, data));
  } else {
    overwrite(pending, [&] { return store_.write(offset, data); });
    if (pending.request.fua) sync_store(pending);
  }
  ask(std::move(pending));
}

void LiveDevice::trim(const Extent& extent, std::unique_ptr<Ticket> ticket) {
  Pending pending = begin(Op::trim, extent, std::move(ticket));
  overwrite(pending,
            [&] { return store_.punch(to_bytes(extent.begin), to_bytes(extent.length())); });
  ask(std::move(pending));
}

void LiveDevice::flush(std::unique_ptr<Ticket> ticket) {
  Pending pending = begin(Op::flush, {}, std::move(ticket));
  pending.lies = !honest_flush_;
  if (!pending.lies) {
    const std::lock_guard data(data_mutex_);
    pending.flush = undo_.begin_flush();
  }
  if (!pending.lies) sync_store(pending);
  ask(std::move(pending));
}

// Before any data is touched: a power cut that comes after this fails the request.
LiveDevice::Pending LiveDevice::begin(Op op, const Extent& extent,
                                      std::unique_ptr<Ticket> ticket) const {
  const Nanos arrived = real_now();
  return {std::move(ticket), {op, extent.begin, extent.length()}, arrived, cuts_.load()};
}

// Changes data, and keeps what was there as long as a power cut could bring it back.
void LiveDevice::overwrite(Pending& pending, const std::function<int()>& change) {
  const Request& r = pending.request;
  pending.error = fault_of(r.op, {r.lba, r.lba + r.sectors});
  if (pending.error != 0 || off_) return;
  if (pace_ == Pace::real) {
    const std::lock_guard data(data_mutex_);
    if (pace_ == Pace::real) {  // still
      if (survives(pending)) pending.error = change_undoably(pending, change);
      return;
    }
  }
  pending.error = checked(change());
}

// What the host was told is durable is so if this machine loses its power, too. The request has
// arrived: what this takes beyond the model's time is late. Memory has nothing to sync.
void LiveDevice::sync_store(Pending& pending) {
  if (pending.error == 0 && survives(pending)) pending.error = checked(store_.sync());
}

int LiveDevice::change_undoably(Pending& pending, const std::function<int()>& change) {
  const Request& r = pending.request;
  if (undo_.full()) forget_durable();
  for (const Extent& part : worth_saving(r)) {
    if (const int error = undo_.save(part, store_); error != 0) return checked(error);
  }
  // The answer, which may leave before the model is so far, makes it durable, and what is older, if
  // the drive writes all of that first.
  if (r.fua || model_->durable_when_answered()) pending.flush = undo_.begin_flush();
  pending.alone = r.fua && !model_->flushes_on_fua() && !model_->durable_when_answered();
  return checked(change());
}

// Where nothing was ever written, a TRIM changes nothing; one that frees more than the log can hold
// is not undone.
std::vector<Extent> LiveDevice::worth_saving(const Request& request) const {
  const Extent extent{request.lba, request.lba + request.sectors};
  if (request.op == Op::trim && !store_.holds_data(extent)) return {};
  constexpr Sectors most{static_cast<std::int64_t>(UndoLog::kMostBlocks) * UndoLog::kBlockSectors};
  if (extent.length() <= most) return {extent};
  std::vector<Extent> parts = store_.written(extent);
  Sectors sum;
  for (const Extent& part : parts) sum += part.length();
  return sum <= most ? parts : std::vector<Extent>{};
}

// The drive itself has written back most of what the log still holds.
void LiveDevice::forget_durable() {
  std::vector<Extent> in_doubt;
  {
    const std::lock_guard lock(mutex_);
    in_doubt = model_->in_doubt(model_now(real_now()));
    notify();  // the model may have answered
  }
  undo_.keep_only(in_doubt);
}

int LiveDevice::fault_of(Op op, const Extent& extent) {
  if (!has_faults_.load(std::memory_order_relaxed)) return 0;
  const std::lock_guard lock(mutex_);
  for (Fault& fault : faults_) {
    if (fault.op != op || !fault.extent.overlaps(extent) || fault.times == 0) continue;
    --fault.times;
    return EIO;
  }
  return 0;
}

int LiveDevice::checked(int error) {
  if (error == 0) return 0;
  const std::lock_guard lock(mutex_);
  ++counters_.store_errors;
  return error == ENOSPC ? ENOSPC : EIO;
}

void LiveDevice::ask(Pending pending) {
  Lock lock(mutex_);
  ++in_flight_;
  if (!survives(pending)) return answer(lock, std::move(pending));
  const bool at_once = passes_by_the_model(pending);
  if (frozen_ || (!at_once && (free_tags_.empty() || !held_.empty()))) {
    ++counters_.held;
    pending.was_stopped = frozen_;
    held_.push_back(std::move(pending));
    return;
  }
  admit(lock, std::move(pending), at_once);
  answer_due(lock);
  notify();
}

void LiveDevice::admit(Lock& lock, Pending pending, bool at_once) {
  if (at_once) {
    pending.flush = 0;
    note_old_data(pending.request);
    ++counters_.unpaced;
    return answer(lock, std::move(pending));
  }
  const Tag tag = free_tags_.back();
  free_tags_.pop_back();
  pending_[tag] = std::move(pending);
  Pending& p = pending_[tag];
  if (pace_ == Pace::constant) {
    p.due = p.arrived + constant_;
    due_.push({p.due, ++orders_, tag});
    return;
  }
  if (pace_ == Pace::virtual_time) ++counters_.unpaced;
  p.asked = pace_ == Pace::virtual_time ? model_last_ : model_now(p.arrived);
  if (pace_ == Pace::real) p.shifted = std::max(clock_.to_real(p.asked) - p.arrived, Nanos{0});
  p.request.stream = stream_of(p.request.lba);
  record(p);
  model_->submit(tag, p.request, p.asked);
}

void LiveDevice::note_old_data(const Request& request) {
  const Extent extent{request.lba, request.lba + request.sectors};
  if (request.op == Op::write) old_data_.insert(extent);
  if (request.op == Op::trim) old_data_.erase(extent);
}

void LiveDevice::record(const Pending& p) {
  if (!recording_) return;
  if (records_.size() == kMostRecords) {
    ++counters_.lost_records;
    return;
  }
  const Request& r = p.request;
  records_.push_back({p.asked, r.lba, r.sectors, r.stream, r.op, r.fua});
}

void LiveDevice::done(Tag tag, Nanos when) {
  Pending& p = pending_[tag];
  FLASHLAB_CHECK(p.ticket != nullptr);
  if (pace_ == Pace::virtual_time) {
    model_last_ = std::max(model_last_, when);
    p.due = p.arrived;
  } else {
    counters_.times_of(p.request.op).model_latency.add(when - p.asked);
    p.due = clock_.to_real(when) - path_cost(p.request);
  }
  due_.push({p.due, ++orders_, tag});
}

void LiveDevice::wake_at(Nanos when) { wake_due_ = clock_.to_real(when); }

// Answers whatever is due. The lock is open while an answer is under way.
void LiveDevice::answer_due(Lock& lock) {
  Nanos now = real_now();
  while (!due_.empty() && due_.top().when <= now) {
    const Tag tag = due_.top().tag;
    due_.pop();
    Pending p = std::move(pending_[tag]);
    free_tags_.push_back(tag);
    const bool waits = p.flush != 0;  // for who is writing data, which counts as late, too
    settle(lock, p);
    if (pace_ == Pace::real) {
      const Nanos late = (waits ? real_now() : now) - p.due + p.stopped + p.shifted;
      counters_.times_of(p.request.op).lateness.add(late);
    }
    reply(lock, std::move(p));
    admit_held(lock);
    now = real_now();
  }
}

void LiveDevice::answer(Lock& lock, Pending p) {
  settle(lock, p);
  reply(lock, std::move(p));
}

void LiveDevice::reply(Lock& lock, Pending p) {
  ++counters_.replies[static_cast<std::size_t>(p.request.op)];
  if (p.error != 0) ++counters_.errors;
  lock.unlock();
  p.ticket->reply(p.error);
  p.ticket.reset();
  lock.lock();
  if (--in_flight_ == held_.size()) quiet_.notify_all();
}

// Decides, at one moment, between the answer and a power cut: what the host hears is durable stays.
void LiveDevice::settle(Lock& lock, Pending& p) {
  if (p.flush != 0) {
    lock.unlock();
    {
      const std::lock_guard data(data_mutex_);
      if (survives(p)) make_durable(p);
    }
    lock.lock();
    if (p.flush == 0) return;
  }
  if (!survives(p)) p.error = EIO;
}

void LiveDevice::make_durable(Pending& p) {
  const std::uint64_t flush = std::exchange(p.flush, 0);
  if (p.alone) {
    undo_.end_write({p.request.lba, p.request.lba + p.request.sectors}, flush);
  } else {
    undo_.end_flush(flush);
  }
}

// Whether no power cut has come since it began.
bool LiveDevice::survives(const Pending& p) const { return !off_ && p.cuts == cuts_; }

bool LiveDevice::passes_by_the_model(const Pending& p) const {
  return pace_ == Pace::none || (p.lies && pace_ != Pace::constant);
}

// What waited for a place in the device's queue arrives there now; what was stopped by a change of
// this device is late by that.
void LiveDevice::admit_held(Lock& lock) {
  while (!frozen_ && !held_.empty() && (pace_ == Pace::none || !free_tags_.empty())) {
    Pending p = std::move(held_.front());
    held_.pop_front();
    const Nanos now = real_now();
    if (p.was_stopped) p.stopped = now - p.arrived;
    p.arrived = now;
    const bool at_once = passes_by_the_model(p);
    admit(lock, std::move(p), at_once);
  }
}

void LiveDevice::pace() {
  run_promptly();
  Lock lock(mutex_);
  while (!stopping_) {
    if (wake_due_ <= real_now()) {
      const Nanos when = std::exchange(wake_due_, kNever);
      model_->wake(model_now(when));
    }
    answer_due(lock);
    if (stopping_) break;  // said while the lock was open
    const Nanos next = next_event();
    if (next == kNever) {
      asleep_till_ = next;
      changed_.wait(lock);
    } else if (next - real_now() > watch_) {
      asleep_till_ = next - watch_;
      changed_.wait_until(lock, at(asleep_till_));
    } else {
      watch_clock(lock, next);
    }
    asleep_till_ = Nanos{0};
  }
}

void LiveDevice::watch_clock(Lock& lock, Nanos next) {
  next_due_ = next.count();
  lock.unlock();
  while (real_now().count() < next_due_.load(std::memory_order_relaxed)) __builtin_ia32_pause();
  lock.lock();
  next_due_ = 0;
}

Nanos LiveDevice::next_event() const {
  return due_.empty() ? wake_due_ : std::min(wake_due_, due_.top().when);
}

// The pacing thread must not oversleep what has just been asked.
void LiveDevice::notify() {
  const Nanos next = next_event();
  if (next < asleep_till_) {
    changed_.notify_one();
  } else if (next.count() < next_due_.load(std::memory_order_relaxed)) {
    next_due_ = next.count();
  }
}

void LiveDevice::freeze(Lock& lock) {
  while (frozen_) quiet_.wait(lock);
  frozen_ = true;
  changed_.notify_all();
  while (in_flight_ != held_.size()) quiet_.wait(lock);
}

void LiveDevice::thaw(Lock& lock) {
  frozen_ = false;
  quiet_.notify_all();
  admit_held(lock);
  answer_due(lock);
  changed_.notify_all();
}

Nanos LiveDevice::frozen_now() { return pace_ == Pace::real ? model_now(real_now()) : model_last_; }

void LiveDevice::set_pace(Pace pace, std::int64_t slowdown, Nanos constant) {
  require(slowdown >= 1 && slowdown <= 1'000'000, "slowdown: must lie between 1 and 1,000,000");
  require(pace != Pace::virtual_time || !model_->rotational(),
          "speed virtual: is for flash drives, which age");
  Lock lock(mutex_);
  freeze(lock);
  lock.unlock();  // locks have an order; what is frozen stays so
  Lock data(data_mutex_);
  lock.lock();
  // To the data, a change of pace is a flush: what is written without the model is not undone, and
  // must not be by what was saved before.
  undo_.clear();
  const Nanos now = frozen_now();
  tell_old_data();
  clock_ = ModelClock(now, real_now(), slowdown);
  constant_ = constant;
  pace_ = pace;
  wake_due_ = kNever;
  if (pace == Pace::real) model_->wake(now);  // it says anew when it wants to be woken
  data.unlock();
  thaw(lock);
}

// The model must be at rest.
void LiveDevice::tell_old_data() {
  for (const Extent& extent : old_data_.extents()) model_->assume_written(extent);
  old_data_.clear();
}

void LiveDevice::assume_stored() {
  const std::lock_guard lock(mutex_);
  for (const Extent& extent : store_.written({Lba{0}, to_lba(visible_)})) old_data_.insert(extent);
}

void LiveDevice::set_path_cost(Op op, const PathCost& cost) {
  const std::lock_guard lock(mutex_);
  path_cost_[static_cast<std::size_t>(op)] = cost;
}

void LiveDevice::set_streams(std::vector<StreamRange> ranges) {
  std::ranges::sort(ranges, {}, [](const StreamRange& r) { return r.extent.begin; });
  Lba last;
  for (const StreamRange& range : ranges) {
    require(range.extent.begin >= last && range.extent.begin < range.extent.end,
            "streams: ranges must not be empty and must not overlap");
    last = range.extent.end;
  }
  const std::lock_guard lock(mutex_);
  streams_ = std::move(ranges);
}

void LiveDevice::set_watch(Nanos ahead) {
  const std::lock_guard lock(mutex_);
  watch_ = ahead;
  changed_.notify_one();  // it sleeps till another moment now
}

void LiveDevice::set_honest_flush(bool honest) { honest_flush_ = honest; }

void LiveDevice::add_fault(const Fault& fault) {
  require(fault.op != Op::flush, "fault: a flush cannot be told to fail");
  const std::lock_guard lock(mutex_);
  faults_.push_back(fault);
  has_faults_ = true;
}

void LiveDevice::clear_faults() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  has_faults_ = false;
}

PowerCut LiveDevice::power_cut(std::uint64_t seed, After after) {
  PowerCut result;
  std::vector<Pending> unanswered;
  {
    const std::lock_guard data(data_mutex_);
    const std::lock_guard lock(mutex_);
    ++counters_.power_cuts;
    ++cuts_;
    off_ = after == After::off;
    wake_due_ = kNever;
    const std::vector<Extent> doubt = model_->power_cut(model_now(real_now()));
    for (const Extent& extent : doubt) result.doubtful_sectors += extent.length().count();
    unanswered = take_unanswered();
    Prng random(seed);
    result.changed_sectors = undo_.revert(doubt, random, store_);
    if (result.changed_sectors < 0) ++counters_.store_errors;
    ++cuts_;  // who has read meanwhile may have what was undone then
  }
  result.unanswered = unanswered.size();
  Lock lock(mutex_);
  for (Pending& p : unanswered) answer(lock, std::move(p));
  return result;
}

void LiveDevice::power_on() {
  const std::lock_guard data(data_mutex_);
  const std::lock_guard lock(mutex_);
  off_ = false;
  ++cuts_;  // what came before found no drive, and was not stored
}

std::vector<LiveDevice::Pending> LiveDevice::take_unanswered() {
  std::vector<Pending> all;
  for (Tag tag = 0; tag < pending_.size(); ++tag) {
    if (pending_[tag].ticket == nullptr) continue;
    all.push_back(std::move(pending_[tag]));
    free_tags_.push_back(tag);
  }
  for (Pending& p : held_) all.push_back(std::move(p));
  held_.clear();
  due_ = {};
  return all;
}

// While nothing is in flight; a change that fails stops nobody.
template <class Change>
void LiveDevice::while_frozen(Lock& lock, const Change& change) {
  freeze(lock);
  try {
    change();
  } catch (...) {
    thaw(lock);
    throw;
  }
  thaw(lock);
}

std::vector<std::byte> LiveDevice::save_model(bool then_record) {
  std::vector<std::byte> saved;
  Lock lock(mutex_);
  while_frozen(lock, [&] {
    Nanos now = frozen_now();
    tell_old_data();
    saved = saved_by([&](Archive& archive) { archive_model(archive, now); });
    if (!then_record) return;
    recording_ = true;
    records_.clear();
    counters_.lost_records = 0;
  });
  return saved;
}

void LiveDevice::restore_model(std::span<const std::byte> saved) {
  Lock lock(mutex_);
  while_frozen(lock, [&] {
    Nanos now = frozen_now();
    restore_all(saved, [&](Archive& archive) { archive_model(archive, now); });
    model_last_ = now;
    clock_ = ModelClock(now, real_now(), clock_.slowdown());
  });
}

void LiveDevice::archive_model(Archive& archive, Nanos& now) {
  std::uint64_t order = 0;  // as host::Driver does, so that either can go on with the other's state
  archive.all(now, order);
  model_->archive(archive);
}

void LiveDevice::look(const See& see) {
  const std::lock_guard lock(mutex_);
  const Nanos now = wake_model();
  notify();  // the model may have answered, whatever comes of the look
  see(*model_, counters_, now);
  notify();
}

void LiveDevice::end_record(const See& see) {
  Lock lock(mutex_);
  while_frozen(lock, [&] {
    recording_ = false;
    const Nanos now = wake_model();
    see(*model_, counters_, now);
  });
}

// Its counters are those of the moment then.
Nanos LiveDevice::wake_model() {
  if (pace_ == Pace::real) model_->wake(model_now(real_now()));
  if (pace_ == Pace::virtual_time) model_->wake(model_last_);
  return model_last_;
}

std::vector<RecordedRequest> LiveDevice::take_records() {
  const std::lock_guard lock(mutex_);
  return std::exchange(records_, {});
}

StreamId LiveDevice::stream_of(Lba lba) const {
  const auto at = std::ranges::upper_bound(streams_, lba, {},
                                           [](const StreamRange& r) { return r.extent.end; });
  return at != streams_.end() && at->extent.begin <= lba ? at->stream : StreamId{0};
}

Nanos LiveDevice::path_cost(const Request& request) const {
  const PathCost& cost = path_cost_[static_cast<std::size_t>(request.op)];
  const double bytes = static_cast<double>(to_bytes(request.sectors).count());
  return cost.base + Nanos{static_cast<std::int64_t>(cost.per_byte * bytes)};
}

// The model's time never runs backwards, though threads may come in another order than they looked
// at the clock: who comes late is served late, which counts as such (see Pending::shifted).
Nanos LiveDevice::model_now(Nanos real) {
  model_last_ = std::max(model_last_, clock_.to_model(real));
  return model_last_;
}

}  // namespace flashlab::live
