#include "dbms/hash_join.hpp"

#include <algorithm>
#include <bit>
#include <list>
#include <numeric>
#include <utility>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "dbms/batch_order.hpp"
#include "dbms/table_disk.hpp"

namespace flashlab::dbms {

namespace {

using host::Machine;
using host::Process;
using kernel::FileId;
using kernel::PageCache;
using kernel::ext4::Ext4;

constexpr Process kServer = 0;
constexpr std::uint32_t kProcesses = 1 + Ext4::kThreads;

// Blocks between two looks at the clock.
constexpr std::size_t kScanStep = 32;
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

std::int64_t blocks_of(const BatchOrder& order) {
  return std::accumulate(order.blocks.begin(), order.blocks.end(), std::int64_t{0});
}

// One input, cut into batches; the first is not on the device.
class Side {
 public:
  Side(const World& world, const JoinInput& input, const BatchOrder& order)
      : world_(world), input_(input), order_(order), files_(order.blocks.size()) {
    const double on_device =
        static_cast<double>(world.spec.batches - 1) / static_cast<double>(world.spec.batches);
    tuples_per_block_ = static_cast<double>(input.tuples) * on_device /
                        static_cast<double>(std::max<std::int64_t>(blocks_of(order), 1));
  }

  // All files grow together.
  void partition() {
    std::int64_t reopened = 0;
    const auto use = [&](std::uint32_t batch) {
      if (world_.open_files.use(files_[batch])) ++reopened;
    };
    for (const std::uint32_t batch : order_.made) {
      files_[batch] = world_.cache.create();
      use(batch);
    }
    std::vector<std::int64_t> next(files_.size());  // block, by batch
    const std::size_t all = order_.filled.size();
    scan(0, std::min(kScanStep, all));
    for (std::size_t i = 0; i < all; ++i) {
      const std::uint32_t batch = order_.filled[i];
      use(batch);
      world_.cache.write(kServer, files_[batch], next[batch]++, 1);
      if ((i + 1) % kScanStep != 0) continue;
      compute(world_.spec.cpu.open * std::exchange(reopened, 0));
      scan(i + 1, std::min(i + 1 + kScanStep, all));
    }
    compute(world_.spec.cpu.scan * (input_.tuples - scanned_));  // whose blocks are not full
  }

  void read(std::size_t batch, Nanos each) {
    if (order_.has_rest[batch]) {
      if (world_.open_files.use(files_[batch])) compute(world_.spec.cpu.open);
      world_.cache.write(kServer, files_[batch], order_.blocks[batch] - 1, 1);
    }
    const auto per_block =
        static_cast<std::int64_t>(static_cast<double>(each.count()) * tuples_per_block_);
    const std::int64_t blocks = order_.blocks[batch];
    for (std::int64_t block = 0; block < blocks; block += kReadStep) {
      const std::int64_t now = std::min(kReadStep, blocks - block);
      world_.cache.read(kServer, files_[batch], block, now);
      compute(Nanos{per_block * now});
    }
  }

  // They are whole.
  void give_back() {
    for (const std::uint32_t batch : order_.made) {
      world_.files.give_back(files_[batch], order_.blocks[batch]);
    }
  }

  void remove(std::size_t batch) {
    if (order_.blocks[batch] == 0) return;
    world_.open_files.forget(files_[batch]);
    world_.cache.remove(files_[batch]);
  }

 private:
  void compute(Nanos cpu) {
    const Nanos all = cpu + world_.cache.take_cpu(kServer);
    if (all > Nanos{0}) world_.machine.compute(kServer, all);
  }

  // The tuples that have filled blocks come from their table; asks for those of the next ones.
  void scan(std::size_t written, std::size_t next) {
    const std::int64_t have = written == 0 ? 0 : order_.scanned[written - 1];
    const double heap_per_tuple =
        static_cast<double>(input_.heap.count()) / static_cast<double>(input_.tuples);
    const auto heap_of = [&](std::int64_t tuples) {
      return heap_per_tuple * static_cast<double>(tuples);
    };
    const std::int64_t wanted = next > written ? order_.scanned[next - 1] - have : 0;
    const Nanos ready = world_.disk.next(kServer, Bytes{static_cast<std::int64_t>(heap_of(wanted))},
                                         world_.machine.now());
    if (written == 0) return;
    if (ready > world_.machine.now()) world_.machine.sleep_until(kServer, ready);
    const std::int64_t tuples = have - std::exchange(scanned_, have);
    heap_bytes_ += heap_of(tuples);
    const auto blocks = static_cast<std::int64_t>(heap_bytes_) / world_.block.count();
    heap_bytes_ -= static_cast<double>(blocks * world_.block.count());
    if (blocks > 0) world_.cache.read_elsewhere(blocks);
    compute(world_.spec.cpu.scan * tuples);
  }

  const World& world_;
  const JoinInput& input_;
  const BatchOrder& order_;
  std::vector<FileId> files_;  // by batch
  double tuples_per_block_ = 0.0;
  std::int64_t scanned_ = 0;  // tuples
  double heap_bytes_ = 0.0;   // scanned, less whole blocks
};

struct Orders {
  BatchOrder inner;
  BatchOrder outer;
};

JoinRun run_once(const World& world, const Orders& orders) {
  JoinRun run;
  run.begun = world.machine.now();
  Side inner(world, world.spec.inner, orders.inner);
  Side outer(world, world.spec.outer, orders.outer);
  for (Side* const side : {&inner, &outer}) {
    side->partition();
    if (world.spec.give_back) side->give_back();
  }
  run.partitioned = world.machine.now();
  const auto batches = static_cast<std::size_t>(world.spec.batches);
  for (std::size_t batch = 1; batch < batches; ++batch) {
    outer.remove(batch - 1);
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
  const auto is_power = [](std::int64_t n) {
    return n >= 1 && std::has_single_bit(static_cast<std::uint64_t>(n));
  };
  require(is_power(spec.batches) && spec.batches >= 2 && spec.batches <= 1 << 20,
          "batches: must be a power of two from 2 to 1,048,576; one batch writes nothing");
  require(is_power(spec.buckets) && spec.buckets <= std::int64_t{1} << 31,
          "buckets: must be a power of two, at most 2^31");
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
  Prng random(mix64(spec.seed));
  const HashShape shape{spec.inner.tuples, spec.buckets, spec.batches};
  const Orders orders{order_of(spec.inner, shape, memory.block, random),
                      order_of(spec.outer, shape, memory.block, random)};
  HashJoinResult result;
  result.temp_blocks = blocks_of(orders.inner) + blocks_of(orders.outer);
  host::RequestTrace trace(spec.trace_rows);
  const auto serve = [&] {
    for (std::int64_t repetition = 0; repetition < spec.repetitions; ++repetition) {
      const bool traced = repetition == spec.traced;
      if (traced) machine.watch([&](const Request& r, Nanos now) { trace.see(r, now); });
      result.runs.push_back(run_once(world, orders));
      if (traced) machine.watch({});
      repeated();
    }
    files.stop();
  };
  machine.run(
      kProcesses,
      [&](Process self) {
        if (self == kServer) return serve();
        files.run(self, self - 1);
      },
      cancel);
  result.trace = trace.take();
  result.cache = cache.counters();
  result.allocator = files.allocator().counters();
  result.device_requests = machine.block_layer().requests();
  return result;
}

}  // namespace flashlab::dbms
