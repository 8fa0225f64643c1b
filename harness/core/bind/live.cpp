// Live devices: a model against the real clock, whatever serves it to the kernel.
#include "bind/live.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "io/path_probe.hpp"

using namespace nanobind::literals;

namespace flashlab::bind {

namespace {

using live::LiveCounters;
using live::LiveDevice;

constexpr std::array kOps{"read", "write", "trim", "flush"};

Op op_named(const std::string& name) {
  for (std::size_t i = 0; i < kOps.size(); ++i) {
    if (name == kOps[i]) return static_cast<Op>(i);
  }
  throw OperatingError(ErrorKind::bad_parameter,
                       "unknown operation '" + name + "'; known: read, write, trim, flush");
}

live::Pace pace_named(const std::string& name) {
  if (name == "real") return live::Pace::real;
  if (name == "virtual") return live::Pace::virtual_time;
  if (name == "none") return live::Pace::none;
  if (name == "constant") return live::Pace::constant;
  throw OperatingError(ErrorKind::bad_parameter,
                       "unknown pace '" + name + "'; known: real, virtual, none");
}

nb::dict histogram_of(const host::LatencyHistogram& histogram) {
  std::vector<std::int64_t> lower;
  std::vector<std::int64_t> counts;
  const auto& all = histogram.counts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == 0) continue;
    lower.push_back(static_cast<std::int64_t>(host::LatencyHistogram::lower_bound(i)));
    counts.push_back(static_cast<std::int64_t>(all[i]));
  }
  nb::dict out;
  out["sum_ns"] = histogram.sum_ns();
  out["max_ns"] = histogram.largest_ns();
  out["lower_ns"] = std::move(lower);
  out["count"] = std::move(counts);
  return out;
}

nb::dict live_counts(const LiveCounters& c) {
  nb::dict out;
  for (std::size_t i = 0; i < kOps.size(); ++i) {
    out[(std::string(kOps[i]) + "_replies").c_str()] = c.replies[i];
  }
  out["errors"] = c.errors;
  out["held"] = c.held;
  out["store_errors"] = c.store_errors;
  out["power_cuts"] = c.power_cuts;
  out["unpaced_replies"] = c.unpaced;
  out["lost_records"] = c.lost_records;
  return out;
}

enum class Which : std::uint8_t { look, reset, end_record };

// The GIL is wanted while the device is locked: nobody who holds it may wait for the device.
nb::dict snapshot(Live& live, Which which) {
  nb::dict out;
  LiveCounters counters;
  const auto see = [&](DeviceModel& model, LiveCounters& counted, Nanos now) {
    const nb::gil_scoped_acquire hold;
    out["device"] = counters_of(model);
    out["now_ns"] = now.count();
    const auto* ssd = dynamic_cast<const flash::Ssd*>(&model);
    out["ranges"] = ssd != nullptr ? ranges_of(*ssd) : nb::list();
    out["range_shares"] = ssd != nullptr ? range_shares_of(*ssd) : nb::list();
    counters = counted;
    if (which != Which::reset) return;
    counted = {};
    counted.lost_records = counters.lost_records;  // they concern the record, whoever counts
  };
  {
    const nb::gil_scoped_release release;
    which == Which::end_record ? live.device.end_record(see) : live.device.look(see);
  }
  out["live"] = live_counts(counters);
  out["lateness"] = histogram_of(counters.lateness);
  out["model_latency"] = histogram_of(counters.model_latency);
  return out;
}

nb::dict records_of(const std::vector<live::RecordedRequest>& records) {
  std::vector<std::int64_t> time, lba, sectors;
  std::vector<std::uint8_t> op;
  std::vector<std::uint16_t> stream;
  std::vector<std::uint8_t> fua;
  for (const live::RecordedRequest& r : records) {
    time.push_back(r.time.count());
    lba.push_back(r.lba.index());
    sectors.push_back(r.sectors.count());
    op.push_back(static_cast<std::uint8_t>(r.op));
    stream.push_back(r.stream);
    fua.push_back(r.fua ? 1 : 0);
  }
  nb::dict out;
  out["time_ns"] = to_numpy(std::move(time));
  out["op"] = to_numpy(std::move(op));
  out["lba"] = to_numpy(std::move(lba));
  out["sectors"] = to_numpy(std::move(sectors));
  out["stream"] = to_numpy(std::move(stream));
  out["fua"] = to_numpy(std::move(fua));
  return out;
}

// What only a flash drive can do.
template <class Change>
void on_flash(Live& live, const Change& change) {
  const nb::gil_scoped_release release;
  live.device.look(
      [&](DeviceModel& model, LiveCounters&, Nanos now) { change(flash_of(model), now); });
}

void bind_control(nb::class_<Live>& live) {
  live.def(
          "set_pace",
          [](Live& d, const std::string& pace, std::int64_t slowdown, std::int64_t constant_ns) {
            const nb::gil_scoped_release release;
            d.device.set_pace(pace_named(pace), slowdown, Nanos{constant_ns});
          },
          "pace"_a, nb::kw_only(), "slowdown"_a = 1, "constant_ns"_a = 0,
          "real: replies at the model's times, `slowdown` times slower; virtual: at once, the "
          "model "
          "gets one request after the other; none: at once, without the model; constant: after a "
          "fixed time. Waits until nothing is in flight.")
      .def(
          "set_path_cost",
          [](Live& d, const std::string& op, std::int64_t base_ns, double ns_per_byte) {
            const nb::gil_scoped_release release;
            d.device.set_path_cost(op_named(op), {Nanos{base_ns}, ns_per_byte});
          },
          "op"_a, nb::kw_only(), "base_ns"_a, "ns_per_byte"_a,
          "Taken off the time for which a reply is held back.")
      .def(
          "set_streams",
          [](Live& d,
             const std::vector<std::tuple<std::int64_t, std::int64_t, std::uint16_t>>& ranges) {
            std::vector<live::StreamRange> out;
            for (const auto& [begin, end, stream] : ranges) {
              require(begin % kSectorBytes == 0 && end % kSectorBytes == 0,
                      "streams: ranges must begin and end at a multiple of 512 B");
              out.push_back({{to_lba(Bytes{begin}), to_lba(Bytes{end})}, stream});
            }
            const nb::gil_scoped_release release;
            d.device.set_streams(std::move(out));
          },
          "ranges"_a, "(begin, end) in bytes and the stream of writes that begin there.")
      .def(
          "set_ranges",
          [](Live& d, const std::vector<RangeTuple>& ranges) {
            std::vector<flash::NamedRange> named = ranges_from(ranges);
            on_flash(d, [&](flash::Ssd& ssd, Nanos now) { ssd.set_ranges(std::move(named), now); });
          },
          "ranges"_a, kRangesDoc)
      .def(
          "set_honest_flush", [](Live& d, bool honest) { d.device.set_honest_flush(honest); },
          "honest"_a)
      .def(
          "add_fault",
          [](Live& d, const std::string& op, std::int64_t begin, std::int64_t end,
             std::uint64_t times) {
            const nb::gil_scoped_release release;
            d.device.add_fault({op_named(op), {to_lba(Bytes{begin}), to_lba(Bytes{end})}, times});
          },
          "op"_a, nb::kw_only(), "begin_bytes"_a, "end_bytes"_a, "times"_a)
      .def("clear_faults",
           [](Live& d) {
             const nb::gil_scoped_release release;
             d.device.clear_faults();
           })
      .def(
          "power_cut",
          [](Live& d, std::uint64_t seed, bool stay_off) {
            live::PowerCut cut;
            {
              const nb::gil_scoped_release release;
              cut = d.device.power_cut(seed, stay_off ? live::After::off : live::After::on);
            }
            nb::dict out;
            out["doubtful_sectors"] = cut.doubtful_sectors;
            out["changed_sectors"] = cut.changed_sectors;
            out["unanswered"] = cut.unanswered;
            return out;
          },
          "seed"_a, nb::kw_only(), "stay_off"_a)
      .def("power_on",
           [](Live& d) {
             const nb::gil_scoped_release release;
             d.device.power_on();
           })
      .def(
          "set_trim_policy",
          [](Live& d, const std::string& name) {
            on_flash(d, [&](flash::Ssd& ssd, Nanos now) { ssd.set_trim_policy(name, now); });
          },
          "name"_a)
      .def(
          "slow_die",
          [](Live& d, std::int64_t die, double factor) {
            const auto thousandths = static_cast<std::int64_t>(factor * 1000.0 + 0.5);
            on_flash(d, [&](flash::Ssd& ssd, Nanos now) { ssd.slow_die(die, thousandths, now); });
          },
          "die"_a, "factor"_a)
      .def(
          "precondition",
          [](Live& d, double fill_ratio, double overwrites, std::uint64_t seed) {
            on_flash(
                d, [&](flash::Ssd& ssd, Nanos) { ssd.precondition(fill_ratio, overwrites, seed); });
          },
          nb::kw_only(), "fill_ratio"_a, "overwrites"_a, "seed"_a)
      .def(
          "to_steady_state",
          [](Live& d, std::uint64_t seed) {
            on_flash(d, [&](flash::Ssd& ssd, Nanos) { ssd.to_steady_state(seed); });
          },
          "seed"_a);
}

void bind_state(nb::class_<Live>& live) {
  live.def(
          "save",
          [](Live& d, bool then_record) {
            std::vector<std::byte> bytes;
            {
              const nb::gil_scoped_release release;
              Archive archive = Archive::saving(bytes);
              d.device.archive_model(archive, then_record);
            }
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::kw_only(), "then_record"_a,
          "The model's state, when nothing is in flight; `then_record`: from here on, all requests "
          "are recorded.")
      .def(
          "restore",
          [](Live& d, const nb::bytes& saved) {
            Archive archive =
                Archive::restoring({static_cast<const std::byte*>(saved.data()), saved.size()});
            const nb::gil_scoped_release release;
            d.device.archive_model(archive, false);
            require(archive.at_end(), "the saved state is of a device with other parameters");
          },
          "saved"_a)
      .def(
          "take_records",
          [](Live& d) {
            std::vector<live::RecordedRequest> records;
            {
              const nb::gil_scoped_release release;
              records = d.device.take_records();
            }
            return records_of(records);
          },
          "What was recorded since the last call: equally long columns.")
      .def(
          "snapshot",
          [](Live& d, bool then_reset) {
            return snapshot(d, then_reset ? Which::reset : Which::look);
          },
          nb::kw_only(), "then_reset"_a = false,
          "Counters of the model (device) and of the host side (live), ranges and shares by range "
          "(flash), lateness, model time: all of one moment; `then_reset`: those of the host side "
          "count from 0 then.")
      .def(
          "end_record", [](Live& d) { return snapshot(d, Which::end_record); },
          "Waits until nothing is in flight, ends the record, and takes a snapshot.");
}

}  // namespace

void bind_live(nb::module_& m) {
  nb::class_<Live> live(m, "LiveDevice", "A device model against the real clock, with data.");
  live.def(
          "__init__",
          [](Live* self, const DeviceParameters& parameters, int store_fd, std::int64_t visible) {
            new (self) Live(parameters, store_fd, visible);
          },
          "parameters"_a, nb::kw_only(), "store_fd"_a, "visible_bytes"_a,
          "`store_fd` is taken over.")
      .def("sync", [](Live& d) {
        const nb::gil_scoped_release release;
        require(d.device.sync() == 0, "the store cannot be synced");
      });
  bind_control(live);
  bind_state(live);
  bind_fronts(m);
  m.def(
      "probe_path",
      [](const std::string& path, const std::string& op, std::int64_t size, std::int64_t span,
         std::uint32_t count, std::uint32_t depth) {
        io::PathProbe probe;
        {
          const nb::gil_scoped_release release;
          probe = io::probe_path(path, op_named(op), Bytes{size}, Bytes{span}, count, depth);
        }
        return nb::make_tuple(to_numpy(std::move(probe.latencies_ns)), probe.elapsed_ns);
      },
      "path"_a, "op"_a, nb::kw_only(), "size_bytes"_a, "span_bytes"_a, "count"_a, "depth"_a = 1,
      "Random O_DIRECT I/Os: their latencies (int64, ns) and the time of all together (ns).");
}

}  // namespace flashlab::bind
