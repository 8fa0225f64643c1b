// F1 splits records into partitions, F2 finds them in a partition's table (the paper's names).
// Both must be independent of each other and, on every level of recursion, of the level above.
#pragma once

#include <cstdint>

#include "base/prng.hpp"

namespace flashlab::join {

class PartitionHash {
 public:
  PartitionHash(std::uint64_t seed, std::int64_t level)
      : salt_(mix64(seed + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(level + 1))) {}

  // Uniform on 32 bits.
  [[nodiscard]] std::uint32_t operator()(std::int64_t key) const {
    return static_cast<std::uint32_t>(mix64(static_cast<std::uint64_t>(key) ^ salt_) >> 32);
  }

 private:
  std::uint64_t salt_;
};

// Scales a 32-bit hash to [0, n).
constexpr std::uint32_t scale(std::uint32_t hash, std::uint32_t n) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(hash) * n) >> 32);
}

constexpr std::uint32_t table_hash(std::int64_t key) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(key) * 0xd6e8feb86659fd93ULL) >>
                                    32);
}

}  // namespace flashlab::join
