// The Python face of the join engine.
#include "join/join.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "base/cancel.hpp"
#include "bind/convert.hpp"
#include "bind/describe.hpp"
#include "join/describe.hpp"
#include "join/record.hpp"

namespace flashlab::bind {

namespace {

using namespace nb::literals;

nb::dict trace_of(const std::vector<join::TraceRow>& rows) {
  using Row = join::TraceRow;
  return Columns(rows)
      .add("submitted_ns", &Row::submitted)
      .add("completed_ns", &Row::completed)
      .add("lba", &Row::lba)
      .add("bytes", &Row::bytes)
      .add("user", [](const Row& row) { return static_cast<std::uint8_t>(row.user); })
      .add("op", &Row::op)
      .add("phase", &Row::phase)
      .dict();
}

nb::dict user_result(const join::UserResult& r) {
  static constexpr const char* kPhaseNames[] = {"partition", "join", "repartition"};
  nb::dict out = counts_of(r);
  nb::dict io;
  for (std::size_t phase = 0; phase < join::kPhases; ++phase) {
    nb::dict ops;
    ops["read"] = counts_of(r.io[phase][0]);
    ops["write"] = counts_of(r.io[phase][1]);
    io[kPhaseNames[phase]] = ops;
  }
  out["io"] = io;
  out["trace"] = trace_of(r.trace);
  return out;
}

nb::list user_results(const std::vector<join::UserResult>& results) {
  nb::list out;
  for (const join::UserResult& r : results) out.append(user_result(r));
  return out;
}

}  // namespace

void bind_join(nb::module_& m) {
  nb::enum_<join::Algorithm>(m, "Algorithm")
      .value("grace", join::Algorithm::grace)
      .value("hybrid", join::Algorithm::hybrid);

  bind_parameters<join::JoinSpec>(m, "JoinSpec", "What a join is asked to do.");
  bind_parameters<join::UserJob>(m, "UserJob",
                                 "One user's inputs on the device, and its space for partitions.");

  nb::class_<join::Transcript>(m, "JoinTranscript",
                               "What synchronous joins did, without their data.")
      .def(nb::init<>());

  m.def(
      "run_joins",
      [](io::Storage& storage, const join::JoinSpec& spec, const std::vector<join::UserJob>& jobs,
         const Cancel& cancel, join::Transcript* transcript) {
        std::vector<join::UserResult> results;
        {
          const nb::gil_scoped_release release;
          results = join::run_joins(storage, spec, jobs, cancel, transcript);
        }
        return user_results(results);
      },
      "storage"_a, "spec"_a, "jobs"_a, "cancel"_a, "transcript"_a = nb::none(),
      "Runs one join per job, side by side; one result dictionary per job. Releases the GIL.\n\n"
      "`transcript`: is made of it. Raises BadParameter for one if queue_depth is not 1.");

  m.def(
      "repeat_joins",
      [](io::Storage& storage, const join::JoinSpec& spec, const std::vector<join::UserJob>& jobs,
         const Cancel& cancel, const join::Transcript& transcript) {
        std::vector<join::UserResult> results;
        {
          const nb::gil_scoped_release release;
          results = join::repeat_joins(storage, spec, jobs, cancel, transcript);
        }
        return user_results(results);
      },
      "storage"_a, "spec"_a, "jobs"_a, "cancel"_a, "transcript"_a,
      "What run_joins would give, of the steps of a transcript: on a storage without contents. "
      "Releases the GIL.\n\n"
      "Raises BadParameter for a storage with contents, or if the joins differ from the "
      "transcript's in more than CPU times and `trace`.");

  m.def(
      "scratch_bytes_needed",
      [](const join::JoinSpec& spec, std::int64_t build_records, std::int64_t probe_records,
         std::int64_t block_bytes) {
        return join::scratch_needed(spec, {Bytes{0}, build_records}, {Bytes{0}, probe_records},
                                    Bytes{block_bytes})
            .count();
      },
      "spec"_a, "build_records"_a, "probe_records"_a, "block_bytes"_a);

  m.def(
      "join_memory_bytes",
      [](const join::JoinSpec& spec, std::int64_t build_records, std::int64_t block_bytes) {
        return join::make_plan(spec, build_records, Bytes{block_bytes}).memory.count();
      },
      "spec"_a, "build_records"_a, "block_bytes"_a,
      "Memory of one user's join: all buffers and the hash table.");

  m.def("partitions_for", &join::partitions_for, "records"_a, "capacity_records"_a);

  m.def(
      "record_signatures",
      [](const Column<std::int64_t>& key, const Column<std::uint64_t>& row,
         const Column<std::uint32_t>& first, const Column<std::uint32_t>& second) {
        const std::size_t n = key.size();
        require(row.size() == n && first.size() == n && second.size() == n,
                "record_signatures: columns of different lengths");
        std::vector<std::uint64_t> signatures(n);
        for (std::size_t i = 0; i < n; ++i) {
          signatures[i] = join::signature_of({key(i), row(i), {first(i), second(i)}, 0});
        }
        return to_numpy(std::move(signatures));
      },
      "key"_a, "row"_a, "first"_a, "second"_a,
      "uint64 signatures of records with these columns (join/record.hpp).");
}

}  // namespace flashlab::bind
