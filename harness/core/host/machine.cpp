#include "host/machine.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace flashlab::host {

namespace {

constexpr Nanos kNever{INT64_MAX};

}  // namespace

// The bodies' stacks must not outlive what they refer to.
struct Machine::Unwind {
  Machine& machine;
  ~Unwind() { machine.fibers_.clear(); }
};

Machine::Machine(const MakeDevice& make_device, const HostParameters& host)
    : device_(make_device(*this)),
      host_(host),
      block_layer_(host, *device_, *this),
      device_wake_(kNever),
      scheduler_timer_(kNever),
      thread_free_(static_cast<std::size_t>(host.cores * host.threads_per_core)) {}

Machine::~Machine() = default;

void Machine::run(std::uint32_t processes, const Body& body, const Cancel& cancel) {
  FLASHLAB_CHECK(usable_);
  usable_ = false;  // until the run has ended well: a failed one leaves requests in the device
  cancel_ = &cancel;
  waiting_.assign(processes, false);
  for (Process process = 0; process < processes; ++process) {
    fibers_.push_back(std::make_unique<Fiber>([process, &body] { body(process); }));
    post(now_, EventKind::process_ready, process);
  }
  processes_left_ = processes;
  const Unwind unwind{*this};
  while (processes_left_ > 0) {
    FLASHLAB_CHECK(!events_.empty());  // else a process waits for something that never comes
    handle(take_event());
  }
  usable_ = true;
}

void Machine::submit(Process on_behalf_of, const Request& request, IoOwner& who,
                     std::uint32_t cookie) {
  if (free_ios_.empty()) {
    free_ios_.push_back(static_cast<std::uint32_t>(ios_.size()));
    ios_.emplace_back();
  }
  const std::uint32_t io = free_ios_.back();
  free_ios_.pop_back();
  ios_[io] = {&who, cookie};
  if (sees_) sees_(request, now_);
  block_layer_.submit(on_behalf_of, io, request, now_);
}

void Machine::wake(Process process) {
  if (std::exchange(waiting_[process], false)) post(now_, EventKind::process_ready, process);
}

bool Machine::next_event_needs_no_switch() const {
  return !events_.empty() && events_.top().kind != EventKind::process_ready;
}

Machine::Event Machine::take_event() {
  if ((++events_taken_ & 0xfff) == 0) cancel_->check();
  const Event event = events_.top();
  events_.pop();
  FLASHLAB_CHECK(event.when >= now_);
  now_ = event.when;
  return event;
}

void Machine::handle(const Event& event) {
  switch (event.kind) {
    case EventKind::request_done:
      return block_layer_.request_done(event.id, now_);
    case EventKind::device_wake:
      if (event.when != device_wake_) return;  // a later wish has replaced this one
      device_wake_ = kNever;
      return device_->wake(now_);
    case EventKind::scheduler_timer:
      if (event.when != scheduler_timer_) return;
      scheduler_timer_ = kNever;
      return block_layer_.timer(now_);
    case EventKind::process_ready:
      fibers_[event.id]->resume();
      if (fibers_[event.id]->ended()) --processes_left_;
      return;
  }
}

void Machine::done(Tag tag, Nanos when) {
  post(std::max(when, now_), EventKind::request_done, tag);
}

void Machine::wake_at(Nanos when) {
  device_wake_ = std::max(when, now_);
  post(device_wake_, EventKind::device_wake, 0);
}

void Machine::scheduler_timer_at(Nanos when) {
  if (when == scheduler_timer_) return;
  scheduler_timer_ = std::max(when, now_);
  post(scheduler_timer_, EventKind::scheduler_timer, 0);
}

void Machine::io_done(std::uint32_t io, Nanos /*now*/) {
  const Io finished = ios_[io];
  free_ios_.push_back(io);
  finished.who->io_done(finished.cookie);
}

void Machine::post(Nanos when, EventKind kind, std::uint32_t id) {
  events_.push({when, order_++, kind, id});
}

// Threads beyond the cores add `smt_gain` of a core each; all that run share what there is.
Nanos Machine::stretched(Nanos cpu, Nanos begin) const {
  if (host_.threads_per_core == 1) return cpu;
  const auto others = std::count_if(thread_free_.begin(), thread_free_.end(),
                                    [&](Nanos free) { return free > begin; });
  const std::int64_t running = others + 1;
  if (running <= host_.cores) return cpu;
  const double capacity = static_cast<double>(host_.cores) +
                          static_cast<double>(running - host_.cores) * host_.smt_gain;
  return Nanos{static_cast<std::int64_t>(static_cast<double>(cpu.count()) *
                                         static_cast<double>(running) / capacity)};
}

void Machine::compute(Process self, Nanos cpu) {
  auto thread = std::min_element(thread_free_.begin(), thread_free_.end());
  const Nanos begin = std::max(*thread, now_);
  *thread = begin + stretched(cpu, begin);
  sleep_until(self, *thread);
}

void Machine::sleep_until(Process self, Nanos when) {
  while (!events_.empty() && events_.top().when <= when && next_event_needs_no_switch()) {
    handle(take_event());
  }
  if (events_.empty() || events_.top().when > when) {
    now_ = std::max(now_, when);
    return;
  }
  post(when, EventKind::process_ready, self);
  fibers_[self]->pause();
}

}  // namespace flashlab::host
