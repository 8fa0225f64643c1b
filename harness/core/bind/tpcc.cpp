// The Python face of TPC-C on InnoDB over ext4's journal.
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "bind/convert.hpp"
#include "bind/describe.hpp"
#include "dbms/describe.hpp"
#include "dbms/tpcc_run.hpp"

namespace flashlab::bind {

namespace {

using namespace nb::literals;
namespace innodb = dbms::innodb;

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
    nb::dict sample = counts_of(result.samples[i]);
    sample["device"] = devices[i];
    sample["shares"] = shares[i];
    out.append(sample);
  }
  return out;
}

}  // namespace

void bind_tpcc(nb::module_& m) {
  bind_parameters<dbms::TpccSpec>(m, "TpccSpec", "TPC-C on InnoDB; see core/dbms/tpcc_run.hpp.");

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
        out["trace"] = trace_of(result.trace);
        return out;
      },
      "device"_a, "host"_a, "spec"_a, "fill_ratio"_a, "cancel"_a,
      "TPC-C on a drive whose first `fill_ratio` was written before. Returns a dict: `samples` (of "
      "the measured interval, with `device` counters and the `shares` of journal, doublewrite, "
      "redo "
      "and the rest), `response_us` (by kind), `writes_of_page`, `table_of_page` and `trace`. "
      "Raises BadParameter, DiskFull, Interrupted.");
}

}  // namespace flashlab::bind
