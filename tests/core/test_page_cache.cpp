#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "kernel/in_turn.hpp"
#include "kernel/page_cache.hpp"
#include "repeat.hpp"
#include "serial_device.hpp"

namespace flashlab::kernel {
using host::Machine;
using host::Process;
namespace test_page_cache {

using namespace literals;
using testing_host::device_of;
using testing_host::machine_over;
using testing_host::SerialDevice;
using testing_host::SerialSpeed;

constexpr Bytes kBlock = 8_KiB;
constexpr Nanos kLong{1'000'000'000'000};  // after which the device has nothing to do

// 1024 blocks of memory, a file a piece on the device. Write-back begins at once, and leaves
// nothing or one block.
PageCacheParameters eager() {
  return {.memory = 1024 * kBlock,
          .block = kBlock,
          .read_ahead = 16 * kBlock,
          .dirty_background_ratio = 1e-6,
          .dirty_ratio = 0.5,
          .round = Nanos{0},
          .queue_limit = 128,
          .allocation = 64_MiB,
          .segment = 1024_MiB,
          .begin = Bytes{0},
          .copy_cpu = Nanos{0}};
}

PageCacheParameters lazy() {
  PageCacheParameters p = eager();
  p.dirty_background_ratio = 0.1;
  p.dirty_ratio = 0.2;
  return p;
}

std::int64_t background_of(const PageCacheParameters& p) {
  const auto bytes =
      static_cast<std::int64_t>(p.dirty_background_ratio * static_cast<double>(p.memory.count()));
  return std::max<std::int64_t>(bytes / p.block.count(), 1);
}

std::int64_t limit_of(const PageCacheParameters& p) {
  return static_cast<std::int64_t>(p.dirty_ratio * static_cast<double>(p.memory.count())) /
         p.block.count();
}

// More than the limit may be dirty by what a writer does before it looks: of its rate for an eighth
// of the time that writing all would take, twice its rate at most.
std::int64_t most_of(const PageCacheParameters& p, std::int64_t writers, std::int64_t at_once) {
  return limit_of(p) + writers * (limit_of(p) / 4 + at_once);
}

class World {
 public:
  explicit World(const PageCacheParameters& parameters, const SerialSpeed& speed = {},
                 Bytes device_capacity = 64 * 1024_MiB)
      : machine(machine_over(speed, device_capacity)),
        device(device_of(*machine)),
        cache(*machine, parameters),
        capacity(parameters.memory / parameters.block) {}

  void run(const std::function<void()>& body) {
    machine->run(1, [&](Process) { body(); }, Cancel());
  }
  void rest() { machine->sleep_until(0, machine->now() + kLong); }
  void write(FileId file, std::int64_t begin, std::int64_t blocks) {
    cache.write(0, file, begin, blocks);
  }
  void read(FileId file, std::int64_t begin, std::int64_t blocks = 1) {
    cache.read(0, file, begin, blocks);
  }
  // One block after the other, and all of that so many times.
  void read_each(FileId file, std::int64_t begin, std::int64_t end, int rounds = 1) {
    for (int round = 0; round < rounds; ++round) {
      for (std::int64_t block = begin; block < end; ++block) read(file, block);
    }
  }
  // Of so many blocks, all on the device and none in the cache; nothing of it was recorded.
  FileId on_device(std::int64_t blocks) {
    const FileId file = cache.create();
    write(file, 0, blocks);
    rest();
    cache.read_elsewhere(capacity);
    for (std::int64_t block = 0; block < blocks; ++block) EXPECT_FALSE(cache.cached(file, block));
    device.served.clear();
    return file;
  }
  [[nodiscard]] std::int64_t cached(FileId file, std::int64_t end) const {
    std::int64_t n = 0;
    for (std::int64_t block = 0; block < end; ++block) n += cache.cached(file, block) ? 1 : 0;
    return n;
  }
  // First and last block (one file on the device, that begins there), in the order of submission.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> blocks(Op op) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (const SerialDevice::Served& s : device.of(op)) {
      all.emplace_back(s.begin / kBlock, (s.begin + s.length) / kBlock - 1);
    }
    return all;
  }

  std::unique_ptr<Machine> machine;
  SerialDevice& device;
  PageCache cache;
  std::int64_t capacity;
};

// --- reads

TEST(PageCacheRead, ASlowReaderOfAFileWaitsOnlyForItsFirstBlocks) {
  World world(eager());
  world.run([&] {
    const FileId file = world.on_device(512);
    for (std::int64_t block = 0; block < 512; ++block) {
      world.read(file, block);
      EXPECT_TRUE(world.cache.cached(file, block));
      world.machine->compute(0, 2_ms);
    }
    const auto first = world.device.of(Op::read).front();
    EXPECT_EQ(world.cache.counters().read_wait, first.done - first.submitted);
    EXPECT_EQ(world.cache.counters().missed_blocks, 1U);
  });
}

TEST(PageCacheRead, EachBlockComesFromTheDeviceOnce) {
  World world(eager());
  world.run([&] {
    const FileId file = world.on_device(512);
    for (std::int64_t block = 0; block < 512; block += 8) world.read(file, block, 8);
    for (std::int64_t block = 0; block < 512; block += 3) world.read(file, block);
    EXPECT_EQ(world.device.bytes(Op::read), 512 * kBlock);
    EXPECT_EQ(world.cache.counters().device_read_blocks, 512U);
  });
}

TEST(PageCacheRead, ARandomReadReadsOneBlock) {
  World world(eager());
  world.run([&] {
    const FileId file = world.on_device(512);
    for (const std::int64_t block : {400, 100, 300, 200}) world.read(file, block);
  });
  using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(world.blocks(Op::read), (Pairs{{400, 400}, {100, 100}, {300, 300}, {200, 200}}));
}

TEST(PageCacheRead, WithoutReadAheadEveryBlockIsAMiss) {
  PageCacheParameters p = eager();
  p.read_ahead = kBlock;
  World world(p);
  world.run([&] {
    const FileId file = world.on_device(100);
    world.read_each(file, 0, 100);
  });
  EXPECT_EQ(world.cache.counters().missed_blocks, 100U);
  EXPECT_EQ(world.device.of(Op::read).size(), 100U);
}

TEST(PageCacheRead, StreamsInOneFileAreReadAheadApart) {
  World world(eager());
  world.run([&] {
    const FileId file = world.on_device(640);
    for (std::int64_t block = 1; block < 300; ++block) {
      world.read(file, block);
      world.read(file, 320 + block);
    }
  });
  // In windows, most of them of the full length; alone they would come block by block.
  EXPECT_LT(world.device.of(Op::read).size(), 2 * 300U / 8U);
}

// A segment is a file of its own to the kernel.
TEST(PageCacheRead, ReadAheadEndsWithTheSegment) {
  PageCacheParameters p = eager();
  p.allocation = p.segment = 50 * kBlock;
  World world(p);
  world.run([&] {
    const FileId file = world.on_device(200);
    world.read_each(file, 0, 50);
    world.rest();
    EXPECT_EQ(world.cached(file, 200), 50);
    world.read(file, 50);
    world.rest();
    EXPECT_GT(world.cached(file, 200), 51);  // it begins as any file does
    EXPECT_LT(world.cached(file, 200), 50 + 16);
  });
}

TEST(PageCacheRead, ReadAheadEndsWithTheFile) {
  World world(eager());
  world.run([&] {
    const FileId file = world.on_device(30);
    world.read_each(file, 0, 30);
    world.rest();
  });
  EXPECT_EQ(world.device.bytes(Op::read), 30 * kBlock);
}

TEST(PageCacheRead, ACongestedQueueHoldsReadAheadBack) {
  const auto misses = [](std::uint32_t queue_limit) {
    PageCacheParameters p = eager();
    p.queue_limit = queue_limit;
    World world(p);
    world.run([&] {
      const FileId file = world.on_device(512);
      world.read_each(file, 0, 512);
    });
    return world.cache.counters().missed_blocks;
  };
  EXPECT_EQ(misses(128), 1U);
  EXPECT_GE(misses(1), 512U / 32U);  // no request may wait: every window begins with a miss
}

// The window goes on behind the marker, but what the reader asks for comes first.
TEST(PageCacheRead, AnEvictedBlockWithAMarkerIsReadAgain) {
  World world(eager());
  world.run([&] {
    const FileId file = world.on_device(512);
    std::int64_t block = 0;
    const auto read_ahead_to = [&] {
      std::int64_t end = 512;
      while (end > 0 && !world.cache.cached(file, end - 1)) --end;
      return end;
    };
    // Every place in a window has its turn to be read right after all was evicted.
    for (; block < 100; ++block) world.read(file, block);
    world.rest();
    const std::int64_t end = read_ahead_to();
    for (; block < end; ++block) {
      world.cache.read_elsewhere(world.capacity);
      EXPECT_FALSE(world.cache.cached(file, block));
      world.read(file, block);
      EXPECT_TRUE(world.cache.cached(file, block)) << block;
    }
  });
}

TEST(PageCacheRead, WhatWasNeverWrittenIsABug) {
  World world(eager());
  EXPECT_THROW(world.run([&] {
    const FileId file = world.cache.create();
    world.write(file, 0, 4);
    world.read(file, 3, 2);
  }),
               Bug);
}

TEST(PageCacheRead, CpuTimeIsThatOfBlocksAndRequests) {
  PageCacheParameters p = eager();
  p.copy_cpu = 1_us;
  testing_host::SerialSpeed speed;
  auto host = testing_host::plain_host();
  host.submit_cpu = 100_us;
  host.complete_cpu = 10_us;
  const auto machine = machine_over(speed, 1024_MiB, host);
  PageCache cache(*machine, p);
  machine->run(
      1,
      [&](Process self) {
        const FileId file = cache.create();
        cache.write(self, file, 0, 300);
        EXPECT_EQ(cache.take_cpu(self), 300_us);  // write-back is not the writer's work
        EXPECT_EQ(cache.take_cpu(self), Nanos{0});
        machine->sleep_until(self, kLong);
        cache.read_elsewhere(1024);
        EXPECT_EQ(cache.take_cpu(self), Nanos{0});
        const auto before = machine->block_layer().requests();
        cache.read(self, file, 0, 300);
        const auto requests = static_cast<std::int64_t>(machine->block_layer().requests() - before);
        EXPECT_GT(requests, 1);
        EXPECT_EQ(cache.take_cpu(self), 300_us + 110_us * requests);
      },
      Cancel());
}

// --- will_need

TEST(PageCacheWillNeed, DoesNotWaitAndIsNotReadTwice) {
  World world(eager());
  world.run([&] {
    const FileId file = world.on_device(512);
    const Nanos begin = world.machine->now();
    world.cache.will_need(0, file, 100, 200);
    EXPECT_EQ(world.machine->now(), begin);
    EXPECT_EQ(world.device.bytes(Op::read), 200 * kBlock);
    world.cache.will_need(0, file, 50, 200);
    EXPECT_EQ(world.device.bytes(Op::read), 250 * kBlock);
    world.rest();
    const Nanos ready = world.machine->now();
    world.read_each(file, 50, 300);
    EXPECT_EQ(world.machine->now(), ready);
    EXPECT_EQ(world.cache.counters().missed_blocks, 0U);
    EXPECT_EQ(world.device.bytes(Op::read), 250 * kBlock);
  });
}

TEST(PageCacheWillNeed, AReaderWaitsForTheRestOfIt) {
  World world(eager());
  world.run([&] {
    const FileId file = world.on_device(512);
    world.cache.will_need(0, file, 0, 64);
    const Nanos done = world.device.served.back().done;
    world.read(file, 63);
    EXPECT_EQ(world.machine->now(), done);
  });
}

TEST(PageCacheWillNeed, GoesOnInTheNextSegment) {
  PageCacheParameters p = eager();
  p.allocation = p.segment = 50 * kBlock;
  World world(p);
  world.run([&] {
    const FileId file = world.on_device(200);
    world.cache.will_need(0, file, 40, 120);
    world.rest();
    EXPECT_EQ(world.cached(file, 200), 120);
  });
}

TEST(PageCacheWillNeed, StopsAtTheFilesEnd) {
  World world(eager());
  world.run([&] {
    const FileId file = world.on_device(100);
    world.cache.will_need(0, file, 90, 1000);
    world.rest();
  });
  EXPECT_EQ(world.device.bytes(Op::read), 10 * kBlock);
}

// --- what stays and what goes

TEST(PageCacheMemory, TheOldestCleanBlockGoesFirst) {
  PageCacheParameters p = eager();
  p.read_ahead = kBlock;
  World world(p);
  world.run([&] {
    const FileId file = world.on_device(1200);
    world.read_each(file, 0, 1024);
    world.read(file, 0);  // young again
    EXPECT_EQ(world.cached(file, 1200), 1024);
    for (std::int64_t more = 0; more < 100; ++more) {
      world.read(file, 1100 + more);
      EXPECT_FALSE(world.cache.cached(file, 1 + more));
      EXPECT_TRUE(world.cache.cached(file, 2 + more));
    }
    EXPECT_TRUE(world.cache.cached(file, 0));
    EXPECT_EQ(world.cached(file, 1200), 1024);
  });
}

// 1024 blocks of memory, of which none comes unasked.
PageCacheParameters one_by_one() {
  PageCacheParameters p = eager();
  p.read_ahead = kBlock;
  return p;
}

TEST(PageCacheMemory, TheFirstUseDoesNotMoveABlock) {
  World world(one_by_one());
  world.run([&] {
    const FileId file = world.on_device(1200);
    world.cache.will_need(0, file, 0, 1024);
    world.rest();
    for (std::int64_t block = 1023; block >= 0; --block) world.read(file, block);
    EXPECT_EQ(world.cache.active_blocks(), 0);
    world.read(file, 1100);
    // A request goes as it came: its first block is the oldest, although it was used last.
    EXPECT_FALSE(world.cache.cached(file, 0));
    EXPECT_TRUE(world.cache.cached(file, 1023));
  });
}

TEST(PageCacheMemory, WhatIsReadTwiceOutlivesAScan) {
  World world(one_by_one());
  world.run([&] {
    const FileId file = world.on_device(4000);
    world.read_each(file, 0, 300, 2);
    EXPECT_EQ(world.cache.active_blocks(), 300);
    world.read_each(file, 300, 4000);
    EXPECT_EQ(world.cached(file, 300), 300);
  });
}

TEST(PageCacheMemory, AtMostHalfOfItIsActiveWhenRoomIsNeeded) {
  World world(one_by_one());
  world.run([&] {
    const FileId file = world.on_device(1200);
    world.read_each(file, 0, 1024, 2);
    EXPECT_EQ(world.cache.active_blocks(), 1024);
    world.read_each(file, 1024, 1124);
    EXPECT_EQ(world.cache.active_blocks(), 512);
    // The oldest of the active ones are the oldest of all then.
    EXPECT_EQ(world.cached(file, 1024), 924);
    EXPECT_FALSE(world.cache.cached(file, 99));
    EXPECT_TRUE(world.cache.cached(file, 100));
  });
}

// Gone while 100 others came and went: fewer than are active, or more.
TEST(PageCacheMemory, WhatComesBackSoonIsActive) {
  for (const bool refaults : {false, true}) {
    for (const std::int64_t active : {90, 110}) {
      PageCacheParameters p = one_by_one();
      p.refaults = refaults;
      World world(p);
      world.run([&] {
        const FileId file = world.on_device(4000);
        world.read_each(file, 0, active, 2);
        world.read_each(file, 1000, 2024 - active);
        EXPECT_TRUE(world.cache.cached(file, 1000));
        world.read_each(file, 3000, 3100);
        EXPECT_FALSE(world.cache.cached(file, 1000));
        world.read(file, 1000);
        const bool is_active = world.cache.active_blocks() == active + 1;
        EXPECT_EQ(is_active, refaults && active == 110) << active;
        EXPECT_EQ(world.cache.active_blocks(), active + (is_active ? 1 : 0));
      });
    }
  }
}

TEST(PageCacheMemory, AWriteIsAUseOnOldKernels) {
  for (const bool writes_are_uses : {false, true}) {
    PageCacheParameters p = one_by_one();
    p.writes_are_uses = writes_are_uses;
    World world(p);
    world.run([&] {
      const FileId file = world.cache.create();
      world.write(file, 0, 100);
      EXPECT_EQ(world.cache.active_blocks(), 0);
      world.read(file, 0, 50);
      EXPECT_EQ(world.cache.active_blocks(), writes_are_uses ? 50 : 0);
      world.read(file, 0, 50);
      EXPECT_EQ(world.cache.active_blocks(), 50);
      world.write(file, 50, 50);
      EXPECT_EQ(world.cache.active_blocks(), writes_are_uses ? 100 : 50);
    });
  }
}

// What would have gone, had it been clean, goes next when it is.
TEST(PageCacheMemory, WrittenBackBlocksThatWouldHaveGoneGoNext) {
  for (const bool dirty_go_active : {false, true}) {
    PageCacheParameters p = lazy();
    p.read_ahead = kBlock;
    p.dirty_go_active = dirty_go_active;
    World world(p);
    world.run([&] {
      const std::int64_t dirty = background_of(p);
      const FileId file = world.on_device(1200);
      const FileId written = world.cache.create();
      world.write(written, 0, dirty);
      world.read_each(file, 0, 1024);
      EXPECT_EQ(world.cached(written, dirty), dirty);
      EXPECT_EQ(world.cache.active_blocks(), dirty_go_active ? dirty : 0);
      const FileId other = world.cache.create();
      world.write(other, 0, 1);  // above the ratio: all that was written before goes home
      world.rest();
      EXPECT_EQ(world.cache.dirty_blocks(written), 0);
      EXPECT_EQ(world.cached(written, dirty), dirty);
      EXPECT_EQ(world.cache.active_blocks(), 0);
      const std::int64_t clean = world.cached(file, 1200);
      world.read_each(file, 1024, 1024 + dirty);
      EXPECT_EQ(world.cached(written, dirty), 0);
      EXPECT_EQ(world.cached(file, 1200), clean + dirty);
    });
  }
}

TEST(PageCacheMemory, ADirtyOldEndHasAllThatIsDirtyWritten) {
  for (const bool is_flushed : {false, true}) {
    PageCacheParameters p = lazy();
    p.read_ahead = kBlock;
    p.dirty_tail_is_flushed = is_flushed;
    World world(p);
    world.run([&] {
      const FileId file = world.on_device(1200);
      const FileId oldest = world.cache.create();
      world.write(oldest, 0, background_of(p) - 10);
      const FileId youngest = world.cache.create();
      world.read_each(file, 0, world.capacity - background_of(p));
      world.write(youngest, 0, 10);
      world.rest();
      EXPECT_EQ(world.cache.dirty_blocks(), background_of(p));  // nobody needed room
      world.read(file, world.capacity);
      world.rest();
      EXPECT_EQ(world.cache.dirty_blocks(), is_flushed ? 0 : background_of(p));
      EXPECT_EQ(world.cache.counters().tail_flushes, is_flushed ? 1U : 0U);
      if (!is_flushed) return;
      world.write(youngest, 0, 1);
      world.rest();
      EXPECT_EQ(world.cache.dirty_blocks(), 1);  // that was for once
    });
  }
}

// 16 blocks of 8 KiB are 32 pages: looked at together, where a 4,096th of the list is as many.
TEST(PageCacheMemory, OneCleanBlockInABatchIsEnough) {
  struct Case {
    std::int64_t before, dirty, after;
  };
  for (const Case row : {Case{0, 16, 0}, Case{1, 15, 0}, Case{0, 15, 1}, Case{7, 8, 1}}) {
    PageCacheParameters p = lazy();
    p.memory = (std::int64_t{16} << 12) * kBlock;
    p.dirty_tail_is_flushed = true;
    World world(p);
    world.run([&] {
      const FileId written = world.cache.create();
      for (int i = 0; i < 4; ++i) {
        for (std::int64_t j = 0; j < row.before; ++j) world.cache.read_elsewhere(1);
        world.write(written, i * row.dirty, row.dirty);
        for (std::int64_t j = 0; j < row.after; ++j) world.cache.read_elsewhere(1);
      }
      const std::int64_t left = world.capacity - world.cache.resident_blocks();
      for (std::int64_t i = 0; i < left + 3; ++i) world.cache.read_elsewhere(1);
      world.read(written, 0);  // who looks for room wakes who writes
      world.rest();
      EXPECT_EQ(world.cache.counters().tail_flushes, row.dirty == 16 ? 1U : 0U) << row.before;
      EXPECT_EQ(world.cache.dirty_blocks(), row.dirty == 16 ? 0 : 4 * row.dirty) << row.before;
    });
  }
}

// The smaller the list, the fewer blocks are looked at first: of 1,024 one, then two, four, eight.
TEST(PageCacheMemory, InASmallListOneDirtyBlockMayBeABatch) {
  for (const std::int64_t clean : {0, 1}) {
    PageCacheParameters p = lazy();
    p.read_ahead = kBlock;
    p.dirty_tail_is_flushed = true;
    World world(p);
    world.run([&] {
      const FileId written = world.cache.create();
      if (clean > 0) world.cache.read_elsewhere(clean);
      world.write(written, 0, 1);
      for (std::int64_t i = 1; i < world.capacity + 1; ++i) world.cache.read_elsewhere(1);
      world.read(written, 0);
      world.rest();
      EXPECT_EQ(world.cache.counters().tail_flushes, clean == 0 ? 1U : 0U);
    });
  }
}

TEST(PageCacheMemory, WhatIsReadOftenDoesNotMakeTheCacheForgetItsSize) {
  PageCacheParameters p = eager();
  p.read_ahead = kBlock;
  World world(p);
  world.run([&] {
    const FileId file = world.on_device(1200);
    world.read_each(file, 0, 1000, 10);
    for (std::int64_t block = 1000; block < 1200; ++block) {
      world.read(file, block);
      EXPECT_LE(world.cache.resident_blocks(), world.capacity);
    }
  });
}

TEST(PageCacheMemory, DirtyBlocksStay) {
  const PageCacheParameters p = lazy();
  World world(p);
  world.run([&] {
    const FileId file = world.cache.create();
    world.write(file, 0, background_of(p));
    for (int i = 0; i < 5; ++i) world.cache.read_elsewhere(world.capacity / 2);
    EXPECT_EQ(world.cached(file, background_of(p)), background_of(p));
    EXPECT_LE(world.cache.resident_blocks(), world.capacity);
    world.rest();
  });
  EXPECT_TRUE(world.device.served.empty());
}

TEST(PageCacheMemory, OtherFilesBlocksGoToo) {
  World world(eager());
  world.run([&] {
    const FileId old = world.on_device(500);
    world.read(old, 0, 500);
    const FileId young = world.cache.create();
    for (std::int64_t block = 0; block < 900; block += 10) world.write(young, block, 10);
    EXPECT_LT(world.cached(old, 500), 200);
    EXPECT_EQ(world.cached(young, 900), 900);
    EXPECT_LE(world.cache.resident_blocks(), world.capacity);
  });
}

// --- write-back

// It stops between two files.
TEST(PageCacheWriteBack, BeginsAboveTheBackgroundRatioAndStopsThere) {
  const PageCacheParameters p = lazy();
  World world(p);
  world.run([&] {
    const FileId file = world.cache.create();
    const FileId other = world.cache.create();
    const std::int64_t half = background_of(p) / 2;
    for (std::int64_t block = 0; block < half; ++block) world.write(other, block, 1);
    for (std::int64_t block = half; block < background_of(p); ++block) {
      world.write(file, block - half, 1);
    }
    world.rest();
    EXPECT_TRUE(world.device.served.empty());
    EXPECT_EQ(world.cache.dirty_blocks(), background_of(p));
    world.write(file, background_of(p) - half, 1);
    world.rest();
    EXPECT_EQ(world.device.bytes(Op::write), half * kBlock);
    EXPECT_EQ(world.cache.dirty_blocks(other), 0);
    EXPECT_EQ(world.cache.dirty_blocks(file), background_of(p) - half + 1);
  });
}

// A round goes on to the list's end, if time does not end it before.
TEST(PageCacheWriteBack, ARoundHasItsTimeOrGivesEveryFileATurn) {
  for (const Nanos round : {Nanos{0}, 5_ms, 1'000_ms}) {
    PageCacheParameters p = lazy();
    p.round = round;
    p.queue_limit = 1;
    World world(p, {10_ms, BytesPerSecond{1'000 << 20}});
    world.run([&] {
      const std::int64_t each = background_of(p) / 10 + 1;
      for (FileId file = 0; file < 10; ++file) {
        ASSERT_EQ(world.cache.create(), file);
        world.write(file, 0, each);
      }
      world.rest();
      // The last write began it: one file brings it below the ratio.
      EXPECT_EQ(world.cache.dirty_blocks(), round == 1'000_ms ? 0 : 9 * each);
    });
  }
}

// What is appended to a file while the device is busy with its last blocks: since Linux 5.8 not in
// this turn.
TEST(PageCacheWriteBack, ATurnEndsWithWhatItFoundOnRequest) {
  for (const bool ends : {false, true}) {
    PageCacheParameters p = lazy();
    p.round = 1'000_ms;
    p.queue_limit = 1;
    p.turns_end_with_scan = ends;
    World world(p, {10_ms, BytesPerSecond{1'000 << 20}});
    world.run([&] {
      const FileId second = world.cache.create();
      const FileId first = world.cache.create();  // the next one after the file of number 0
      const std::int64_t each = background_of(p) / 2 + 1;
      world.write(second, 0, each);
      world.write(first, 0, each);
      world.write(first, each, 1);
      world.rest();
    });
    std::vector<Bytes> lengths;
    for (const SerialDevice::Served& s : world.device.served) lengths.push_back(s.length);
    const Bytes each = (background_of(p) / 2 + 1) * kBlock;
    const std::vector<Bytes> at_once{each, kBlock, each};
    const std::vector<Bytes> later{each, each};  // what is left is below the ratio
    EXPECT_EQ(lengths, ends ? later : at_once);
  }
}

TEST(PageCacheWriteBack, WritersKeepToThePaceOfTheDevice) {
  const PageCacheParameters p = lazy();
  World world(p);
  constexpr std::int64_t kAtOnce = 4;
  std::int64_t most = 0;
  world.run([&] {
    const FileId file = world.cache.create();
    for (std::int64_t block = 0; block < 4000; block += kAtOnce) {
      world.write(file, block, kAtOnce);
      const Bytes inside = world.device.inside(Op::write, world.machine->now());
      most = std::max(most, world.cache.dirty_blocks() + inside / kBlock);
      EXPECT_LE(most, most_of(p, 1, kAtOnce));
    }
    EXPECT_GT(most, (limit_of(p) + background_of(p)) / 2);
    // What does not fit has taken the device's time.
    const Nanos rate = transfer_time((4000 - most) * kBlock, SerialSpeed().rate);
    EXPECT_GE(world.machine->now(), rate);
    EXPECT_EQ(world.cache.counters().write_wait, world.machine->now());
  });
}

// Upwards from where it is, and from the start when nothing is left above.
TEST(PageCacheWriteBack, GoesInTheOrderOfAddresses) {
  PageCacheParameters p = lazy();
  p.queue_limit = 2;
  World world(p);
  std::set<std::int64_t> dirty;
  std::int64_t position = 0;
  int rounds = 0;
  world.device.on_submit = [&](const SerialDevice::Served& s) {
    auto next = dirty.lower_bound(position);
    if (next == dirty.end()) {
      next = dirty.begin();
      ++rounds;
    }
    EXPECT_EQ(s.begin / kBlock, *next);
    position = (s.begin + s.length) / kBlock;
    for (std::int64_t block = s.begin / kBlock; block < position; ++block) {
      EXPECT_EQ(dirty.erase(block), 1U);
    }
  };
  world.run([&] {
    const FileId file = world.cache.create();
    for (std::int64_t block = 0; block < 3000; ++block) {
      const std::int64_t scattered = block * 1009 % 3000;  // each once
      dirty.insert(scattered);
      world.write(file, scattered, 1);
    }
  });
  EXPECT_GT(rounds, 2);
}

TEST(PageCacheWriteBack, NeighboursGoInOneRequest) {
  World world(eager());
  world.run([&] {
    const FileId file = world.cache.create();
    world.write(file, 0, 400);
    world.rest();
  });
  const auto written = world.blocks(Op::write);
  EXPECT_EQ(world.device.bytes(Op::write), 400 * kBlock);
  EXPECT_EQ(written.size(), 7U);  // 64 blocks each
}

TEST(PageCacheWriteBack, ARequestEndsWhereTheFileLiesElsewhere) {
  PageCacheParameters p = eager();
  p.allocation = 16 * kBlock;
  World world(p);
  world.run([&] {
    const FileId one = world.cache.create();
    const FileId other = world.cache.create();
    for (std::int64_t block = 0; block < 160; block += 16) {
      world.write(one, block, 16);  // in turns: their pieces lie in turns, too
      world.rest();
      world.write(other, block, 16);
      world.rest();
    }
    world.device.served.clear();
    world.cache.read_elsewhere(world.capacity);
    world.cache.will_need(0, one, 0, 150);
  });
  EXPECT_EQ(world.device.bytes(Op::read), 150 * kBlock);
  for (const auto& [first, last] : world.blocks(Op::read)) EXPECT_EQ(first / 16, last / 16);
}

// Turns in write-back of three files that are written side by side: whose, and how much.
std::vector<std::pair<std::int64_t, Bytes>> turns_of(PageCacheParameters p, BytesPerSecond rate) {
  p.allocation = p.segment = 1024_MiB;
  World world(p, {100_us, rate});
  world.run([&] {
    for (int i = 0; i < 3; ++i) (void)world.cache.create();
    for (std::int64_t block = 0; block < 100'000; block += 100) {
      for (FileId file = 0; file < 3; ++file) world.write(file, block, 100);
    }
    world.rest();
  });
  std::vector<std::pair<std::int64_t, Bytes>> turns;
  for (const auto& s : world.device.of(Op::write)) {
    const std::int64_t whose = s.begin / p.allocation;  // by place
    if (turns.empty() || turns.back().first != whose) turns.emplace_back(whose, Bytes{0});
    turns.back().second += s.length;
  }
  return turns;
}

PageCacheParameters large() {
  PageCacheParameters p = eager();
  p.memory = 4096_MiB;
  p.dirty_background_ratio = 0.1;
  p.dirty_ratio = 1.0;
  return p;
}

TEST(PageCacheWriteBack, FilesTakeTurns) {
  const auto turns = turns_of(large(), BytesPerSecond{40 << 20});
  ASSERT_GT(turns.size(), 7U);
  for (std::size_t i = 0; i + 1 < turns.size(); ++i) {
    EXPECT_EQ((turns[i].first + 1) % 3, turns[i + 1].first);
  }
}

TEST(PageCacheWriteBack, ATurnIsHalfASecondsWorthAndUpTo4MiBMore) {
  const auto turns = turns_of(large(), BytesPerSecond{40 << 20});
  EXPECT_EQ(turns.front().second, 52_MiB);  // 100 MiB/s, before any was measured
  for (const auto& [whose, length] : turns) EXPECT_LE(length, 52_MiB);
  // The bandwidth was measured meanwhile: nearly 40 MiB/s, so that 20 and 4 MiB are a little less.
  const Bytes last = turns[turns.size() - 2].second;
  EXPECT_GE(last, 20_MiB);
  EXPECT_LE(last, 24_MiB);
}

TEST(PageCacheWriteBack, ATurnIsAtMostAnEighthOfTheLimit) {
  PageCacheParameters p = large();
  p.memory = 1024_MiB;
  p.dirty_background_ratio = 0.2;
  p.dirty_ratio = 0.25;
  const auto turns = turns_of(p, BytesPerSecond{200 << 20});
  EXPECT_EQ(turns.front().second, 36_MiB);  // 32, and 4 more
  for (const auto& [whose, length] : turns) EXPECT_LE(length, 36_MiB);
  p.strict_limit = true;  // the device's own
  EXPECT_EQ(turns_of(p, BytesPerSecond{200 << 20}).front().second, 52_MiB);
}

TEST(PageCacheWriteBack, KeepsTheQueueAsFullAsItMayBe) {
  for (const std::uint32_t queue_limit : {1U, 7U}) {
    PageCacheParameters p = eager();
    p.queue_limit = queue_limit;
    World world(p);
    std::uint32_t most = 0;
    world.device.on_submit = [&](const SerialDevice::Served&) {
      most = std::max(most, world.machine->block_layer().outstanding(Op::write));
    };
    world.run([&] {
      const FileId file = world.cache.create();
      for (std::int64_t block = 0; block < 2000; block += 2) world.write(file, block, 1);
    });
    EXPECT_EQ(most, queue_limit);
  }
}

// A block that is written to while the device has it is not given to it a second time before.
TEST(PageCacheWriteBack, ABlockIsInTheDeviceOnce) {
  World world(eager(), {1_ms, BytesPerSecond{10 << 20}});
  std::map<std::int64_t, Nanos> busy_until;  // by block
  world.device.on_submit = [&](const SerialDevice::Served& s) {
    for (std::int64_t block = s.begin / kBlock; block < (s.begin + s.length) / kBlock; ++block) {
      EXPECT_LE(busy_until[block], s.submitted) << block;
      busy_until[block] = s.done;
    }
  };
  FileId file = 0;
  world.run([&] {
    file = world.cache.create();
    for (int i = 0; i < 20; ++i) {
      world.write(file, 0, 50);
      world.machine->sleep_until(0, world.machine->now() + 10_ms);
    }
    world.cache.remove(file);
    world.rest();
  });
  EXPECT_EQ(world.cache.resident_blocks(), 0);
  EXPECT_EQ(world.cache.dirty_blocks(), 0);
}

TEST(PageCacheWriteBack, WhatIsWrittenAgainMeanwhileIsDirtyAfterwards) {
  World world(eager());
  world.run([&] {
    const FileId file = world.cache.create();
    world.write(file, 0, 100);
    world.write(file, 0, 100);  // all of them are under way
    world.rest();
    EXPECT_LE(world.cache.dirty_blocks(), 1);
  });
  EXPECT_GE(world.device.bytes(Op::write), 199 * kBlock);
}

TEST(PageCacheWriteBack, AFullDeviceIsAnError) {
  World world(eager(), {}, 100_MiB);  // one file's piece of 64 MiB, and not two
  try {
    world.run([&] {
      for (int i = 0; i < 2; ++i) {
        world.write(world.cache.create(), 0, 200);
        world.rest();
      }
    });
    FAIL() << "the device takes more than it holds";
  } catch (const OperatingError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::disk_full);
  }
}

// --- removal

TEST(PageCacheRemove, ForgetsWhatWasNotWritten) {
  const PageCacheParameters p = lazy();
  World world(p);
  world.run([&] {
    const FileId file = world.cache.create();
    world.write(file, 0, background_of(p));
    world.cache.remove(file);
    EXPECT_EQ(world.cache.dirty_blocks(), 0);
    EXPECT_EQ(world.cache.resident_blocks(), 0);
    world.rest();
  });
  EXPECT_TRUE(world.device.served.empty());
}

TEST(PageCacheRemove, WhatTheDeviceHasIsForgottenWhenItIsDone) {
  for (const bool reading : {false, true}) {
    World world(eager());
    world.run([&] {
      const FileId file = world.on_device(600);
      const std::int64_t before = world.cache.resident_blocks();
      const auto under_way = [&] {
        return world.machine->block_layer().outstanding(reading ? Op::read : Op::write);
      };
      if (reading) {
        world.cache.will_need(0, file, 0, 300);
      } else {
        world.write(file, 0, 300);
      }
      EXPECT_GT(under_way(), 0U);
      world.cache.remove(file);
      EXPECT_EQ(world.cache.dirty_blocks(), 0);
      const std::size_t begun = world.device.served.size();
      world.rest();
      EXPECT_EQ(under_way(), 0U);
      EXPECT_EQ(world.device.served.size(), begun);
      EXPECT_EQ(world.cached(file, 600), 0);
      // All that is left lies elsewhere.
      EXPECT_LE(world.cache.resident_blocks(), before);
      world.cache.read_elsewhere(world.capacity);
      EXPECT_EQ(world.cache.resident_blocks(), world.capacity);
    });
  }
}

// What was touched of a file that is gone means nothing of another that has its name.
TEST(PageCacheRemove, ANameUsedAgainIsAnotherFile) {
  World world(eager());
  world.run([&] {
    const FileId old = world.on_device(100);
    world.read_each(old, 0, 100);
    world.rest();
    world.cache.remove(old);
    EXPECT_EQ(world.cache.files(), 0U);
    const FileId file = world.cache.create();
    EXPECT_EQ(file, old);
    EXPECT_EQ(world.cached(file, 100), 0);
    EXPECT_EQ(world.cache.dirty_blocks(file), 0);
    // What is older than the new file goes, however much of the old one it was.
    const std::int64_t before = world.cache.resident_blocks();
    world.write(file, 0, 80);
    world.cache.read_elsewhere(world.capacity - before - 80);
    EXPECT_EQ(world.cached(file, 80), 80);
  });
}

TEST(PageCacheRemove, ANameIsTakenWhileTheDeviceIsBusyWithIt) {
  World world(eager());
  world.run([&] {
    const FileId file = world.cache.create();
    world.write(file, 0, 100);
    ASSERT_GT(world.machine->block_layer().outstanding(Op::write), 0U);
    world.cache.remove(file);
    EXPECT_EQ(world.cache.files(), 1U);
    EXPECT_NE(world.cache.create(), file);
    world.rest();
    EXPECT_EQ(world.cache.files(), 1U);
    EXPECT_EQ(world.cache.create(), file);
  });
}

// --- the file system below

// Puts every file's blocks backwards, so that none lies behind another, and remembers all.
class Backwards final : public FileSystem {
 public:
  struct Asked {
    FileId file;
    std::int64_t begin;
    std::int64_t end;
    std::int64_t length;
    auto operator<=>(const Asked&) const = default;
  };
  void create(FileId file) override { created.push_back(file); }
  void remove(FileId file) override { removed.push_back(file); }
  void close(FileId file, bool clean) override { closed.emplace_back(file, clean); }
  void open(FileId file) override { opened.push_back(file); }
  bool allocate(FileId file, std::int64_t begin, std::int64_t blocks,
                std::int64_t length) override {
    allocated.push_back({file, begin, begin + blocks, length});
    return !is_full;
  }
  void tell_of_room(std::function<void()> told) override { has_room = std::move(told); }
  [[nodiscard]] Place find(FileId file, std::int64_t begin,
                           std::int64_t /*blocks*/) const override {
    return {to_lba(kBlock * (10'000 * (file + 1) - begin)), 1};
  }

  std::vector<FileId> created;
  std::vector<FileId> removed;
  std::vector<FileId> opened;
  std::vector<std::pair<FileId, bool>> closed;
  std::vector<Asked> allocated;
  bool is_full = false;
  std::function<void()> has_room;
};

TEST(PageCacheFileSystem, SaysWhereBlocksLie) {
  const auto machine = machine_over();
  Backwards files;
  PageCache cache(*machine, eager(), files);
  machine->run(
      1,
      [&](Process self) {
        const FileId file = cache.create();
        cache.write(self, file, 0, 40);
        machine->sleep_until(self, machine->now() + kLong);
        const auto written = device_of(*machine).of(Op::write);
        ASSERT_GE(written.size(), 39U);  // one may wait
        for (std::size_t i = 0; i < written.size(); ++i) {
          const auto& request = written[i];
          const auto block = static_cast<std::int64_t>(i);
          EXPECT_EQ(request.begin, kBlock * (10'000 - block));
          EXPECT_EQ(request.length, kBlock);
        }
        cache.read_elsewhere(1024);
        cache.read(self, file, 7, 1);
        EXPECT_EQ(device_of(*machine).of(Op::read).front().begin, kBlock * (10'000 - 7));
        cache.remove(file);
        EXPECT_EQ(files.created, (std::vector<FileId>{file}));
        EXPECT_EQ(files.removed, (std::vector<FileId>{file}));
      },
      Cancel());
  for (const Backwards::Asked& asked : files.allocated) {
    EXPECT_EQ(asked.end, 40);  // all that is dirty and fits into a request
    EXPECT_EQ(asked.length, 40);
  }
}

TEST(PageCacheFileSystem, IsWaitedForWhileItHasNoRoom) {
  const auto machine = machine_over();
  Backwards files;
  files.is_full = true;
  PageCache cache(*machine, eager(), files);
  machine->run(
      1,
      [&](Process self) {
        const FileId file = cache.create();
        cache.write(self, file, 0, 40);
        machine->sleep_until(self, machine->now() + kLong);
        EXPECT_TRUE(device_of(*machine).of(Op::write).empty());
        EXPECT_EQ(files.allocated.size(), 1U);  // nobody asks before he is told
        files.is_full = false;
        files.has_room();
        machine->sleep_until(self, machine->now() + kLong);
        EXPECT_GE(device_of(*machine).of(Op::write).size(), 39U);
      },
      Cancel());
}

TEST(PageCacheFileSystem, HearsOfOpeningAndClosing) {
  const auto machine = machine_over();
  Backwards files;
  PageCache cache(*machine, lazy(), files);
  machine->run(
      1,
      [&](Process self) {
        const FileId file = cache.create();
        cache.close(file);
        cache.open(file);
        cache.write(self, file, 0, 8);
        cache.close(file);
        cache.write(self, file, 0, 400);
        machine->sleep_until(self, machine->now() + kLong);
        EXPECT_EQ(cache.dirty_blocks(file), cache.dirty_blocks());
        EXPECT_EQ(files.opened, (std::vector<FileId>{file}));
        EXPECT_EQ(files.closed,
                  (std::vector<std::pair<FileId, bool>>{{file, true}, {file, false}}));
      },
      Cancel());
}

TEST(InTurn, GivesPiecesInTheOrderInWhichTheyAreAskedFor) {
  InTurn files({kBlock, 4 * kBlock, 64_KiB, 64_KiB + 20 * kBlock});
  const auto at = [](std::int64_t block) { return to_lba(64_KiB + kBlock * block); };
  const auto expect = [&](FileId file, std::int64_t begin, std::int64_t wanted, std::int64_t place,
                          std::int64_t blocks) {
    const Place found = files.find(file, begin, wanted);
    EXPECT_EQ(found.lba, at(place));
    EXPECT_EQ(found.blocks, blocks);
  };
  files.create(0);
  files.create(1);
  EXPECT_TRUE(files.allocate(0, 0, 1, 1));
  EXPECT_TRUE(files.allocate(1, 0, 8, 8));
  EXPECT_TRUE(files.allocate(0, 3, 2, 5));
  expect(0, 0, 5, 0, 4);  // its second piece lies behind the other file
  expect(0, 4, 4, 12, 4);
  expect(1, 0, 8, 4, 8);
  expect(1, 1, 3, 5, 3);
  expect(1, 3, 9, 7, 5);
  EXPECT_TRUE(files.allocate(1, 0, 8, 8));  // has a place
  files.remove(0);
  files.create(0);
  EXPECT_TRUE(files.allocate(0, 0, 1, 1));
  expect(0, 0, 1, 16, 1);  // space is not used again
  EXPECT_THROW((void)files.allocate(1, 8, 1, 9), OperatingError);
}

// --- contract

TEST(PageCacheContract, ParametersThatMakeNoSenseAreRefused) {
  using Change = std::function<void(PageCacheParameters&)>;
  const std::map<std::string, Change> changes{
      {"block", [](auto& p) { p.block = Bytes{1000}; }},
      {"memory", [](auto& p) { p.memory = 63 * p.block; }},
      {"allocation", [](auto& p) { p.allocation = p.block + Bytes{512}; }},
      {"segment", [](auto& p) { p.segment = p.allocation + p.block; }},
      {"dirty ratios", [](auto& p) { p.dirty_ratio = p.dirty_background_ratio / 2; }},
      {"begin", [](auto& p) { p.begin = Bytes{-512}; }},
      {"queue_limit", [](auto& p) { p.queue_limit = 0; }},
      {"copy_cpu", [](auto& p) { p.copy_cpu = Nanos{-1}; }},
  };
  const auto machine = machine_over();
  for (const auto& [name, change] : changes) {
    PageCacheParameters p = lazy();
    change(p);
    try {
      const PageCache cache(*machine, p);
      FAIL() << name;
    } catch (const OperatingError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

TEST(PageCacheContract, TwoProcessesMayNotWaitForTheSameBlock) {
  World world(eager());
  EXPECT_THROW(world.machine->run(
                   2,
                   [&](Process self) {
                     if (self == 0) {
                       const FileId file = world.cache.create();
                       world.write(file, 0, 100);
                       world.rest();
                       world.cache.read_elsewhere(world.capacity);
                     }
                     world.machine->sleep_until(self, 2 * kLong);
                     world.cache.read(self, 0, 0, 1);
                   },
                   Cancel()),
               Bug);
}

// --- random work

// What the cache does on behalf of several processes, seen from above and below: every block has a
// version, and the device is asked to write and read versions.
class RandomWork {
 public:
  RandomWork(const PageCacheParameters& p, std::uint64_t seed)
      : parameters_(p), world_(p, {200_us, BytesPerSecond{60 << 20}}), seed_(seed) {
    world_.device.on_submit = [this](const SerialDevice::Served& s) { submitted(s); };
  }

  void run() {
    // One after the other onto the device, each in one turn, so that a place there tells the file.
    // Write-back may leave a part of the last one, of which nothing is checked.
    world_.run([&] {
      for (FileId file = 0; file <= kLasting; ++file) {
        (void)world_.cache.create();
        write(0, file, 0, kFileBlocks);
      }
      world_.rest();
    });
    passing_.push_back(kLasting);
    world_.machine->run(kProcesses, [&](Process self) { work(self); }, Cancel());
    world_.run([&] {
      world_.rest();
      for (const FileId file : passing_) world_.cache.remove(file);
      world_.rest();
      check();
      std::int64_t counted = 0;
      for (FileId file = 0; file < kLasting; ++file) counted += world_.cached(file, kFileBlocks);
      EXPECT_EQ(world_.cache.resident_blocks(), counted);
      EXPECT_LE(world_.cache.dirty_blocks(), background_of(parameters_));
      for (FileId file = 0; file < kLasting; ++file) world_.cache.remove(file);
      EXPECT_EQ(world_.cache.resident_blocks(), 0);
      EXPECT_EQ(world_.cache.active_blocks(), 0);
      EXPECT_EQ(world_.cache.dirty_blocks(), 0);
    });
  }

  [[nodiscard]] const std::vector<SerialDevice::Served>& served() const {
    return world_.device.served;
  }
  [[nodiscard]] Nanos ended() const { return world_.machine->now(); }
  [[nodiscard]] const PageCacheCounters& counters() const { return world_.cache.counters(); }

 private:
  static constexpr Process kProcesses = 4;
  static constexpr FileId kLasting = 8;  // files that are never removed, two of each process
  static constexpr std::int64_t kFileBlocks = 500;
  static constexpr std::int64_t kMost = 24;  // blocks at once

  struct Versions {
    std::int64_t latest = 0;
    std::int64_t on_device = 0;
    Nanos busy_until{0};  // under write-back
  };

  void work(Process self) {
    Prng random(mix64(seed_) ^ self);
    FileId passing = world_.cache.create();
    std::int64_t passing_blocks = 0;
    std::int64_t position = 0;
    for (int step = 0; step < 400 && !::testing::Test::HasFailure(); ++step) {
      const auto file = static_cast<FileId>(2 * self + random.below(2));
      const std::int64_t length = 1 + static_cast<std::int64_t>(random.below(kMost));
      const auto begin =
          static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(kFileBlocks - length)));
      switch (random.below(8)) {
        case 0:
        case 1:
          write(self, file, begin, length);
          break;
        case 2:
          read(self, file, begin, length);
          break;
        case 3:
        case 4:  // sequentially
          position = position + length > kFileBlocks ? 0 : position;
          read(self, file, position, length);
          position += length;
          break;
        case 5:
          world_.cache.will_need(self, file, begin, length);
          break;
        case 6:
          world_.machine->compute(self, Nanos{static_cast<std::int64_t>(random.below(5'000'000))});
          break;
        case 7:
          world_.cache.write(self, passing, passing_blocks, length);
          passing_blocks += length;
          if (random.below(6) == 0) {
            world_.cache.remove(passing);
            passing = world_.cache.create();
            passing_blocks = 0;
          }
          break;
      }
      check();
    }
    passing_.push_back(passing);
  }

  void write(Process self, FileId file, std::int64_t begin, std::int64_t blocks) {
    for (std::int64_t i = 0; i < blocks; ++i) ++versions_[{file, begin + i}].latest;
    world_.cache.write(self, file, begin, blocks);
  }

  // What is read is in memory: it was before, or comes from the device meanwhile.
  void read(Process self, FileId file, std::int64_t begin, std::int64_t blocks) {
    std::vector<bool> had;
    for (std::int64_t i = 0; i < blocks; ++i) had.push_back(world_.cache.cached(file, begin + i));
    const std::size_t from = earliest_under_way();
    world_.cache.read(self, file, begin, blocks);
    for (std::int64_t i = 0; i < blocks; ++i) {
      EXPECT_TRUE(had[static_cast<std::size_t>(i)] || was_read(from, file, begin + i))
          << "block " << begin + i << " of file " << file;
    }
  }

  [[nodiscard]] std::size_t earliest_under_way() const {
    std::size_t n = served().size();
    while (n > 0 && served()[n - 1].done > world_.machine->now()) --n;
    return n > 0 ? n - 1 : 0;
  }
  [[nodiscard]] bool was_read(std::size_t from, FileId file, std::int64_t block) const {
    const Bytes place = (file * kFileBlocks + block) * kBlock;
    for (std::size_t i = from; i < served().size(); ++i) {
      const SerialDevice::Served& s = served()[i];
      if (s.op == Op::read && s.begin <= place && place < s.begin + s.length) return true;
    }
    return false;
  }

  void submitted(const SerialDevice::Served& s) {
    const auto file = static_cast<FileId>(s.begin / (kFileBlocks * kBlock));
    if (file >= kLasting) return;
    const std::int64_t first = s.begin / kBlock % kFileBlocks;
    for (std::int64_t block = first; block < first + s.length / kBlock; ++block) {
      Versions& v = versions_[{file, block}];
      if (s.op == Op::write) {
        EXPECT_LE(v.busy_until, s.submitted) << "is being written already";
        v.on_device = v.latest;
        v.busy_until = s.done;
      } else {
        EXPECT_EQ(v.on_device, v.latest) << "an old version is read";
      }
    }
  }

  void check() const {
    EXPECT_LE(world_.cache.resident_blocks(), world_.capacity);
    EXPECT_GE(world_.cache.active_blocks(), 0);
    EXPECT_LE(world_.cache.active_blocks(), world_.cache.resident_blocks());
    EXPECT_GE(world_.cache.dirty_blocks(), 0);
    const std::int64_t writing = world_.device.inside(Op::write, world_.machine->now()) / kBlock;
    EXPECT_LE(world_.cache.dirty_blocks() + writing, most_of(parameters_, kProcesses, kMost));
    EXPECT_LE(world_.machine->block_layer().outstanding(Op::write), parameters_.queue_limit);
  }

  PageCacheParameters parameters_;
  World world_;
  std::uint64_t seed_;
  std::map<std::pair<FileId, std::int64_t>, Versions> versions_;
  std::vector<FileId> passing_;
};

PageCacheParameters some_parameters(std::uint64_t seed) {
  Prng random(seed);
  PageCacheParameters p = seed % 3 == 0 ? eager() : lazy();
  p.allocation = (seed % 2 == 0 ? 500 : 125) * kBlock;
  p.segment = (seed % 5 == 0 ? 5000 : 500) * kBlock / (seed % 4 == 3 ? 4 : 1);
  p.queue_limit = 1 + static_cast<std::uint32_t>(random.below(128));
  p.read_ahead = (1 + static_cast<std::int64_t>(random.below(40))) * kBlock;
  p.memory = (600 + static_cast<std::int64_t>(random.below(2000))) * kBlock;
  p.refaults = random.below(2) == 0;
  p.writes_are_uses = random.below(2) == 0;
  p.dirty_go_active = random.below(2) == 0;
  p.dirty_tail_is_flushed = random.below(2) == 0;
  p.turns_end_with_scan = random.below(2) == 0;
  return p;
}

TEST(PageCacheRandom, KeepsItsInvariants) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(30 * repeats()); ++seed) {
    RandomWork work(some_parameters(seed), seed);
    work.run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(PageCacheRandom, TwoRunsAreTheSame) {
  for (std::uint64_t seed = 100; seed < 103; ++seed) {
    RandomWork one(some_parameters(seed), seed);
    RandomWork other(some_parameters(seed), seed);
    one.run();
    other.run();
    EXPECT_EQ(one.served(), other.served());
    EXPECT_EQ(one.ended(), other.ended());
    EXPECT_EQ(one.counters().read_wait, other.counters().read_wait);
    EXPECT_EQ(one.counters().missed_blocks, other.counters().missed_blocks);
  }
}

}  // namespace test_page_cache
}  // namespace flashlab::kernel
