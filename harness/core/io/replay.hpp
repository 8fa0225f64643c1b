// Requests straight to a device model in virtual time: no host above it, no data.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/cancel.hpp"
#include "base/device.hpp"

namespace flashlab::io {

struct ReplayRequest {
  Request request;
  Nanos arrival;  // at the earliest
};

struct ReplayTimes {
  Nanos submitted;
  Nanos completed;
};

// Each request is submitted in order, at its arrival or as soon as fewer than `depth` are in the
// device, whichever is later: arrivals in the past make a closed loop of that depth, a large depth
// an open one. Throws OperatingError if an arrival lies before the one before it.
std::vector<ReplayTimes> replay(
    const std::function<std::unique_ptr<DeviceModel>(Host&)>& make_device,
    std::span<const ReplayRequest> requests, std::uint32_t depth, const Cancel& cancel,
    const std::function<void(const DeviceModel&)>& inspect);

}  // namespace flashlab::io
