// The sort-merge join of PostgreSQL, as the I/O and the CPU time that it costs: per client two
// external sorts (run formation, merges by plan) and then both last merges on the fly, N clients
// side by side on one device (papers/sort_merge_join.md; PostgreSQL 9.4 and 15, tuplesort,
// logtape).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "dbms/run_merge.hpp"
#include "dbms/tape.hpp"
#include "host/page_cache.hpp"

namespace flashlab::dbms {

struct SortedTable {
  std::int64_t tuples = 0;
  Bytes heap;   // as stored, and read once
  Bytes tuple;  // on tape, one of them
  // Tuples of the initial runs: the first, the second, all others.
  std::int64_t first_run_tuples = 0;
  std::int64_t second_run_tuples = 0;
  std::int64_t run_tuples = 0;
  Bytes merge_memory;  // bytes of tape that the memory for reading holds, all tapes together
  Bytes write_memory;  // taken off that for each tape that is written in the same pass
  std::int64_t share_unit = 1;  // a tape's share of it is a multiple of so many bytes
};

// Per tuple.
struct SortCpu {
  Nanos scan;     // reading it from its table and forming the tuple to be sorted
  Nanos compare;  // one comparison
  Nanos copy;     // to a tape or from one
  Nanos join;     // after the sorts: the join, its output, the client
};

struct SortMergeJoinSpec {
  std::string merge = "polyphase";
  std::int64_t merge_order = 0;
  bool burst = false;           // runs are formed in memory and written whole, not tuple by tuple
  Refill refill = Refill::all;  // of the merges before the last
  bool ahead = false;
  TapeParameters tapes;
  std::vector<SortedTable> tables;  // in the order in which they are sorted
  SortCpu cpu;
  BytesPerSecond table_rate;  // of the disk that the tables lie on, all clients together
  std::uint64_t seed = 0;
};

struct ClientResult {
  Nanos sorted;  // when the last sort was done but for its last merge
  Nanos ended;
  std::int64_t temp_blocks_read = 0;
  std::int64_t temp_blocks_written = 0;
  std::int64_t temp_file_blocks = 0;
  std::int64_t runs = 0;    // initial ones, all tables
  std::int64_t merges = 0;  // before the last
  Bytes merged;             // read by these
  Nanos busy_sorted;        // of the device, until then
  Nanos busy_ended;
};

struct SortMergeJoinResult {
  std::vector<ClientResult> clients;
  host::PageCacheCounters cache;
  std::uint64_t device_requests = 0;
  Nanos ended;
};

// Throws OperatingError for parameters that make no sort, or a device that is too small.
SortMergeJoinResult run_sort_merge_joins(host::Machine& machine,
                                         const host::PageCacheParameters& cache,
                                         const SortMergeJoinSpec& spec, std::uint32_t clients,
                                         const Cancel& cancel);

}  // namespace flashlab::dbms
