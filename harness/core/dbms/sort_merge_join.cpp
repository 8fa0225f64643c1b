#include "dbms/sort_merge_join.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>

#include "base/check.hpp"
#include "dbms/policy/merge_plan.hpp"
#include "dbms/table_disk.hpp"

namespace flashlab::dbms {

namespace {

using host::Machine;
using host::Process;
using kernel::PageCache;
using kernel::ext4::Ext4;

// Steps in which work goes on: what is read, computed and written between two looks at the clock.
constexpr Bytes kStep{256 * 1024};

struct World {
  Machine& machine;
  PageCache& cache;
  TableDisk& disk;
  const SortMergeJoinSpec& spec;
};

std::int64_t share_of(Bytes whole, std::int64_t part, std::int64_t all) {
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>(static_cast<Wide>(whole.count()) * part / all);
}

// Comparisons to find a place among n, times 1,024.
std::int64_t comparisons_1024(std::int64_t n) {
  if (n <= 1) return 0;
  const auto bits = static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n))) - 1;
  // log2 between two powers of two, linearly: at most 0.09 off.
  const std::int64_t rest = (n - (std::int64_t{1} << bits)) * 1024 >> bits;
  return bits * 1024 + rest;
}

// Replacement selection holds half a run at a time.
std::int64_t selected_from(const SortedTable& table) { return table.run_tuples / 2; }

class Sort {
 public:
  Sort(const World& world, Process self, const SortedTable& table, Prng& random)
      : world_(world),
        self_(self),
        table_(table),
        random_(random),
        file_(world.cache, self, world.spec.tapes),
        plan_(make_merge_plan(world.spec.merge, world.spec.merge_order)) {}

  // All but the last merge, whose memory is filled.
  void run(ClientResult& result) {
    form_runs(result);
    while (!last_) {
      const std::optional<Merge> merge = plan_->next();
      FLASHLAB_CHECK(merge);
      if (merge->last) {
        last_.emplace(inputs(*merge), table_.tuple.count(), memory(*merge, Refill::one), random_);
        last_->fill();
        settle(0, 0);
      } else {
        merge_once(*merge, result);
      }
    }
  }

  [[nodiscard]] RunMerge& last() { return *last_; }
  [[nodiscard]] const TapeFile& file() const { return file_; }

  // CPU time of the last merge's next bytes, and of what the kernel did for them.
  void pass_on(std::int64_t bytes) {
    const std::int64_t tuples = bytes / table_.tuple.count();
    settle(tuples, comparisons_1024(static_cast<std::int64_t>(last_->ways())), 1,
           world_.spec.cpu.join);
  }

 private:
  [[nodiscard]] Tape& tape(TapeId id) {
    while (tapes_.size() <= id) tapes_.push_back(std::make_unique<Tape>(file_));
    return *tapes_[id];
  }

  [[nodiscard]] std::vector<Tape*> inputs(const Merge& merge) {
    std::vector<Tape*> tapes;
    for (const TapeId id : merge.inputs) tapes.push_back(&tape(id));
    return tapes;
  }

  // In whole units, at least one (LogicalTapeRewindForRead() of logtape.c).
  [[nodiscard]] MergeMemory memory(const Merge& merge, Refill refill) const {
    const std::int64_t whole =
        (table_.merge_memory - table_.write_memory * merge.writing_tapes).count();
    const std::int64_t unit = table_.share_unit.count();
    const std::int64_t share = std::max<std::int64_t>(whole / merge.reading_tapes / unit, 1) * unit;
    return {std::max(share, table_.tuple.count()), refill, world_.spec.ahead};
  }

  // Spends the CPU time of so many tuples, and of what the kernel did meanwhile.
  void settle(std::int64_t tuples, std::int64_t compared_1024, std::int64_t copies = 0,
              Nanos each = Nanos{0}) {
    const SortCpu& cpu = world_.spec.cpu;
    const Nanos per_tuple = cpu.compare * compared_1024 / 1024 + cpu.copy * copies + each;
    const Nanos all = per_tuple * tuples + world_.cache.take_cpu(self_);
    if (all > Nanos{0}) world_.machine.compute(self_, all);
  }

  void form_runs(ClientResult& result) {
    const std::int64_t step = std::max<std::int64_t>(kStep / table_.tuple, 1);
    std::int64_t made = 0;
    world_.disk.next(self_,
                     Bytes{share_of(table_.heap, std::min(step, table_.tuples), table_.tuples)},
                     world_.machine.now());
    for (const std::int64_t tuples : run_lengths(table_, world_.spec.burst)) {
      const std::int64_t held = world_.spec.burst ? tuples : selected_from(table_);
      form_run(tape(plan_->deal()), tuples, comparisons_1024(held), step, made);
      made += tuples;
      ++result.runs;
    }
  }

  void form_run(Tape& tape, std::int64_t tuples, std::int64_t compared_1024, std::int64_t step,
                std::int64_t made) {
    for (std::int64_t done = 0; done < tuples;) {
      const std::int64_t now = std::min(step, tuples - done);
      scan(now, made + done, step);
      settle(now, compared_1024, 1, world_.spec.cpu.scan);
      done += now;
      if (!world_.spec.burst) tape.append(now * table_.tuple.count());
    }
    if (world_.spec.burst) {
      for (std::int64_t done = 0; done < tuples; done += step) {
        tape.append(std::min(step, tuples - done) * table_.tuple.count());
        settle(0, 0);
      }
    }
    tape.end_run();
  }

  // Waits for the table's next tuples, and has those after them read.
  void scan(std::int64_t tuples, std::int64_t made, std::int64_t step) {
    const auto until = [&](std::int64_t end) {
      return Bytes{share_of(table_.heap, std::min(end, table_.tuples), table_.tuples)};
    };
    const Bytes bytes = until(made + tuples) - until(made);
    const Bytes next = until(made + tuples + step) - until(made + step);
    const Nanos ready = world_.disk.next(self_, next, world_.machine.now());
    if (ready > world_.machine.now()) world_.machine.sleep_until(self_, ready);
    table_bytes_ += bytes;
    const std::int64_t blocks = table_bytes_ / world_.spec.tapes.block;
    table_bytes_ -= world_.spec.tapes.block * blocks;
    if (blocks > 0) world_.cache.read_elsewhere(blocks);
  }

  void merge_once(const Merge& merge, ClientResult& result) {
    RunMerge runs(inputs(merge), table_.tuple.count(), memory(merge, world_.spec.refill), random_);
    Tape& output = tape(merge.output);
    const std::int64_t compared = comparisons_1024(static_cast<std::int64_t>(runs.ways()));
    runs.fill();
    while (!runs.ended()) {
      const std::int64_t bytes = runs.advance(runs.stop());
      settle(bytes / table_.tuple.count(), compared, 2);
      output.append(bytes);
      result.merged += Bytes{bytes};
      runs.refill();
    }
    output.end_run();
    ++result.merges;
  }

  const World& world_;
  Process self_;
  const SortedTable& table_;
  Prng& random_;
  TapeFile file_;
  std::unique_ptr<MergePlan> plan_;
  std::vector<std::unique_ptr<Tape>> tapes_;
  std::optional<RunMerge> last_;
  Bytes table_bytes_;
};

// Counts reads from the time on at which nobody sorts any more.
void watch(Machine& machine, const std::uint32_t& sorting, JoinReads& reads,
           host::RequestTrace& trace) {
  machine.watch([&, end = Lba{0}](const Request& request, Nanos now) mutable {
    trace.see(request, now);
    if (request.op != Op::read && request.op != Op::write) return;
    const bool jumps = request.lba != end;
    end = request.lba + request.sectors;
    if (sorting > 0 || request.op != Op::read) return;
    ++reads.requests;
    if (jumps) ++reads.jumps;
    reads.bytes += to_bytes(request.sectors);
  });
}

Nanos busy(const World& world) {
  return world.machine.block_layer().device_busy(world.machine.now());
}

void run_client(const World& world, Process self, std::uint32_t& sorting, ClientResult& result) {
  Prng random(mix64(world.spec.seed) ^ self);
  std::vector<std::unique_ptr<Sort>> sorts;
  for (const SortedTable& table : world.spec.tables) {
    sorts.push_back(std::make_unique<Sort>(world, self, table, random));
    sorts.back()->run(result);
  }
  --sorting;
  result.sorted = world.machine.now();
  result.busy_sorted = busy(world);
  // All last merges advance together through the space of keys.
  const auto next = [&]() -> Sort& {
    return **std::min_element(sorts.begin(), sorts.end(), [](const auto& a, const auto& b) {
      return a->last().stop() < b->last().stop();
    });
  };
  while (
      !std::all_of(sorts.begin(), sorts.end(), [](const auto& s) { return s->last().ended(); })) {
    Sort& dry = next();
    const double stop = dry.last().stop();
    for (const auto& sort : sorts) sort->pass_on(sort->last().advance(stop));
    dry.last().refill();
  }
  result.ended = world.machine.now();
  result.busy_ended = busy(world);
  for (const auto& sort : sorts) {
    result.temp_blocks_read += sort->file().blocks_read();
    result.temp_blocks_written += sort->file().blocks_written();
    result.temp_file_blocks += sort->file().blocks();
  }
}

void check(const SortMergeJoinSpec& spec) {
  require(!spec.tables.empty(), "tables: at least one");
  for (const SortedTable& t : spec.tables) {
    require(t.tuples >= 1 && t.tuple > Bytes{0} && t.heap > Bytes{0},
            "table: tuples, their width and the heap's size must be positive");
    require(t.first_run_tuples >= 1 && t.second_run_tuples >= 1 && t.run_tuples >= 1,
            "table: a run must hold a tuple");
    require(t.share_unit >= Bytes{1}, "table: share_unit must be at least 1 byte");
    require(t.merge_memory > Bytes{0} && t.write_memory >= Bytes{0},
            "table: merge_memory must be positive, write_memory not negative");
  }
  require(spec.table_rate.count() > 0, "table_rate: must be positive");
  for (const Nanos t : {spec.cpu.scan, spec.cpu.compare, spec.cpu.copy, spec.cpu.join}) {
    require(t >= Nanos{0}, "CPU times must not be negative");
  }
}

}  // namespace

// While there is input, replacement selection writes as much as it reads, with memory full. When it
// has ended, some of what memory holds is too small for the run under way, and makes another one: a
// part p^2 of it, if p of that run's full length is written (the snowplow of Knuth 3, 5.4.1; where
// it is one of the first two runs, up to a twentieth of memory more).
std::vector<std::int64_t> run_lengths(const SortedTable& table, bool burst) {
  const std::int64_t held = burst ? 0 : std::min(selected_from(table), table.tuples);
  std::int64_t left = table.tuples - held;  // to be written while there is input
  std::int64_t full = table.first_run_tuples;
  std::vector<std::int64_t> runs;
  while (left >= full) {
    runs.push_back(full);
    left -= full;
    full = runs.size() == 1 ? table.second_run_tuples : table.run_tuples;
  }
  const double part = static_cast<double>(left) / static_cast<double>(full);
  const auto next = static_cast<std::int64_t>(part * part * static_cast<double>(held));
  if (left + held > next) runs.push_back(left + held - next);
  if (next > 0) runs.push_back(next);
  return runs;
}

SortMergeJoinResult run_sort_merge_joins(Machine& machine,
                                         const kernel::PageCacheParameters& memory,
                                         const std::optional<kernel::ext4::Parameters>& files,
                                         const SortMergeJoinSpec& given, std::uint32_t clients,
                                         const Cancel& cancel) {
  SortMergeJoinSpec spec = given;
  spec.tapes.block = memory.block;
  check(spec);
  require(clients >= 1 && clients <= 1024, "clients: must lie between 1 and 1024");
  std::optional<Ext4> ext4;
  if (files) ext4.emplace(machine, *files);
  PageCache cache = ext4 ? PageCache(machine, memory, *ext4) : PageCache(machine, memory);
  TableDisk disk(spec.table_rate, clients);
  const World world{machine, cache, disk, spec};
  SortMergeJoinResult result;
  result.clients.resize(clients);
  std::uint32_t sorting = clients;
  std::uint32_t working = clients;
  host::RequestTrace trace(spec.trace_rows);
  watch(machine, sorting, result.join_reads, trace);
  machine.run(
      ext4 ? clients + Ext4::kThreads : clients,
      [&](Process self) {
        if (self >= clients) return ext4->run(self, self - clients);
        run_client(world, self, sorting, result.clients[self]);
        if (--working == 0 && ext4) ext4->stop();
      },
      cancel);
  machine.watch({});
  result.trace = trace.take();
  result.cache = cache.counters();
  result.device_requests = machine.block_layer().requests();
  result.ended = machine.now();
  return result;
}

}  // namespace flashlab::dbms
