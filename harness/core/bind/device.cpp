// Device models: their parameters, and a device in virtual time to run jobs and traces on.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cmath>
#include <tuple>

#include "base/cancel.hpp"
#include "bind/convert.hpp"
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

nb::dict device_counts(const DeviceCounters& c) {
  nb::dict out;
  out["read_ios"] = c.read_ios;
  out["write_ios"] = c.write_ios;
  out["trim_ios"] = c.trim_ios;
  out["flush_ios"] = c.flush_ios;
  out["read_bytes"] = c.read_bytes.count();
  out["write_bytes"] = c.write_bytes.count();
  out["trim_bytes"] = c.trim_bytes.count();
  return out;
}

nb::dict disk_counts(const disk::HddCounters& c) {
  nb::dict out = device_counts(c.device);
  out["buffer_hits"] = c.buffer_hits;
  out["stream_hits"] = c.stream_hits;
  out["media_reads"] = c.media_reads;
  out["media_writes"] = c.media_writes;
  out["media_read_bytes"] = c.media_read_bytes.count();
  out["media_write_bytes"] = c.media_write_bytes.count();
  out["positioning_ns"] = c.positioning.count();
  out["transferring_ns"] = c.transferring.count();
  return out;
}

// Of a drive that puts TRIMs off, and of no other.
void count_delay(nb::dict& out, const flash::TrimCounters& c, const flash::TrimDelayStatus& s) {
  out["firmware_trim_list_ns"] = c.list_time.count();
  out["firmware_trim_idle_ns"] = c.idle_time.count();
  out["firmware_trim_drain_ns"] = c.drain_time.count();
  out["firmware_trim_forced_ns"] = c.forced_time.count();
  out["trim_pending_ranges"] = s.pending_ranges;
  out["trim_pending_ranges_high"] = s.pending_high;
  out["trim_list_entries"] = s.list_entries;
  out["trim_list_entries_high"] = s.list_high;
  out["trim_list_lookups"] = s.list_lookups;
  out["trim_list_probes"] = s.list_probes;
  out["trim_writes_while_pending"] = s.writes_while_pending;
  out["trim_writes_noted"] = s.writes_noted;
  out["trim_blocks_kept"] = s.blocks_kept;
  out["trim_merged_ranges"] = s.merged_ranges;
  out["trim_idle_slices"] = s.idle_slices;
  out["trim_drained_slices"] = s.drained_slices;
  out["trim_forced_slices"] = s.forced_slices;
  out["trim_reads_of_pending"] = s.reads_of_pending;
  out["trim_yields"] = s.yields;
  out["trim_drains"] = s.drains;
  out["trim_full_tables"] = s.full_tables;
  out["trim_forgotten_blocks"] = s.forgotten_blocks;
}

nb::dict flash_counts(const flash::Ssd& ssd) {
  const flash::SsdCounters& c = ssd.counters();
  const flash::FtlCounters& f = ssd.ftl().counters();
  const flash::NandCounters& n = ssd.nand().counters();
  nb::dict out = device_counts(c.device);
  const std::int64_t unit = ssd.ftl().geometry().unit().count();
  const std::int64_t folded =
      static_cast<std::int64_t>(c.folded_pages) * ssd.ftl().geometry().page().count();
  const auto bytes = [&](std::uint64_t units) { return static_cast<std::int64_t>(units) * unit; };
  out["nand_host_bytes"] = bytes(f.host_units);
  out["nand_copied_bytes"] = bytes(f.copied_units);
  out["nand_padded_bytes"] = bytes(f.padded_units);
  out["nand_folded_bytes"] = folded;
  out["nand_write_bytes"] = bytes(f.host_units + f.copied_units + f.padded_units) + folded;
  out["coalesced_bytes"] = bytes(c.coalesced_units);
  out["unmapped_bytes"] = bytes(f.trimmed_units);
  out["buffer_hits"] = c.buffer_hits;
  out["unmapped_reads"] = c.unmapped_reads;
  out["merge_reads"] = c.merge_reads;
  out["page_reads"] = n.page_reads;
  out["page_programs"] = n.page_programs;
  out["slc_programs"] = n.slc_programs;
  out["block_erases"] = n.block_erases;
  out["collections"] = f.erases;
  out["idle_collections"] = f.idle_collections;
  out["gc_page_reads"] = f.gc_page_reads;
  out["firmware_command_ns"] = c.command_time.count();
  out["firmware_trim_command_ns"] = c.trim.command_time.count();
  out["firmware_trim_buffer_ns"] = c.trim.buffer_time.count();
  out["firmware_trim_map_ns"] = c.trim.map_time.count();
  out["trim_ranges"] = c.trim.ranges;
  out["trim_slices"] = c.trim.slices;
  if (const auto delay = ssd.trim_status()) count_delay(out, c.trim, *delay);
  out["die_host_read_ns"] = n.host_read.count();
  out["die_host_program_ns"] = n.host_program.count();
  out["die_gc_read_ns"] = n.gc_read.count();
  out["die_gc_program_ns"] = n.gc_program.count();
  out["die_fold_ns"] = n.fold.count();
  out["die_erase_ns"] = n.erase.count();
  return out;
}

void read_disk(disk::HddParameters* self, const nb::kwargs& given) {
  Arguments a("HddParameters", given);
  disk::HddParameters p;
  const Nanos head_switch = a.nanos("head_switch_ns");
  const Nanos track_to_track = a.nanos("track_to_track_seek_ns");
  p.geometry = {a.bytes("capacity_bytes"),
                a.take<std::int64_t>("rpm"),
                a.take<std::int64_t>("heads"),
                a.take<std::int64_t>("zones"),
                a.rate("outer_rate_bytes_per_s"),
                a.rate("inner_rate_bytes_per_s"),
                head_switch,
                track_to_track};
  p.seek = {track_to_track, a.nanos("average_seek_ns"), a.nanos("full_stroke_seek_ns"), head_switch,
            a.nanos("write_settle_ns")};
  p.link_rate = a.rate("link_rate_bytes_per_s");
  p.command_overhead = a.nanos("command_overhead_ns");
  p.cache = a.bytes("cache_bytes");
  p.read_segments = a.take<std::int64_t>("read_segments");
  p.write_cache = a.take<bool>("write_cache");
  p.destage_idle = a.nanos("destage_idle_ns");
  p.queue_depth = a.take<std::uint32_t>("queue_depth");
  p.scheduler = a.take<std::string>("scheduler");
  p.start_angle = a.nanos("start_angle_ns");
  a.finish();
  new (self) disk::HddParameters(std::move(p));
}

void read_flash(flash::SsdParameters* self, const nb::kwargs& given) {
  Arguments a("SsdParameters", given);
  flash::SsdParameters p;
  p.geometry = {a.bytes("capacity_bytes"),
                a.take<double>("overprovision_ratio"),
                a.bytes("page_bytes"),
                a.bytes("map_unit_bytes"),
                a.take<std::int64_t>("planes"),
                a.take<std::int64_t>("pages_per_block"),
                a.take<std::int64_t>("channels"),
                a.take<std::int64_t>("dies_per_channel"),
                a.take<std::string>("allocation")};
  const auto seed = a.take_or<std::uint64_t>("seed", 0);
  p.nand = {a.nanos("read_page_ns"),
            a.nanos("program_page_ns"),
            a.nanos("erase_block_ns"),
            a.nanos("slc_program_page_ns"),
            a.rate("channel_rate_bytes_per_s"),
            a.take_or<double>("jitter_ratio", 0.0),
            mix64(seed + 1)};
  p.ftl.gc_policy = a.take<std::string>("gc_policy");
  p.ftl.gc_choices = a.take_or<std::uint32_t>("gc_choices", 10);
  p.gc_placement = a.take<std::string>("gc_placement");
  p.gc_pace = a.take<std::string>("gc_pace");
  p.ftl.reserve_blocks = a.take<std::uint32_t>("reserve_blocks");
  p.ftl.streams = a.take<std::uint16_t>("streams");
  p.ftl.seed = seed;
  p.placement = a.take<std::string>("placement");
  p.link_rate = a.rate("link_rate_bytes_per_s");
  p.command_time = a.nanos("command_time_ns");
  p.write_command_time =
      Nanos{a.take_or<std::int64_t>("write_command_time_ns", p.command_time.count())};
  p.read_latency = a.nanos("read_latency_ns");
  p.write_latency = a.nanos("write_latency_ns");
  p.write_buffer = a.bytes("write_buffer_bytes");
  p.power_loss_protection = a.take<bool>("power_loss_protection");
  p.slc_cache = a.bytes("slc_cache_bytes");
  p.trim = a.take<std::string>("trim");
  p.trim_costs = {
      a.nanos("trim_command_time_ns"), a.nanos("trim_range_time_ns"),
      a.nanos("trim_buffer_time_ns"),  a.nanos("trim_map_time_ns"),
      a.bytes("trim_slice_bytes"),     Nanos{a.take_or<std::int64_t>("trim_list_time_ns", 0)}};
  p.trim_delay.pending_ranges =
      a.take_or<std::uint32_t>("trim_pending_ranges", p.trim_delay.pending_ranges);
  p.trim_delay.list_entries =
      a.take_or<std::uint32_t>("trim_list_entries", p.trim_delay.list_entries);
  p.trim_delay.merge = a.take_or<bool>("trim_merge", p.trim_delay.merge);
  p.trim_delay.step_slices = a.take_or<std::uint32_t>("trim_step", p.trim_delay.step_slices);
  p.trim_delay.batch_map_ratio =
      a.take_or<double>("trim_batch_map_ratio", p.trim_delay.batch_map_ratio);
  p.trim_queued = a.take<bool>("trim_queued");
  p.trim_max_ranges = a.take<std::uint32_t>("trim_max_ranges");
  p.background_gc = a.take<bool>("background_gc");
  p.background_idle = a.nanos("background_idle_ns");
  p.background_target = a.take_or<std::uint32_t>("background_target", 4);
  p.queue_depth = a.take<std::uint32_t>("queue_depth");
  p.ranges = ranges_from(a.take_or("ranges", std::vector<RangeTuple>{}));
  a.finish();
  new (self) flash::SsdParameters(std::move(p));
}

void read_job(host::JobParameters* self, const nb::kwargs& given) {
  Arguments a("JobParameters", given);
  host::JobParameters p;
  p.pattern = a.take<std::string>("pattern");
  p.read_ratio = a.take<double>("read_ratio");
  p.trim_ratio = a.take<double>("trim_ratio");
  p.block = a.bytes("block_bytes");
  p.span = {to_lba(a.bytes("begin_bytes")), to_lba(a.bytes("end_bytes"))};
  p.depth = a.take<std::uint32_t>("queue_depth");
  p.requests = a.take<std::uint64_t>("requests");
  p.duration = a.nanos("duration_ns");
  p.interval = a.nanos("interval_ns");
  p.poisson = a.take<bool>("poisson");
  p.hot_data_ratio = a.take<double>("hot_data_ratio");
  p.hot_access_ratio = a.take<double>("hot_access_ratio");
  p.zipf_theta = a.take<double>("zipf_theta");
  p.stream = a.take<std::uint16_t>("stream");
  p.fua = a.take<bool>("fua");
  p.flush_every = a.take<std::uint64_t>("flush_every");
  p.seed = a.take<std::uint64_t>("seed");
  a.finish();
  new (self) host::JobParameters(std::move(p));
}

nb::dict op_result(const host::OpResult& op) {
  std::vector<std::int64_t> lower;
  std::vector<std::int64_t> counts;
  const auto& all = op.latency.counts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == 0) continue;
    lower.push_back(static_cast<std::int64_t>(host::LatencyHistogram::lower_bound(i)));
    counts.push_back(static_cast<std::int64_t>(all[i]));
  }
  nb::dict out;
  out["ios"] = op.ios;
  out["bytes"] = op.bytes.count();
  out["latency_sum_ns"] = op.latency.sum_ns();
  out["latency_min_ns"] = op.ios == 0 ? 0 : op.latency.least_ns();
  out["latency_max_ns"] = op.latency.largest_ns();
  out["latency_ns"] = to_numpy(std::move(lower));
  out["latency_count"] = to_numpy(std::move(counts));
  return out;
}

nb::dict rows_of(const std::vector<host::RequestRow>& rows) {
  std::vector<std::int64_t> submitted, latency, lba, sectors;
  std::vector<std::uint8_t> op;
  for (const host::RequestRow& row : rows) {
    submitted.push_back(row.submitted.count());
    latency.push_back(row.latency.count());
    lba.push_back(row.lba.index());
    sectors.push_back(row.sectors.count());
    op.push_back(static_cast<std::uint8_t>(row.op));
  }
  nb::dict out;
  out["submitted_ns"] = to_numpy(std::move(submitted));
  out["latency_ns"] = to_numpy(std::move(latency));
  out["op"] = to_numpy(std::move(op));
  out["lba"] = to_numpy(std::move(lba));
  out["sectors"] = to_numpy(std::move(sectors));
  return out;
}

nb::dict intervals_of(const std::vector<host::IntervalRow>& rows) {
  std::vector<std::int64_t> ios, bytes, sum, largest;
  for (const host::IntervalRow& row : rows) {
    ios.push_back(static_cast<std::int64_t>(row.ios));
    bytes.push_back(row.bytes.count());
    sum.push_back(row.latency_sum.count());
    largest.push_back(row.latency_max.count());
  }
  nb::dict out;
  out["ios"] = to_numpy(std::move(ios));
  out["bytes"] = to_numpy(std::move(bytes));
  out["latency_sum_ns"] = to_numpy(std::move(sum));
  out["latency_max_ns"] = to_numpy(std::move(largest));
  return out;
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
    require(begin % kSectorBytes == 0 && end % kSectorBytes == 0,
            "TRIM: a range must begin and end at a multiple of 512 B");
    extents.push_back({to_lba(Bytes{begin}), to_lba(Bytes{end})});
  }
  return driver.trim(extents).count();
}

void slow_die(host::Driver& driver, std::int64_t die, double factor) {
  require(factor >= 1.0 && factor <= 1000.0, "factor: a die can be 1 to 1000 times as slow");
  flash_of(driver).slow_die(die, std::llround(factor * 1000.0), driver.now());
}

constexpr const char* kKeywords = "def __init__(self, **kwargs: object) -> None";
// A state that does not fit leaves the device as it was.
void restore(host::Driver& driver, std::span<const std::byte> saved) {
  std::vector<std::byte> before;
  Archive keeping = Archive::saving(before);
  driver.archive(keeping);
  try {
    Archive archive = Archive::restoring(saved);
    driver.archive(archive);
    require(archive.at_end(), "the saved state is of a device with other parameters");
  } catch (const OperatingError&) {
    Archive back = Archive::restoring(before);
    driver.archive(back);
    throw;
  }
}

void bind_parameters(nb::module_& m) {
  nb::class_<disk::HddParameters>(m, "HddParameters",
                                  "Everything that makes one disk; see the profile schema.")
      .def("__init__", read_disk, nb::sig(kKeywords),
           "Keyword arguments only; raises BadParameter for a wrong one.");
  nb::class_<flash::SsdParameters>(m, "SsdParameters",
                                   "Everything that makes one flash drive; see the profile schema.")
      .def("__init__", read_flash, nb::sig(kKeywords),
           "Keyword arguments only; raises BadParameter for a wrong one.");
  nb::class_<host::JobParameters>(m, "JobParameters", "A stream of requests, as fio would make it.")
      .def("__init__", read_job, nb::sig(kKeywords),
           "Keyword arguments only; raises BadParameter for a wrong one.");
}

}  // namespace

nb::dict counters_of(const DeviceModel& device) {
  if (const auto* hdd = dynamic_cast<const disk::Hdd*>(&device)) {
    return disk_counts(hdd->counters());
  }
  return flash_counts(dynamic_cast<const flash::Ssd&>(device));
}

flash::Ssd& flash_of(DeviceModel& device) {
  auto* ssd = dynamic_cast<flash::Ssd*>(&device);
  require(ssd != nullptr, "this is a hard disk: it has no flash");
  return *ssd;
}

const flash::Ssd& flash_of(const DeviceModel& device) {
  return flash_of(const_cast<DeviceModel&>(device));
}

std::vector<flash::NamedRange> ranges_from(const std::vector<RangeTuple>& ranges) {
  std::vector<flash::NamedRange> out;
  for (const auto& [name, begin, end, stream] : ranges) {
    require(begin % kSectorBytes == 0 && end % kSectorBytes == 0,
            "range " + name + ": must begin and end at a multiple of 512 B");
    out.push_back({name, {to_lba(Bytes{begin}), to_lba(Bytes{end})}, stream});
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
  bind_parameters(m);
  using Driver = host::Driver;
  nb::class_<Driver>(m, "Device", "A device model in virtual time, without a host above it.")
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
      .def(
          "set_trim_policy",
          [](Driver& d, const std::string& name) { flash_of(d).set_trim_policy(name, d.now()); },
          "name"_a)
      .def_prop_ro("trim_policy",
                   [](const Driver& d) { return std::string(flash_of(d).trim_policy()); })
      .def("slow_die", slow_die, "die"_a, "factor"_a)
      .def("save",
           [](Driver& d) {
             std::vector<std::byte> bytes;
             Archive archive = Archive::saving(bytes);
             d.archive(archive);
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def(
          "restore",
          [](Driver& d, const nb::bytes& saved) {
            restore(d, {static_cast<const std::byte*>(saved.data()), saved.size()});
          },
          "saved"_a)
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
      .def(
          "precondition",
          [](Driver& d, double fill_ratio, double overwrites, std::uint64_t seed) {
            flash::Ssd& ssd = flash_of(d);
            const nb::gil_scoped_release release;
            ssd.precondition(fill_ratio, overwrites, seed);
          },
          nb::kw_only(), "fill_ratio"_a, "overwrites"_a, "seed"_a)
      .def(
          "to_steady_state",
          [](Driver& d, std::uint64_t seed) {
            flash::Ssd& ssd = flash_of(d);
            const nb::gil_scoped_release release;
            ssd.to_steady_state(seed);
          },
          "seed"_a)
      .def("stream_shares",
           [](const Driver& d) { return shares(flash_of(d).ftl().attribution().by_stream()); })
      .def("range_shares", [](const Driver& d) { return range_shares_of(flash_of(d)); })
      .def_prop_ro("ranges", [](const Driver& d) { return ranges_of(flash_of(d)); })
      .def(
          "set_ranges",
          [](Driver& d, const std::vector<RangeTuple>& ranges) {
            flash_of(d).set_ranges(ranges_from(ranges), d.now());
          },
          "ranges"_a, kRangesDoc)
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
