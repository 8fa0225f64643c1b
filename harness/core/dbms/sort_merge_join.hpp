// The sort-merge join of PostgreSQL, as the I/O and the CPU time that it costs: per client two
// external sorts (run formation, merges by plan) and then both last merges on the fly, N clients
// side by side on one device (papers/sort_merge_join.md; PostgreSQL 9.4 and 15, tuplesort,
// logtape).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "base/policy_table.hpp"
#include "dbms/run_merge.hpp"
#include "dbms/tape.hpp"
#include "host/page_cache.hpp"

namespace flashlab::dbms {

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

template <class V>
void describe(V& v, SortedTable& p) {
  v.required("tuples", p.tuples, "of the table");
  v.required("heap_bytes", p.heap, "as stored, and read once");
  v.required("tuple_bytes", p.tuple, "on tape, one of them");
  v.required("first_run_tuples", p.first_run_tuples, "of the first initial run");
  v.required("second_run_tuples", p.second_run_tuples, "of the second");
  v.required("run_tuples", p.run_tuples, "of all others");
  v.required("merge_memory_bytes", p.merge_memory,
             "of tape that the memory for reading holds, all tapes together");
  v.optional("write_memory_bytes", p.write_memory,
             "taken off that for each tape that is written in the same pass");
  v.optional("share_unit_bytes", p.share_unit, "a tape's share of it is a multiple of them");
}

// Per tuple.
struct SortCpu {
  Nanos scan;
  Nanos compare;
  Nanos copy;
  Nanos join;
};

template <class V>
void describe(V& v, SortCpu& p) {
  v.required("scan_cpu_ns", p.scan,
             "per tuple: reading it from its table and forming the one to be sorted");
  v.required("compare_cpu_ns", p.compare, "one comparison");
  v.required("copy_cpu_ns", p.copy, "per tuple: to a tape or from one");
  v.required("join_cpu_ns", p.join, "per tuple, after the sorts: the join, its output, the client");
}

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
  std::uint64_t seed = 0;
};

template <class V>
void describe(V& v, SortMergeJoinSpec& p) {
  v.required("tables", p.tables, "in the order in which they are sorted");
  v.required("merge", p.merge, "the plan: polyphase, balanced");
  v.required("merge_order", p.merge_order, "runs that are merged at once");
  v.required("burst", p.burst, "runs are formed in memory and written whole, not tuple by tuple");
  std::string refill(name_of(p.refill));
  v.required("refill", refill,
             "when one tape's memory is used up in a merge before the last: all are read, or one");
  p.refill = find_policy(kRefills, "refill", refill).refill;
  describe(v, p.tapes);
  describe(v, p.cpu);
  v.required("table_rate_bytes_per_s", p.table_rate,
             "of the disk that the tables lie on, all clients together");
  v.optional("ahead", p.ahead, "the next share of the tape that is refilled is read ahead");
  v.optional("seed", p.seed, "of all that is drawn");
}

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

template <class V>
void count(V& v, const ClientResult& c) {
  v("sorted_ns", c.sorted);
  v("ended_ns", c.ended);
  v("temp_blocks_read", c.temp_blocks_read);
  v("temp_blocks_written", c.temp_blocks_written);
  v("temp_file_blocks", c.temp_file_blocks);
  v("runs", c.runs);
  v("merges", c.merges);
  v("merged_bytes", c.merged);
  v("busy_sorted_ns", c.busy_sorted);
  v("busy_ended_ns", c.busy_ended);
}

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
