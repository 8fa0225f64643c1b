#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "dbms/hash_join.hpp"
#include "dbms/table_disk.hpp"
#include "page_cache_of.hpp"
#include "serial_device.hpp"

namespace flashlab::dbms {
namespace test_hash_join {

using namespace literals;
using testing_host::device_of;
using testing_host::machine_over;
using testing_host::memory_of;
using testing_host::SerialDevice;
using testing_host::SerialSpeed;

constexpr Bytes kBlock = 8_KiB;
constexpr Bytes kDevice = 1024_MiB;
constexpr SerialSpeed kInstant{Nanos{0}, BytesPerSecond{std::int64_t{1} << 60}};
constexpr BytesPerSecond kAtOnce{std::int64_t{1} << 50};
constexpr std::int64_t kFiles = 14;  // of a repetition

kernel::ext4::Parameters files_with(const std::string& discard) {
  kernel::ext4::Parameters p;
  p.cache_block = kBlock;
  p.discard = discard;
  p.journal = 4_MiB;
  return p;
}

// Eight batches: of the inner table about 12 blocks each, of the outer 122.
HashJoinSpec spec_of(std::int64_t repetitions = 1) {
  HashJoinSpec spec;
  spec.inner = {8'000, Bytes{1'000'000}, 100.0};
  spec.outer = {80'000, Bytes{10'000'000}, 100.0};
  spec.batches = 8;
  spec.buckets = 1'024;
  spec.repetitions = repetitions;
  spec.table_rate = kAtOnce;
  return spec;
}

struct Ran {
  std::unique_ptr<host::Machine> machine;
  HashJoinResult result;
  [[nodiscard]] SerialDevice& device() const { return device_of(*machine); }
};

Ran run(const HashJoinSpec& spec, const std::string& discard = "none", Bytes memory = 1_MiB,
        const SerialSpeed& speed = {}) {
  Ran ran{machine_over(speed, kDevice), {}};
  ran.result =
      run_hash_joins(*ran.machine, memory_of(memory), files_with(discard), spec, [] {}, Cancel());
  return ran;
}

TEST(HashJoin, EveryBlockIsWrittenAndReadOnce) {
  HashJoinSpec spec = spec_of(3);
  spec.settle = true;  // nothing is left for the journal
  const Ran ran = run(spec);
  const HashJoinResult& result = ran.result;
  const auto all = static_cast<std::uint64_t>(3 * result.temp_blocks);
  // Not all repetitions are of quite the same size.
  const auto about = static_cast<double>(all);
  EXPECT_NEAR(static_cast<double>(result.cache.written_blocks), about, 0.02 * about);
  EXPECT_EQ(result.cache.read_blocks, result.cache.written_blocks);
  // Seven eighths of both tables.
  EXPECT_NEAR(static_cast<double>(result.temp_blocks), 88'000.0 * 100.0 / 8192.0 * 7.0 / 8.0, 40.0);
  EXPECT_LE(result.cache.device_write_blocks, result.cache.written_blocks);
  EXPECT_GT(result.cache.device_write_blocks, result.cache.written_blocks * 3 / 4);
  const auto journal = static_cast<std::int64_t>(result.runs.back().files.journal_blocks);
  EXPECT_EQ(ran.device().bytes(Op::write),
            kBlock * static_cast<std::int64_t>(result.cache.device_write_blocks) + 4_KiB * journal);
  EXPECT_EQ(ran.device().bytes(Op::read),
            kBlock * static_cast<std::int64_t>(result.cache.device_read_blocks));
  EXPECT_EQ(result.device_requests, ran.device().served.size());
}

TEST(HashJoin, WhatFilesDoNotUseIsGivenBackOnceOnRequest) {
  for (const bool give_back : {false, true}) {
    HashJoinSpec spec = spec_of(2);
    spec.give_back = give_back;
    spec.settle = true;
    auto files = files_with("synchronous");
    files.preallocation = 4_MiB;
    const auto machine = machine_over(SerialSpeed{}, kDevice);
    const HashJoinResult result =
        run_hash_joins(*machine, memory_of(1_MiB), files, spec, [] {}, Cancel());
    const auto& counted = result.runs.back().files;
    const auto given = static_cast<std::int64_t>(2 * kFiles * (4_MiB / 4_KiB));
    EXPECT_EQ(static_cast<std::int64_t>(counted.discarded_blocks), given);
    const auto used = static_cast<double>(2 * result.temp_blocks * (kBlock / 4_KiB));
    EXPECT_NEAR(static_cast<double>(counted.given_back_blocks),
                give_back ? static_cast<double>(given) - used : 0.0, 0.02 * used);
  }
}

TEST(HashJoin, WithMemoryForAllNothingIsWritten) {
  const Ran ran = run(spec_of(2), "synchronous", 1024_MiB);
  EXPECT_EQ(ran.result.cache.device_write_blocks, 0U);
  EXPECT_EQ(ran.result.cache.device_read_blocks, 0U);
  EXPECT_TRUE(ran.device().of(Op::trim).empty());
}

// The inner file goes as soon as it is read, the outer one with the next batch. Every batch's two
// phases last longer than a transaction: what one transaction frees is one file.
TEST(HashJoin, FilesAreRemovedOneAfterTheOther) {
  HashJoinSpec spec = spec_of();
  spec.settle = true;
  spec.cpu.build = 1'000_us;
  spec.cpu.probe = 100_us;
  kernel::ext4::Parameters files = files_with("synchronous");
  files.commit = 100'000_us;
  files.second = 1'000_us;
  const auto machine = machine_over(kInstant, kDevice);
  const HashJoinResult result =
      run_hash_joins(*machine, memory_of(1_MiB), files, spec, [] {}, Cancel());
  std::vector<Bytes> freed;  // by transaction
  bool flushed = false;
  for (const SerialDevice::Served& s : device_of(*machine).served) {
    if (s.op == Op::trim && flushed) freed.emplace_back();
    if (s.op == Op::trim) freed.back() += s.length;
    flushed = s.op == Op::flush || (flushed && s.op != Op::trim);
  }
  ASSERT_EQ(freed.size(), static_cast<std::size_t>(kFiles));
  for (std::size_t i = 0; i < freed.size(); ++i) {
    const std::int64_t blocks = freed[i] / kBlock;
    EXPECT_NEAR(static_cast<double>(blocks), i % 2 == 0 ? 12.0 : 122.0, i % 2 == 0 ? 6.0 : 20.0);
  }
  EXPECT_EQ(result.runs[0].files.files, static_cast<std::uint64_t>(kFiles));
}

TEST(HashJoin, TwoRunsAreTheSameAndTheSeedMakesAnother) {
  HashJoinSpec spec = spec_of(2);
  const Ran one = run(spec, "asynchronous");
  const Ran same = run(spec, "asynchronous");
  EXPECT_EQ(one.device().served, same.device().served);
  spec.seed = 1;
  const Ran other = run(spec, "asynchronous");
  EXPECT_NE(one.device().served, other.device().served);
}

TEST(HashJoin, CountersGoOnFromOneRepetitionToTheNext) {
  int called = 0;
  const auto machine = machine_over({}, kDevice);
  const HashJoinResult result = run_hash_joins(
      *machine, memory_of(1_MiB), files_with("none"), spec_of(4), [&] { ++called; }, Cancel());
  EXPECT_EQ(called, 4);
  ASSERT_EQ(result.runs.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const JoinRun& run = result.runs[i];
    EXPECT_EQ(run.files.files, kFiles * (i + 1));
    EXPECT_LT(run.begun, run.partitioned);
    EXPECT_LT(run.partitioned, run.joined);
    EXPECT_EQ(run.joined, run.settled);
    EXPECT_EQ(run.begun, i == 0 ? Nanos{0} : result.runs[i - 1].settled);
  }
}

TEST(HashJoin, SettledMeansThatTheDriveKnowsOfAll) {
  for (const std::string discard : {"synchronous", "asynchronous"}) {
    HashJoinSpec spec = spec_of(3);
    spec.settle = true;
    const Ran ran = run(spec, discard);
    for (const JoinRun& run : ran.result.runs) {
      EXPECT_GT(run.settled, run.joined);
      std::int64_t written = 0;
      std::int64_t discarded = 0;
      for (const SerialDevice::Served& s : ran.device().served) {
        if (s.submitted >= run.settled) continue;
        if (s.op == Op::trim) discarded += s.length / 4_KiB;
        if (s.op == Op::write) written += s.length / 4_KiB;
      }
      written -= static_cast<std::int64_t>(run.files.journal_blocks);
      EXPECT_EQ(discarded, static_cast<std::int64_t>(run.files.discarded_blocks));
      // Extents' own blocks, too: no file has more than one.
      const std::int64_t freed = discarded + static_cast<std::int64_t>(run.files.reused_blocks);
      EXPECT_GE(freed, written);
      EXPECT_LE(freed, written + static_cast<std::int64_t>(run.files.files));
    }
  }
}

TEST(HashJoin, FreeSpaceIsTrimmedAfterEachRepetitionOnRequest) {
  HashJoinSpec spec = spec_of(2);
  spec.trim_after = true;
  const Ran ran = run(spec, "none");
  for (const SerialDevice::Served& s : ran.device().of(Op::trim)) {
    const bool after_first =
        s.submitted >= ran.result.runs[0].joined && s.submitted < ran.result.runs[0].settled;
    EXPECT_TRUE(after_first || s.submitted >= ran.result.runs[1].joined);
  }
  EXPECT_GT(ran.result.runs[0].files.discards, 0U);
  EXPECT_GT(ran.result.runs[1].files.discards, ran.result.runs[0].files.discards);
}

TEST(HashJoin, OnlyOneRepetitionIsTraced) {
  HashJoinSpec spec = spec_of(3);
  spec.traced = 1;
  spec.trace_rows = 1 << 20;
  const Ran all = run(spec);
  const JoinRun& traced = all.result.runs[1];
  std::vector<SerialDevice::Served> during;
  for (const SerialDevice::Served& s : all.device().served) {
    if (s.submitted >= traced.begun && s.submitted < traced.settled) during.push_back(s);
  }
  ASSERT_GE(all.result.trace.size(), during.size());
  for (const host::TracedRequest& row : all.result.trace) {
    EXPECT_GE(row.when, traced.begun);
    EXPECT_LE(row.when, traced.settled);
  }
  EXPECT_EQ(to_bytes(all.result.trace.front().request.lba), during.front().begin);
  spec.trace_rows = 100;
  const auto some = run(spec).result.trace;
  ASSERT_GE(some.size(), 50U);
  ASSERT_LE(some.size(), 100U);
  for (const host::TracedRequest& row : some) {
    const host::TracedRequest& same = all.result.trace[static_cast<std::size_t>(row.number)];
    EXPECT_EQ(std::tuple(row.when, row.request.lba), std::tuple(same.when, same.request.lba));
  }
  spec.traced = -1;
  EXPECT_TRUE(run(spec).result.trace.empty());
}

// --- files that are open

std::int64_t closes(std::int64_t open_files) {
  HashJoinSpec spec = spec_of();
  spec.open_files = open_files;
  spec.cpu.open = 1'000_us;
  return run(spec, "none", 1024_MiB, kInstant).result.runs[0].partitioned / 1'000_us;
}

TEST(HashJoinOpenFiles, NoneIsClosedUpToTheLimit) {
  EXPECT_EQ(closes(kFiles), 0);
  EXPECT_GT(closes(kFiles / 2), 0);
}

// While the outer files grow nobody looks at the inner ones: they are closed first, and stay it.
TEST(HashJoinOpenFiles, TheLeastRecentlyUsedIsClosed) {
  for (const std::int64_t room : {7, 10, 13}) {
    EXPECT_EQ(closes(room), kFiles - room);
  }
}

TEST(HashJoinOpenFiles, WithLessThanFilesGrowAlmostEachWriteClosesOne) {
  const std::int64_t temp_blocks = run(spec_of()).result.temp_blocks;
  EXPECT_LE(closes(1), temp_blocks);
  EXPECT_GE(closes(1), temp_blocks * 3 / 4);  // the last of a round may be the next one's first
  EXPECT_LT(closes(5), closes(1));
  EXPECT_LT(closes(6), closes(5));
}

// --- time

// On a device that takes no time, with memory for all: what the tuples cost.
TEST(HashJoin, TimeIsTheSumOfCpuTimes) {
  constexpr double kOnDevice = 7.0 / 8.0;
  const auto seconds = [](const std::function<void(HashJoinSpec&)>& change) {
    HashJoinSpec spec = spec_of();
    change(spec);
    const JoinRun ran = run(spec, "none", 1024_MiB, kInstant).result.runs[0];
    return static_cast<double>(ran.joined.count()) / 1e9;
  };
  EXPECT_NEAR(seconds([](auto& s) { s.cpu.scan = 10_us; }), 0.88, 0.05);
  EXPECT_NEAR(seconds([](auto& s) { s.cpu.build = 10_us; }), 0.08 * kOnDevice, 0.001);
  EXPECT_NEAR(seconds([](auto& s) { s.cpu.probe = 10_us; }), 0.8 * kOnDevice, 0.001);
  EXPECT_NEAR(seconds([](auto& s) { s.table_rate = BytesPerSecond{11'000'000}; }), 1.0, 0.05);
}

TEST(TableDisk, HasTheNextStepReadWhileThisOneIsWorkedOn) {
  TableDisk disk(BytesPerSecond{1'000'000'000}, 2);
  EXPECT_EQ(disk.next(0, Bytes{1000}, 0_us), 0_us);
  EXPECT_EQ(disk.next(0, Bytes{2000}, 0_us), 1_us);
  EXPECT_EQ(disk.next(1, Bytes{1000}, 0_us), 0_us);
  EXPECT_EQ(disk.next(1, Bytes{0}, 1_us), 4_us);  // it waited for the other reader's
  EXPECT_EQ(disk.next(0, Bytes{1000}, 10_us), 3_us);
  EXPECT_EQ(disk.next(0, Bytes{0}, 20_us), 11_us);  // an idle disk begins when it is asked
}

// --- errors

TEST(HashJoin, ADeviceThatIsTooSmallIsFull) {
  const auto machine = machine_over({}, 50_MiB);
  HashJoinSpec spec = spec_of();
  spec.outer.tuples = 800'000;
  try {
    (void)run_hash_joins(*machine, memory_of(1_MiB), files_with("none"), spec, [] {}, Cancel());
    FAIL();
  } catch (const OperatingError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::disk_full);
  }
}

TEST(HashJoin, CanBeCancelled) {
  const auto machine = machine_over({}, kDevice);
  Cancel cancel;
  cancel.raise();
  try {
    // Long enough for somebody to look.
    (void)run_hash_joins(
        *machine, memory_of(1_MiB), files_with("none"), spec_of(1000), [] {}, cancel);
    FAIL();
  } catch (const OperatingError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::interrupted);
  }
}

TEST(HashJoinSpec, WhatMakesNoJoinIsRefused) {
  using Change = std::function<void(HashJoinSpec&)>;
  const std::vector<std::pair<std::string, Change>> changes{
      {"input", [](auto& s) { s.inner.tuples = 0; }},
      {"input", [](auto& s) { s.outer.heap = Bytes{0}; }},
      {"input", [](auto& s) { s.outer.temp_tuple_bytes = 0.0; }},
      {"batches", [](auto& s) { s.batches = 1; }},
      {"batches", [](auto& s) { s.batches = (1 << 20) + 1; }},
      {"batches", [](auto& s) { s.batches = 1 << 21; }},
      {"batches", [](auto& s) { s.batches = 24; }},
      {"buckets", [](auto& s) { s.buckets = 0; }},
      {"buckets", [](auto& s) { s.buckets = 1'000; }},
      {"repetitions", [](auto& s) { s.repetitions = 0; }},
      {"open_files", [](auto& s) { s.open_files = 0; }},
      {"table_rate", [](auto& s) { s.table_rate = BytesPerSecond{0}; }},
      {"trace_rows", [](auto& s) { s.trace_rows = -2; }},
      {"trace_rows", [](auto& s) { s.trace_rows = 7; }},
      {"CPU", [](auto& s) { s.cpu.probe = Nanos{-1}; }},
      {"CPU", [](auto& s) { s.cpu.open = Nanos{-1}; }},
  };
  for (const auto& [name, change] : changes) {
    HashJoinSpec spec = spec_of();
    change(spec);
    try {
      (void)run(spec);
      FAIL() << name;
    } catch (const OperatingError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_parameter);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

}  // namespace test_hash_join
}  // namespace flashlab::dbms
