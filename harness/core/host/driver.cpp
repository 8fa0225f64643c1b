#include "host/driver.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::host {

namespace {

// A request is announced to the device this many requests ahead (DeviceModel::expect).
constexpr std::size_t kLookAhead = 16;
// And once more this many ahead (DeviceModel::expect_next).
constexpr std::size_t kNext = 8;
constexpr std::uint64_t kCancelEvery = 4096;

// Whatever the numbers are: a sum that overflows would pass.
bool lies_within(const Request& request, Bytes capacity) {
  const Sectors end = to_sectors(capacity);
  const Sectors begin = request.lba - Lba{0};
  return begin >= Sectors{0} && request.sectors > Sectors{0} && begin <= end &&
         request.sectors <= end - begin;
}

}  // namespace

struct Driver::Active {
  Active(const JobParameters& p, DeviceModel& target, Nanos start)
      : parameters(p), stream(p, target.capacity()), device(target), begin(start) {
    for (Request& request : ahead) request = draw();
  }

  Request draw() {
    const Request request = stream.next();
    device.expect(request);
    return request;
  }
  Request take() {
    Request& slot = ahead[issued++ % kLookAhead];
    const Request request = slot;
    slot = draw();
    device.expect_next(ahead[(issued + kNext) % kLookAhead]);
    return request;
  }
  [[nodiscard]] bool wants_more(Nanos now) const {
    return (parameters.requests == 0 || issued < parameters.requests) &&
           (parameters.duration == Nanos{0} || now - begin < parameters.duration);
  }

  JobParameters parameters;
  JobStream stream;
  DeviceModel& device;
  std::array<Request, kLookAhead> ahead;
  Nanos begin;
  std::uint64_t issued = 0;
};

Driver::Driver(const MakeDevice& make_device) : device_(make_device(*this)) {}

std::vector<RunResult> Driver::run(std::span<const JobParameters> jobs, const Recording& recording,
                                   const Cancel& cancel) {
  require(in_device_ == 0 && held_.empty(), "a trace is under way: end it first");
  recording_ = recording;
  as_submitted_ = false;
  results_.assign(jobs.size(), RunResult{});
  std::vector<Active> active;
  active.reserve(jobs.size());
  for (const JobParameters& job : jobs) active.emplace_back(job, *device_, now_);
  const auto issue_next = [&](std::uint32_t job) { issue(job, active[job].take(), now_); };
  std::uint64_t arrivals = 0;
  for (std::uint32_t job = 0; job < active.size(); ++job) {
    results_[job].begin = results_[job].end = now_;
    const JobParameters& p = active[job].parameters;
    if (p.interval > Nanos{0}) {
      post(now_ + active[job].stream.gap(), EventKind::arrival, job);
      ++arrivals;
      continue;
    }
    for (std::uint32_t i = 0; i < p.depth && active[job].wants_more(now_); ++i) issue_next(job);
  }
  or_abandon([&] { serve(active, arrivals, cancel); });
  return std::move(results_);
}

void Driver::serve(std::vector<Active>& active, std::uint64_t arrivals, const Cancel& cancel) {
  std::uint64_t events = 0;
  while (in_device_ > 0 || !held_.empty() || arrivals > 0) {
    if (++events % kCancelEvery == 0) cancel.check();
    const Event event = take_event();
    if (event.kind == EventKind::wake) continue;
    Active& job = active[event.id];
    const bool open_loop = job.parameters.interval > Nanos{0};
    if (event.kind == EventKind::arrival) {
      --arrivals;
      if (!job.wants_more(now_)) continue;
      issue(event.id, job.take(), now_);
      post(now_ + job.stream.gap(), EventKind::arrival, event.id);
      ++arrivals;
    } else if (!open_loop && job.wants_more(now_)) {
      issue(event.id, job.take(), now_);
    }
  }
}

template <class F>
void Driver::or_abandon(F run) {
  try {
    run();
  } catch (const OperatingError&) {  // after a bug, the device is not to be touched again
    abandon();
    throw;
  }
}

// What the device has is finished, what it does not have yet is forgotten.
void Driver::abandon() {
  held_ = {};
  while (in_device_ > 0) take_event();
  events_ = {};
  results_.clear();
}

Nanos Driver::trim(std::span<const Extent> ranges) {
  require(in_device_ == 0 && held_.empty(), "a trace is under way: end it first");
  require(!ranges.empty(), "TRIM: give at least one range");
  for (const Extent& range : ranges) {
    require(lies_within({Op::trim, range.begin, range.length()}, device_->capacity()),
            "TRIM: a range is empty or lies outside of the device");
  }
  recording_ = {};
  results_.assign(1, RunResult{});
  const Nanos begin = now_;
  or_abandon([&] {
    submit(0, {Op::trim, ranges[0].begin, ranges[0].length(), false, 0, ranges}, begin);
    while (in_device_ > 0) take_event();
  });
  results_.clear();
  return now_ - begin;
}

void Driver::begin_trace(std::uint32_t depth, const Recording& recording, bool as_submitted) {
  require(in_device_ == 0 && held_.empty(), "a trace is under way: end it first");
  recording_ = recording;
  results_.assign(1, RunResult{});
  results_[0].begin = results_[0].end = trace_start_ = now_;
  trace_depth_ = depth;
  as_submitted_ = as_submitted;
}

void Driver::feed_trace(std::span<const TimedRequest> requests, const Cancel& cancel) {
  require(results_.size() == 1, "no trace is under way");
  or_abandon([&] { play(requests, cancel); });
}

void Driver::play(std::span<const TimedRequest> requests, const Cancel& cancel) {
  const Bytes capacity = device_->capacity();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i % kCancelEvery == 0) cancel.check();
    if (const std::size_t ahead = i + kLookAhead;
        ahead < requests.size() && lies_within(requests[ahead].request, capacity)) {
      device_->expect(requests[ahead].request);
    }
    if (const std::size_t ahead = i + kNext;
        ahead < requests.size() && lies_within(requests[ahead].request, capacity)) {
      device_->expect_next(requests[ahead].request);
    }
    const TimedRequest& next = requests[i];
    require(next.request.op == Op::flush || lies_within(next.request, capacity),
            "trace: a request lies outside of the device");
    if (trace_depth_ > 0) {
      while (in_device_ + held_.size() >= trace_depth_) take_event();
    } else {
      trace_until(trace_start_ + next.arrival);
    }
    issue(0, next.request, now_);
  }
}

void Driver::trace_until(Nanos when) {
  require(when >= now_, "trace: time runs backwards");
  while (!events_.empty() && events_.top().when <= when) take_event();
  now_ = when;
}

RunResult Driver::end_trace(const Cancel& cancel) {
  require(results_.size() == 1, "no trace is under way");
  or_abandon([&] {
    std::uint64_t events = 0;
    while (in_device_ > 0 || !held_.empty()) {
      if (++events % kCancelEvery == 0) cancel.check();
      take_event();
    }
  });
  RunResult result = std::move(results_[0]);
  results_.clear();
  return result;
}

void Driver::idle(Nanos length) {
  require(in_device_ == 0 && held_.empty(), "a trace is under way: end it first");
  require(length >= Nanos{0}, "idle: must not be negative");
  const Nanos until = now_ + length;
  while (!events_.empty() && events_.top().when <= until) take_event();
  now_ = until;
  device_->wake(now_);
}

std::vector<Extent> Driver::power_cut() {
  std::vector<Extent> doubt = device_->power_cut(now_);
  events_ = {};
  held_ = {};
  outstanding_.clear();
  free_tags_.clear();
  in_device_ = 0;
  results_.clear();
  return doubt;
}

void Driver::archive(Archive& a) {
  require(in_device_ == 0 && held_.empty(),
          "requests are outstanding: state is saved between jobs");
  a.all(now_, order_);
  device_->archive(a);
  if (a.is_restoring()) events_ = {};
}

void Driver::done(Tag tag, Nanos when) {
  outstanding_[tag].finished = when;
  post(std::max(when, now_), EventKind::done, tag);
}

void Driver::wake_at(Nanos when) { post(std::max(when, now_), EventKind::wake, 0); }

void Driver::post(Nanos when, EventKind kind, std::uint32_t id) {
  events_.push({when, order_++, kind, id});
}

Driver::Event Driver::take_event() {
  FLASHLAB_CHECK(!events_.empty());
  Event event = events_.top();
  events_.pop();
  now_ = event.when;
  if (event.kind == EventKind::wake) {
    device_->wake(now_);
  } else if (event.kind == EventKind::done) {
    const Tag tag = event.id;
    record(outstanding_[tag]);
    event.id = outstanding_[tag].job;
    free_tags_.push_back(tag);
    --in_device_;
    if (!held_.empty()) {
      const Held next = held_.front();
      held_.pop();
      submit(next.job, next.request, next.arrived);
    }
  }
  return event;
}

void Driver::issue(std::uint32_t job, const Request& request, Nanos arrived) {
  if (as_submitted_ || in_device_ < device_->queue_depth()) {
    submit(job, request, arrived);
  } else {
    held_.push({job, request, arrived});
  }
}

void Driver::submit(std::uint32_t job, const Request& request, Nanos arrived) {
  if (free_tags_.empty()) {
    free_tags_.push_back(static_cast<Tag>(outstanding_.size()));
    outstanding_.emplace_back();
  }
  const Tag tag = free_tags_.back();
  outstanding_[tag] = {job, arrived, Nanos{}, request.op, request.lba, request.sectors};
  device_->submit(tag, request, now_);  // which may refuse it
  free_tags_.pop_back();
  ++in_device_;
}

void Driver::record(const Outstanding& io) {
  RunResult& result = results_[io.job];
  const Nanos latency = io.finished - io.arrived;
  const Bytes bytes = to_bytes(io.sectors);
  OpResult& op = result.ops[static_cast<std::size_t>(io.op)];
  ++op.ios;
  op.bytes += bytes;
  op.latency.add(latency);
  result.end = std::max(result.end, io.finished);
  if (recording_.rows) result.rows.push_back({io.arrived, latency, io.lba, io.sectors, io.op});
  if (recording_.interval <= Nanos{0}) return;
  const auto at = static_cast<std::size_t>((io.finished - result.begin) / recording_.interval);
  if (at >= result.intervals.size()) result.intervals.resize(at + 1);
  IntervalRow& row = result.intervals[at];
  ++row.ios;
  row.bytes += bytes;
  row.latency_sum += latency;
  row.latency_max = std::max(row.latency_max, latency);
}

}  // namespace flashlab::host
