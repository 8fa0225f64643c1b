// The disk that the tables lie on, known by its rate: first come, first served, and every reader
// has its next step read while it works on this one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/units.hpp"

namespace flashlab::dbms {

class TableDisk {
 public:
  TableDisk(BytesPerSecond rate, std::uint32_t readers) : rate_(rate), ready_(readers) {}

  // Asks for the next step, if there is one; returns when the one before it was ready.
  Nanos next(std::uint32_t reader, Bytes bytes, Nanos now) {
    const Nanos ready = ready_[reader];
    if (bytes == Bytes{0}) return ready;
    free_ = std::max(free_, now) + transfer_time(bytes, rate_);
    ready_[reader] = free_;
    return ready;
  }

 private:
  BytesPerSecond rate_;
  std::vector<Nanos> ready_;
  Nanos free_;
};

}  // namespace flashlab::dbms
