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
};

template <class V>
void describe(V& v, CpuCosts& p) {
  v.optional("partition_cpu_ns", p.partition, "per record: hash, copy to a write buffer");
  v.optional("build_cpu_ns", p.build, "per record: hash, insert");
  v.optional("probe_cpu_ns", p.probe, "per record: hash, look up");
  v.optional("match_cpu_ns", p.match, "per pair found");
}

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
};

template <class V>
void describe(V& v, JoinSpec& p) {
  v.required("algorithm", p.algorithm, "of the join");
  v.required("read_buffer_bytes", p.read_buffer,
             "a build partition must fit; holds it in the join phase");
  v.required("write_buffer_bytes", p.write_buffer,
             "the unit in which partitions are written and read back");
  v.required("input_io_bytes", p.input_io, "the unit in which the inputs are read");
  v.optional("memory_budget_bytes", p.memory_budget,
             "for all buffers of one user; 0: as much as the plan wants");
  v.optional("queue_depth", p.queue_depth,
             "transfers in flight per user; 1 is the paper's synchronous engine");
  v.optional("hash_seed", p.hash_seed, "of the hash function");
  describe(v, p.cpu);
  v.optional("trace", p.trace, "all transfers are recorded");
}

// `records` consecutive records from `offset`.
struct Relation {
  Bytes offset;
  std::int64_t records = 0;
};

// [begin, end): the space that a user's partitions are written to.
struct Scratch {
  Bytes begin;
  Bytes end;
};

struct UserJob {
  Relation build;  // the smaller input by intent; each pair of partitions decides anew
  Relation probe;
  Scratch scratch;
};

template <class V>
void describe(V& v, UserJob& p) {
  v.required("build_offset_bytes", p.build.offset, "of the smaller input on the device");
  v.required("build_records", p.build.records, "of the smaller input");
  v.required("probe_offset_bytes", p.probe.offset, "of the other input on the device");
  v.required("probe_records", p.probe.records, "of the other input");
  v.required("scratch_begin_bytes", p.scratch.begin, "of the space for partitions");
  v.required("scratch_end_bytes", p.scratch.end, "... and its end");
}

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

template <class V>
void count(V& v, const IoCounts& c) {
  v("ios", c.ios);
  v("bytes", c.bytes);
  v("by_size_log2", c.by_size);
  v("by_seek_log2", c.by_seek);
}

struct TraceRow {
  Nanos submitted;
  Nanos completed;
  Lba lba;
  Bytes bytes;
  std::uint32_t user = 0;
  Op op = Op::read;
  Phase phase = Phase::partition;
};

struct UserResult {
  std::uint64_t matches = 0;
  std::uint64_t checksum = 0;  // sum of match_checksum over all matches, modulo 2^64
  Nanos partition;             // phase times; repartitioning is a part of the join phase, too
  Nanos join;
  Nanos repartition;
  Nanos elapsed;
  std::int64_t partitions = 0;
  std::int64_t role_reversals = 0;    // pairs whose build side came from the probe input
  std::int64_t overflows = 0;         // pairs that had to be partitioned again
  std::int64_t nested_loops = 0;      // pairs joined block by block, since no hash can split them
  std::int64_t resident_records = 0;  // build records that the hybrid join never wrote
  Bytes memory;                       // all buffers and the hash table
  std::array<std::array<IoCounts, 2>, kPhases> io;  // [phase][read, write]
  std::vector<TraceRow> trace;
};

template <class V>
void count(V& v, const UserResult& r) {
  v("matches", r.matches);
  v("checksum", r.checksum);
  v("partition_ns", r.partition);
  v("join_ns", r.join);
  v("repartition_ns", r.repartition);
  v("elapsed_ns", r.elapsed);
  v("partitions", r.partitions);
  v("role_reversals", r.role_reversals);
  v("overflows", r.overflows);
  v("nested_loops", r.nested_loops);
  v("resident_records", r.resident_records);
  v("memory_bytes", r.memory);
}

}  // namespace flashlab::join
