#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
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
    spec.tables = {table_of(4 * 4096)};
    spec.cpu.compare = 1_us;
    const SortMergeJoinResult result = run(spec, 8 * 1024_MiB, 1, kInstant);
    ASSERT_EQ(result.clients[0].merges, 0);
    // Replacement selection has half a run in its heap at a time.
    const std::int64_t each = (burst ? 12 : 11) + 2;
    const Nanos expected = 4 * 4096 * each * 1_us;
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
