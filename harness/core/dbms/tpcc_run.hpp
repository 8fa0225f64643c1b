// TPC-C on InnoDB on ext4 on one drive that has aged, in virtual time (MS-DJ paper, section 4).
//
// A fixed number of connections, each with its next transaction as soon as the last one has ended.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/cancel.hpp"
#include "dbms/innodb/engine.hpp"
#include "dbms/innodb/storage.hpp"
#include "dbms/tpcc/transactions.hpp"
#include "host/machine.hpp"
#include "host/request_trace.hpp"

namespace flashlab::dbms {

struct TpccCpu {
  Nanos transaction;
  Nanos touch;
};

// What each one is: dbms/describe.hpp.
struct TpccSpec {
  tpcc::WorkloadParameters workload;
  innodb::EngineParameters engine;
  innodb::StorageParameters storage;
  std::uint32_t connections = 1;
  TpccCpu cpu;
  Nanos warm_up;
  Nanos measured;
  Nanos sample;
  Bytes aged;
  Bytes aged_begin;
  Bytes aged_block;
  std::int64_t trace_rows = 0;
  std::uint64_t seed = 0;
};

// What has happened so far.
struct TpccSample {
  Nanos when;
  std::uint64_t new_orders = 0;
  std::uint64_t transactions = 0;
  kernel::JournalCounters journal;
  innodb::StorageCounters storage;
  innodb::EngineCounters engine;
  std::uint64_t device_requests = 0;
};

struct TpccResult {
  std::vector<TpccSample> samples;  // the first at the begin of the measured interval
  std::array<std::vector<std::uint32_t>, tpcc::kKinds> response_us;  // of the measured interval
  std::vector<std::uint32_t> writes_of_page;                         // home, measured interval
  std::vector<std::uint8_t> table_of_page;                           // tpcc::Table
  std::vector<host::TracedRequest> trace;                            // of the measured interval
};

// `ready` is called before the drive is used, with the places of journal, doublewrite buffer, redo
// log and pages; `sampled` after each sample. Throws OperatingError for parameters that make no
// database, or a device that is too small.
using ReadyCallback = std::function<void(const innodb::Storage&)>;
TpccResult run_tpcc(host::Machine& machine, const TpccSpec& spec, const ReadyCallback& ready,
                    const std::function<void()>& sampled, const Cancel& cancel);

}  // namespace flashlab::dbms
