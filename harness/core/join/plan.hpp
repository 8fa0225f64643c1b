// How many partitions, and how much memory for what: decided before the first I/O.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "join/spec.hpp"

namespace flashlab::join {

struct Plan {
  std::int64_t capacity = 0;    // build records that the read buffer holds
  std::int64_t partitions = 0;  // of the first level; 1: the build input fits as it is
  // Hybrid: build records whose hash is below this stay in memory. 0: none.
  std::uint32_t resident_below = 0;
  std::int64_t resident_capacity = 0;
  std::int64_t input_buffers = 1;
  std::int64_t unit_buffers = 1;  // for reading partitions back
  Bytes arena;                    // all buffers
  Bytes memory;                   // and the hash table
};

// Throws OperatingError if the parameters make no join, or the memory budget is too small for one.
Plan make_plan(const JoinSpec& spec, std::int64_t build_records, Bytes block);

// The fewest partitions of which each, with overwhelming probability, holds at most `capacity`
// records: the hash spreads n records over P partitions as n / P +- sqrt(n / P), and four standard
// deviations leave about one overflow in 30,000 partitions, which is then partitioned again.
std::int64_t partitions_for(std::int64_t records, std::int64_t capacity);

}  // namespace flashlab::join
