// A histogram of latencies with a fixed relative resolution: 128 buckets per power of two, so that
// any percentile is known to 0.8 %, in 60 KiB, whatever comes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/units.hpp"

namespace flashlab::host {

class LatencyHistogram {
 public:
  static constexpr std::uint32_t kPerOctave = 128;

  void add(Nanos latency) {
    const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(latency.count(), 0));
    ++counts_[bucket(value)];
    sum_ += value;
    least_ = std::min(least_, value);
    largest_ = std::max(largest_, value);
  }

  [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }
  [[nodiscard]] std::uint64_t sum_ns() const { return sum_; }
  [[nodiscard]] std::uint64_t least_ns() const { return least_; }
  [[nodiscard]] std::uint64_t largest_ns() const { return largest_; }

  // Values below 128 have a bucket each; above, the leading 8 bits choose.
  static constexpr std::size_t bucket(std::uint64_t value) {
    if (value < kPerOctave) return static_cast<std::size_t>(value);
    const int shift = static_cast<int>(std::bit_width(value)) - 8;
    return static_cast<std::size_t>(shift) * kPerOctave + static_cast<std::size_t>(value >> shift);
  }
  // The smallest value of a bucket.
  static constexpr std::uint64_t lower_bound(std::size_t index) {
    if (index < 2 * kPerOctave) return index;
    const std::size_t shift = index / kPerOctave - 1;
    return (index - shift * kPerOctave) << shift;
  }

 private:
  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(bucket(UINT64_MAX) + 1);
  std::uint64_t sum_ = 0;
  std::uint64_t least_ = UINT64_MAX;
  std::uint64_t largest_ = 0;
};

}  // namespace flashlab::host
