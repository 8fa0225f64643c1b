// The hash join of PostgreSQL that does not fit into memory, as the I/O and the CPU time that it
// costs, again and again over one file system and one drive that age meanwhile
// (docs/papers/trim_fallocate.md; PostgreSQL 12 to 17, nodeHashjoin, buffile).
//
//  - Partition phase: the inner table, then the outer one is read and each tuple written to its
//    batch's file, all files of a side growing together, 8 KiB at a time (dbms/batch_order.hpp);
//    the first batch stays in memory. A server has at most so many files open
//    (max_files_per_process): beyond that each write closes the file that was not used for longest,
//    which the file system takes for its end. With `give_back`, what a side's files were given
//    beyond their ends is given back with it.
//  - Join phase: batch after batch, the inner file is read and deleted at once, then the outer one
//    is read; it is deleted when the next batch begins.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/cancel.hpp"
#include "dbms/batch_order.hpp"
#include "host/request_trace.hpp"
#include "kernel/ext4/ext4.hpp"
#include "kernel/page_cache.hpp"

namespace flashlab::dbms {

// Per tuple.
struct HashJoinCpu {
  Nanos scan;
  Nanos build;
  Nanos probe;
  Nanos open;
};

// What each one is: dbms/describe.hpp.
struct HashJoinSpec {
  JoinInput inner;
  JoinInput outer;
  std::int64_t batches = 2;
  std::int64_t buckets = 1;
  std::int64_t repetitions = 1;
  HashJoinCpu cpu;
  std::int64_t open_files = 990;
  BytesPerSecond table_rate;
  bool settle = false;
  bool trim_after = false;
  bool give_back = false;
  std::int64_t traced = -1;
  std::int64_t trace_rows = 0;
  std::uint64_t seed = 0;
};

// One repetition; times are the machine's.
struct JoinRun {
  Nanos begun;
  Nanos partitioned;
  Nanos joined;
  Nanos settled;
  kernel::ext4::Counters files;  // since the first repetition
};

struct HashJoinResult {
  std::vector<JoinRun> runs;
  std::int64_t temp_blocks = 0;  // written by a repetition, in the page cache's blocks
  kernel::PageCacheCounters cache;
  kernel::ext4::AllocatorCounters allocator;
  std::uint64_t device_requests = 0;
  std::vector<host::TracedRequest> trace;
};

// `repeated` is called after each repetition. Throws OperatingError for parameters that make no
// join, or a device that is too small.
HashJoinResult run_hash_joins(host::Machine& machine, const kernel::PageCacheParameters& cache,
                              const kernel::ext4::Parameters& files, const HashJoinSpec& spec,
                              const std::function<void()>& repeated, const Cancel& cancel);

}  // namespace flashlab::dbms
