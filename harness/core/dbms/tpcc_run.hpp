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

namespace flashlab::dbms {

struct TpccCpu {
  Nanos transaction;
  Nanos touch;
};

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
  Bytes aged_block;
  std::uint64_t seed = 0;
};

template <class V>
void describe(V& v, TpccSpec& p) {
  describe(v, p.workload);
  p.connections = p.workload.users;
  p.seed = p.workload.seed;
  describe(v, p.engine);
  describe(v, p.storage);
  p.storage.page = Bytes{p.workload.page_bytes};
  v.required("transaction_cpu_ns", p.cpu.transaction, "parsing, locking, commit");
  v.required("touch_cpu_ns", p.cpu.touch, "finding a row and working on it");
  v.required("warm_up_ns", p.warm_up, "before anything is counted");
  v.required("measured_ns", p.measured, "that is counted");
  v.required("sample_ns", p.sample, "how often to look");
  v.required("aged_bytes", p.aged,
             "the region, from the drive's begin, that was overwritten at random before");
  v.required("aged_block_bytes", p.aged_block, "... in writes of this size");
}

// What has happened so far.
struct TpccSample {
  Nanos when;
  std::uint64_t new_orders = 0;
  std::uint64_t transactions = 0;
  host::JournalCounters journal;
  innodb::StorageCounters storage;
  innodb::EngineCounters engine;
  std::uint64_t device_requests = 0;
};

template <class V>
void count(V& v, const TpccSample& s) {
  v("time_ns", s.when);
  v("new_orders", s.new_orders);
  v("transactions", s.transactions);
  v("device_requests", s.device_requests);
  count(v, s.journal);
  count(v, s.storage);
  count(v, s.engine);
}

struct TpccResult {
  std::vector<TpccSample> samples;  // the first at the begin of the measured interval
  std::array<std::vector<std::uint32_t>, tpcc::kKinds> response_us;  // of the measured interval
  std::vector<std::uint32_t> writes_of_page;                         // home, measured interval
  std::vector<std::uint8_t> table_of_page;                           // tpcc::Table
};

// `ready` is called before the drive is used, with the places of journal, doublewrite buffer, redo
// log and pages; `sampled` after each sample. Throws OperatingError for parameters that make no
// database, or a device that is too small.
using ReadyCallback = std::function<void(const innodb::Storage&)>;
TpccResult run_tpcc(host::Machine& machine, const TpccSpec& spec, const ReadyCallback& ready,
                    const std::function<void()>& sampled, const Cancel& cancel);

}  // namespace flashlab::dbms
