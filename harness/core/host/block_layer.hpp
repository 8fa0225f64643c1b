// The host between an application's I/O and the device: splitting, scheduling, the queue's depth.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "host/policy/io_scheduler.hpp"

namespace flashlab::host {

// What each one is: host/describe.hpp.
struct HostParameters {
  std::int64_t cores = 1;
  Nanos submit_cpu;
  Nanos complete_cpu;
  Bytes max_request;
  IoSchedulerParameters io_scheduler;
  std::int64_t threads_per_core = 1;
  double smt_gain = 0.0;
};

// What a block layer tells the application above it, and asks of the clock.
class BlockLayerUser {
 public:
  virtual void io_done(std::uint32_t io, Nanos now) = 0;
  virtual void scheduler_timer_at(Nanos when) = 0;

 protected:
  ~BlockLayerUser() = default;
};

class BlockLayer {
 public:
  BlockLayer(const HostParameters& parameters, DeviceModel& device, BlockLayerUser& up);

  // `io` names the transfer; it comes back in io_done when all parts have completed.
  void submit(std::uint32_t user, std::uint32_t io, const Request& request, Nanos now);
  // A request that was dispatched under `tag` has completed, now.
  void request_done(Tag tag, Nanos now);
  void timer(Nanos now) { dispatch(now); }

  // Time during which at least one request was in the device (io_ticks of /proc/diskstats).
  [[nodiscard]] Nanos device_busy() const { return busy_; }
  // ... until now, when a request may be in the device.
  [[nodiscard]] Nanos device_busy(Nanos now) const {
    return free_tags_.size() == in_flight_.size() ? busy_ : busy_ + (now - busy_since_);
  }
  [[nodiscard]] std::uint64_t requests() const { return requests_; }
  // Requests of that kind that the scheduler or the device has.
  [[nodiscard]] std::uint32_t outstanding(Op op) const {
    return outstanding_[static_cast<std::size_t>(op)];
  }

 private:
  void dispatch(Nanos now);
  Tag take_tag(const BlockRequest& request);

  HostParameters parameters_;
  DeviceModel& device_;
  BlockLayerUser& up_;
  std::unique_ptr<IoScheduler> scheduler_;
  std::vector<std::uint32_t> parts_left_;  // by io
  std::vector<BlockRequest> in_flight_;    // by tag
  std::vector<Tag> free_tags_;
  Nanos busy_;
  Nanos busy_since_;
  std::uint64_t requests_ = 0;
  std::array<std::uint32_t, 4> outstanding_{};  // by Op
};

}  // namespace flashlab::host
