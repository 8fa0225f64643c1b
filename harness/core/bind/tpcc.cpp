// The Python face of TPC-C on InnoDB over ext4's journal.
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "bind/convert.hpp"
#include "dbms/tpcc_run.hpp"

namespace flashlab::bind {

namespace {

using namespace nb::literals;
namespace innodb = dbms::innodb;
namespace tpcc = dbms::tpcc;

tpcc::RowsPerPage rows_from(const nb::dict& given) {
  nb::kwargs pairs = nb::borrow<nb::kwargs>(given);
  Arguments a("rows_per_page", pairs);
  const auto take = [&](const char* name) { return a.take<std::uint32_t>(name); };
  const tpcc::RowsPerPage rows{
      take("warehouse"),  take("district"),  take("customer"), take("customer_by_name"),
      take("history"),    take("new_order"), take("orders"),   take("orders_by_customer"),
      take("order_line"), take("item"),      take("stock")};
  a.finish();
  return rows;
}

tpcc::WorkloadParameters workload_from(Arguments& a, std::uint32_t connections) {
  tpcc::WorkloadParameters w;
  w.warehouses = a.take<std::uint32_t>("warehouses");
  w.users = connections;
  w.rows = rows_from(a.take<nb::dict>("rows_per_page"));
  w.redo = {a.take<std::uint16_t>("redo_update_bytes"), a.take<std::uint16_t>("redo_line_bytes"),
            a.take<std::uint16_t>("redo_insert_bytes"), a.take<std::uint16_t>("redo_commit_bytes")};
  w.undo_pages = a.take<std::uint32_t>("undo_pages");
  w.undo_bytes_per_change = a.take<std::uint32_t>("undo_bytes_per_change");
  w.page_bytes = a.take<std::uint32_t>("page_bytes");
  w.most_pages = a.take<std::uint32_t>("most_pages");
  w.seed = a.take<std::uint64_t>("seed");
  return w;
}

innodb::EngineParameters engine_from(Arguments& a) {
  innodb::EngineParameters e;
  e.buffer_pool = a.bytes("buffer_pool_bytes");
  e.batch_pages = a.take<std::uint32_t>("flush_batch_pages");
  e.lru_scan_depth = a.take<std::uint32_t>("lru_scan_depth");
  e.most_dirty_ratio = a.take<double>("most_dirty_ratio");
  e.flush_age_ratio = a.take<double>("flush_age_ratio");
  return e;
}

innodb::StorageParameters storage_from(Arguments& a, Bytes page) {
  innodb::StorageParameters s;
  s.journaled = a.take<bool>("data_journal");
  s.doublewrite = a.take<bool>("doublewrite");
  s.doublewrite_elsewhere = a.take<bool>("doublewrite_elsewhere");
  s.redo_elsewhere = a.take<bool>("redo_elsewhere");
  s.sync_commits_inode = a.take<bool>("sync_commits_inode");
  s.page = page;
  s.redo = a.bytes("redo_bytes");
  s.doublewrite_area = a.bytes("doublewrite_bytes");
  s.page_cache = a.bytes("page_cache_bytes");
  s.copy_cpu = a.nanos("page_copy_cpu_ns");
  s.other_drive_rate = a.rate("other_drive_rate_bytes_per_s");
  s.other_drive_latency = a.nanos("other_drive_latency_ns");
  s.journal.blocks = a.take<std::int64_t>("journal_bytes") / 4096;
  s.journal.stream = a.take<std::uint16_t>("journal_stream");
  s.journal.commit_interval = a.nanos("commit_ns");
  s.journal.expire = a.nanos("dirty_expire_ns");
  return s;
}

dbms::TpccSpec spec_from(const nb::kwargs& given) {
  Arguments a("TpccSpec", given);
  dbms::TpccSpec spec;
  spec.connections = a.take<std::uint32_t>("connections");
  spec.workload = workload_from(a, spec.connections);
  spec.engine = engine_from(a);
  spec.storage = storage_from(a, Bytes{spec.workload.page_bytes});
  spec.cpu = {a.nanos("transaction_cpu_ns"), a.nanos("touch_cpu_ns")};
  spec.warm_up = a.nanos("warm_up_ns");
  spec.measured = a.nanos("measured_ns");
  spec.sample = a.nanos("sample_ns");
  spec.aged = a.bytes("aged_bytes");
  spec.aged_block = a.bytes("aged_block_bytes");
  spec.seed = spec.workload.seed;
  a.finish();
  return spec;
}

void add_journal(nb::dict& out, const host::JournalCounters& c) {
  out["journal_commits"] = c.commits;
  out["journal_checkpoints"] = c.checkpoints;
  out["journal_requests"] = c.requests;
  out["journal_written_bytes"] = c.written_blocks * 4096;
  out["journal_home_bytes"] = c.home_blocks * 4096;
  out["journal_expired_bytes"] = c.expired_blocks * 4096;
  out["journal_space_wait_ns"] = c.space_wait.count();
}

void add_storage(nb::dict& out, const innodb::StorageCounters& c) {
  out["page_reads"] = c.page_reads;
  out["cached_reads"] = c.cached_reads;
  out["pages_flushed"] = c.pages_flushed;
  out["pages_home"] = c.pages_home;
  out["doublewrite_written_bytes"] = c.doublewrite_blocks * 4096;
  out["redo_written_bytes"] = c.redo_blocks * 4096;
  out["redo_syncs"] = c.redo_syncs;
}

void add_engine(nb::dict& out, const innodb::EngineCounters& c) {
  out["touches"] = c.touches;
  out["misses"] = c.misses;
  out["lru_flushed"] = c.lru_flushed;
  out["list_flushed"] = c.list_flushed;
  out["flush_batches"] = c.batches;
  out["redo_bytes"] = c.redo_bytes;
  out["read_wait_ns"] = c.read_wait.count();
  out["frame_wait_ns"] = c.frame_wait.count();
  out["write_wait_ns"] = c.write_wait.count();
  out["age_wait_ns"] = c.age_wait.count();
  out["commit_wait_ns"] = c.commit_wait.count();
}

nb::dict sample_to_dict(const dbms::TpccSample& sample) {
  nb::dict out;
  out["time_ns"] = sample.when.count();
  out["new_orders"] = sample.new_orders;
  out["transactions"] = sample.transactions;
  out["device_requests"] = sample.device_requests;
  add_journal(out, sample.journal);
  add_storage(out, sample.storage);
  add_engine(out, sample.engine);
  return out;
}

flash::NamedRange range_of(const char* name, const Extent& extent, StreamId stream) {
  return {name, extent, stream};
}

// Journal, doublewrite buffer and redo log are counted apart; only the journal has a stream.
void prepare(flash::Ssd& drive, const innodb::Storage& storage, StreamId stream, double fill_ratio,
             std::uint64_t seed, Nanos now) {
  if (fill_ratio > 0) drive.precondition(fill_ratio, 0.0, seed);
  drive.set_ranges({range_of("journal", storage.journal_extent(), stream),
                    range_of("doublewrite", storage.doublewrite_extent(), 0),
                    range_of("redo", storage.redo_extent(), 0)},
                   now);
}

nb::list samples_to_list(const dbms::TpccResult& result, const nb::list& devices,
                         const nb::list& shares) {
  nb::list out;
  for (std::size_t i = 0; i < result.samples.size(); ++i) {
    nb::dict sample = sample_to_dict(result.samples[i]);
    sample["device"] = devices[i];
    sample["shares"] = shares[i];
    out.append(sample);
  }
  return out;
}

}  // namespace

void bind_tpcc(nb::module_& m) {
  nb::class_<dbms::TpccSpec>(m, "TpccSpec", "TPC-C on InnoDB; see core/dbms/tpcc_run.hpp.")
      .def(
          "__init__",
          [](dbms::TpccSpec* self, const nb::kwargs& given) {
            new (self) dbms::TpccSpec(spec_from(given));
          },
          nb::sig("def __init__(self, **kwargs: object) -> None"));

  m.def(
      "run_tpcc",
      [](const flash::SsdParameters& device, const host::HostParameters& host,
         const dbms::TpccSpec& spec, double fill_ratio, const Cancel& cancel) {
        dbms::TpccResult result;
        nb::list devices;
        nb::list shares;
        {
          const nb::gil_scoped_release release;
          const auto make = [&](Host& events) { return make_device(device, events); };
          host::Machine machine(make, host);
          const auto ready = [&](const innodb::Storage& storage) {
            prepare(flash_of(machine.device()), storage, spec.storage.journal.stream, fill_ratio,
                    spec.seed, machine.now());
          };
          const auto sampled = [&] {
            const nb::gil_scoped_acquire acquire;
            devices.append(counters_of(machine.device()));
            shares.append(range_shares_of(flash_of(machine.device())));
          };
          result = dbms::run_tpcc(machine, spec, ready, sampled, cancel);
        }
        nb::dict out;
        out["samples"] = samples_to_list(result, devices, shares);
        nb::list response_us;
        for (auto& kind : result.response_us) response_us.append(to_numpy(std::move(kind)));
        out["response_us"] = response_us;
        out["writes_of_page"] = to_numpy(std::move(result.writes_of_page));
        out["table_of_page"] = to_numpy(std::move(result.table_of_page));
        return out;
      },
      "device"_a, "host"_a, "spec"_a, "fill_ratio"_a, "cancel"_a,
      "TPC-C on a drive whose first `fill_ratio` was written before. Returns a dict: `samples` (of "
      "the measured interval, with `device` counters and the `shares` of journal, doublewrite, "
      "redo "
      "and the rest), `response_us` (by kind), `writes_of_page` and `table_of_page`. Raises "
      "BadParameter, DiskFull, Interrupted.");
}

}  // namespace flashlab::bind
