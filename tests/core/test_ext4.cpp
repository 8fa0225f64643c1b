#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "kernel/ext4/ext4.hpp"
#include "kernel/page_cache.hpp"
#include "repeat.hpp"
#include "serial_device.hpp"

namespace flashlab::kernel::ext4 {
using host::Machine;
using host::Process;
namespace test_ext4 {

using Piece = Run;  // Run is a name of GoogleTest's

using namespace literals;
using testing_host::device_of;
using testing_host::machine_over;
using testing_host::SerialDevice;
using testing_host::SerialSpeed;

constexpr Bytes kCacheBlock = 8_KiB;
constexpr std::int64_t kPer = kCacheBlock / kBlock;
constexpr std::int64_t kPerGroup = 32'768;
constexpr Bytes kDevice = 1024_MiB;  // 8 groups, the journal in the fourth

Parameters with(const std::string& discard) {
  Parameters p;
  p.cache_block = kCacheBlock;
  p.discard = discard;
  p.journal = 4_MiB;
  p.second = 1_ms;
  p.backups = false;
  return p;
}

std::int64_t sum(const std::vector<Piece>& runs) {
  return std::accumulate(runs.begin(), runs.end(), std::int64_t{0},
                         [](std::int64_t n, const Piece& run) { return n + run.blocks; });
}

bool touch(const Piece& a, const Piece& b) { return a.begin < b.end() && b.begin < a.end(); }

class World {
 public:
  explicit World(const Parameters& parameters, Bytes capacity = kDevice,
                 const SerialSpeed& speed = {})
      : machine(machine_over(speed, capacity)),
        device(device_of(*machine)),
        files(*machine, parameters) {
    files.tell_of_room([this] {
      ++told_;
      machine->wake(0);
    });
  }

  void run(const std::function<void()>& body) {
    machine->run(
        1 + Ext4::kThreads,
        [&](Process self) {
          if (self > 0) return files.run(self, self - 1);
          body();
          files.stop();
        },
        Cancel());
  }
  void rest(Nanos how_long) { machine->sleep_until(0, machine->now() + how_long); }

  FileId create(std::int64_t blocks = 0) {
    const FileId file = next_++;
    files.create(file);
    if (blocks > 0) grow(file, blocks);
    return file;
  }
  // Blocks of the page cache, all of which are written now.
  void grow(FileId file, std::int64_t blocks) {
    std::int64_t& length = lengths_[file];
    length += blocks;
    while (!files.allocate(file, length - blocks, blocks, length)) {
      const std::uint64_t told = told_;
      machine->wait(0, [&] { return told_ > told; });
    }
  }
  // As many files, none beside another, and what each has.
  std::vector<std::vector<Piece>> apart(std::int64_t count, std::int64_t blocks) {
    std::vector<std::vector<Piece>> runs;
    for (std::int64_t i = 0; i < count; ++i) {
      runs.push_back(files.runs(create(blocks)));
      (void)create(blocks);
    }
    return runs;
  }
  [[nodiscard]] std::vector<Piece> trims() const {
    std::vector<Piece> runs;
    for (const SerialDevice::Served& s : device.of(Op::trim)) {
      runs.push_back({s.begin / kBlock, s.length / kBlock});
    }
    return runs;
  }
  [[nodiscard]] std::int64_t free() const { return files.groups().free_blocks(); }

  std::unique_ptr<Machine> machine;
  SerialDevice& device;
  Ext4 files;

 private:
  FileId next_ = 0;
  std::uint64_t told_ = 0;
  std::map<FileId, std::int64_t> lengths_;
};

// --- extents

TEST(Ext4Extents, ThatTouchAreOne) {
  World world(with("none"));
  world.run([&] {
    const FileId file = world.create();
    for (int i = 0; i < 32; ++i) world.grow(file, 16);
    EXPECT_EQ(world.files.runs(file).size(), 1U);
    EXPECT_EQ(sum(world.files.runs(file)), 32 * 16 * kPer);
  });
}

// Files that grow together get in each other's way, once for each power of two.
TEST(Ext4Extents, FilesThatGrowTogetherHaveOneForEachPowerOfTwo) {
  World world(with("none"));
  world.run([&] {
    std::vector<FileId> files;
    for (int i = 0; i < 20; ++i) files.push_back(world.create());
    for (int round = 0; round < 16; ++round) {
      for (const FileId file : files) world.grow(file, 16);
    }
    for (const FileId file : files) {
      std::vector<std::int64_t> lengths;
      for (const Piece& run : world.files.runs(file)) lengths.push_back(run.blocks);
      EXPECT_EQ(lengths, (std::vector<std::int64_t>{32, 32, 64, 128, 256}));
    }
  });
}

TEST(Ext4Extents, FindSaysWhatWasAllocated) {
  World world(with("none"));
  world.run([&] {
    Prng random(1);
    std::vector<std::int64_t> lengths(12);
    for (std::size_t i = 0; i < lengths.size(); ++i) (void)world.create();
    for (int step = 0; step < 400; ++step) {
      const auto file = static_cast<FileId>(random.below(lengths.size()));
      const auto blocks = 1 + static_cast<std::int64_t>(random.below(40));
      world.grow(file, blocks);
      lengths[file] += blocks;
    }
    for (FileId file = 0; file < lengths.size(); ++file) {
      std::vector<Piece> found;
      for (std::int64_t block = 0; block < lengths[file];) {
        const auto wanted = 1 + static_cast<std::int64_t>(random.below(100));
        const Place place = world.files.find(file, block, wanted);
        ASSERT_GE(place.blocks, 1);
        ASSERT_LE(place.blocks, wanted);
        const Piece run{to_bytes(place.lba) / kBlock, place.blocks * kPer};
        if (!found.empty() && found.back().end() == run.begin) {
          found.back().blocks += run.blocks;
        } else {
          found.push_back(run);
        }
        block += place.blocks;
      }
      // The last find may reach into what the file was given beyond its end.
      const std::vector<Piece> runs = world.files.runs(file);
      ASSERT_EQ(found.size(), runs.size());
      EXPECT_EQ(found, runs);
    }
  });
}

// Four fit into the inode; those of a longer list lie in a block, of the page cache's size here,
// that is freed with the file.
TEST(Ext4Extents, MoreThanFourHaveABlockOfTheirOwn) {
  Parameters p = with("synchronous");
  p.rules.small_files = 7;
  World world(p);
  world.run([&] {
    const FileId file = world.create();
    const FileId other = world.create();
    while (world.files.runs(file).size() < 4) {
      for (const FileId f : {file, other}) world.grow(f, 16);
    }
    EXPECT_EQ(world.files.groups().free_in(7), kPerGroup);
    while (world.files.runs(file).size() < 6) {
      for (const FileId f : {file, other}) world.grow(f, 16);
    }
    EXPECT_EQ(world.files.groups().free_in(7), kPerGroup - 2 * kPer);
    world.files.remove(file);
    world.files.sync(0);
    EXPECT_EQ(world.files.groups().free_in(7), kPerGroup - kPer);
    EXPECT_EQ(world.files.counters().extents, 6U);
    EXPECT_EQ(world.trims().size(), 7U);
    EXPECT_EQ(world.trims().back().blocks, kPer);
  });
}

TEST(Ext4Extents, NothingIsAllocatedTwice) {
  World world(with("none"));
  world.run([&] {
    const FileId file = world.create(64);
    const std::int64_t before = world.free();
    EXPECT_TRUE(world.files.allocate(file, 0, 64, 64));
    EXPECT_TRUE(world.files.allocate(file, 10, 20, 64));
    EXPECT_EQ(world.free(), before);
    EXPECT_EQ(sum(world.files.runs(file)), 64 * kPer);
  });
}

TEST(Ext4Extents, AHoleIsABug) {
  World world(with("none"));
  EXPECT_THROW(world.run([&] { (void)world.files.allocate(world.create(8), 9, 4, 13); }), Bug);
}

// --- closing

TEST(Ext4Close, GivesBackWhatIsKeptUnlessMoreIsToCome) {
  World world(with("none"));
  world.run([&] {
    const std::int64_t all = world.free();
    const FileId file = world.create(20);
    EXPECT_EQ(world.free(), all - 64);
    world.files.close(file, false);
    EXPECT_EQ(world.free(), all - 64);
    world.files.close(file, true);
    EXPECT_EQ(world.free(), all - 40);
    EXPECT_EQ(sum(world.files.runs(file)), 40);
  });
}

TEST(Ext4Close, AClosedFilesEndGetsWhatItNeeds) {
  for (const bool reopened : {false, true}) {
    World world(with("none"));
    world.run([&] {
      const std::int64_t all = world.free();
      const FileId file = world.create(20);
      world.files.close(file, true);
      if (reopened) world.files.open(file);
      world.grow(file, 30);
      EXPECT_EQ(world.free(), all - (reopened ? 128 : 100));
    });
  }
}

// Once nothing of it waits for its blocks.
TEST(Ext4Close, WhatAClosedFileKeepsGoesWhenItsEndIsWritten) {
  for (const bool is_open : {false, true}) {
    World world(with("none"));
    world.run([&] {
      const std::int64_t all = world.free();
      const FileId file = world.create(20);
      world.files.close(file, false);
      EXPECT_TRUE(world.files.allocate(file, 20, 4, 26));
      EXPECT_EQ(world.free(), all - 64);
      if (is_open) world.files.open(file);
      EXPECT_TRUE(world.files.allocate(file, 24, 2, 26));
      EXPECT_EQ(world.free(), all - (is_open ? 64 : 52));
    });
  }
}

// Only the end: what is written of a closed file before it is taken for the middle.
TEST(Ext4Close, TheMiddleOfAClosedFileIsTreatedAsAnOpenOnes) {
  World world(with("none"));
  world.run([&] {
    const std::int64_t all = world.free();
    const FileId file = world.create();
    world.files.close(file, true);
    EXPECT_TRUE(world.files.allocate(file, 0, 20, 50));
    EXPECT_EQ(world.free(), all - 128);
  });
}

// --- removal and commit

TEST(Ext4Commit, BlocksAreNotFreeBeforeIt) {
  World world(with("none"));
  world.run([&] {
    const std::int64_t all = world.free();
    const FileId file = world.create(100);
    const std::vector<Piece> runs = world.files.runs(file);
    world.files.remove(file);
    EXPECT_EQ(world.free(), all - sum(runs));  // what was kept for it is free
    const FileId next = world.create(100);
    for (const Piece& run : world.files.runs(next)) EXPECT_FALSE(touch(run, runs[0]));
    world.files.remove(next);
    world.files.sync(0);
    EXPECT_EQ(world.free(), all);
    const FileId last = world.create(100);
    EXPECT_EQ(world.files.runs(last), runs);
  });
}

TEST(Ext4Commit, ComesByItselfInTime) {
  Parameters p = with("none");
  p.commit = 2'000_ms;
  World world(p);
  world.run([&] {
    const std::int64_t all = world.free();
    world.files.remove(world.create(100));
    world.rest(1'999_ms);
    EXPECT_LT(world.free(), all);
    EXPECT_EQ(world.files.counters().commits, 0U);
    world.rest(10_ms);
    EXPECT_EQ(world.free(), all);
    EXPECT_EQ(world.files.counters().commits, 1U);
    world.rest(10'000_ms);
    EXPECT_EQ(world.files.counters().commits, 1U);  // nothing was changed
  });
}

TEST(Ext4Commit, IsDueSoLongAfterTheFirstChangeAndNotAfterTheLastCommit) {
  Parameters p = with("none");
  p.commit = 100_ms;
  SerialSpeed slow;
  slow.each = 15'000_us;  // a commit takes four requests: 60 ms
  World world(p, kDevice, slow);
  world.run([&] {
    for (int i = 0; i < 950; ++i) {
      world.files.remove(world.create(1));
      world.rest(1_ms);
    }
  });
  EXPECT_EQ(world.files.counters().commits, 9U);  // at 100, 200, ..., 900 ms
}

TEST(Ext4Commit, ThatTakesLongerThanTheTransactionIsFollowedByTheNext) {
  Parameters p = with("none");
  p.commit = 100_ms;
  SerialSpeed slow;
  slow.each = 50'000_us;
  World world(p, kDevice, slow);
  world.run([&] {
    for (int i = 0; i < 1'000; ++i) {
      world.files.remove(world.create(1));
      world.rest(1_ms);
    }
  });
  EXPECT_EQ(world.files.counters().commits, 5U);  // at 100, 300, 500, 700, 900 ms
}

// The timer goes off at whole seconds only; what is over after a transaction is due ends it sooner.
TEST(Ext4Commit, IsBegunByAnOperationThatIsOverLater) {
  Parameters p = with("none");
  p.commit = 100_ms;
  p.second = 1'000_ms;
  World world(p);
  world.run([&] {
    const FileId file = world.create(100);
    world.rest(150_ms);
    EXPECT_EQ(world.files.counters().commits, 0U);
    world.files.remove(file);  // its name; its blocks are the next transaction's
    const std::int64_t free = world.free();
    world.rest(50_ms);
    EXPECT_EQ(world.files.counters().commits, 1U);
    EXPECT_EQ(world.free(), free);
    world.rest(799_ms);  // due since 250 ms, but nobody looks
    EXPECT_EQ(world.files.counters().commits, 1U);
    world.rest(50_ms);
    EXPECT_EQ(world.files.counters().commits, 2U);
    EXPECT_GT(world.free(), free);
  });
}

TEST(Ext4Commit, WritesTheJournalAndThenItsRecord) {
  for (const bool fua : {false, true}) {
    Parameters p = with("none");
    p.fua = fua;
    World world(p);
    std::vector<std::uint64_t> blocks;
    world.run([&] {
      for (const int files : {1, 40, 1}) {
        for (int i = 0; i < files; ++i) (void)world.create(100);
        const std::uint64_t before = world.files.counters().journal_blocks;
        world.device.served.clear();
        world.files.sync(0);
        blocks.push_back(world.files.counters().journal_blocks - before);
        const std::vector<SerialDevice::Served>& served = world.device.served;
        std::vector<Op> ops{Op::write, Op::flush, Op::write};
        if (!fua) ops.push_back(Op::flush);
        ASSERT_EQ(served.size(), ops.size());
        for (std::size_t i = 0; i < ops.size(); ++i) {
          EXPECT_EQ(served[i].op, ops[i]);
          EXPECT_EQ(served[i].fua, fua && i == 2);
          if (i > 0) {
            EXPECT_GE(served[i].submitted, served[i - 1].done);
          }
        }
        EXPECT_EQ(served[2].length, kBlock);
        EXPECT_EQ(served[0].length + kBlock, kBlock * static_cast<std::int64_t>(blocks.back()));
      }
    });
    // One inode block and one bitmap; descriptor and commit block. Forty inodes are three blocks.
    EXPECT_EQ(blocks, (std::vector<std::uint64_t>{4, 6, 4}));
  }
}

TEST(Ext4Commit, TheJournalGoesRound) {
  World world(with("none"));
  const Bytes begin = kBlock * (3 * kPerGroup);
  world.run([&] {
    Bytes next = begin;
    for (int i = 0; i < 600; ++i) {
      world.files.remove(world.create(10));
      world.files.sync(0);
    }
    for (const SerialDevice::Served& s : world.device.of(Op::write)) {
      ASSERT_EQ(s.begin, next);
      next += s.length;
      ASSERT_LE(next, begin + 4_MiB);
      if (next == begin + 4_MiB) next = begin;
    }
  });
  EXPECT_GT(world.device.bytes(Op::write), 4_MiB);
}

TEST(Ext4Remove, AllIsFreeInTheEnd) {
  for (const std::string discard : {"none", "synchronous", "asynchronous"}) {
    World world(with(discard));
    const std::int64_t all = world.free();
    world.run([&] {
      Prng random(7);
      std::vector<FileId> alive;
      for (int step = 0; step < 500; ++step) {
        const std::uint64_t what = random.below(8);
        if (what == 0 || alive.empty()) {
          alive.push_back(world.create());
        } else if (what == 1) {
          const std::size_t which = random.below(alive.size());
          world.files.remove(alive[which]);
          alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(which));
        } else if (what == 2) {
          world.rest(1'000_ms);
        } else {
          world.grow(alive[random.below(alive.size())],
                     17 + static_cast<std::int64_t>(random.below(100)));
        }
      }
      for (const FileId file : alive) world.files.remove(file);
      world.files.sync(0);
      EXPECT_EQ(world.free(), all) << discard;
    });
    const Counters& counters = world.files.counters();
    const auto count = [](const Lengths& lengths) {
      return std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
    };
    EXPECT_EQ(count(counters.extent_lengths), counters.extents);
    EXPECT_EQ(count(counters.discard_lengths), counters.discards);
    EXPECT_EQ(counters.discards, world.trims().size());
    EXPECT_EQ(static_cast<std::int64_t>(counters.discarded_blocks), sum(world.trims()));
    EXPECT_EQ(counters.discards > 0, discard != "none");
  }
}

// --- discard

TEST(Ext4Discard, NoneTellsTheDriveNothing) {
  World world(with("none"));
  world.run([&] {
    world.files.remove(world.create(100));
    world.files.sync(0);
  });
  EXPECT_TRUE(world.trims().empty());
  EXPECT_EQ(world.files.counters().discards, 0U);
}

TEST(Ext4Discard, IsWhatWasFreed) {
  for (const std::string discard : {"synchronous", "asynchronous"}) {
    World world(with(discard));
    world.run([&] {
      std::vector<std::vector<Piece>> runs = world.apart(10, 32);
      std::vector<Piece> expected;
      for (FileId file = 0; file < 20; file += 2) {
        expected.push_back(runs[file / 2][0]);
        world.files.remove(file);
      }
      EXPECT_TRUE(world.trims().empty());
      world.files.sync(0);
      EXPECT_EQ(world.trims(), expected);
      EXPECT_EQ(world.files.counters().discards, 10U);
      EXPECT_EQ(world.files.counters().discarded_blocks, 640U);
      EXPECT_EQ(world.files.counters().discard_lengths[6], 10U);
      Nanos waited;
      for (const SerialDevice::Served& s : world.device.of(Op::trim))
        waited += s.done - s.submitted;
      EXPECT_EQ(world.files.counters().discard_wait, waited);
    });
  }
}

TEST(Ext4Discard, NeighboursOfOneTransactionAreOne) {
  for (const std::string discard : {"synchronous", "asynchronous"}) {
    for (const bool together : {false, true}) {
      World world(with(discard));
      world.run([&] {
        const FileId one = world.create(32);
        const FileId other = world.create(32);
        ASSERT_EQ(world.files.runs(one)[0].end(), world.files.runs(other)[0].begin);
        world.files.remove(other);
        if (!together) world.files.sync(0);
        world.files.remove(one);
        world.files.sync(0);
      });
      EXPECT_EQ(world.trims().size(), together ? 1U : 2U);
    }
  }
}

TEST(Ext4Discard, EndsAtItsGroupsBorder) {
  for (const std::string discard : {"synchronous", "asynchronous"}) {
    Parameters p = with(discard);
    p.preallocation = 256_MiB;
    World world(p, 2 * kDevice);
    world.run([&] {
      const FileId file = world.create();
      ASSERT_EQ(world.files.runs(file), (std::vector<Piece>{{kPerGroup, 2 * kPerGroup}}));
      world.files.remove(file);
      world.files.sync(0);
    });
    EXPECT_EQ(world.trims(),
              (std::vector<Piece>{{kPerGroup, kPerGroup}, {2 * kPerGroup, kPerGroup}}));
    EXPECT_EQ(world.files.counters().extents, 1U);
  }
}

// Old kernels: what is freed is free only when the drive knows; later it is free at once, except
// for what is being discarded.
TEST(Ext4Discard, WhatWaitsForItIsFreeOnlyInRecentKernels) {
  for (const std::string discard : {"synchronous", "asynchronous"}) {
    World world(with(discard));
    world.run([&] {
      const std::vector<std::vector<Piece>> runs = world.apart(3, 32);
      for (const FileId file : {0U, 2U, 4U}) world.files.remove(file);
      const auto free = [&](const Piece& run) {
        return world.files.groups().free_from(run.begin, run.blocks) == run.blocks;
      };
      world.device.on_submit = [&](const SerialDevice::Served& s) {
        if (s.op != Op::trim || s.begin != kBlock * runs[1][0].begin) return;
        EXPECT_TRUE(free(runs[0][0]));
        EXPECT_FALSE(free(runs[1][0]));
        EXPECT_EQ(free(runs[2][0]), discard == "asynchronous");
      };
      world.files.sync(0);
      EXPECT_EQ(world.trims().size(), 3U);
    });
  }
}

TEST(Ext4Discard, WhatIsUsedAgainIsLeftAlone) {
  SerialSpeed slow;
  slow.each = 100'000_us;
  World world(with("asynchronous"), kDevice, slow);
  std::vector<Piece> again;
  world.run([&] {
    const std::vector<std::vector<Piece>> runs = world.apart(10, 32);
    for (FileId file = 0; file < 20; file += 2) world.files.remove(file);
    while (world.trims().empty()) world.rest(10_ms);
    const FileId next = world.create(32);
    again = world.files.runs(next);
    EXPECT_TRUE(std::any_of(runs.begin(), runs.end(),
                            [&](const auto& r) { return touch(r[0], again[0]); }));
    world.files.sync(0);
  });
  for (const Piece& trim : world.trims()) EXPECT_FALSE(touch(trim, again[0]));
  EXPECT_EQ(world.files.counters().reused_blocks, 64U);
  EXPECT_EQ(world.files.counters().discarded_blocks, 640U - 64U);
}

// Since 6.8, of the worker: even over what was discarded before, and up to the group's end.
TEST(Ext4Discard, GoesOnToTheEndOfTheFreeRunInRecentKernels) {
  for (const std::string discard : {"synchronous", "asynchronous"}) {
    for (const bool recent : {false, true}) {
      Parameters p = with(discard);
      p.rules.recent = recent;
      World world(p);
      world.run([&] {
        const std::vector<std::vector<Piece>> runs = world.apart(2, 32);  // each before another
        const Piece first = runs[0][0];
        const Piece second = runs[1][0];
        const Piece last = world.files.runs(3)[0];
        world.files.remove(3);
        world.files.sync(0);
        world.files.remove(0);
        world.files.remove(2);
        world.files.sync(0);
        const bool further = recent && discard == "asynchronous";
        const BlockNumber end = 2 * kPerGroup;  // of the group, and nothing lies behind
        EXPECT_EQ(world.trims(),
                  (std::vector<Piece>{{last.begin, further ? end - last.begin : 64},
                                      first,
                                      {second.begin, further ? end - second.begin : 64}}));
        EXPECT_EQ(world.files.counters().reused_blocks, 0U);
      });
    }
  }
}

// A file is freed from its end to its beginning.
TEST(Ext4Discard, ComesInTheOrderInWhichBlocksWereFreed) {
  World world(with("synchronous"));
  world.run([&] {
    std::vector<FileId> files{world.create(), world.create()};
    for (int round = 0; round < 4; ++round) {
      for (const FileId file : files) world.grow(file, 16);
    }
    std::vector<Piece> expected = world.files.runs(files[0]);
    ASSERT_EQ(expected.size(), 3U);
    std::reverse(expected.begin(), expected.end());
    world.files.remove(files[0]);
    world.files.sync(0);
    EXPECT_EQ(world.trims(), expected);
  });
}

TEST(Ext4Discard, WhatTouchesGoesWithWhatWasFreedLastInRecentKernelsFirst) {
  for (const bool recent : {false, true}) {
    Parameters p = with("synchronous");
    p.rules.recent = recent;
    World world(p);
    world.run([&] {
      const std::vector<std::vector<Piece>> runs = world.apart(2, 32);  // four files in a row
      const Piece joined{runs[0][0].begin, 2 * runs[0][0].blocks};
      const Piece alone = world.files.runs(3)[0];
      for (const FileId file : {0U, 3U, 1U}) world.files.remove(file);
      world.files.sync(0);
      EXPECT_EQ(world.trims(),
                recent ? (std::vector<Piece>{joined, alone}) : (std::vector<Piece>{alone, joined}));
    });
  }
}

TEST(Ext4Discard, TheCommitWaitsForItOnlyInOldKernels) {
  SerialSpeed slow;
  slow.each = 10'000_us;
  std::map<std::string, Nanos> committed;
  for (const std::string discard : {"synchronous", "asynchronous"}) {
    World world(with(discard), kDevice, slow);
    world.run([&] {
      (void)world.apart(10, 32);
      const std::int64_t before = world.free();
      for (FileId file = 0; file < 20; file += 2) world.files.remove(file);
      while (world.free() < before + 640 - 64) world.rest(1_ms);
      committed[discard] = world.machine->now();
    });
  }
  EXPECT_LT(committed["asynchronous"], committed["synchronous"]);
}

TEST(Ext4Trim, TellsOfAllFreeSpaceOfGroupsThatHaveMore) {
  World world(with("none"));
  world.run([&] {
    (void)world.apart(10, 32);
    world.files.trim_free_space(0);
    EXPECT_TRUE(world.trims().empty());  // nothing was freed
    for (FileId file = 0; file < 20; file += 2) world.files.remove(file);
    world.files.sync(0);
    const std::vector<Piece> free = world.files.groups().runs(1);
    const std::int64_t before = world.free();
    world.files.trim_free_space(0);
    EXPECT_EQ(world.trims(), free);
    EXPECT_EQ(world.free(), before);
    world.files.trim_free_space(0);
    EXPECT_EQ(world.trims().size(), free.size());
  });
}

// --- preallocation

TEST(Ext4Preallocation, IsOneExtentAndAllOfItIsGivenBack) {
  for (const std::string discard : {"none", "synchronous", "asynchronous"}) {
    Parameters p = with(discard);
    p.preallocation = 16_MiB;
    World world(p);
    const std::int64_t all = world.free();
    world.run([&] {
      std::vector<FileId> files;
      for (int i = 0; i < 10; ++i) files.push_back(world.create());
      EXPECT_EQ(world.free(), all - 10 * 4096);
      for (int round = 0; round < 10; ++round) {
        for (const FileId file : files) world.grow(file, 100);
      }
      EXPECT_EQ(world.free(), all - 10 * 4096);
      for (const FileId file : files) {
        EXPECT_EQ(world.files.runs(file).size(), 1U);
        world.files.remove(file);
      }
      world.files.sync(0);
      EXPECT_EQ(world.free(), all);
    });
    EXPECT_EQ(world.files.counters().extents, 10U);
    EXPECT_EQ(static_cast<std::int64_t>(world.files.counters().discarded_blocks),
              discard == "none" ? 0 : 10 * 4096);
  }
}

TEST(Ext4Preallocation, AFileThatGrowsBeyondGoesOn) {
  Parameters p = with("none");
  p.preallocation = 1_MiB;
  World world(p);
  world.run([&] {
    const FileId file = world.create();
    world.grow(file, 500);
    EXPECT_EQ(sum(world.files.runs(file)), 1000);
  });
}

TEST(Ext4Preallocation, AgainIsAsMuchAgain) {
  Parameters p = with("none");
  p.preallocation = 1_MiB;
  p.preallocate_again = true;
  World world(p);
  world.run([&] {
    const FileId file = world.create();
    const std::int64_t free = world.free();
    world.grow(file, 128);
    EXPECT_EQ(world.free(), free);
    world.grow(file, 1);
    EXPECT_EQ(world.free(), free - 256);
    world.grow(file, 300);
    EXPECT_EQ(sum(world.files.runs(file)), 4 * 256);
  });
}

TEST(Ext4Preallocation, WhatIsGivenBackIsFreeWithTheNextCommitAndDiscarded) {
  Parameters p = with("synchronous");
  p.preallocation = 16_MiB;
  World world(p);
  world.run([&] {
    const std::int64_t all = world.free();
    const FileId file = world.create();
    world.grow(file, 100);
    world.files.give_back(file, 100);
    EXPECT_EQ(world.free(), all - 4096);
    world.files.sync(0);
    EXPECT_EQ(world.free(), all - 200);
    EXPECT_EQ(sum(world.files.runs(file)), 200);
    EXPECT_EQ(world.files.counters().given_back_blocks, 4096U - 200U);
    EXPECT_EQ(world.files.counters().discarded_blocks, 4096U - 200U);
    world.files.give_back(file, 100);  // nothing is left
    EXPECT_EQ(world.files.counters().given_back_blocks, 4096U - 200U);
    world.files.remove(file);
    world.files.sync(0);
    EXPECT_EQ(world.free(), all);
  });
}

// --- space and parameters

TEST(Ext4Full, IsAnError) {
  for (const Bytes preallocation : {Bytes{0}, 64_MiB}) {
    Parameters p = with("none");
    p.preallocation = preallocation;
    World world(p);
    try {
      world.run([&] {
        for (int i = 0; i < 200; ++i) (void)world.create(1024);
      });
      FAIL() << "the device takes more than it holds";
    } catch (const OperatingError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::disk_full);
      const bool named = std::string(error.what()).find("preallocation") != std::string::npos;
      EXPECT_EQ(named, preallocation > Bytes{0});
    }
  }
}

// ext4_writepages(): what was freed and is not committed is room, and is not waited 5 s for.
TEST(Ext4Full, WaitsForACommitThatMakesRoom) {
  for (const char* discard : {"none", "synchronous"}) {
    const Parameters p = with(discard);
    World world(p);
    world.run([&] {
      world.rest(Nanos{1});                                // the journal's thread runs
      const std::int64_t most = world.free() / kPer - 64;  // but what extent trees take
      for (int i = 0; i < 3; ++i) {
        const FileId file = world.create(most);
        EXPECT_EQ(sum(world.files.runs(file)), most * kPer);
        EXPECT_EQ(world.files.counters().room_waits, static_cast<std::uint64_t>(i)) << discard;
        world.files.remove(file);
      }
      if (p.discard == "none") {
        EXPECT_LT(world.machine->now(), p.commit);
      }
    });
    EXPECT_EQ(world.files.counters().commits, 2U);
  }
}

// One that is under way already is waited for, and then the next one if that was not enough.
TEST(Ext4Full, WaitsForWhatIsBeingCommittedAndForMore) {
  Parameters p = with("none");
  p.commit = 1_ms;
  World world(p);
  world.run([&] {
    world.rest(Nanos{1});
    const std::int64_t half = world.free() / kPer / 2 - 64;
    const FileId first = world.create(half);
    const FileId second = world.create(half);
    world.files.remove(first);
    world.rest(p.second + Nanos{1});  // its transaction has ended, and is being written
    world.files.remove(second);
    (void)world.create(2 * half);
    EXPECT_GE(world.files.counters().room_waits, 1U);
    EXPECT_LE(world.files.counters().room_waits, 2U);
  });
}

TEST(Ext4Layout, TheJournalFindsSpaceOnAnyDevice) {
  // Of the last group, nothing but a bit is there.
  for (const Bytes capacity : {100_MiB, 129_MiB, 140_MiB, 257_MiB, 400_MiB}) {
    Parameters p = with("none");
    World world(p, capacity);
    const std::int64_t blocks = capacity / kBlock;
    EXPECT_EQ(world.free(), blocks - 8224 - 1024) << capacity.count();
  }
}

// As dumpe2fs says it of 2,304 MiB: 1 + 1 + 287 blocks in groups 0, 1, 3, 5, 7 and 9; with 1,141
// inodes four blocks of each group's table.
TEST(Ext4Layout, CopiesOfTheSuperblockLieWhereMke2fsPutsThem) {
  Parameters p = with("none");
  p.cache_block = kBlock;
  p.backups = true;
  p.inode_table = 4 * kBlock;
  World world(p, 2'304_MiB);
  const Groups& groups = world.files.groups();
  EXPECT_EQ(groups.runs(0).front().begin, 391 - 6);  // but for the root and lost+found
  for (GroupNumber group = 1; group < 18; ++group) {
    const bool has_one = group == 1 || group == 3 || group == 5 || group == 7 || group == 9;
    const std::int64_t taken = groups.runs(group).front().begin - group * kPerGroup;
    if (group == 8 || group >= 16) continue;  // the journal; tables
    EXPECT_EQ(taken, has_one ? 289 : 0) << group;
  }
}

TEST(Ext4Layout, ASizeOfItsOwnIsThatOfASmallerDevice) {
  Parameters p = with("none");
  p.size = 400_MiB;
  World world(p);
  World small(with("none"), 400_MiB);
  EXPECT_EQ(world.free(), small.free());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(world.files.runs(world.create(500)), small.files.runs(small.create(500)));
  }
}

TEST(Ext4Layout, OtherFilesLieInFront) {
  Parameters p = with("none");
  p.occupied = 200_MiB;
  World world(p);
  World empty(with("none"));
  EXPECT_EQ(world.free(), empty.free() - 200_MiB / kBlock);
  EXPECT_EQ(world.files.groups().free_in(0), 0);
  EXPECT_EQ(world.files.groups().free_in(7), kPerGroup);
}

TEST(Ext4Layout, OtherFilesLieEverywhereInPieces) {
  Parameters p = with("none");
  p.occupied = 400_MiB;
  p.occupied_piece = 4_MiB;
  World world(p);
  World empty(with("none"));
  EXPECT_EQ(world.free(), empty.free() - 400_MiB / kBlock);
  const Groups& groups = world.files.groups();
  const Groups& all = empty.files.groups();
  std::int64_t least = kPerGroup;
  std::int64_t most = 0;
  for (GroupNumber group = 0; group < groups.count(); ++group) {
    const std::int64_t taken = all.free_in(group) - groups.free_in(group);
    if (all.free_in(group) < kPerGroup - 100) continue;  // metadata, the journal
    least = std::min(least, taken);
    most = std::max(most, taken);
  }
  EXPECT_GT(least, 0);
  EXPECT_LE(most - least, 2 * 1024);
}

// Else a free run could end inside a block of the page cache.
TEST(Ext4Layout, OtherFilesHaveWholeBlocksOfThePageCache) {
  for (const Bytes piece : {Bytes{0}, 4_MiB, 4_MiB + kBlock}) {
    Parameters p = with("none");
    p.occupied = 401_MiB + kBlock + Bytes{512};
    p.occupied_piece = piece;
    World world(p);
    const Groups& groups = world.files.groups();
    for (GroupNumber group = 0; group < groups.count(); ++group) {
      for (const Piece& run : groups.runs(group)) EXPECT_EQ(run.blocks % kPer, 0) << group;
    }
  }
}

TEST(Ext4Contract, ParametersThatMakeNoSenseAreRefused) {
  using Change = std::function<void(Parameters&)>;
  const std::vector<std::pair<std::string, Change>> changes{
      {"asynchronous, none, synchronous", [](auto& p) { p.discard = "fstrim"; }},
      {"block", [](auto& p) { p.cache_block = Bytes{6144}; }},
      {"block", [](auto& p) { p.cache_block = 12_KiB; }},
      {"block", [](auto& p) { p.cache_block = 2_KiB; }},
      {"commit", [](auto& p) { p.commit = Nanos{0}; }},
      {"second", [](auto& p) { p.second = Nanos{0}; }},
      {"inode_table", [](auto& p) { p.inode_table = Bytes{0}; }},
      {"preallocation", [](auto& p) { p.preallocation = 4_KiB; }},
      {"preallocation", [](auto& p) { p.preallocation = Bytes{-8192}; }},
      {"flex_groups", [](auto& p) { p.rules.flex_groups = 0; }},
      {"journal", [](auto& p) { p.journal = 32_KiB; }},
      {"journal", [](auto& p) { p.journal = 512_MiB; }},
      {"other files", [](auto& p) { p.occupied = 2 * kDevice; }},
      {"size", [](auto& p) { p.size = 2 * kDevice; }},
  };
  const auto machine = machine_over({}, kDevice);
  for (const auto& [name, change] : changes) {
    Parameters p = with("none");
    change(p);
    try {
      const Ext4 files(*machine, p);
      FAIL() << name;
    } catch (const OperatingError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_parameter);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

}  // namespace test_ext4
}  // namespace flashlab::kernel::ext4
