#include "dbms/tpcc_run.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/prng.hpp"

namespace flashlab::dbms {

namespace {

using host::Process;
using host::Transfers;

constexpr Sectors kLoadSectors{2048};
constexpr std::uint32_t kLoadDepth = 32;

// Processes by number: what the server and the kernel do on the side, then the connections.
enum Service : Process { cleaner, committer, flusher, sampler, services };

class Run {
 public:
  Run(host::Machine& machine, const TpccSpec& spec)
      : machine_(machine),
        spec_(spec),
        workload_(spec.workload),
        storage_(machine, spec.storage, spec.workload.most_pages),
        engine_(machine, spec.engine, storage_, spec.storage.page, spec.storage.redo,
                spec.workload.most_pages),
        trace_(spec.trace_rows) {}

  [[nodiscard]] const innodb::Storage& storage() const { return storage_; }

  // Random overwrites of the region, then the tables, in order.
  void prepare(Process self) {
    age(self);
    Transfers transfers(machine_, self);
    const Lba begin = storage_.pages_extent().begin;
    const Sectors length = to_sectors(spec_.storage.page) * workload_.tables().loaded_pages();
    std::uint32_t started = 0;
    for (Sectors at{0}; at < length; at += kLoadSectors) {
      transfers.start({Op::write, begin + at, std::min(kLoadSectors, length - at)});
      if (++started % kLoadDepth == 0) transfers.wait();
    }
    transfers.wait();
  }

  void body(Process self, const std::function<void()>& sampled) {
    switch (self) {
      case cleaner:
        return clean(self);
      case committer:
        return storage_.journal().commit_until_stopped(self);
      case flusher:
        return storage_.journal().write_back_until_stopped(self);
      case sampler:
        return sample(self, sampled);
      default:
        return connection(self);
    }
  }

  void begin() {
    measured_from_ = machine_.now() + spec_.warm_up;
    end_ = measured_from_ + spec_.measured;
  }

  TpccResult result() {
    TpccResult out;
    out.samples = std::move(samples_);
    out.trace = trace_.take();
    out.response_us = std::move(response_us_);
    const tpcc::PageId pages = workload_.tables().pages();
    const auto& writes = storage_.writes_of_page();
    out.writes_of_page.assign(writes.begin(), writes.begin() + pages);
    out.table_of_page.reserve(pages);
    for (tpcc::PageId page = 0; page < pages; ++page) {
      out.table_of_page.push_back(static_cast<std::uint8_t>(workload_.tables().table_of(page)));
    }
    return out;
  }

 private:
  void age(Process self) {
    const std::int64_t blocks = spec_.aged / spec_.aged_block;
    const Sectors each = to_sectors(spec_.aged_block);
    const Lba begin = Lba{} + to_sectors(spec_.aged_begin);
    Prng random(mix64(spec_.seed + 1));  // the workload draws from its own stream
    Transfers transfers(machine_, self);
    for (std::int64_t i = 0; i < blocks; ++i) {
      const auto at = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(blocks)));
      transfers.start({Op::write, begin + each * at, each});
      if (i % kLoadDepth == 0) transfers.wait();
    }
    transfers.wait();
  }

  // What it still flushes needs commits: the journal's threads end after it.
  void clean(Process self) {
    engine_.clean_until_stopped(self);
    storage_.journal().stop();
  }

  void connection(Process self) {
    tpcc::Transaction transaction;
    const std::uint32_t user = self - services;
    while (machine_.now() < end_) {
      workload_.next(user, transaction);
      engine_.expect(transaction.touches);
      const Nanos begin = machine_.now();
      run(self, transaction);
      const Nanos now = machine_.now();
      ++transactions_;
      if (transaction.kind == tpcc::Kind::new_order) ++new_orders_;
      if (now >= measured_from_ && now < end_) {
        const auto kind = static_cast<std::size_t>(transaction.kind);
        response_us_[kind].push_back(static_cast<std::uint32_t>((now - begin).count() / 1000));
      }
    }
    if (++ended_ == spec_.connections) engine_.stop();
  }

  void run(Process self, const tpcc::Transaction& transaction) {
    const auto touches = static_cast<std::int64_t>(transaction.touches.size());
    machine_.compute(self, spec_.cpu.transaction + spec_.cpu.touch * touches);
    bool changes = false;
    for (const tpcc::Touch& touch : transaction.touches) {
      engine_.touch(self, touch);
      changes = changes || touch.access != tpcc::Access::read;
    }
    if (changes) engine_.commit(self);
  }

  void sample(Process self, const std::function<void()>& sampled) {
    machine_.sleep_until(self, measured_from_);
    storage_.clear_writes_of_pages();
    machine_.watch([this](const Request& request, Nanos now) { trace_.see(request, now); });
    for (Nanos when = measured_from_; when <= end_; when += spec_.sample) {
      machine_.sleep_until(self, when);
      samples_.push_back({machine_.now(), new_orders_, transactions_, storage_.journal().counters(),
                          storage_.counters(), engine_.counters(),
                          machine_.block_layer().requests()});
      sampled();
    }
    machine_.watch({});
  }

  host::Machine& machine_;
  const TpccSpec& spec_;
  tpcc::Workload workload_;
  innodb::Storage storage_;
  innodb::Engine engine_;
  Nanos measured_from_;
  Nanos end_;
  std::uint32_t ended_ = 0;
  std::uint64_t new_orders_ = 0;
  std::uint64_t transactions_ = 0;
  std::vector<TpccSample> samples_;
  std::array<std::vector<std::uint32_t>, tpcc::kKinds> response_us_;
  host::RequestTrace trace_;
};

void check(const TpccSpec& spec, Bytes capacity) {
  require(spec.connections >= 1, "TPC-C: at least one connection");
  require(spec.workload.users == spec.connections, "TPC-C: undo pages for each connection");
  require(spec.measured > Nanos{0} && spec.sample > Nanos{0} && spec.warm_up >= Nanos{0},
          "TPC-C: the measured interval and that of samples must be more than 0");
  require(spec.aged_block.count() > 0, "TPC-C: aged_block must be more than 0");
  require(spec.aged.count() >= 0 && spec.aged_begin.count() >= 0 &&
              spec.aged <= capacity - spec.aged_begin,
          "TPC-C: the region that was aged must lie on the drive");
}

}  // namespace

TpccResult run_tpcc(host::Machine& machine, const TpccSpec& spec, const ReadyCallback& ready,
                    const std::function<void()>& sampled, const Cancel& cancel) {
  check(spec, machine.device().capacity());
  Run run(machine, spec);
  ready(run.storage());
  machine.run(1, [&](Process self) { run.prepare(self); }, cancel);
  run.begin();
  machine.run(services + spec.connections, [&](Process self) { run.body(self, sampled); }, cancel);
  return run.result();
}

}  // namespace flashlab::dbms
