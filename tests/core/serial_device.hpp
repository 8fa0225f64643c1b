// A device for tests of what lies above it: serves one request after the other, each in a time that
// only its length decides, and keeps what it was asked.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "base/device.hpp"
#include "host/machine.hpp"

namespace flashlab::testing_host {

using namespace literals;

struct SerialSpeed {
  Nanos each = 100_us;  // per request
  BytesPerSecond rate{100 * (std::int64_t{1} << 20)};
};

class SerialDevice final : public DeviceModel {
 public:
  struct Served {
    Op op;
    Bytes begin;
    Bytes length;
    Nanos submitted;
    Nanos done;
    bool fua = false;
    auto operator<=>(const Served&) const = default;
  };

  SerialDevice(Host& host, Bytes capacity, const SerialSpeed& speed)
      : host_(host), capacity_(capacity), speed_(speed) {}

  void submit(Tag tag, const Request& request, Nanos now) override {
    const Bytes length = to_bytes(request.sectors);
    free_ = std::max(free_, now) + speed_.each + transfer_time(length, speed_.rate);
    served.push_back({request.op, to_bytes(request.lba), length, now, free_, request.fua});
    if (delay) served.back().done += delay(served.back());
    if (on_submit) on_submit(served.back());
    host_.done(tag, served.back().done);
  }
  void wake(Nanos /*now*/) override {}
  std::vector<Extent> in_doubt(Nanos /*now*/) override { return {}; }
  void archive(Archive& /*a*/) override {}
  [[nodiscard]] Bytes capacity() const override { return capacity_; }
  [[nodiscard]] bool rotational() const override { return false; }
  [[nodiscard]] std::uint32_t queue_depth() const override { return 4096; }

  // Bytes of that kind that were submitted and are not done.
  [[nodiscard]] Bytes inside(Op op, Nanos now) const {
    Bytes sum;
    for (auto s = served.rbegin(); s != served.rend() && s->done > now; ++s) {
      if (s->op == op) sum += s->length;
    }
    return sum;
  }
  [[nodiscard]] std::vector<Served> of(Op op) const {
    std::vector<Served> found;
    std::copy_if(served.begin(), served.end(), std::back_inserter(found),
                 [op](const Served& s) { return s.op == op; });
    return found;
  }
  [[nodiscard]] Bytes bytes(Op op) const {
    Bytes sum;
    for (const Served& s : of(op)) sum += s.length;
    return sum;
  }

  std::vector<Served> served;
  std::function<void(const Served&)> on_submit;
  // How much later some are answered, which holds up nobody else.
  std::function<Nanos(const Served&)> delay;

 private:
  void restart(Nanos /*now*/) override {}

  Host& host_;
  Bytes capacity_;
  SerialSpeed speed_;
  Nanos free_;
};

// Two cores; nothing above the device costs CPU time.
inline host::HostParameters plain_host(std::int64_t cores = 2) {
  return {cores, Nanos{0}, Nanos{0}, 512_KiB, {"none"}, 1, 0.0};
}

inline std::unique_ptr<host::Machine> machine_over(
    const SerialSpeed& speed = {}, Bytes capacity = 64 * 1024_MiB,
    const host::HostParameters& parameters = plain_host()) {
  return std::make_unique<host::Machine>(
      [&](Host& events) { return std::make_unique<SerialDevice>(events, capacity, speed); },
      parameters);
}

inline SerialDevice& device_of(host::Machine& machine) {
  return dynamic_cast<SerialDevice&>(machine.device());
}

}  // namespace flashlab::testing_host
