// Division of 32-bit numbers by a divisor that is fixed at run time: one multiplication.
#pragma once

#include <cstdint>

#include "base/check.hpp"

namespace flashlab {

class Divider {
 public:
  Divider() = default;
  // floor(2^64 / d) + 1 is exact for all 32-bit dividends (Lemire, Kaser and Kurz, "Faster
  // remainder by direct computation", 2019, theorem 1), but for d = 1, where it would overflow.
  explicit Divider(std::uint32_t divisor)
      : divisor_(divisor), inverse_(divisor > 1 ? UINT64_MAX / divisor + 1 : 0) {
    FLASHLAB_CHECK(divisor > 0);
  }

  [[nodiscard]] std::uint32_t quotient(std::uint32_t n) const {
    if (inverse_ == 0) return n;
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint32_t>((static_cast<Wide>(inverse_) * n) >> 64);
  }
  [[nodiscard]] std::uint32_t divisor() const { return divisor_; }

 private:
  std::uint32_t divisor_ = 1;
  std::uint64_t inverse_ = 0;
};

}  // namespace flashlab
