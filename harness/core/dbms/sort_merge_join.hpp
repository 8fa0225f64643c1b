// The sort-merge join of PostgreSQL, as the I/O and the CPU time that it costs: per client two
// external sorts (run formation, merges by plan) and then both last merges on the fly, N clients
// side by side on one device (docs/papers/sort_merge_join.md; PostgreSQL 9.4 and 15, tuplesort,
// logtape).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "dbms/run_merge.hpp"
#include "dbms/tape.hpp"
#include "host/request_trace.hpp"
#include "kernel/ext4/ext4.hpp"
#include "kernel/page_cache.hpp"

namespace flashlab::dbms {

// What each one is: dbms/describe.hpp.
struct SortedTable {
  std::int64_t tuples = 0;
  Bytes heap;
  Bytes tuple;
  std::int64_t first_run_tuples = 0;
  std::int64_t second_run_tuples = 0;
  std::int64_t run_tuples = 0;
  Bytes merge_memory;
  Bytes write_memory;
  Bytes share_unit{1};
};

// Per tuple.
struct SortCpu {
  Nanos scan;
  Nanos compare;
  Nanos copy;
  Nanos join;
};

// What each one is: dbms/describe.hpp.
struct SortMergeJoinSpec {
  std::string merge = "polyphase";
  std::int64_t merge_order = 0;
  bool burst = false;
  Refill refill = Refill::all;
  bool ahead = false;
  TapeParameters tapes;
  std::vector<SortedTable> tables;
  SortCpu cpu;
  BytesPerSecond table_rate;
  std::int64_t trace_rows = 0;
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

// Reads of the device once every client has done its sorts, as they were asked for.
struct JoinReads {
  std::uint64_t requests = 0;
  std::uint64_t jumps = 0;  // that begin elsewhere than where the request before them ended
  Bytes bytes;
};

struct SortMergeJoinResult {
  std::vector<ClientResult> clients;
  JoinReads join_reads;
  kernel::PageCacheCounters cache;
  std::uint64_t device_requests = 0;
  Nanos ended;
  std::vector<host::TracedRequest> trace;
};

// Tuples of each initial run, in turn. `burst`: as in the spec.
std::vector<std::int64_t> run_lengths(const SortedTable& table, bool burst);

// On ext4, or where `files` names none on a file system that gives out the device in turn. Throws
// OperatingError for parameters that make no sort, or a device that is too small.
SortMergeJoinResult run_sort_merge_joins(host::Machine& machine,
                                         const kernel::PageCacheParameters& cache,
                                         const std::optional<kernel::ext4::Parameters>& files,
                                         const SortMergeJoinSpec& spec, std::uint32_t clients,
                                         const Cancel& cancel);

}  // namespace flashlab::dbms
