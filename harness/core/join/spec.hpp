// What a join is asked to do, and what it reports. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/device.hpp"
#include "base/units.hpp"

namespace flashlab::join {

enum class Algorithm : std::uint8_t { grace, hybrid };

// CPU time per record, for clocks that do not see it (io::Channel::compute).
struct CpuCosts {
  Nanos partition;
  Nanos build;
  Nanos probe;
  Nanos match;

  bool operator==(const CpuCosts&) const = default;
};

// Records that something was done to: what the CPU has worked, on any machine.
struct Work {
  std::int64_t partitioned = 0;
  std::int64_t built = 0;
  std::int64_t probed = 0;
  std::int64_t matched = 0;

  Work& operator+=(const Work& more) {
    partitioned += more.partitioned;
    built += more.built;
    probed += more.probed;
    matched += more.matched;
    return *this;
  }
  [[nodiscard]] Nanos cost(const CpuCosts& cpu) const {
    return partitioned * cpu.partition + built * cpu.build + probed * cpu.probe +
           matched * cpu.match;
  }
};

// What each one is: join/describe.hpp.
struct JoinSpec {
  Algorithm algorithm = Algorithm::grace;
  Bytes read_buffer;
  Bytes write_buffer;
  Bytes input_io;
  Bytes memory_budget;
  std::uint32_t queue_depth = 1;
  std::uint64_t hash_seed = 0;
  CpuCosts cpu;
  bool trace = false;

  bool operator==(const JoinSpec&) const = default;
};

// `records` consecutive records from `offset`.
struct Relation {
  Bytes offset;
  std::int64_t records = 0;

  bool operator==(const Relation&) const = default;
};

// [begin, end): the space that a user's partitions are written to.
struct Scratch {
  Bytes begin;
  Bytes end;

  bool operator==(const Scratch&) const = default;
};

struct UserJob {
  Relation build;  // the smaller input by intent; each pair of partitions decides anew
  Relation probe;
  Scratch scratch;

  bool operator==(const UserJob&) const = default;
};

enum class Phase : std::uint8_t { partition, join, repartition };
inline constexpr std::size_t kPhases = 3;

struct IoCounts {
  std::uint64_t ios = 0;
  Bytes bytes;
  // [i]: transfers of [2^i, 2^(i+1)) bytes.
  std::array<std::uint64_t, 32> by_size{};
  // Distance from the end of the user's previous transfer. [0]: none, sequential;
  // [i]: [2^(i-1), 2^i) sectors, forwards or backwards.
  std::array<std::uint64_t, 48> by_seek{};
};

struct TraceRow {
  Nanos submitted;
  Nanos completed;
  Lba lba;
  Bytes bytes;
  std::uint32_t user = 0;
  Op op = Op::read;
  Phase phase = Phase::partition;
};

// What a join found and did, whatever its drive and CPU were.
struct Outcome {
  std::uint64_t matches = 0;
  std::uint64_t checksum = 0;  // sum of match_checksum over all matches, modulo 2^64
  std::int64_t partitions = 0;
  std::int64_t role_reversals = 0;    // pairs whose build side came from the probe input
  std::int64_t overflows = 0;         // pairs that had to be partitioned again
  std::int64_t nested_loops = 0;      // pairs joined block by block, since no hash can split them
  std::int64_t resident_records = 0;  // build records that the hybrid join never wrote
  Bytes memory;                       // all buffers and the hash table
};

struct UserResult : Outcome {
  Nanos partition;  // phase times; repartitioning is a part of the join phase, too
  Nanos join;
  Nanos repartition;
  Nanos elapsed;
  std::array<std::array<IoCounts, 2>, kPhases> io;  // [phase][read, write]
  std::vector<TraceRow> trace;
};

}  // namespace flashlab::join
