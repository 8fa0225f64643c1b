// The Python face of the database models.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "bind/convert.hpp"
#include "bind/describe.hpp"
#include "dbms/describe.hpp"
#include "dbms/policy/merge_plan.hpp"
#include "dbms/sort_merge_join.hpp"
#include "kernel/describe.hpp"

namespace flashlab::bind {

using namespace nb::literals;

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

  bind_parameters<kernel::PageCacheParameters>(
      m, "PageCacheParameters", "The kernel's page cache; see core/kernel/page_cache.hpp.");
  bind_parameters<kernel::ext4::Parameters>(
      m, "Ext4Parameters", "ext4 under temporary files; see core/kernel/ext4/ext4.hpp.");
  bind_parameters<dbms::SortedTable>(m, "SortedTable",
                                     "A table to be sorted; see core/dbms/sort_merge_join.hpp.");
  bind_parameters<dbms::SortMergeJoinSpec>(
      m, "SortMergeJoinSpec", "The sorts and the join; see core/dbms/sort_merge_join.hpp.");

  m.def(
      "run_sort_merge_joins",
      [](const DeviceParameters& device, const host::HostParameters& host,
         const kernel::PageCacheParameters& cache, const dbms::SortMergeJoinSpec& spec,
         std::uint32_t clients, const Cancel& cancel,
         const std::optional<kernel::ext4::Parameters>& files) {
        dbms::SortMergeJoinResult result;
        nb::dict counters;
        {
          const nb::gil_scoped_release release;
          host::Machine machine([&](Host& events) { return make_device(device, events); }, host);
          result = dbms::run_sort_merge_joins(machine, cache, files, spec, clients, cancel);
          const nb::gil_scoped_acquire acquire;
          counters = counters_of(machine.device());
        }
        nb::list each;
        for (const dbms::ClientResult& c : result.clients) each.append(counts_of(c));
        nb::dict out;
        out["clients"] = each;
        out["join_reads"] = counts_of(result.join_reads);
        out["cache"] = counts_of(result.cache);
        out["device"] = counters;
        out["device_requests"] = result.device_requests;
        out["ended_ns"] = result.ended.count();
        out["trace"] = trace_of(result.trace);
        return out;
      },
      "device"_a, "host"_a, "cache"_a, "spec"_a, "clients"_a, "cancel"_a, "files"_a = nb::none(),
      "The same sort-merge join by each of `clients`, side by side in virtual time. `files` is the "
      "file system; without one, files get the device's space in turn. Returns dicts: `clients` (a "
      "list), `join_reads`, `cache`, `device`, `trace`. Raises BadParameter, DiskFull, "
      "Interrupted.");
}

}  // namespace flashlab::bind
