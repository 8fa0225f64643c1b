#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "dbms/sort_merge_join.hpp"
#include "page_cache_of.hpp"
#include "serial_device.hpp"

namespace flashlab::dbms {
namespace test_sort_merge_join {

using namespace literals;
using testing_host::device_of;
using testing_host::machine_over;
using testing_host::memory_of;
using testing_host::plain_host;
using testing_host::SerialSpeed;

constexpr Bytes kBlock = 8_KiB;
constexpr Bytes kPayload{8176};
constexpr Bytes kTuple{110};

SortedTable table_of(std::int64_t tuples) {
  return {.tuples = tuples,
          .heap = 130 * Bytes{tuples},
          .tuple = kTuple,
          .first_run_tuples = 4096,
          .second_run_tuples = 4096,
          .run_tuples = 4096,
          .merge_memory = 4 * 20 * kPayload,
          .write_memory = Bytes{0}};
}

// Two tables, 10 to 1, of 62 and 7 runs; four at a time.
SortMergeJoinSpec spec_of(const std::string& merge) {
  return {.merge = merge,
          .merge_order = 4,
          .burst = false,
          .refill = Refill::all,
          .ahead = false,
          .tapes = {Bytes{}, kPayload, false, 1},
          .tables = {table_of(25'000), table_of(250'000)},
          .cpu = {},
          .table_rate = BytesPerSecond{std::int64_t{1} << 50},
          .seed = 1};
}

constexpr SerialSpeed kInstant{Nanos{0}, BytesPerSecond{std::int64_t{1} << 60}};

SortMergeJoinResult run(const SortMergeJoinSpec& spec, Bytes memory, std::uint32_t clients = 1,
                        const SerialSpeed& speed = {}, std::int64_t cores = 4) {
  const auto machine = machine_over(speed, 64 * 1024_MiB, plain_host(cores));
  return run_sort_merge_joins(*machine, memory_of(memory), std::nullopt, spec, clients, Cancel());
}

kernel::ext4::Parameters ext4_of() {
  kernel::ext4::Parameters files;
  files.cache_block = kBlock;
  files.journal = 4_MiB;
  return files;
}

std::int64_t tuples_of(const SortMergeJoinSpec& spec) {
  std::int64_t sum = 0;
  for (const SortedTable& table : spec.tables) sum += table.tuples;
  return sum;
}

// --- initial runs

using Lengths = std::vector<std::int64_t>;

// Replacement selection of so many random keys, with a heap of `held` of them (Knuth 3, 5.4.1).
Lengths selected(std::int64_t tuples, std::int64_t held, Prng& random) {
  using Place = std::pair<std::size_t, std::uint64_t>;  // run, key
  std::priority_queue<Place, std::vector<Place>, std::greater<>> heap;
  Lengths runs;
  for (std::int64_t read = 0; read < tuples || !heap.empty();) {
    while (read < tuples && static_cast<std::int64_t>(heap.size()) < held) {
      heap.emplace(0, random.next());
      ++read;
    }
    const auto [run, key] = heap.top();
    heap.pop();
    runs.resize(run + 1);
    ++runs[run];
    if (read == tuples) continue;
    const std::uint64_t next = random.next();
    heap.emplace(next < key ? run + 1 : run, next);
    ++read;
  }
  return runs;
}

// As postgres_sort.py says it for a memory of so many tuples.
SortedTable selecting(std::int64_t tuples, std::int64_t held) {
  SortedTable table = table_of(tuples);
  table.first_run_tuples = static_cast<std::int64_t>(1.718282 * static_cast<double>(held));
  table.second_run_tuples = static_cast<std::int64_t>(1.952492 * static_cast<double>(held));
  table.run_tuples = 2 * held;
  return table;
}

// The number of runs, and the lengths of the last and of the one before it, over memory.
using Ends = std::array<double, 3>;

Ends ends_of(const Lengths& lengths, std::int64_t held) {
  const auto over_memory = [&](std::size_t from_end) {
    return static_cast<double>(lengths[lengths.size() - from_end]) / static_cast<double>(held);
  };
  return {static_cast<double>(lengths.size()), over_memory(1), over_memory(2)};
}

// Of ten runs and a half to one, in each of their phases alike.
TEST(SortRuns, AreThoseOfAHeapOfRandomKeys) {
  constexpr std::int64_t kHeld = 400;
  constexpr int kSizes = 100;
  constexpr int kSorts = 8;
  Prng random(5);
  Ends sum{};  // of the differences
  double above = 0.0;
  for (int size = 0; size < kSizes; ++size) {
    const std::int64_t tuples = 5 * kHeld + size * kHeld / 5 + 7;
    const Lengths lengths = run_lengths(selecting(tuples, kHeld), false);
    EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), tuples);
    const Ends mine = ends_of(lengths, kHeld);
    for (int sort = 0; sort < kSorts; ++sort) {
      const Ends theirs = ends_of(selected(tuples, kHeld, random), kHeld);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i] - theirs[i];
    }
    above += mine[0] - static_cast<double>(tuples) / (2.0 * kHeld);
  }
  for (const double difference : sum) EXPECT_NEAR(difference / (kSizes * kSorts), 0.0, 0.1);
  EXPECT_NEAR(above / kSizes, 7.0 / 6.0, 0.05) << "Knuth 3, 5.4.1: N / 2P + 7/6";
}

TEST(SortRuns, OfLittleMoreThanMemoryAreThoseOfAHeap) {
  constexpr std::int64_t kHeld = 2000;
  Prng random(6);
  for (const double size : {1.2, 1.8, 2.5, 3.2, 4.0, 4.5}) {
    const auto tuples = static_cast<std::int64_t>(size * kHeld);
    const Lengths mine = run_lengths(selecting(tuples, kHeld), false);
    const Lengths theirs = selected(tuples, kHeld, random);
    ASSERT_EQ(mine.size(), theirs.size()) << size;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(mine[i]), static_cast<double>(theirs[i]), 0.1 * kHeld)
          << size;
    }
  }
}

TEST(SortRuns, WhatMemoryHoldsIsOneRun) {
  EXPECT_EQ(run_lengths(selecting(999, 1000), false), Lengths{999});
  EXPECT_EQ(run_lengths(selecting(1000, 1000), false), Lengths{1000});
}

TEST(SortRuns, InBurstsTheLastIsTheRest) {
  EXPECT_EQ(run_lengths(table_of(3 * 4096 + 5), true), (Lengths{4096, 4096, 4096, 5}));
  EXPECT_EQ(run_lengths(table_of(3 * 4096), true), (Lengths{4096, 4096, 4096}));
  EXPECT_EQ(run_lengths(table_of(5), true), Lengths{5});
}

// --- sorts and joins

class SortMergeJoin : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Plans, SortMergeJoin, ::testing::Values("polyphase", "balanced"));

TEST_P(SortMergeJoin, TwoRunsAreTheSame) {
  const SortMergeJoinSpec spec = spec_of(GetParam());
  const SortMergeJoinResult one = run(spec, 16_MiB, 3);
  const SortMergeJoinResult other = run(spec, 16_MiB, 3);
  EXPECT_EQ(one.ended, other.ended);
  EXPECT_EQ(one.device_requests, other.device_requests);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(one.clients[i].sorted, other.clients[i].sorted);
    EXPECT_EQ(one.clients[i].ended, other.clients[i].ended);
    EXPECT_EQ(one.clients[i].temp_blocks_read, other.clients[i].temp_blocks_read);
  }
}

TEST_P(SortMergeJoin, TheSeedMovesTheReadsAndNotTheirSum) {
  SortMergeJoinSpec spec = spec_of(GetParam());
  const SortMergeJoinResult one = run(spec, 16_MiB);
  spec.seed = 2;
  const SortMergeJoinResult other = run(spec, 16_MiB);
  EXPECT_NE(one.ended, other.ended);
  EXPECT_EQ(one.clients[0].temp_blocks_read, other.clients[0].temp_blocks_read);
}

// Everything is written once when runs are formed and once in each merge, and read as often.
TEST_P(SortMergeJoin, TempBlocksAreTheDataTimesThePasses) {
  for (const bool burst : {false, true}) {
    SortMergeJoinSpec spec = spec_of(GetParam());
    spec.burst = burst;
    const ClientResult client = run(spec, 16_MiB).clients[0];
    const Bytes written = tuples_of(spec) * kTuple + client.merged;
    EXPECT_GT(client.merged, tuples_of(spec) * kTuple);
    EXPECT_EQ(client.runs, 62 + 7);
    // A tape's last block may be a part: once per tape and phase.
    EXPECT_GE(client.temp_blocks_written, written / kPayload);
    EXPECT_LE(client.temp_blocks_written, written / kPayload + client.merges + 2 * 10);
    EXPECT_EQ(client.temp_blocks_read, client.temp_blocks_written);
    EXPECT_LE(client.temp_file_blocks, tuples_of(spec) * kTuple / kPayload + 2 * 30);
  }
}

// Four tapes are read at once, or fewer: what makes no whole block of each is left over.
TEST_P(SortMergeJoin, ATapesShareOfMemoryIsWholeUnits) {
  const auto ended = [](Bytes unit, Bytes memory) {
    SortMergeJoinSpec spec = spec_of(GetParam());
    spec.refill = Refill::one;
    for (SortedTable& table : spec.tables) {
      table.share_unit = unit;
      table.merge_memory = memory;
    }
    return run(spec, 4_MiB).ended;
  };
  const Bytes two_blocks = 4 * 2 * kPayload;
  const Bytes more = two_blocks + kPayload / 2;
  EXPECT_EQ(ended(kPayload, two_blocks), ended(kPayload, more));
  EXPECT_NE(ended(Bytes{1}, two_blocks), ended(Bytes{1}, more)) << "in bytes it is not";
  EXPECT_EQ(ended(kPayload, Bytes{1}), ended(kPayload, kPayload)) << "at least a block";
}

TEST_P(SortMergeJoin, WithMemoryForAllNothingIsReadFromTheDevice) {
  const auto machine = machine_over();
  const SortMergeJoinResult result = run_sort_merge_joins(
      *machine, memory_of(8 * 1024_MiB), std::nullopt, spec_of(GetParam()), 2, Cancel());
  EXPECT_EQ(device_of(*machine).served.size(), 0U);
  EXPECT_EQ(result.cache.device_read_blocks, 0U);
  EXPECT_EQ(result.cache.missed_blocks, 0U);
  EXPECT_GT(result.cache.read_blocks, 0U);
}

TEST_P(SortMergeJoin, WithoutMemoryTheDeviceIsBusy) {
  const SortMergeJoinResult result = run(spec_of(GetParam()), 4_MiB, 2);
  EXPECT_GT(result.cache.device_read_blocks, result.cache.read_blocks / 2);
  for (const ClientResult& client : result.clients) {
    EXPECT_GT(client.busy_sorted, client.sorted / 2);
    EXPECT_LE(client.busy_sorted, client.sorted);
    EXPECT_LE(client.busy_sorted, client.busy_ended);
    EXPECT_LE(client.busy_ended, client.ended);
    EXPECT_LT(client.sorted, client.ended);
    EXPECT_LE(client.ended, result.ended);
  }
}

// On a device that takes no time, a client takes the CPU time of its tuples.
TEST_P(SortMergeJoin, TimeIsTheSumOfCpuTimesOnAFastDevice) {
  const std::int64_t tuples = tuples_of(spec_of(GetParam()));
  for (const bool burst : {false, true}) {
    for (const int which : {0, 1, 2}) {
      SortMergeJoinSpec spec = spec_of(GetParam());
      spec.burst = burst;
      (which == 0 ? spec.cpu.scan : which == 1 ? spec.cpu.copy : spec.cpu.join) = 1_us;
      const SortMergeJoinResult result = run(spec, 8 * 1024_MiB, 1, kInstant);
      const std::int64_t merged = result.clients[0].merged / kTuple;
      // A copy to a tape and one from it, each time that a tuple goes through one.
      const std::int64_t copies = 2 * (tuples + merged);
      const Nanos expected = 1_us * (which == 1 ? copies : tuples);
      EXPECT_LE(result.ended, expected + 10_us);
      EXPECT_GE(result.ended, expected - expected / 100);  // a part of a tuple at each stop
    }
  }
}

// 4,096 tuples in memory: 12 comparisons for each; four runs: two; the small table's last merge ...
TEST_P(SortMergeJoin, ComparisonsAreTheLogarithmOfWhatIsCompared) {
  for (const bool burst : {false, true}) {
    SortMergeJoinSpec spec = spec_of(GetParam());
    spec.burst = burst;
    // Replacement selection has half a run in its heap at a time, and at the end.
    const std::int64_t tuples = 4 * 4096 - (burst ? 0 : 2048);
    spec.tables = {table_of(tuples)};
    spec.cpu.compare = 1_us;
    const SortMergeJoinResult result = run(spec, 8 * 1024_MiB, 1, kInstant);
    ASSERT_EQ(result.clients[0].merges, 0);
    const std::int64_t each = (burst ? 12 : 11) + 2;
    const Nanos expected = tuples * each * 1_us;
    EXPECT_LE(result.ended, expected + 10_us);
    EXPECT_GE(result.ended, expected - expected / 100);
  }
}

TEST_P(SortMergeJoin, ClientsOnAsManyCoresDoNotSlowEachOther) {
  SortMergeJoinSpec spec = spec_of(GetParam());
  spec.cpu = {1_us, 100_ns, 300_ns, 1_us};
  const Nanos alone = run(spec, 8 * 1024_MiB, 1, kInstant).ended;
  EXPECT_NEAR(static_cast<double>(run(spec, 8 * 1024_MiB, 4, kInstant, 4).ended.count()),
              static_cast<double>(alone.count()), 0.001 * static_cast<double>(alone.count()));
  EXPECT_NEAR(static_cast<double>(run(spec, 8 * 1024_MiB, 4, kInstant, 1).ended.count()),
              4.0 * static_cast<double>(alone.count()), 0.01 * static_cast<double>(alone.count()));
}

// The tables' disk is one for all clients.
TEST_P(SortMergeJoin, TablesComeAtTheRateOfTheirDisk) {
  SortMergeJoinSpec spec = spec_of(GetParam());
  spec.table_rate = BytesPerSecond{100 << 20};
  const Nanos once = transfer_time(130 * Bytes{tuples_of(spec)}, spec.table_rate);
  for (const std::uint32_t clients : {1U, 3U}) {
    const Nanos ended = run(spec, 8 * 1024_MiB, clients, kInstant).ended;
    EXPECT_GE(ended, once * clients);
    EXPECT_LE(ended, once * clients + once / 20);
  }
}

TEST_P(SortMergeJoin, TablesTakeMemoryFromTempFiles) {
  SortMergeJoinSpec spec = spec_of(GetParam());
  for (SortedTable& table : spec.tables) table.heap = Bytes{table.tuples};
  const auto read = [&] { return run(spec, 48_MiB).cache.device_read_blocks; };
  const auto narrow = read();
  for (SortedTable& table : spec.tables) table.heap = Bytes{table.tuples} * 1000;
  EXPECT_GT(read(), narrow + 1000);
}

TEST_P(SortMergeJoin, ADeviceThatIsTooSmallIsFull) {
  const auto machine = machine_over({}, 16_MiB);
  try {
    (void)run_sort_merge_joins(*machine, memory_of(16_MiB), std::nullopt, spec_of(GetParam()), 2,
                               Cancel());
    FAIL();
  } catch (const OperatingError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::disk_full);
  }
}

TEST_P(SortMergeJoin, CanBeCancelled) {
  const auto machine = machine_over();
  Cancel cancel;
  cancel.raise();
  try {
    (void)run_sort_merge_joins(*machine, memory_of(16_MiB), std::nullopt, spec_of(GetParam()), 2,
                               cancel);
    FAIL();
  } catch (const OperatingError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::interrupted);
  }
}

TEST(SortMergeJoinSpec, WhatMakesNoSortIsRefused) {
  using Change = std::function<void(SortMergeJoinSpec&)>;
  const std::vector<std::pair<std::string, Change>> changes{
      {"tables", [](auto& s) { s.tables.clear(); }},
      {"table", [](auto& s) { s.tables[0].tuples = 0; }},
      {"table", [](auto& s) { s.tables[0].heap = Bytes{0}; }},
      {"a run", [](auto& s) { s.tables[1].run_tuples = 0; }},
      {"a run", [](auto& s) { s.tables[1].first_run_tuples = 0; }},
      {"merge_memory", [](auto& s) { s.tables[1].merge_memory = Bytes{0}; }},
      {"merge_memory", [](auto& s) { s.tables[1].write_memory = Bytes{-1}; }},
      {"table_rate", [](auto& s) { s.table_rate = BytesPerSecond{0}; }},
      {"CPU", [](auto& s) { s.cpu.copy = Nanos{-1}; }},
      {"payload", [](auto& s) { s.tapes.payload = kBlock + Bytes{1}; }},
      {"piece", [](auto& s) { s.tapes.piece = 0; }},
      {"merge order", [](auto& s) { s.merge_order = 1; }},
      {"merge plan", [](auto& s) { s.merge = "cascade"; }},
  };
  for (const auto& [name, change] : changes) {
    SortMergeJoinSpec spec = spec_of("balanced");
    change(spec);
    try {
      (void)run(spec, 16_MiB);
      FAIL() << name;
    } catch (const OperatingError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_parameter);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW((void)run(spec_of("balanced"), 16_MiB, 0), OperatingError);
}

// The same blocks are asked for, wherever they lie; ext4 writes its journal and flushes besides.
TEST_P(SortMergeJoin, OnExt4AsMuchIsReadAndWritten) {
  const auto on = [&](const std::optional<kernel::ext4::Parameters>& files) {
    const auto machine = machine_over({}, 64 * 1024_MiB, plain_host(4));
    const SortMergeJoinResult result =
        run_sort_merge_joins(*machine, memory_of(4_MiB), files, spec_of(GetParam()), 2, Cancel());
    const std::size_t flushes = device_of(*machine).of(Op::flush).size();
    return std::pair{result.clients[0], flushes};
  };
  const auto [plain, no_flushes] = on(std::nullopt);
  const auto [on_ext4, flushes] = on(ext4_of());
  EXPECT_EQ(plain.temp_blocks_written, on_ext4.temp_blocks_written);
  EXPECT_EQ(plain.temp_file_blocks, on_ext4.temp_file_blocks);
  EXPECT_EQ(no_flushes, 0U);
  EXPECT_GT(flushes, 0U);
}

// An inode whose times change has a commit every 5 s, though no block is new.
TEST_P(SortMergeJoin, WritingAloneIsCommitted) {
  const auto flushes = [&](bool times) {
    kernel::ext4::Parameters files = ext4_of();
    files.times = times;
    files.commit = files.second = 1_ms;
    const auto machine = machine_over({}, 64 * 1024_MiB, plain_host(4));
    run_sort_merge_joins(*machine, memory_of(4_MiB), files, spec_of(GetParam()), 1, Cancel());
    return device_of(*machine).of(Op::flush).size();
  };
  EXPECT_GT(flushes(true), flushes(false));
}

TEST_P(SortMergeJoin, ReadsOfTheJoinAreCountedAndJump) {
  const JoinReads little = run(spec_of(GetParam()), 4_MiB, 4).join_reads;
  EXPECT_GT(little.requests, 0U);
  EXPECT_GT(little.jumps, little.requests / 2);
  EXPECT_LE(little.jumps, little.requests);
  EXPECT_EQ(run(spec_of(GetParam()), 8 * 1024_MiB).join_reads.requests, 0U);  // all cached
}

}  // namespace test_sort_merge_join
}  // namespace flashlab::dbms
