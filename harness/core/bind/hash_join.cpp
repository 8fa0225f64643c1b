// The Python face of the hash join over a file system that ages.
#include "dbms/hash_join.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "bind/convert.hpp"
#include "bind/describe.hpp"
#include "dbms/describe.hpp"
#include "kernel/describe.hpp"

namespace flashlab::bind {

namespace {

using namespace nb::literals;
namespace ext4 = kernel::ext4;

nb::dict run_to_dict(const dbms::JoinRun& run, const nb::handle& device) {
  nb::dict out = counts_of(run);
  out["files"] = counts_of(run.files);
  out["device"] = device;
  return out;
}

}  // namespace

void bind_hash_join(nb::module_& m) {
  bind_parameters<dbms::JoinInput>(m, "JoinInput",
                                   "One side of a hash join; see core/dbms/hash_join.hpp.");
  bind_parameters<dbms::HashJoinSpec>(m, "HashJoinSpec", "The join; see core/dbms/hash_join.hpp.");

  m.def(
      "run_hash_joins",
      [](const DeviceParameters& device, const host::HostParameters& host,
         const kernel::PageCacheParameters& cache, const ext4::Parameters& files,
         const dbms::HashJoinSpec& spec, const Cancel& cancel) {
        dbms::HashJoinResult result;
        nb::list devices;
        {
          const nb::gil_scoped_release release;
          host::Machine machine([&](Host& events) { return make_device(device, events); }, host);
          const auto repeated = [&] {
            const nb::gil_scoped_acquire acquire;
            devices.append(counters_of(machine.device()));
          };
          result = dbms::run_hash_joins(machine, cache, files, spec, repeated, cancel);
        }
        nb::list runs;
        for (std::size_t i = 0; i < result.runs.size(); ++i) {
          runs.append(run_to_dict(result.runs[i], devices[i]));
        }
        nb::dict out;
        out["runs"] = runs;
        out["temp_blocks"] = result.temp_blocks;
        Counts into(out);
        count(into, result.cache);
        count(into, result.allocator);
        out["device_requests"] = result.device_requests;
        out["trace"] = trace_of(result.trace);
        return out;
      },
      "device"_a, "host"_a, "cache"_a, "files"_a, "spec"_a, "cancel"_a,
      "The same hash join, again and again on one drive and file system. Returns a dict: `runs` "
      "(per "
      "repetition: times, `files` and `device` with counters since the first), totals, `trace`. "
      "Raises BadParameter, DiskFull, Interrupted.");
}

}  // namespace flashlab::bind
