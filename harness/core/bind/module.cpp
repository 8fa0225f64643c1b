// The Python face of the core. Nothing here decides anything: it converts, releases the GIL for
// whatever takes long, and turns the core's errors into those of harness/errors.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/cancel.hpp"
#include "base/check.hpp"
#include "bind/convert.hpp"
#include "host/block_layer.hpp"
#include "io/file.hpp"
#include "io/memory.hpp"
#include "io/replay.hpp"
#include "io/virtual.hpp"
#include "join/join.hpp"
#include "join/record.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashlab {
namespace {

using bind::ByteArray;
using bind::Column;
using bind::counters_of;
using bind::DeviceParameters;
using bind::flash_of;
using bind::kRangesDoc;
using bind::make_device;
using bind::range_shares_of;
using bind::ranges_from;
using bind::RangeTuple;
using bind::to_numpy;

std::span<const std::byte> bytes_of(const ByteArray& array) {
  return {reinterpret_cast<const std::byte*>(array.data()), array.size()};
}

const char* error_class(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_parameter:
      return "BadParameter";
    case ErrorKind::target:
      return "TargetError";
    case ErrorKind::disk_full:
      return "DiskFull";
    case ErrorKind::io:
      return "DeviceError";
    case ErrorKind::corrupt:
      return "DataCorrupted";
    case ErrorKind::interrupted:
      return "Interrupted";
  }
  return "HarnessError";
}

void translate(const std::exception_ptr& error, void* /*unused*/) {
  try {
    std::rethrow_exception(error);
  } catch (const OperatingError& e) {
    const nb::object type = nb::module_::import_("harness.errors").attr(error_class(e.kind()));
    PyErr_SetString(type.ptr(), e.what());
  } catch (const Bug& e) {
    PyErr_SetString(PyExc_AssertionError, e.what());
  }
}

void bind_host(nb::module_& m) {
  nb::class_<host::HostParameters>(m, "HostParameters",
                                   "The machine above the device; see the host profiles.")
      .def(
          "__init__",
          [](host::HostParameters* self, std::int64_t cores, std::int64_t submit_cpu_ns,
             std::int64_t complete_cpu_ns, std::int64_t max_request_bytes, std::string io_scheduler,
             std::int64_t threads_per_core, double smt_gain) {
            new (self) host::HostParameters{cores,
                                            Nanos{submit_cpu_ns},
                                            Nanos{complete_cpu_ns},
                                            Bytes{max_request_bytes},
                                            std::move(io_scheduler),
                                            threads_per_core,
                                            smt_gain};
          },
          nb::kw_only(), "cores"_a, "submit_cpu_ns"_a, "complete_cpu_ns"_a, "max_request_bytes"_a,
          "io_scheduler"_a, "threads_per_core"_a = 1, "smt_gain_ratio"_a = 0.0);
}

void bind_storage(nb::module_& m) {
  nb::class_<Cancel>(m, "Cancel",
                     "Raised by one thread, obeyed by the long call that another is in.")
      .def(nb::init<>())
      .def("set", &Cancel::raise, "Raises it.");

  nb::class_<io::Storage>(m, "Storage", "What a join runs on.")
      .def_prop_ro("capacity_bytes", [](const io::Storage& s) { return s.capacity().count(); })
      .def_prop_ro("block_bytes", [](const io::Storage& s) { return s.block().count(); });

  nb::class_<io::ChunkPool>(m, "ChunkPool", "Memory that the storages of one sweep pass on.")
      .def(nb::init<>());

  nb::class_<io::VirtualStorage, io::Storage>(
      m, "VirtualStorage", "A device model and the host above it, in virtual time.")
      .def(
          "__init__",
          [](io::VirtualStorage* self, const DeviceParameters& device,
             const host::HostParameters& host, std::int64_t cell_bytes, std::int64_t kept_bytes,
             std::shared_ptr<io::ChunkPool> pool) {
            if (!pool) pool = std::make_shared<io::ChunkPool>();
            new (self)
                io::VirtualStorage([&](Host& events) { return make_device(device, events); }, host,
                                   Bytes{cell_bytes}, Bytes{kept_bytes}, std::move(pool));
          },
          "device"_a, "host"_a, nb::kw_only(), "cell_bytes"_a = 512, "kept_bytes"_a = 512,
          "pool"_a = nb::none())
      .def(
          "mount",
          [](io::VirtualStorage& s, std::int64_t offset_bytes, const ByteArray& cells) {
            s.mount(Bytes{offset_bytes}, bytes_of(cells));
          },
          "offset_bytes"_a, "cells"_a, nb::keep_alive<1, 3>(),
          "Puts prepared cells (uint8, kept_bytes of each) on the device without a copy.")
      .def("counters", [](const io::VirtualStorage& s) { return counters_of(s.device()); })
      .def(
          "set_ranges",
          [](io::VirtualStorage& s, const std::vector<RangeTuple>& ranges) {
            flash_of(s.device()).set_ranges(ranges_from(ranges), s.now());
          },
          "ranges"_a, kRangesDoc)
      .def("range_shares",
           [](const io::VirtualStorage& s) { return range_shares_of(flash_of(s.device())); })
      .def_prop_ro("now_ns", [](const io::VirtualStorage& s) { return s.now().count(); })
      .def_prop_ro(
          "device_busy_ns",
          [](const io::VirtualStorage& s) { return s.block_layer().device_busy().count(); })
      .def_prop_ro("device_requests",
                   [](const io::VirtualStorage& s) { return s.block_layer().requests(); });

  nb::class_<io::FileStorage, io::Storage>(m, "FileStorage", "A file or block device, O_DIRECT.")
      .def(nb::init<const std::string&, std::int64_t>(), "path"_a, "slowdown"_a = 1,
           "`slowdown`: all times are divided by it.")
      .def(
          "write",
          [](io::FileStorage& s, std::int64_t offset_bytes, const ByteArray& data) {
            const nb::gil_scoped_release release;
            s.write(Bytes{offset_bytes}, bytes_of(data));
          },
          "offset_bytes"_a, "data"_a)
      .def("sync", &io::FileStorage::sync, nb::call_guard<nb::gil_scoped_release>())
      .def("close", &io::FileStorage::close,
           "Lets the file go; nothing else may be called any more.")
      .def_static("has_io_uring", &io::FileStorage::has_io_uring);

  nb::class_<io::MemoryStorage, io::Storage>(m, "MemoryStorage", "Memory that answers at once.")
      .def(
          "__init__",
          [](io::MemoryStorage* self, std::int64_t capacity_bytes, std::int64_t block_bytes) {
            new (self) io::MemoryStorage(Bytes{capacity_bytes}, Bytes{block_bytes});
          },
          "capacity_bytes"_a, "block_bytes"_a = 512)
      .def(
          "write",
          [](io::MemoryStorage& s, std::int64_t offset_bytes, const ByteArray& data) {
            const auto at = static_cast<std::size_t>(offset_bytes);
            require(offset_bytes >= 0 && at + data.size() <= s.data().size(),
                    "memory storage: write past the end");
            const auto source = bytes_of(data);
            std::copy(source.begin(), source.end(), s.data().begin() + offset_bytes);
          },
          "offset_bytes"_a, "data"_a);
}

nb::dict io_counts(const join::IoCounts& c) {
  nb::dict out;
  out["ios"] = c.ios;
  out["bytes"] = c.bytes.count();
  out["by_size_log2"] = std::vector<std::uint64_t>(c.by_size.begin(), c.by_size.end());
  out["by_seek_log2"] = std::vector<std::uint64_t>(c.by_seek.begin(), c.by_seek.end());
  return out;
}

nb::dict trace_of(const std::vector<join::TraceRow>& rows) {
  std::vector<std::int64_t> submitted, completed, lba, bytes;
  std::vector<std::uint8_t> user, op, phase;
  for (const join::TraceRow& r : rows) {
    submitted.push_back(r.submitted.count());
    completed.push_back(r.completed.count());
    lba.push_back(r.lba.index());
    bytes.push_back(r.bytes.count());
    user.push_back(static_cast<std::uint8_t>(r.user));
    op.push_back(static_cast<std::uint8_t>(r.op));
    phase.push_back(static_cast<std::uint8_t>(r.phase));
  }
  nb::dict out;
  out["submitted_ns"] = to_numpy(std::move(submitted));
  out["completed_ns"] = to_numpy(std::move(completed));
  out["lba"] = to_numpy(std::move(lba));
  out["bytes"] = to_numpy(std::move(bytes));
  out["user"] = to_numpy(std::move(user));
  out["op"] = to_numpy(std::move(op));
  out["phase"] = to_numpy(std::move(phase));
  return out;
}

nb::dict user_result(const join::UserResult& r) {
  static constexpr const char* kPhaseNames[] = {"partition", "join", "repartition"};
  nb::dict out;
  out["matches"] = r.matches;
  out["checksum"] = r.checksum;
  out["partition_ns"] = r.partition.count();
  out["join_ns"] = r.join.count();
  out["repartition_ns"] = r.repartition.count();
  out["elapsed_ns"] = r.elapsed.count();
  out["partitions"] = r.partitions;
  out["role_reversals"] = r.role_reversals;
  out["overflows"] = r.overflows;
  out["nested_loops"] = r.nested_loops;
  out["resident_records"] = r.resident_records;
  out["memory_bytes"] = r.memory.count();
  nb::dict io;
  for (std::size_t phase = 0; phase < join::kPhases; ++phase) {
    nb::dict ops;
    ops["read"] = io_counts(r.io[phase][0]);
    ops["write"] = io_counts(r.io[phase][1]);
    io[kPhaseNames[phase]] = ops;
  }
  out["io"] = io;
  out["trace"] = trace_of(r.trace);
  return out;
}

void bind_join(nb::module_& m) {
  nb::enum_<join::Algorithm>(m, "Algorithm")
      .value("grace", join::Algorithm::grace)
      .value("hybrid", join::Algorithm::hybrid);

  nb::class_<join::JoinSpec>(m, "JoinSpec", "What a join is asked to do.")
      .def(
          "__init__",
          [](join::JoinSpec* self, join::Algorithm algorithm, std::int64_t read_buffer_bytes,
             std::int64_t write_buffer_bytes, std::int64_t input_io_bytes,
             std::int64_t memory_budget_bytes, std::uint32_t queue_depth, std::uint64_t hash_seed,
             std::int64_t partition_cpu_ns, std::int64_t build_cpu_ns, std::int64_t probe_cpu_ns,
             std::int64_t match_cpu_ns, bool trace) {
            new (self) join::JoinSpec{algorithm,
                                      Bytes{read_buffer_bytes},
                                      Bytes{write_buffer_bytes},
                                      Bytes{input_io_bytes},
                                      Bytes{memory_budget_bytes},
                                      queue_depth,
                                      hash_seed,
                                      {Nanos{partition_cpu_ns}, Nanos{build_cpu_ns},
                                       Nanos{probe_cpu_ns}, Nanos{match_cpu_ns}},
                                      trace};
          },
          nb::kw_only(), "algorithm"_a, "read_buffer_bytes"_a, "write_buffer_bytes"_a,
          "input_io_bytes"_a, "memory_budget_bytes"_a = 0, "queue_depth"_a = 1, "hash_seed"_a = 0,
          "partition_cpu_ns"_a = 0, "build_cpu_ns"_a = 0, "probe_cpu_ns"_a = 0,
          "match_cpu_ns"_a = 0, "trace"_a = false);

  nb::class_<join::UserJob>(m, "UserJob",
                            "One user's inputs on the device, and its space for partitions.")
      .def(
          "__init__",
          [](join::UserJob* self, std::int64_t build_offset_bytes, std::int64_t build_records,
             std::int64_t probe_offset_bytes, std::int64_t probe_records,
             std::int64_t scratch_begin_bytes, std::int64_t scratch_end_bytes) {
            new (self) join::UserJob{{Bytes{build_offset_bytes}, build_records},
                                     {Bytes{probe_offset_bytes}, probe_records},
                                     {Bytes{scratch_begin_bytes}, Bytes{scratch_end_bytes}}};
          },
          nb::kw_only(), "build_offset_bytes"_a, "build_records"_a, "probe_offset_bytes"_a,
          "probe_records"_a, "scratch_begin_bytes"_a, "scratch_end_bytes"_a);

  m.def(
      "run_joins",
      [](io::Storage& storage, const join::JoinSpec& spec, const std::vector<join::UserJob>& jobs,
         const Cancel& cancel) {
        std::vector<join::UserResult> results;
        {
          const nb::gil_scoped_release release;
          results = join::run_joins(storage, spec, jobs, cancel);
        }
        nb::list out;
        for (const join::UserResult& r : results) out.append(user_result(r));
        return out;
      },
      "storage"_a, "spec"_a, "jobs"_a, "cancel"_a,
      "Runs one join per job, side by side; one result dictionary per job. Releases the GIL.");

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

// A host that nothing happens on.
class NoHost final : public Host {
 public:
  void done(Tag /*tag*/, Nanos /*when*/) override {}
  void wake_at(Nanos /*when*/) override {}
};

void bind_replay(nb::module_& m) {
  m.def(
      "capacity_bytes",
      [](const DeviceParameters& parameters) {
        NoHost host;
        return make_device(parameters, host)->capacity().count();
      },
      "device"_a, "Builds the device; raises BadParameter if no such device can exist.");

  m.def(
      "replay",
      [](const DeviceParameters& parameters, const Column<std::uint8_t>& op,
         const Column<std::int64_t>& lba, const Column<std::int64_t>& sectors,
         const Column<std::int64_t>& arrival_ns, std::uint32_t depth, const Cancel& cancel) {
        const std::size_t n = op.size();
        require(lba.size() == n && sectors.size() == n && arrival_ns.size() == n,
                "replay: columns of different lengths");
        std::vector<io::ReplayRequest> requests(n);
        for (std::size_t i = 0; i < n; ++i) {
          requests[i] = {{static_cast<Op>(op(i)), Lba{lba(i)}, Sectors{sectors(i)}, false, 0},
                         Nanos{arrival_ns(i)}};
        }
        nb::dict counters;
        std::vector<io::ReplayTimes> times;
        {
          const nb::gil_scoped_release release;
          times = io::replay([&](Host& host) { return make_device(parameters, host); }, requests,
                             depth, cancel,
                             [&](const DeviceModel& device) {
                               const nb::gil_scoped_acquire acquire;
                               counters = counters_of(device);
                             });
        }
        std::vector<std::int64_t> submitted, completed;
        for (const io::ReplayTimes& t : times) {
          submitted.push_back(t.submitted.count());
          completed.push_back(t.completed.count());
        }
        nb::dict out;
        out["submitted_ns"] = to_numpy(std::move(submitted));
        out["completed_ns"] = to_numpy(std::move(completed));
        out["counters"] = counters;
        return out;
      },
      "device"_a, "op"_a, "lba"_a, "sectors"_a, "arrival_ns"_a, "depth"_a, "cancel"_a,
      "Requests (op uint8: 0 read, 1 write, 2 trim, 3 flush; lba and sectors int64, 512 B; "
      "arrival int64 ns) straight to a device model. Returns submitted_ns and completed_ns "
      "(int64 arrays) and the device's counters.");
}

}  // namespace
}  // namespace flashlab

NB_MODULE(_core, m) {
  m.doc() = "The compiled core of the harness: device models, join engine, storage.";
  // What it was built of, as JSON: see sources.py.
  m.attr("sources") =
#include "generated/sources.inc"
      ;
  nb::register_exception_translator(flashlab::translate);
  flashlab::bind::bind_devices(m);
  flashlab::bind_host(m);
  flashlab::bind_storage(m);
  flashlab::bind_replay(m);
  flashlab::bind_join(m);
  flashlab::bind::bind_dbms(m);
  flashlab::bind::bind_hash_join(m);
  flashlab::bind::bind_tpcc(m);
  flashlab::bind::bind_live(m);
}
