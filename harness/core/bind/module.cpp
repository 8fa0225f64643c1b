// The Python face of the core. Nothing here decides anything: it converts, releases the GIL for
// whatever takes long, and turns the core's errors into those of harness/errors.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/cancel.hpp"
#include "base/check.hpp"
#include "bind/control.hpp"
#include "bind/convert.hpp"
#include "bind/describe.hpp"
#include "host/block_layer.hpp"
#include "host/describe.hpp"
#include "io/file.hpp"
#include "io/memory.hpp"
#include "io/replay.hpp"
#include "io/virtual.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashlab {
namespace {

using bind::ByteArray;
using bind::Column;
using bind::Columns;
using bind::counters_of;
using bind::DeviceParameters;
using bind::flash_of;
using bind::make_device;
using bind::range_shares_of;
using bind::to_numpy;

std::span<const std::byte> bytes_of(const ByteArray& array) {
  return {reinterpret_cast<const std::byte*>(array.data()), array.size()};
}

const char* error_class(ErrorKind kind) {
  struct Named {
    ErrorKind kind;
    const char* name;
  };
  static constexpr std::array kNames{
      Named{ErrorKind::bad_parameter, "BadParameter"}, Named{ErrorKind::target, "TargetError"},
      Named{ErrorKind::disk_full, "DiskFull"},         Named{ErrorKind::io, "DeviceError"},
      Named{ErrorKind::corrupt, "DataCorrupted"},      Named{ErrorKind::interrupted, "Interrupted"},
  };
  const auto named = std::ranges::find(kNames, kind, &Named::kind);
  return named == kNames.end() ? "HarnessError" : named->name;
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
  bind::bind_parameters<host::HostParameters>(m, "HostParameters", "The machine above the device.");
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

  nb::class_<io::VirtualStorage, io::Storage> in_virtual_time(
      m, "VirtualStorage", "A device model and the host above it, in virtual time.");
  bind::bind_ranges(in_virtual_time, [](io::VirtualStorage& s, const auto& change) {
    const nb::gil_scoped_release release;
    change(flash_of(s.device()), s.now());
  });
  in_virtual_time
      .def(
          "__init__",
          [](io::VirtualStorage* self, const DeviceParameters& device,
             const host::HostParameters& host, std::int64_t cell_bytes, std::int64_t kept_bytes,
             std::shared_ptr<io::ChunkPool> pool, bool has_contents) {
            if (!pool) pool = std::make_shared<io::ChunkPool>();
            new (self) io::VirtualStorage([&](Host& events) { return make_device(device, events); },
                                          host, Bytes{cell_bytes}, Bytes{kept_bytes},
                                          std::move(pool), has_contents);
          },
          "device"_a, "host"_a, nb::kw_only(), "cell_bytes"_a = 512, "kept_bytes"_a = 512,
          "pool"_a = nb::none(), "has_contents"_a = true)
      .def(
          "mount",
          [](io::VirtualStorage& s, std::int64_t offset_bytes, const ByteArray& cells) {
            s.mount(Bytes{offset_bytes}, bytes_of(cells));
          },
          "offset_bytes"_a, "cells"_a, nb::keep_alive<1, 3>(),
          "Puts prepared cells (uint8, kept_bytes of each) on the device without a copy.")
      .def("counters", [](const io::VirtualStorage& s) { return counters_of(s.device()); })
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
        nb::dict out = Columns(times)
                           .add("submitted_ns", &io::ReplayTimes::submitted)
                           .add("completed_ns", &io::ReplayTimes::completed)
                           .dict();
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
  flashlab::bind::bind_fields(m);
  flashlab::bind::bind_policies(m);
  flashlab::bind::bind_devices(m);
  flashlab::bind_host(m);
  flashlab::bind_storage(m);
  flashlab::bind_replay(m);
  flashlab::bind::bind_join(m);
  flashlab::bind::bind_dbms(m);
  flashlab::bind::bind_hash_join(m);
  flashlab::bind::bind_tpcc(m);
  flashlab::bind::bind_live(m);
}
