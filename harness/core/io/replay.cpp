#include "io/replay.hpp"

#include <algorithm>
#include <queue>
#include <string>

#include "base/check.hpp"

namespace flashlab::io {

namespace {

class Replay final : private Host {
 public:
  Replay(const std::function<std::unique_ptr<DeviceModel>(Host&)>& make_device,
         std::span<const ReplayRequest> requests, std::uint32_t depth, const Cancel& cancel)
      : device_(make_device(*this)), requests_(requests), depth_(depth), cancel_(cancel) {
    times_.resize(requests.size());
  }

  void run() {
    Nanos now;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if ((i & 0xfff) == 0) cancel_.check();
      now = std::max(now, requests_[i].arrival);
      happen_until(now);
      while (in_device_ >= depth_) now = std::max(now, happen_next());
      times_[i].submitted = now;
      ++in_device_;
      device_->submit(static_cast<Tag>(i), requests_[i].request, now);
    }
    while (in_device_ > 0) (void)happen_next();
  }

  [[nodiscard]] std::vector<ReplayTimes> take() { return std::move(times_); }
  [[nodiscard]] const DeviceModel& device() const { return *device_; }

 private:
  struct Completion {
    Nanos when;
    Tag tag;
    bool operator>(const Completion& other) const {
      return when != other.when ? when > other.when : tag > other.tag;
    }
  };

  void done(Tag tag, Nanos when) override {
    FLASHLAB_CHECK(times_[tag].completed == Nanos{0} && when >= times_[tag].submitted);
    times_[tag].completed = when;
    completions_.push({when, tag});
  }

  void wake_at(Nanos when) override {
    wake_ = when;
    wake_wanted_ = true;
  }

  // The next completion or wake-up; returns its time.
  Nanos happen_next() {
    FLASHLAB_CHECK(!completions_.empty() || wake_wanted_);
    if (wake_wanted_ && (completions_.empty() || wake_ <= completions_.top().when)) {
      wake_wanted_ = false;
      device_->wake(wake_);
      return wake_;
    }
    const Nanos when = completions_.top().when;
    completions_.pop();
    --in_device_;
    return when;
  }

  void happen_until(Nanos now) {
    while ((!completions_.empty() && completions_.top().when <= now) ||
           (wake_wanted_ && wake_ <= now)) {
      (void)happen_next();
    }
  }

  std::unique_ptr<DeviceModel> device_;
  std::span<const ReplayRequest> requests_;
  std::uint32_t depth_;
  const Cancel& cancel_;
  std::vector<ReplayTimes> times_;
  std::priority_queue<Completion, std::vector<Completion>, std::greater<>> completions_;
  std::uint32_t in_device_ = 0;
  Nanos wake_;
  bool wake_wanted_ = false;
};

}  // namespace

std::vector<ReplayTimes> replay(
    const std::function<std::unique_ptr<DeviceModel>(Host&)>& make_device,
    std::span<const ReplayRequest> requests, std::uint32_t depth, const Cancel& cancel,
    const std::function<void(const DeviceModel&)>& inspect) {
  require(depth >= 1, "depth: must be at least 1");
  for (std::size_t i = 1; i < requests.size(); ++i) {
    require(requests[i].arrival >= requests[i - 1].arrival,
            "request " + std::to_string(i) + " arrives before the one before it");
  }
  Replay replay(make_device, requests, depth, cancel);
  replay.run();
  inspect(replay.device());
  return replay.take();
}

}  // namespace flashlab::io
