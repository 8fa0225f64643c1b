// The Python face of the hash join over a file system that ages.
#include "dbms/hash_join.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "bind/convert.hpp"

namespace flashlab::bind {

namespace {

using namespace nb::literals;
namespace ext4 = host::ext4;

nb::list lengths_to_list(const ext4::Lengths& lengths) {
  nb::list out;
  for (const std::uint64_t count : lengths) out.append(count);
  return out;
}

nb::dict files_to_dict(const ext4::Counters& c) {
  nb::dict out;
  out["files"] = c.files;
  out["extents"] = c.extents;
  out["commits"] = c.commits;
  out["journal_blocks"] = c.journal_blocks;
  out["discards"] = c.discards;
  out["discarded_blocks"] = c.discarded_blocks;
  out["reused_blocks"] = c.reused_blocks;
  out["discard_wait_ns"] = c.discard_wait.count();
  out["extent_lengths"] = lengths_to_list(c.extent_lengths);
  out["discard_lengths"] = lengths_to_list(c.discard_lengths);
  return out;
}

nb::dict run_to_dict(const dbms::JoinRun& run, const nb::handle& device) {
  nb::dict out;
  out["begun_ns"] = run.begun.count();
  out["partitioned_ns"] = run.partitioned.count();
  out["joined_ns"] = run.joined.count();
  out["settled_ns"] = run.settled.count();
  out["files"] = files_to_dict(run.files);
  out["device"] = device;
  return out;
}

nb::dict trace_to_dict(const std::vector<dbms::TracedRequest>& trace) {
  std::vector<std::int64_t> time;
  std::vector<std::int64_t> lba;
  std::vector<std::int64_t> sectors;
  std::vector<std::uint8_t> op;
  for (const dbms::TracedRequest& row : trace) {
    time.push_back(row.when.count());
    lba.push_back(row.request.lba.index());
    sectors.push_back(row.request.sectors.count());
    op.push_back(static_cast<std::uint8_t>(row.request.op));
  }
  nb::dict out;
  out["time_ns"] = to_numpy(std::move(time));
  out["lba"] = to_numpy(std::move(lba));
  out["sectors"] = to_numpy(std::move(sectors));
  out["op"] = to_numpy(std::move(op));
  return out;
}

}  // namespace

void bind_hash_join(nb::module_& m) {
  nb::class_<ext4::Parameters>(m, "Ext4Parameters",
                               "ext4 under temporary files; see core/host/ext4/ext4.hpp.")
      .def(
          "__init__",
          [](ext4::Parameters* self, std::int64_t cache_block_bytes, const std::string& discard,
             std::int64_t commit_ns, std::int64_t preallocation_bytes, std::int64_t journal_bytes,
             std::int64_t occupied_bytes, bool recent, std::uint32_t stream_goals) {
            ext4::AllocatorRules rules;
            rules.recent = recent;
            rules.stream_goals = stream_goals;
            new (self) ext4::Parameters{Bytes{cache_block_bytes},
                                        discard,
                                        Nanos{commit_ns},
                                        Bytes{preallocation_bytes},
                                        Bytes{journal_bytes},
                                        Bytes{occupied_bytes},
                                        rules};
          },
          nb::kw_only(), "cache_block_bytes"_a = 8192, "discard"_a = "none",
          "commit_ns"_a = 5'000'000'000, "preallocation_bytes"_a = 0, "journal_bytes"_a = 128 << 20,
          "occupied_bytes"_a = 0, "recent"_a = false, "stream_goals"_a = 1,
          "discard: none, synchronous, asynchronous.");

  nb::class_<dbms::JoinInput>(m, "JoinInput", "One side of a hash join; see dbms/hash_join.hpp.")
      .def(
          "__init__",
          [](dbms::JoinInput* self, std::int64_t tuples, std::int64_t heap_bytes,
             double temp_tuple_bytes) {
            new (self) dbms::JoinInput{tuples, Bytes{heap_bytes}, temp_tuple_bytes};
          },
          nb::kw_only(), "tuples"_a, "heap_bytes"_a, "temp_tuple_bytes"_a);

  nb::class_<dbms::HashJoinSpec>(m, "HashJoinSpec", "The join; see core/dbms/hash_join.hpp.")
      .def(
          "__init__",
          [](dbms::HashJoinSpec* self, const dbms::JoinInput& inner, const dbms::JoinInput& outer,
             std::int64_t batches, std::int64_t repetitions, std::int64_t scan_cpu_ns,
             std::int64_t build_cpu_ns, std::int64_t probe_cpu_ns, std::int64_t open_cpu_ns,
             std::int64_t open_files, std::int64_t table_rate_bytes_per_s, bool settle,
             bool trim_after, std::int64_t traced, std::int64_t trace_every, std::uint64_t seed) {
            new (self) dbms::HashJoinSpec{
                inner,
                outer,
                batches,
                repetitions,
                {Nanos{scan_cpu_ns}, Nanos{build_cpu_ns}, Nanos{probe_cpu_ns}, Nanos{open_cpu_ns}},
                open_files,
                BytesPerSecond{table_rate_bytes_per_s},
                settle,
                trim_after,
                traced,
                trace_every,
                seed};
          },
          nb::kw_only(), "inner"_a, "outer"_a, "batches"_a, "repetitions"_a = 1, "scan_cpu_ns"_a,
          "build_cpu_ns"_a, "probe_cpu_ns"_a, "open_cpu_ns"_a = 0, "open_files"_a = 990,
          "table_rate_bytes_per_s"_a, "settle"_a = false, "trim_after"_a = false, "traced"_a = -1,
          "trace_every"_a = 1, "seed"_a = 0, "CPU times are per tuple.");

  m.def(
      "run_hash_joins",
      [](const DeviceParameters& device, const host::HostParameters& host,
         const host::PageCacheParameters& cache, const ext4::Parameters& files,
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
        out["read_blocks"] = result.cache.read_blocks;
        out["missed_blocks"] = result.cache.missed_blocks;
        out["device_read_blocks"] = result.cache.device_read_blocks;
        out["device_write_blocks"] = result.cache.device_write_blocks;
        out["read_wait_ns"] = result.cache.read_wait.count();
        out["write_wait_ns"] = result.cache.write_wait.count();
        out["allocator_requests"] = result.allocator.requests;
        out["allocator_at_goal"] = result.allocator.at_goal;
        out["allocator_shortened"] = result.allocator.shortened;
        out["device_requests"] = result.device_requests;
        out["trace"] = trace_to_dict(result.trace);
        return out;
      },
      "device"_a, "host"_a, "cache"_a, "files"_a, "spec"_a, "cancel"_a,
      "The same hash join, again and again on one drive and file system. Returns a dict: `runs` "
      "(per "
      "repetition: times, `files` and `device` with counters since the first), totals, `trace`. "
      "Raises BadParameter, DiskFull, Interrupted.");
}

}  // namespace flashlab::bind
