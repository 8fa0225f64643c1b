#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "dbms/tape.hpp"
#include "page_cache_of.hpp"
#include "repeat.hpp"
#include "serial_device.hpp"

namespace flashlab::dbms {
namespace test_tape {

using namespace literals;
using host::Process;
using testing_host::device_of;
using testing_host::machine_over;
using testing_host::memory_of;

constexpr std::int64_t kBlock = 8192;
constexpr std::int64_t kPayload = 8176;

struct World {
  explicit World(Bytes memory = 1024_MiB)
      : machine(machine_over()), cache(*machine, memory_of(memory)) {}
  // With a file of tapes.
  void run(const TapeParameters& parameters, const std::function<void(TapeFile&)>& body) {
    machine->run(
        1,
        [&](Process self) {
          TapeFile file(cache, self, parameters);
          body(file);
        },
        Cancel());
  }

  std::unique_ptr<host::Machine> machine;
  kernel::PageCache cache;
};

TapeParameters plain() { return {Bytes{kBlock}, Bytes{kPayload}, false, 1}; }
TapeParameters reserving() { return {Bytes{kBlock}, Bytes{kPayload}, true, 1}; }

// Takes all that is free: exactly the file's blocks, each once, the lowest first.
void expect_all_free(TapeFile& file) {
  const std::int64_t blocks = file.blocks();
  for (std::int64_t block = 0; block < blocks; ++block) {
    ASSERT_EQ(file.take(1).begin, block);
  }
  EXPECT_GE(file.take(1).begin, blocks);
}

// --- space in the file

TEST(TapeFile, GivesTheLowestFreeBlockFirst) {
  World world;
  world.run(plain(), [](TapeFile& file) {
    EXPECT_EQ(file.take(10).begin, 0);
    for (const std::int64_t block : {7, 2, 5}) file.give_back({block, 1});
    for (const std::int64_t block : {2, 5, 7, 10, 11}) EXPECT_EQ(file.take(1).begin, block);
  });
}

TEST(TapeFile, GivesNeighboursTogetherAndNotMore) {
  World world;
  world.run(plain(), [](TapeFile& file) {
    (void)file.take(20);
    for (const std::int64_t block : {4, 3, 5, 10}) file.give_back({block, 1});
    const BlockRun first = file.take(8);
    EXPECT_EQ(first.begin, 3);
    EXPECT_EQ(first.blocks, 3);
    EXPECT_EQ(file.take(8).blocks, 1);  // block 10, alone
    const BlockRun end = file.take(8);
    EXPECT_EQ(end.begin, 20);
    EXPECT_EQ(end.blocks, 8);
  });
}

TEST(TapeFile, SmallPiecesAreLeftWhileThereAreLargeOnes) {
  World world;
  TapeParameters parameters = plain();
  parameters.piece = 4;
  world.run(parameters, [](TapeFile& file) {
    (void)file.take(40);
    file.give_back({1, 1});
    file.give_back({10, 3});
    file.give_back({20, 6});
    EXPECT_EQ(file.take(8).begin, 20);
    EXPECT_EQ(file.take(8).begin, 40);  // a new piece rather than small ones
    EXPECT_EQ(file.take(2).begin, 10);  // large enough for all that is wanted
    EXPECT_EQ(file.take(1).begin, 1);
  });
}

// Whoever takes and gives back at random owns what he has alone.
TEST(TapeFile, ABlockHasOneOwnerAtMost) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(20 * repeats()); ++seed) {
    World world;
    TapeParameters parameters = plain();
    Prng random(seed);
    parameters.piece = 1 + static_cast<std::int64_t>(random.below(4));
    world.run(parameters, [&](TapeFile& file) {
      std::vector<BlockRun> mine;
      std::vector<bool> owned;
      for (int step = 0; step < 2000; ++step) {
        if (!mine.empty() && random.below(2) == 0) {
          const std::size_t i = random.below(mine.size());
          for (std::int64_t b = 0; b < mine[i].blocks; ++b) {
            owned[static_cast<std::size_t>(mine[i].begin + b)] = false;
          }
          file.give_back(mine[i]);
          mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(i));
          continue;
        }
        const std::int64_t wanted = 1 + static_cast<std::int64_t>(random.below(9));
        const BlockRun run = file.take(wanted);
        ASSERT_GE(run.blocks, 1);
        ASSERT_LE(run.blocks, wanted);
        owned.resize(std::max(owned.size(), static_cast<std::size_t>(run.begin + run.blocks)));
        for (std::int64_t b = run.begin; b < run.begin + run.blocks; ++b) {
          ASSERT_FALSE(owned[static_cast<std::size_t>(b)]) << b;
          owned[static_cast<std::size_t>(b)] = true;
        }
        mine.push_back(run);
      }
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(TapeFile, APayloadBeyondTheBlockIsRefused) {
  World world;
  for (const std::int64_t payload : {std::int64_t{0}, kBlock + 1}) {
    EXPECT_THROW(
        TapeFile(world.cache, 0, {.block = Bytes{kBlock}, .payload = Bytes{payload}, .piece = 1}),
        OperatingError);
  }
  EXPECT_THROW(TapeFile(world.cache, 0, {.block = Bytes{kBlock}, .payload = Bytes{1}, .piece = 0}),
               OperatingError);
}

TEST(TapeFile, IsForgottenAtItsEnd) {
  World world;
  world.run(plain(), [&](TapeFile& file) {
    file.write(file.take(100));
    EXPECT_EQ(world.cache.resident_blocks(), 100);
  });
  EXPECT_EQ(world.cache.resident_blocks(), 0);
}

// --- tapes

TEST(Tape, BlocksAreWrittenWhenTheyAreFullAndTheLastOneWhenReadingBegins) {
  World world;
  world.run(plain(), [](TapeFile& file) {
    Tape tape(file);
    tape.append(kPayload - 1);
    EXPECT_EQ(file.blocks_written(), 0);
    tape.append(2);
    EXPECT_EQ(file.blocks_written(), 1);
    tape.append(10 * kPayload);
    EXPECT_EQ(file.blocks_written(), 11);
    tape.end_run();
    tape.read(1);
    EXPECT_EQ(file.blocks_written(), 12);
    EXPECT_EQ(file.blocks_read(), 1);
  });
}

TEST(Tape, RunsComeInTheirOrderAndMayEndInTheMiddleOfABlock) {
  World world;
  world.run(plain(), [](TapeFile& file) {
    Tape tape(file);
    const std::vector<std::int64_t> runs{kPayload / 2, 3 * kPayload, 100, kPayload / 4,
                                         9 * kPayload};
    for (const std::int64_t bytes : runs) {
      tape.append(bytes);
      tape.end_run();
    }
    std::int64_t passed = 0;
    for (const std::int64_t bytes : runs) {
      EXPECT_EQ(tape.front_run(), bytes);
      tape.drop_front_run();
      tape.read(bytes);
      passed += bytes;
      // A block that two runs share is read with the first of them.
      EXPECT_EQ(file.blocks_read(), ceil_div(passed, kPayload));
    }
    EXPECT_EQ(tape.front_run(), 0);
    EXPECT_EQ(file.blocks_read(), file.blocks_written());
    expect_all_free(file);
  });
}

TEST(Tape, ABlockIsFreeAsSoonAsItIsRead) {
  World world;
  world.run(plain(), [](TapeFile& file) {
    Tape tape(file);
    tape.append(10 * kPayload);
    tape.read(3 * kPayload + 1);
    for (const std::int64_t block : {0, 1, 2, 3, 10}) EXPECT_EQ(file.take(1).begin, block);
  });
}

TEST(Tape, IsWrittenAnewAfterItWasReadToItsEnd) {
  World world;
  world.run(plain(), [](TapeFile& file) {
    Tape tape(file);
    for (const std::int64_t bytes : {10 * kPayload + 7, 3 * kPayload + 4000, kPayload + 1}) {
      const std::int64_t before = file.blocks_read();
      tape.append(bytes);
      tape.end_run();
      tape.drop_front_run();
      tape.read(bytes);
      EXPECT_EQ(file.blocks_read() - before, ceil_div(bytes, kPayload));
      EXPECT_EQ(file.blocks_read(), file.blocks_written());
    }
    expect_all_free(file);
  });
}

TEST(Tape, WhatIsAnnouncedIsReadAheadOnce) {
  World world(16_MiB);
  world.run(plain(), [&](TapeFile& file) {
    auto& device = device_of(*world.machine);
    Tape tape(file);
    tape.append(1000 * kPayload);
    tape.end_run();
    tape.drop_front_run();
    Tape other(file);
    other.append(4000 * kPayload);  // drives the first one out of memory
    world.machine->sleep_until(0, world.machine->now() + 100'000_ms);
    world.cache.read_elsewhere(2048);
    device.served.clear();
    tape.read(100);
    tape.will_need(200 * kPayload);
    tape.will_need(300 * kPayload);
    world.machine->sleep_until(0, world.machine->now() + 100'000_ms);
    const auto read_so_far = [&] { return device.bytes(Op::read) / Bytes{kBlock}; };
    const std::int64_t announced = read_so_far();
    EXPECT_GE(announced, 300);
    EXPECT_LE(announced, 300 + 16);  // the first block was a file's first: with read-ahead
    const Nanos ready = world.machine->now();
    tape.read(299 * kPayload);
    EXPECT_EQ(world.machine->now(), ready);
    // Counts from what was read, not from the tape's start.
    tape.will_need(50 * kPayload);
    world.machine->sleep_until(0, world.machine->now() + 100'000_ms);
    EXPECT_GE(read_so_far(), 350);
  });
}

// --- the block that a tape takes before it needs it

TEST(ReservingTape, ATapeAloneLeavesNoHoles) {
  World world;
  world.run(reserving(), [](TapeFile& file) {
    Tape tape(file);
    for (int i = 0; i < 500; ++i) tape.append(3000);
    EXPECT_EQ(file.blocks_written(), 500 * 3000 / kPayload);
    EXPECT_EQ(file.blocks(), file.blocks_written());
  });
}

// Whoever writes behind another tape's block fills it first.
TEST(ReservingTape, EachChangeOfTapeAtTheEndFillsAHole) {
  constexpr std::int64_t kRuns = 12;
  World world;
  world.run(reserving(), [](TapeFile& file) {
    std::vector<std::unique_ptr<Tape>> tapes;
    for (std::int64_t run = 0; run < kRuns; ++run) {
      tapes.push_back(std::make_unique<Tape>(file));
      tapes.back()->append(20 * kPayload);
      tapes.back()->end_run();
    }
    EXPECT_EQ(file.blocks_written() - kRuns * 20, kRuns - 1);
    EXPECT_EQ(file.blocks(), kRuns * 20 + kRuns - 1);
    for (const auto& tape : tapes) {
      tape->drop_front_run();
      tape->read(20 * kPayload);
    }
    EXPECT_EQ(file.blocks_read(), kRuns * 20);
    expect_all_free(file);
  });
}

TEST(ReservingTape, TheNextBlockIsTakenWithTheOneThatIsWritten) {
  World world;
  world.run(reserving(), [](TapeFile& file) {
    Tape one(file);
    one.append(kPayload);  // writes block 0, takes 1
    EXPECT_EQ(file.take(1).begin, 2);
    one.append(kPayload);  // writes block 1, takes 3
    EXPECT_EQ(file.blocks(), 2);
    EXPECT_EQ(file.take(1).begin, 4);
    one.read(1);  // what was taken and not written is free again
    for (const std::int64_t block : {0, 3, 5}) EXPECT_EQ(file.take(1).begin, block);
  });
}

// --- many tapes

struct Content {
  std::deque<std::int64_t> runs;
  std::int64_t open = 0;  // bytes of the run that is being written
  bool reading = false;   // a tape is written to its end, then read to its end
  std::int64_t left = 0;  // bytes of the run that is read
  std::int64_t read = 0;  // since it was written anew
};

// Tapes are filled and read at random; returns after all of them were read to their ends.
void shuffle(TapeFile& file, std::uint64_t seed, int steps) {
  Prng random(seed);
  const auto up_to = [&](std::int64_t n) {
    return 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n)));
  };
  std::vector<std::unique_ptr<Tape>> tapes;
  for (int i = 0; i < 9; ++i) tapes.push_back(std::make_unique<Tape>(file));
  std::vector<Content> contents(tapes.size());
  const auto read_some = [&](std::size_t i, std::int64_t bytes) {
    Content& c = contents[i];
    if (c.left == 0) {
      if (c.runs.empty()) return false;
      EXPECT_EQ(tapes[i]->front_run(), c.runs.front());
      tapes[i]->drop_front_run();
      c.left = c.runs.front();
      c.runs.pop_front();
    }
    bytes = std::min(bytes, c.left);
    const std::int64_t before = file.blocks_read();
    tapes[i]->read(bytes);
    c.left -= bytes;
    EXPECT_EQ(file.blocks_read() - before,
              ceil_div(c.read + bytes, kPayload) - ceil_div(c.read, kPayload));
    c.read += bytes;
    return true;
  };
  const auto end_run = [&](std::size_t i) {
    Content& c = contents[i];
    if (c.open == 0) return;
    tapes[i]->end_run();
    c.runs.push_back(std::exchange(c.open, 0));
  };
  for (int step = 0; step < steps; ++step) {
    const std::size_t i = random.below(tapes.size());
    Content& c = contents[i];
    if (c.reading) {
      if (random.below(4) == 0) tapes[i]->will_need(std::min(c.left, up_to(30 * kPayload)));
      c.reading = read_some(i, up_to(20 * kPayload));
    } else if (random.below(8) == 0) {
      end_run(i);
      c.reading = true;
    } else {
      c.read = 0;
      const std::int64_t bytes = up_to(random.below(3) == 0 ? 40 * kPayload : kPayload / 2);
      tapes[i]->append(bytes);
      c.open += bytes;
      if (random.below(4) == 0) end_run(i);
    }
  }
  for (std::size_t i = 0; i < tapes.size(); ++i) {
    end_run(i);
    while (read_some(i, up_to(20 * kPayload))) continue;
    EXPECT_EQ(tapes[i]->front_run(), 0);
  }
}

TEST(TapeRandom, BytesInAreBytesOutAndEveryBlockIsFreeInTheEnd) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(20 * repeats()); ++seed) {
    World world(seed % 2 == 0 ? 1024_MiB : 8_MiB);
    world.run(plain(), [&](TapeFile& file) {
      shuffle(file, seed, 1500);
      EXPECT_EQ(file.blocks_read(), file.blocks_written());
      expect_all_free(file);
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(TapeRandom, ReservingTapesGiveEverythingBackToo) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(20 * repeats()); ++seed) {
    World world;
    world.run(reserving(), [&](TapeFile& file) {
      shuffle(file, seed, 1500);
      EXPECT_LE(file.blocks_read(), file.blocks_written());  // and what filled holes
      expect_all_free(file);
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// Before a merge writes a block, it has read one.
TEST(TapeRandom, TheFileHardlyGrowsWhileRunsAreMerged) {
  for (const TapeParameters& parameters : {plain(), reserving()}) {
    World world;
    world.run(parameters, [&](TapeFile& file) {
      constexpr std::int64_t kWays = 7;
      constexpr std::int64_t kShare = 20 * kPayload;
      constexpr std::int64_t kRun = 100 * kPayload + 1234;
      std::vector<std::unique_ptr<Tape>> tapes;
      for (std::int64_t i = 0; i < kWays; ++i) {
        tapes.push_back(std::make_unique<Tape>(file));
        for (int run = 0; run < 3; ++run) tapes.back()->append(kRun);
      }
      const std::int64_t before = file.blocks();
      Tape output(file);
      for (std::int64_t left = 3 * kRun; left > 0; left -= kShare) {
        const std::int64_t share = std::min(left, kShare);
        for (const auto& tape : tapes) tape->read(share);
        output.append(kWays * share);
      }
      EXPECT_LE(file.blocks(), before + 2 * kWays + 1);  // partial blocks, and those kept for later
    });
  }
}

}  // namespace test_tape
}  // namespace flashlab::dbms
