// A live device as Python holds it, and what serves it to the kernel.
#pragma once

#include <cstdint>

#include "bind/convert.hpp"
#include "live/device.hpp"

namespace flashlab::bind {

class Live {
 public:
  Live(const DeviceParameters& parameters, int store_fd, std::int64_t visible)
      : device([&](Host& host) { return make_device(parameters, host); }, store_fd,
               Bytes{visible}) {
    device.start();
  }

  live::LiveDevice device;
};

// Each front end's server is an object of its own, bound in a file of its own.
void bind_fuse_file(nb::module_& m);
void bind_ublk(nb::module_& m);

inline void bind_fronts(nb::module_& m) {
  bind_fuse_file(m);
  bind_ublk(m);
}

}  // namespace flashlab::bind
