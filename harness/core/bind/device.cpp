// Device models: their parameters, and a device in virtual time to run jobs and traces on.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <tuple>

#include "base/cancel.hpp"
#include "bind/control.hpp"
#include "bind/convert.hpp"
#include "bind/describe.hpp"
#include "disk/describe.hpp"
#include "flash/describe.hpp"
#include "host/describe.hpp"
#include "host/driver.hpp"

using namespace nanobind::literals;

namespace flashlab::bind {

std::unique_ptr<DeviceModel> make_device(const DeviceParameters& parameters, Host& host) {
  return std::visit(
      [&](const auto& p) -> std::unique_ptr<DeviceModel> {
        using P = std::decay_t<decltype(p)>;
        if constexpr (std::is_same_v<P, disk::HddParameters>) {
          return std::make_unique<disk::Hdd>(p, host);
        } else {
          return std::make_unique<flash::Ssd>(p, host);
        }
      },
      parameters);
}

namespace {

nb::dict op_result(const host::OpResult& op) {
  Buckets buckets = buckets_of(op.latency);
  nb::dict out;
  out["ios"] = op.ios;
  out["bytes"] = op.bytes.count();
  out["latency_sum_ns"] = op.latency.sum_ns();
  out["latency_min_ns"] = op.ios == 0 ? 0 : op.latency.least_ns();
  out["latency_max_ns"] = op.latency.largest_ns();
  out["latency_ns"] = to_numpy(std::move(buckets.lower));
  out["latency_count"] = to_numpy(std::move(buckets.counts));
  return out;
}

nb::dict rows_of(const std::vector<host::RequestRow>& rows) {
  using Row = host::RequestRow;
  return Columns(rows)
      .add("submitted_ns", &Row::submitted)
      .add("latency_ns", &Row::latency)
      .add("op", &Row::op)
      .add("lba", &Row::lba)
      .add("sectors", &Row::sectors)
      .dict();
}

nb::dict intervals_of(const std::vector<host::IntervalRow>& rows) {
  using Row = host::IntervalRow;
  return Columns(rows)
      .add("ios", &Row::ios)
      .add("bytes", &Row::bytes)
      .add("latency_sum_ns", &Row::latency_sum)
      .add("latency_max_ns", &Row::latency_max)
      .dict();
}

nb::dict run_result(const host::RunResult& r) {
  static constexpr std::array kNames{"read", "write", "trim", "flush"};
  nb::dict out;
  out["begin_ns"] = r.begin.count();
  out["end_ns"] = r.end.count();
  for (std::size_t op = 0; op < kNames.size(); ++op) out[kNames[op]] = op_result(r.ops[op]);
  out["rows"] = rows_of(r.rows);
  out["intervals"] = intervals_of(r.intervals);
  return out;
}

nb::list shares(std::span<const flash::Share> all) {
  nb::list out;
  for (const flash::Share& s : all) {
    out.append(nb::make_tuple(s.host_units, s.copied_units, s.padded_units, s.coalesced_units));
  }
  return out;
}

const flash::Ssd& flash_of(const host::Driver& driver) { return bind::flash_of(driver.device()); }
flash::Ssd& flash_of(host::Driver& driver) {
  return const_cast<flash::Ssd&>(flash_of(std::as_const(driver)));
}

void feed(host::Driver& driver, const Column<std::int64_t>& time, const Column<std::uint8_t>& op,
          const Column<std::int64_t>& lba, const Column<std::int64_t>& sectors,
          const Column<std::uint16_t>& stream, const Column<bool>& fua, const Cancel& cancel) {
  const std::size_t n = op.size();
  require(time.size() == n && lba.size() == n && sectors.size() == n && stream.size() == n &&
              fua.size() == n,
          "trace: columns of different lengths");
  const nb::gil_scoped_release release;
  std::vector<host::TimedRequest> requests(n);
  for (std::size_t i = 0; i < n; ++i) {
    require(op(i) < host::kOps, "trace: op must be 0 read, 1 write, 2 trim or 3 flush");
    requests[i] = {{static_cast<Op>(op(i)), Lba{lba(i)}, Sectors{sectors(i)}, fua(i), stream(i)},
                   Nanos{time(i)}};
  }
  driver.feed_trace(requests, cancel);
}

// Begins and ends in turn.
nb::object bounds_of(const std::vector<Extent>& extents) {
  std::vector<std::int64_t> bounds;
  for (const Extent& extent : extents) {
    bounds.push_back(extent.begin.index());
    bounds.push_back(extent.end.index());
  }
  return to_numpy(std::move(bounds));
}

std::int64_t trim(host::Driver& driver,
                  const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
  std::vector<Extent> extents;
  for (const auto& [begin, end] : ranges) {
    extents.push_back(extent_from(begin, end, "TRIM: a range"));
  }
  return driver.trim(extents).count();
}

}  // namespace

nb::dict counters_of(const DeviceModel& device) {
  if (const auto* hdd = dynamic_cast<const disk::Hdd*>(&device)) return counts_of(hdd->counters());
  return counts_of(dynamic_cast<const flash::Ssd&>(device));
}

flash::Ssd& flash_of(DeviceModel& device) {
  auto* ssd = dynamic_cast<flash::Ssd*>(&device);
  require(ssd != nullptr, "this is a hard disk: it has no flash");
  return *ssd;
}

const flash::Ssd& flash_of(const DeviceModel& device) {
  return flash_of(const_cast<DeviceModel&>(device));
}

Buckets buckets_of(const host::LatencyHistogram& histogram) {
  Buckets out;
  const auto& all = histogram.counts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == 0) continue;
    out.lower.push_back(static_cast<std::int64_t>(host::LatencyHistogram::lower_bound(i)));
    out.counts.push_back(static_cast<std::int64_t>(all[i]));
  }
  return out;
}

nb::dict trace_of(const std::vector<host::TracedRequest>& rows) {
  using Row = host::TracedRequest;
  return Columns(rows)
      .add("time_ns", &Row::when)
      .add("number", &Row::number)
      .add("lba", [](const Row& row) { return row.request.lba; })
      .add("sectors", [](const Row& row) { return row.request.sectors; })
      .add("op", [](const Row& row) { return row.request.op; })
      .add("stream", [](const Row& row) { return row.request.stream; })
      .dict();
}

Extent extent_from(std::int64_t begin, std::int64_t end, const std::string& what) {
  require(begin % kSectorBytes == 0 && end % kSectorBytes == 0,
          what + " must begin and end at a multiple of 512 B");
  return {to_lba(Bytes{begin}), to_lba(Bytes{end})};
}

std::vector<flash::NamedRange> ranges_from(const std::vector<RangeTuple>& ranges) {
  std::vector<flash::NamedRange> out;
  for (const auto& [name, begin, end, stream] : ranges) {
    out.push_back({name, extent_from(begin, end, "range " + name + ":"), stream});
  }
  return out;
}

nb::list ranges_of(const flash::Ssd& ssd) {
  nb::list out;
  for (const flash::NamedRange& r : ssd.ranges()) {
    out.append(nb::make_tuple(r.name, to_bytes(r.extent.begin).count(),
                              to_bytes(r.extent.end).count(), r.stream));
  }
  return out;
}

nb::list range_shares_of(const flash::Ssd& ssd) {
  return shares(ssd.ftl().attribution().by_range());
}

void bind_devices(nb::module_& m) {
  bind_parameters<disk::HddParameters>(m, "HddParameters", "Everything that makes one disk.");
  bind_parameters<flash::SsdParameters>(m, "SsdParameters",
                                        "Everything that makes one flash drive.");
  bind_parameters<host::JobParameters>(m, "JobParameters",
                                       "A stream of requests, as fio would make it.");
  using Driver = host::Driver;
  nb::class_<Driver> device(m, "Device",
                            "A device model in virtual time, without a host above it.");
  bind_flash_control(device, [](Driver& d, const auto& change) {
    const nb::gil_scoped_release release;
    change(flash_of(d), d.now());
  });
  device
      .def(
          "__init__",
          [](Driver* self, const DeviceParameters& parameters) {
            new (self) Driver([&](Host& host) { return make_device(parameters, host); });
          },
          "parameters"_a)
      .def_prop_ro("now_ns", [](const Driver& d) { return d.now().count(); })
      .def_prop_ro("capacity_bytes", [](const Driver& d) { return d.device().capacity().count(); })
      .def_prop_ro("queue_depth", [](const Driver& d) { return d.device().queue_depth(); })
      .def(
          "run",
          [](Driver& d, const std::vector<host::JobParameters>& jobs, bool rows,
             std::int64_t interval_ns, const Cancel& cancel) {
            std::vector<host::RunResult> results;
            {
              const nb::gil_scoped_release release;
              results = d.run(jobs, {rows, Nanos{interval_ns}}, cancel);
            }
            nb::list out;
            for (const host::RunResult& r : results) out.append(run_result(r));
            return out;
          },
          "jobs"_a, nb::kw_only(), "rows"_a, "interval_ns"_a, "cancel"_a,
          "Runs jobs side by side; a dictionary for each. Releases the GIL.")
      .def("trim", trim, "ranges"_a, "One command; ranges are (begin, end) bytes. Latency in ns.")
      .def(
          "begin_trace",
          [](Driver& d, std::uint32_t depth, bool rows, std::int64_t interval_ns,
             bool as_submitted) { d.begin_trace(depth, {rows, Nanos{interval_ns}}, as_submitted); },
          nb::kw_only(), "depth"_a, "rows"_a, "interval_ns"_a, "as_submitted"_a = false)
      .def("feed_trace", feed, nb::kw_only(), "time_ns"_a, "op"_a, "lba"_a, "sectors"_a, "stream"_a,
           "fua"_a, "cancel"_a)
      .def(
          "end_trace",
          [](Driver& d, const Cancel& cancel) {
            host::RunResult result;
            {
              const nb::gil_scoped_release release;
              result = d.end_trace(cancel);
            }
            return run_result(result);
          },
          "cancel"_a)
      .def(
          "idle", [](Driver& d, std::int64_t ns) { d.idle(Nanos{ns}); }, "length_ns"_a)
      .def(
          "power_cut", [](Driver& d) { return bounds_of(d.power_cut()); },
          "Begins and ends (LBA, int64) of the extents in doubt, in turn.")
      .def(
          "in_doubt", [](Driver& d) { return bounds_of(d.in_doubt()); },
          "The same, of a power cut that does not happen.")
      .def_prop_ro("trim_policy",
                   [](const Driver& d) { return std::string(flash_of(d).trim_policy()); })
      .def("save",
           [](Driver& d) {
             const auto bytes = saved_by([&](Archive& archive) { d.archive(archive); });
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def(
          "restore",
          [](Driver& d, const nb::bytes& saved) {
            restore_all({static_cast<const std::byte*>(saved.data()), saved.size()},
                        [&](Archive& archive) { d.archive(archive); });
          },
          "saved"_a, "A state that does not fit leaves the device as it was.")
      .def(
          "counters",
          [](Driver& d) {
            d.device().wake(d.now());
            return counters_of(d.device());
          },
          "As of now.")
      .def("reset_counters",
           [](Driver& d) {
             d.device().wake(d.now());  // what was due until now is not counted from now on
             flash_of(d).reset_counters();
           })
      .def("stream_shares",
           [](const Driver& d) { return shares(flash_of(d).ftl().attribution().by_stream()); })
      .def("range_shares", [](const Driver& d) { return range_shares_of(flash_of(d)); })
      .def_prop_ro("ranges", [](const Driver& d) { return ranges_of(flash_of(d)); })
      .def_prop_ro("spare_factor",
                   [](const Driver& d) { return flash_of(d).ftl().geometry().spare_factor(); })
      .def("block_erases",
           [](const Driver& d) {
             const flash::Ftl& ftl = flash_of(d).ftl();
             std::vector<std::uint32_t> erases;
             for (flash::Block b = 0; b < ftl.geometry().blocks(); ++b) {
               erases.push_back(ftl.blocks().erases(b));
             }
             return to_numpy(std::move(erases));
           })
      .def("mapping", [](const Driver& d) {
        const flash::Ftl& ftl = flash_of(d).ftl();
        std::vector<std::int64_t> slots(ftl.geometry().lpns());
        for (flash::Lpn lpn = 0; lpn < slots.size(); ++lpn) {
          const flash::Slot slot = ftl.map().find(lpn);
          slots[lpn] = slot == flash::kNoSlot ? -1 : static_cast<std::int64_t>(slot);
        }
        return to_numpy(std::move(slots));
      });
}

}  // namespace flashlab::bind
