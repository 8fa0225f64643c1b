// A host as the real clock makes it: it looks at the device at odd moments, asks for things that it
// does not need, and hears of completions late. It writes down what it submitted, and when.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/prng.hpp"
#include "host/driver.hpp"

namespace flashlab {

class LateHost final : private Host {
 public:
  LateHost(const host::Driver::MakeDevice& make_device, Prng random)
      : device_(make_device(*this)), random_(random) {}

  // Lets time pass, and looks at the device on the way or not.
  void pass(Nanos time) {
    const Nanos end = now_ + time;
    for (std::uint64_t looks = random_.below(3); looks > 0; --looks) {
      now_ += Nanos{static_cast<std::int64_t>(
          random_.below(static_cast<std::uint64_t>((end - now_).count()) + 1))};
      look();
    }
    now_ = end;
  }
  // As soon as it knows that the device takes one more.
  void submit(const Request& request) {
    while (unread() >= device_->queue_depth()) {
      now_ += Nanos{static_cast<std::int64_t>(1 + random_.below(3'000'000))};
      device_->wake(now_);
      read_at_ = now_;
    }
    const auto tag = static_cast<Tag>(record_.size());
    record_.push_back({request, now_});
    device_->submit(tag, request, now_);
  }
  // Until everything is answered; the device's counters are those of then.
  void drain() {
    while (answers_.size() < record_.size() || std::any_of(answers_.begin(), answers_.end(),
                                                           [&](auto& a) { return a.second > now_; })) {
      now_ += Nanos{5'000'000};
      device_->wake(now_);
    }
    device_->wake(now_);
  }

  // Submission and latency of every request.
  [[nodiscard]] std::vector<std::pair<Nanos, Nanos>> times() const {
    std::vector<std::pair<Nanos, Nanos>> all;
    for (const auto& [tag, when] : answers_) {
      all.emplace_back(record_[tag].arrival, when - record_[tag].arrival);
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  [[nodiscard]] const std::vector<host::TimedRequest>& record() const { return record_; }
  [[nodiscard]] Nanos now() const { return now_; }
  [[nodiscard]] DeviceModel& device() { return *device_; }

 private:
  void look() {
    switch (random_.below(4)) {
      case 0:
        device_->wake(now_);
        break;
      case 1:
        (void)device_->in_doubt(now_);
        break;
      case 2:
        read_at_ = now_;
        break;
      default:
        if (alarm_ && *alarm_ <= now_) {
          alarm_.reset();
          device_->wake(now_);
        }
    }
  }
  [[nodiscard]] std::size_t unread() const {
    return record_.size() -
           static_cast<std::size_t>(std::count_if(answers_.begin(), answers_.end(),
                                                  [&](auto& a) { return a.second <= read_at_; }));
  }

  void done(Tag tag, Nanos when) override { answers_.emplace(tag, when); }
  void wake_at(Nanos when) override { alarm_ = when; }

  std::unique_ptr<DeviceModel> device_;
  Prng random_;
  Nanos now_;
  Nanos read_at_;  // when it last looked for completions
  std::optional<Nanos> alarm_;
  std::vector<host::TimedRequest> record_;  // by tag
  std::map<Tag, Nanos> answers_;
};

// The same in virtual time: a new device that gets what was recorded, up to the moment at which the
// late host stopped. Submission and latency of every request.
inline std::vector<std::pair<Nanos, Nanos>> replay(host::Driver& driver, const LateHost& recorded) {
  driver.begin_trace(0, {true, Nanos{0}});
  driver.feed_trace(recorded.record(), Cancel());
  std::vector<std::pair<Nanos, Nanos>> all;
  for (const host::RequestRow& row : driver.end_trace(Cancel()).rows) {
    all.emplace_back(row.submitted, row.latency);
  }
  std::sort(all.begin(), all.end());
  driver.idle(recorded.now() - driver.now());
  return all;
}

}  // namespace flashlab
