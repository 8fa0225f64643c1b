// The Python face of the database models.
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "bind/convert.hpp"
#include "dbms/policy/merge_plan.hpp"
#include "dbms/sort_merge_join.hpp"

namespace flashlab::bind {

namespace {

using namespace nb::literals;

dbms::Refill refill_of(const std::string& name) {
  if (name == "all") return dbms::Refill::all;
  if (name == "one") return dbms::Refill::one;
  throw OperatingError(ErrorKind::bad_parameter, "unknown refill '" + name + "' (known: all, one)");
}

nb::dict client_to_dict(const dbms::ClientResult& c) {
  nb::dict out;
  out["sorted_ns"] = c.sorted.count();
  out["ended_ns"] = c.ended.count();
  out["temp_blocks_read"] = c.temp_blocks_read;
  out["temp_blocks_written"] = c.temp_blocks_written;
  out["temp_file_blocks"] = c.temp_file_blocks;
  out["runs"] = c.runs;
  out["merges"] = c.merges;
  out["merged_bytes"] = c.merged.count();
  out["busy_sorted_ns"] = c.busy_sorted.count();
  out["busy_ended_ns"] = c.busy_ended.count();
  return out;
}

nb::dict cache_to_dict(const host::PageCacheCounters& c) {
  nb::dict out;
  out["read_blocks"] = c.read_blocks;
  out["missed_blocks"] = c.missed_blocks;
  out["written_blocks"] = c.written_blocks;
  out["device_read_blocks"] = c.device_read_blocks;
  out["device_write_blocks"] = c.device_write_blocks;
  out["read_wait_ns"] = c.read_wait.count();
  out["write_wait_ns"] = c.write_wait.count();
  return out;
}

}  // namespace

void bind_dbms(nb::module_& m) {
  m.def(
      "merge_plan",
      [](const std::string& name, std::int64_t order, std::int64_t runs) {
        require(runs >= 1, "merge plan: at least one run");
        const auto plan = dbms::make_merge_plan(name, order);
        std::vector<std::int64_t> dealt;
        for (std::int64_t i = 0; i < runs; ++i) dealt.push_back(plan->deal());
        nb::list merges;
        while (const auto merge = plan->next()) {
          merges.append(nb::make_tuple(merge->inputs, merge->output, merge->last));
        }
        return nb::make_tuple(dealt, merges);
      },
      "name"_a, "order"_a, "runs"_a,
      "The plan (polyphase, balanced) of a sort that merges `order` runs at once. Returns the tape "
      "of each initial run, and the merges in their order: (tapes that one run each is taken of, "
      "tape that the result goes to, whether it is the last). Raises BadParameter.");

  nb::class_<host::PageCacheParameters>(m, "PageCacheParameters",
                                        "The kernel's page cache; see core/host/page_cache.hpp.")
      .def(
          "__init__",
          [](host::PageCacheParameters* self, std::int64_t memory_bytes, std::int64_t block_bytes,
             std::int64_t read_ahead_bytes, double dirty_background_ratio, double dirty_ratio,
             std::uint32_t queue_limit, std::int64_t allocation_bytes, std::int64_t segment_bytes,
             std::int64_t begin_bytes, std::int64_t copy_cpu_ns) {
            new (self) host::PageCacheParameters{
                Bytes{memory_bytes},     Bytes{block_bytes},   Bytes{read_ahead_bytes},
                dirty_background_ratio,  dirty_ratio,          queue_limit,
                Bytes{allocation_bytes}, Bytes{segment_bytes}, Bytes{begin_bytes},
                Nanos{copy_cpu_ns}};
          },
          nb::kw_only(), "memory_bytes"_a, "block_bytes"_a = 8192, "read_ahead_bytes"_a = 131072,
          "dirty_background_ratio"_a = 0.1, "dirty_ratio"_a = 0.2, "queue_limit"_a = 128,
          "allocation_bytes"_a = 8 << 20, "segment_bytes"_a = 1 << 30, "begin_bytes"_a = 0,
          "copy_cpu_ns"_a = 0);

  nb::class_<dbms::SortedTable>(m, "SortedTable",
                                "A table to be sorted; see core/dbms/sort_merge_join.hpp.")
      .def(
          "__init__",
          [](dbms::SortedTable* self, std::int64_t tuples, std::int64_t heap_bytes,
             std::int64_t tuple_bytes, std::int64_t first_run_tuples,
             std::int64_t second_run_tuples, std::int64_t run_tuples,
             std::int64_t merge_memory_bytes, std::int64_t write_memory_bytes,
             std::int64_t share_unit_bytes) {
            new (self) dbms::SortedTable{tuples,
                                         Bytes{heap_bytes},
                                         Bytes{tuple_bytes},
                                         first_run_tuples,
                                         second_run_tuples,
                                         run_tuples,
                                         Bytes{merge_memory_bytes},
                                         Bytes{write_memory_bytes},
                                         share_unit_bytes};
          },
          nb::kw_only(), "tuples"_a, "heap_bytes"_a, "tuple_bytes"_a, "first_run_tuples"_a,
          "second_run_tuples"_a, "run_tuples"_a, "merge_memory_bytes"_a, "write_memory_bytes"_a = 0,
          "share_unit_bytes"_a = 1);

  nb::class_<dbms::SortMergeJoinSpec>(m, "SortMergeJoinSpec",
                                      "The sorts and the join; see core/dbms/sort_merge_join.hpp.")
      .def(
          "__init__",
          [](dbms::SortMergeJoinSpec* self, const std::vector<dbms::SortedTable>& tables,
             const std::string& merge, std::int64_t merge_order, bool burst,
             const std::string& refill, std::int64_t payload_bytes, bool reserve_block,
             std::int64_t scan_cpu_ns, std::int64_t compare_cpu_ns, std::int64_t copy_cpu_ns,
             std::int64_t join_cpu_ns, std::int64_t table_rate_bytes_per_s, bool ahead,
             std::int64_t piece_blocks, std::uint64_t seed) {
            new (self) dbms::SortMergeJoinSpec{
                merge,
                merge_order,
                burst,
                refill_of(refill),
                ahead,
                {Bytes{}, Bytes{payload_bytes}, reserve_block, piece_blocks},
                tables,
                {Nanos{scan_cpu_ns}, Nanos{compare_cpu_ns}, Nanos{copy_cpu_ns}, Nanos{join_cpu_ns}},
                BytesPerSecond{table_rate_bytes_per_s},
                seed};
          },
          nb::kw_only(), "tables"_a, "merge"_a, "merge_order"_a, "burst"_a, "refill"_a,
          "payload_bytes"_a, "reserve_block"_a, "scan_cpu_ns"_a, "compare_cpu_ns"_a,
          "copy_cpu_ns"_a, "join_cpu_ns"_a, "table_rate_bytes_per_s"_a, "ahead"_a = false,
          "piece_blocks"_a = 1, "seed"_a = 0,
          "`tables` in the order in which they are sorted; merge: polyphase, balanced; burst: runs "
          "are formed in memory and written whole; refill: all, one (of the merges before the "
          "last). CPU times are per tuple.");

  m.def(
      "run_sort_merge_joins",
      [](const DeviceParameters& device, const host::HostParameters& host,
         const host::PageCacheParameters& cache, const dbms::SortMergeJoinSpec& spec,
         std::uint32_t clients, const Cancel& cancel) {
        dbms::SortMergeJoinResult result;
        nb::dict counters;
        {
          const nb::gil_scoped_release release;
          host::Machine machine([&](Host& events) { return make_device(device, events); }, host);
          result = dbms::run_sort_merge_joins(machine, cache, spec, clients, cancel);
          const nb::gil_scoped_acquire acquire;
          counters = counters_of(machine.device());
        }
        nb::list each;
        for (const dbms::ClientResult& c : result.clients) each.append(client_to_dict(c));
        nb::dict out;
        out["clients"] = each;
        out["cache"] = cache_to_dict(result.cache);
        out["device"] = counters;
        out["device_requests"] = result.device_requests;
        out["ended_ns"] = result.ended.count();
        return out;
      },
      "device"_a, "host"_a, "cache"_a, "spec"_a, "clients"_a, "cancel"_a,
      "The same sort-merge join by each of `clients`, side by side in virtual time. Returns dicts: "
      "`clients` (a list), `cache`, `device`. Raises BadParameter, DiskFull, Interrupted.");
}

}  // namespace flashlab::bind
