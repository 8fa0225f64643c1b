// Live devices: a model against the real clock, whatever serves it to the kernel.
#include "bind/live.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind/control.hpp"
#include "bind/convert.hpp"
#include "bind/describe.hpp"
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
  Buckets buckets = buckets_of(histogram);
  nb::dict out;
  out["sum_ns"] = histogram.sum_ns();
  out["max_ns"] = histogram.largest_ns();
  out["lower_ns"] = std::move(buckets.lower);
  out["count"] = std::move(buckets.counts);
  return out;
}

nb::dict times_of(const LiveCounters& counters) {
  nb::dict out;
  for (std::size_t i = 0; i < kOps.size(); ++i) {
    nb::dict of_kind;
    of_kind["lateness"] = histogram_of(counters.times[i].lateness);
    of_kind["model_latency"] = histogram_of(counters.times[i].model_latency);
    out[kOps[i]] = std::move(of_kind);
  }
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
    if (which != Which::reset) {
      counters = counted;
      return;
    }
    std::swap(counters, counted);
    counted.lost_records = counters.lost_records;  // they concern the record, whoever counts
  };
  {
    const nb::gil_scoped_release release;
    which == Which::end_record ? live.device.end_record(see) : live.device.look(see);
  }
  out["live"] = counts_of(counters);
  out["times"] = times_of(counters);
  return out;
}

nb::dict records_of(const std::vector<live::RecordedRequest>& records) {
  using Row = live::RecordedRequest;
  return Columns(records)
      .add("time_ns", &Row::time)
      .add("op", &Row::op)
      .add("lba", &Row::lba)
      .add("sectors", &Row::sectors)
      .add("stream", &Row::stream)
      .add("fua", &Row::fua)
      .dict();
}

void bind_control(nb::class_<Live>& live) {
  bind_flash_control(live, [](Live& d, const auto& change) {
    const nb::gil_scoped_release release;
    d.device.look(
        [&](DeviceModel& model, LiveCounters&, Nanos now) { change(flash_of(model), now); });
  });
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
              out.push_back({extent_from(begin, end, "streams: ranges"), stream});
            }
            const nb::gil_scoped_release release;
            d.device.set_streams(std::move(out));
          },
          "ranges"_a, "(begin, end) in bytes and the stream of writes that begin there.")
      .def(
          "set_watch",
          [](Live& d, std::int64_t ahead_ns) {
            const nb::gil_scoped_release release;
            d.device.set_watch(Nanos{ahead_ns});
          },
          "ahead_ns"_a,
          "So much before a reply is due, the pacing thread wakes up and watches the clock; 0: it "
          "only sleeps.")
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
      .def("power_on", [](Live& d) {
        const nb::gil_scoped_release release;
        d.device.power_on();
      });
}

void bind_state(nb::class_<Live>& live) {
  live.def(
          "save",
          [](Live& d, bool then_record) {
            std::vector<std::byte> bytes;
            {
              const nb::gil_scoped_release release;
              bytes = d.device.save_model(then_record);
            }
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::kw_only(), "then_record"_a,
          "The model's state, when nothing is in flight; `then_record`: from here on, all requests "
          "are recorded.")
      .def(
          "restore",
          [](Live& d, const nb::bytes& saved) {
            const std::span bytes(static_cast<const std::byte*>(saved.data()), saved.size());
            const nb::gil_scoped_release release;
            d.device.restore_model(bytes);
          },
          "saved"_a, "A state that does not fit leaves the device as it was.")
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
          "(flash), times (lateness and model_latency, by kind of request), model time: all of one "
          "moment; `then_reset`: those of the host side count from 0 then.")
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
      .def("sync",
           [](Live& d) {
             const nb::gil_scoped_release release;
             require(d.device.sync() == 0, "the store cannot be synced");
           })
      .def(
          "assume_stored",
          [](Live& d) {
            const nb::gil_scoped_release release;
            d.device.assume_stored();
          },
          "The model takes what the store holds for data from long ago, from the next `set_pace` "
          "on.");
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
