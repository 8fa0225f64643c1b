#include "dbms/hash_join.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <numeric>
#include <utility>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "dbms/table_disk.hpp"

namespace flashlab::dbms {

namespace {

using host::Machine;
using host::Process;
using kernel::FileId;
using kernel::PageCache;
using kernel::ext4::Ext4;

constexpr Process kServer = 0;
constexpr Process kJournal = 1;
constexpr std::uint32_t kProcesses = 3;  // and the worker that discards

// Blocks between two looks at the clock.
constexpr std::int64_t kScanStep = 32;
constexpr std::int64_t kReadStep = 4;

// The server's open files, the least recently used one first.
class OpenFiles {
 public:
  OpenFiles(PageCache& cache, std::int64_t most) : cache_(cache), most_(most) {}

  // True if another file had to be closed for it.
  bool use(FileId file) {
    if (places_.size() <= file) places_.resize(file + std::size_t{1}, open_.end());
    if (places_[file] != open_.end()) {
      open_.splice(open_.end(), open_, places_[file]);
      return false;
    }
    places_[file] = open_.insert(open_.end(), file);
    cache_.open(file);
    if (static_cast<std::int64_t>(open_.size()) <= most_) return false;
    const FileId oldest = open_.front();
    forget(oldest);
    cache_.close(oldest);
    return true;
  }

  void forget(FileId file) {
    if (places_.size() <= file || places_[file] == open_.end()) return;
    open_.erase(places_[file]);
    places_[file] = open_.end();
  }

 private:
  using List = std::list<FileId>;
  PageCache& cache_;
  std::int64_t most_;
  List open_;
  std::vector<List::iterator> places_;  // by file; the list's end: closed
};

struct World {
  Machine& machine;
  PageCache& cache;
  Ext4& files;
  TableDisk& disk;
  OpenFiles& open_files;
  const HashJoinSpec& spec;
  Bytes block;
};

// One input, cut into batches; the first is not on the device.
class Side {
 public:
  Side(const World& world, const JoinInput& input, Prng& random)
      : world_(world), input_(input), random_(random) {
    const auto mean = static_cast<double>(input.tuples) / static_cast<double>(world.spec.batches);
    for (std::int64_t batch = 1; batch < world.spec.batches; ++batch) {
      const double tuples = std::max(mean + std::sqrt(mean) * normal(), 1.0);
      const double bytes = tuples * input.temp_tuple_bytes;
      blocks_.push_back(static_cast<std::int64_t>(bytes) / world.block.count() + 1);
    }
    all_blocks_ = std::accumulate(blocks_.begin(), blocks_.end(), std::int64_t{0});
    const double on_device =
        static_cast<double>(world.spec.batches - 1) / static_cast<double>(world.spec.batches);
    tuples_per_block_ =
        static_cast<double>(input.tuples) * on_device / static_cast<double>(all_blocks_);
    cpu_per_scanned_ = static_cast<double>(input.tuples) / static_cast<double>(all_blocks_);
  }

  [[nodiscard]] std::int64_t all_blocks() const { return all_blocks_; }

  // All files grow together: a round gives each its next block, in an order of its own. A batch's
  // file is made when its first block is.
  void partition() {
    files_.resize(blocks_.size());
    std::vector<std::uint32_t> order(blocks_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::int64_t written = 0;
    std::int64_t reopened = 0;
    scan(0);
    for (std::int64_t round = 0; written < all_blocks_; ++round) {
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[random_.below(i)]);
      }
      for (const std::uint32_t batch : order) {
        if (round >= blocks_[batch]) continue;
        if (round == 0) files_[batch] = world_.cache.create();
        if (world_.open_files.use(files_[batch])) ++reopened;
        world_.cache.write(kServer, files_[batch], round, 1);
        if (++written % kScanStep != 0) continue;
        compute(world_.spec.cpu.open * std::exchange(reopened, 0));
        scan(written);
      }
    }
  }

  void read(std::size_t batch, Nanos each) {
    const auto per_block =
        static_cast<std::int64_t>(static_cast<double>(each.count()) * tuples_per_block_);
    const std::int64_t blocks = blocks_[batch];
    for (std::int64_t block = 0; block < blocks; block += kReadStep) {
      const std::int64_t now = std::min(kReadStep, blocks - block);
      world_.cache.read(kServer, files_[batch], block, now);
      compute(Nanos{per_block * now});
    }
  }

  // They are whole.
  void give_back() {
    for (std::size_t batch = 0; batch < files_.size(); ++batch) {
      world_.files.give_back(files_[batch], blocks_[batch]);
    }
  }

  void remove(std::size_t batch) {
    world_.open_files.forget(files_[batch]);
    world_.cache.remove(files_[batch]);
  }

 private:
  // Sum of uniform numbers: the same on every machine.
  double normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random_.next() >> 11) * 0x1p-53;
    return sum;
  }

  void compute(Nanos cpu) {
    const Nanos all = cpu + world_.cache.take_cpu(kServer);
    if (all > Nanos{0}) world_.machine.compute(kServer, all);
  }

  // The tuples that have filled the last blocks come from their table; asks for the next ones.
  void scan(std::int64_t written) {
    const double heap_per_block =
        static_cast<double>(input_.heap.count()) / static_cast<double>(all_blocks_);
    const std::int64_t next = std::min(kScanStep, all_blocks_ - written);
    const Nanos ready = world_.disk.next(
        kServer, Bytes{static_cast<std::int64_t>(heap_per_block * static_cast<double>(next))},
        world_.machine.now());
    if (written == 0) return;
    if (ready > world_.machine.now()) world_.machine.sleep_until(kServer, ready);
    heap_bytes_ += heap_per_block * static_cast<double>(kScanStep);
    const auto blocks = static_cast<std::int64_t>(heap_bytes_) / world_.block.count();
    heap_bytes_ -= static_cast<double>(blocks * world_.block.count());
    if (blocks > 0) world_.cache.read_elsewhere(blocks);
    compute(Nanos{static_cast<std::int64_t>(static_cast<double>(world_.spec.cpu.scan.count()) *
                                            cpu_per_scanned_ * static_cast<double>(kScanStep))});
  }

  const World& world_;
  const JoinInput& input_;
  Prng& random_;
  std::vector<std::int64_t> blocks_;  // by batch
  std::vector<FileId> files_;         // by batch
  std::int64_t all_blocks_ = 0;
  double tuples_per_block_ = 0.0;
  double cpu_per_scanned_ = 0.0;  // tuples scanned for a block written: the first batch's, too
  double heap_bytes_ = 0.0;
};

JoinRun run_once(const World& world, Prng& random, std::int64_t& temp_blocks) {
  JoinRun run;
  run.begun = world.machine.now();
  Side inner(world, world.spec.inner, random);
  Side outer(world, world.spec.outer, random);
  temp_blocks = inner.all_blocks() + outer.all_blocks();
  for (Side* const side : {&inner, &outer}) {
    side->partition();
    if (world.spec.give_back) side->give_back();
  }
  run.partitioned = world.machine.now();
  const auto batches = static_cast<std::size_t>(world.spec.batches - 1);
  for (std::size_t batch = 0; batch < batches; ++batch) {
    if (batch > 0) outer.remove(batch - 1);
    inner.read(batch, world.spec.cpu.build);
    inner.remove(batch);
    outer.read(batch, world.spec.cpu.probe);
  }
  outer.remove(batches - 1);
  run.joined = world.machine.now();
  if (world.spec.settle || world.spec.trim_after) world.files.sync(kServer);
  if (world.spec.trim_after) world.files.trim_free_space(kServer);
  run.settled = world.machine.now();
  run.files = world.files.counters();
  return run;
}

void check(const HashJoinSpec& spec) {
  for (const JoinInput& input : {spec.inner, spec.outer}) {
    require(input.tuples >= 1 && input.heap > Bytes{0} && input.temp_tuple_bytes > 0.0,
            "input: tuples, the heap's size and a tuple's must be positive");
  }
  require(spec.batches >= 2 && spec.batches <= 1 << 20,
          "batches: must lie between 2 and 1,048,576; one batch writes nothing");
  require(spec.repetitions >= 1, "repetitions: at least 1");
  require(spec.open_files >= 1, "open_files: at least 1");
  require(spec.table_rate.count() > 0, "table_rate: must be positive");
  for (const Nanos t : {spec.cpu.scan, spec.cpu.build, spec.cpu.probe, spec.cpu.open}) {
    require(t >= Nanos{0}, "CPU times must not be negative");
  }
}

}  // namespace

HashJoinResult run_hash_joins(Machine& machine, const kernel::PageCacheParameters& memory,
                              const kernel::ext4::Parameters& parameters, const HashJoinSpec& spec,
                              const std::function<void()>& repeated, const Cancel& cancel) {
  check(spec);
  Ext4 files(machine, parameters);
  PageCache cache(machine, memory, files);
  TableDisk disk(spec.table_rate, 1);
  OpenFiles open_files(cache, spec.open_files);
  const World world{machine, cache, files, disk, open_files, spec, memory.block};
  HashJoinResult result;
  host::RequestTrace trace(spec.trace_rows);
  const auto serve = [&] {
    Prng random(mix64(spec.seed));
    for (std::int64_t repetition = 0; repetition < spec.repetitions; ++repetition) {
      const bool traced = repetition == spec.traced;
      if (traced) machine.watch([&](const Request& r, Nanos now) { trace.see(r, now); });
      result.runs.push_back(run_once(world, random, result.temp_blocks));
      if (traced) machine.watch({});
      repeated();
    }
    files.stop();
  };
  machine.run(
      kProcesses,
      [&](Process self) {
        if (self == kServer) return serve();
        self == kJournal ? files.run_journal(self) : files.run_discards(self);
      },
      cancel);
  result.trace = trace.take();
  result.cache = cache.counters();
  result.allocator = files.allocator().counters();
  result.device_requests = machine.block_layer().requests();
  return result;
}

}  // namespace flashlab::dbms
