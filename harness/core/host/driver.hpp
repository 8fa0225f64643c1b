// Drives a device model in virtual time, without a host above it: jobs, traces, idling, power cuts.
// The device and its clock live on between calls, so that a drive can be conditioned and then
// measured. A call that fails or is cancelled ends its jobs or its trace: requests that the device
// has are finished, the others forgotten.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <queue>
#include <span>
#include <vector>

#include "base/cancel.hpp"
#include "base/device.hpp"
#include "host/job.hpp"
#include "host/latency_histogram.hpp"

namespace flashlab::host {

inline constexpr std::size_t kOps = 4;

struct OpResult {
  std::uint64_t ios = 0;
  Bytes bytes;
  LatencyHistogram latency;
};

// One request, if asked for.
struct RequestRow {
  Nanos submitted;
  Nanos latency;
  Lba lba;
  Sectors sectors;
  Op op = Op::read;
};

struct IntervalRow {
  std::uint64_t ios = 0;  // completed in it
  Bytes bytes;
  Nanos latency_sum;
  Nanos latency_max;
};

struct RunResult {
  Nanos begin;
  Nanos end;  // last completion
  std::vector<OpResult> ops = std::vector<OpResult>(kOps);
  std::vector<RequestRow> rows;  // by completion
  std::vector<IntervalRow> intervals;
};

struct Recording {
  bool rows = false;
  Nanos interval;  // 0: no time series
};

struct TimedRequest {
  Request request;
  Nanos arrival;
};

class Driver final : private Host {
 public:
  using MakeDevice = std::function<std::unique_ptr<DeviceModel>(Host&)>;
  explicit Driver(const MakeDevice& make_device);

  [[nodiscard]] Nanos now() const { return now_; }
  [[nodiscard]] DeviceModel& device() { return *device_; }
  [[nodiscard]] const DeviceModel& device() const { return *device_; }

  // Runs jobs side by side until all have ended; one result each.
  std::vector<RunResult> run(std::span<const JobParameters> jobs, const Recording& recording,
                             const Cancel& cancel);

  // One TRIM command of several ranges, alone; returns its latency.
  Nanos trim(std::span<const Extent> ranges);

  // A trace, in pieces. With `depth` above 0 its times are ignored, and so many requests are kept
  // outstanding; with 0 each request arrives at its time after the start. `as_submitted`: these are
  // a device's submissions, and are not held back however many are outstanding.
  void begin_trace(std::uint32_t depth, const Recording& recording, bool as_submitted = false);
  void feed_trace(std::span<const TimedRequest> requests, const Cancel& cancel);
  RunResult end_trace(const Cancel& cancel);

  // Lets time pass, with nothing to do.
  void idle(Nanos length);
  // What a power cut would leave in doubt now; and the device's counters are those of now.
  std::vector<Extent> in_doubt() { return device_->in_doubt(now_); }
  // Everything outstanding is forgotten; returns the blocks in doubt.
  std::vector<Extent> power_cut();
  void archive(Archive& a);

 private:
  enum class EventKind : std::uint8_t { done, arrival, wake };
  struct Event {
    Nanos when;
    std::uint64_t order;
    EventKind kind;
    std::uint32_t id;
    bool operator>(const Event& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };
  struct Outstanding {
    std::uint32_t job = 0;
    Nanos arrived;
    Nanos finished;
    Op op = Op::read;
    Lba lba;
    Sectors sectors;
  };
  struct Active;  // a running job

  void serve(std::vector<Active>& active, std::uint64_t arrivals, const Cancel& cancel);
  void play(std::span<const TimedRequest> requests, const Cancel& cancel);
  template <class F>
  void or_abandon(F run);
  void abandon();

  void done(Tag tag, Nanos when) override;
  void wake_at(Nanos when) override;
  void post(Nanos when, EventKind kind, std::uint32_t id);
  // Takes the next event, moves the clock to it and does what concerns the device. `job` of a done
  // or arrival event comes back.
  Event take_event();
  void issue(std::uint32_t job, const Request& request, Nanos arrived);
  void submit(std::uint32_t job, const Request& request, Nanos arrived);
  void record(const Outstanding& io);
  void trace_until(Nanos when);

  struct Held {
    std::uint32_t job;
    Request request;
    Nanos arrived;
  };

  std::unique_ptr<DeviceModel> device_;
  Nanos now_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::vector<Outstanding> outstanding_;  // by tag
  std::vector<Tag> free_tags_;
  std::uint32_t in_device_ = 0;
  std::queue<Held> held_;  // more than the device takes at once
  Recording recording_;
  std::vector<RunResult> results_;  // of what runs, by job; a trace is job 0
  std::uint32_t trace_depth_ = 0;
  bool as_submitted_ = false;
  Nanos trace_start_;
};

}  // namespace flashlab::host
