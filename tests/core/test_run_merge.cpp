#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "base/check.hpp"
#include "dbms/run_merge.hpp"
#include "page_cache_of.hpp"
#include "repeat.hpp"
#include "serial_device.hpp"

namespace flashlab::dbms {
namespace test_run_merge {

using namespace literals;
using host::Process;
using testing_host::machine_over;
using testing_host::memory_of;

constexpr std::int64_t kPayload = 8192;
constexpr std::int64_t kTuple = 110;

// Each run on a tape, and each tape in a file of its own, so that a file counts what is read of it.
class World {
 public:
  void run(const std::vector<std::int64_t>& runs,
           const std::function<void(std::vector<Tape*>)>& body) {
    machine_->run(
        1,
        [&](Process self) {
          std::vector<Tape> tapes;
          files_.clear();
          for (const std::int64_t bytes : runs) {
            files_.push_back(std::make_unique<TapeFile>(
                cache_, self, TapeParameters{Bytes{kPayload}, Bytes{kPayload}, false, 1}));
            tapes.emplace_back(*files_.back());
            tapes.back().append(bytes);
            tapes.back().end_run();
          }
          std::vector<Tape*> inputs;
          for (Tape& tape : tapes) inputs.push_back(&tape);
          body(inputs);
        },
        Cancel());
  }

  [[nodiscard]] std::int64_t blocks_read() const {
    return std::accumulate(files_.begin(), files_.end(), std::int64_t{0},
                           [](std::int64_t n, const auto& f) { return n + f->blocks_read(); });
  }

  [[nodiscard]] std::int64_t blocks_read(std::size_t run) const {
    return files_[run]->blocks_read();
  }

 private:
  std::unique_ptr<host::Machine> machine_ = machine_over();
  kernel::PageCache cache_{*machine_, memory_of(1024_MiB)};
  std::vector<std::unique_ptr<TapeFile>> files_;
};

std::int64_t total(const std::vector<std::int64_t>& runs) {
  return std::accumulate(runs.begin(), runs.end(), std::int64_t{0});
}

std::vector<std::int64_t> some_runs(Prng& random) {
  std::vector<std::int64_t> runs;
  for (std::uint64_t i = 0, n = 1 + random.below(20); i < n; ++i) {
    runs.push_back(kTuple * (1 + static_cast<std::int64_t>(random.below(30'000))));
  }
  return runs;
}

TEST(RunMergeRandom, EveryRunIsReadOnceAndToItsEnd) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(60 * repeats()); ++seed) {
    Prng random(seed);
    const std::vector<std::int64_t> runs = some_runs(random);
    const MergeMemory memory{
        kTuple * (1 + static_cast<std::int64_t>(random.below(3000))),
        random.below(2) == 0 ? Refill::all : Refill::one,
        random.below(2) == 0,
    };
    World world;
    world.run(runs, [&](const std::vector<Tape*>& inputs) {
      RunMerge merge(inputs, kTuple, memory, random);
      EXPECT_EQ(merge.ways(), runs.size());
      merge.fill();
      std::int64_t passed = 0;
      double at = 0.0;
      while (!merge.ended()) {
        const double stop = merge.stop();
        EXPECT_GE(stop, at);
        EXPECT_LE(stop, 1.0);
        at = stop;
        const std::int64_t bytes = merge.advance(stop);
        EXPECT_GE(bytes, 0);
        passed += bytes;
        merge.refill();
      }
      EXPECT_EQ(passed, total(runs));
      for (std::size_t i = 0; i < runs.size(); ++i) {
        EXPECT_EQ(world.blocks_read(i), ceil_div(runs[i], kPayload)) << i;
        EXPECT_EQ(inputs[i]->front_run(), 0);
      }
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// What was read of a run and is not used yet fits in its tape's share; all runs are used up at the
// same pace.
TEST(RunMergeRandom, MemoryBoundsWhatIsHeldOfEachRun) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(30 * repeats()); ++seed) {
    Prng random(seed);
    const std::vector<std::int64_t> runs = some_runs(random);
    const MergeMemory memory{kTuple * 1500, seed % 2 == 0 ? Refill::all : Refill::one, false};
    World world;
    world.run(runs, [&](const std::vector<Tape*>& inputs) {
      RunMerge merge(inputs, kTuple, memory, random);
      merge.fill();
      while (!merge.ended()) {
        const double at = merge.stop();
        (void)merge.advance(at);
        merge.refill();
        for (std::size_t i = 0; i < runs.size(); ++i) {
          const auto run = static_cast<double>(runs[i]);
          const double used = at * run;
          const auto read = static_cast<double>(world.blocks_read(i) * kPayload);
          // Keys scatter: sqrt(n) tuples, five times, since there are many looks.
          const double scatter = 5.0 * std::sqrt(run / kTuple) * kTuple + kTuple;
          const double share = static_cast<double>(memory.per_tape) + kPayload;
          EXPECT_LE(read - used, share + scatter) << "run " << i << " at " << at;
          EXPECT_GE(read - used, -scatter) << "run " << i << " at " << at;
        }
      }
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(RunMerge, ALongerRunIsUsedUpFaster) {
  World world;
  const std::vector<std::int64_t> runs{2'000 * kTuple, 20'000 * kTuple, 40'000 * kTuple};
  Prng random(1);
  world.run(runs, [&](const std::vector<Tape*>& inputs) {
    RunMerge merge(inputs, kTuple, {300 * kTuple, Refill::one, false}, random);
    merge.fill();
    while (merge.stop() < 0.5) {
      (void)merge.advance(merge.stop());
      merge.refill();
    }
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto read = static_cast<double>(world.blocks_read(i) * kPayload);
      const auto half = static_cast<double>(runs[i]) / 2.0;
      EXPECT_NEAR(read, half, 600.0 * kTuple + 0.05 * half) << i;
    }
  });
}

struct Stops {
  std::int64_t stops = 0;
  std::int64_t reads = 0;  // of a tape, at these
};

Stops stops_of(Refill refill, std::int64_t ways, std::int64_t share_tuples, bool ahead = false) {
  World world;
  Stops result;
  Prng random(7);
  world.run(std::vector<std::int64_t>(static_cast<std::size_t>(ways), 60'000 * kTuple),
            [&](const std::vector<Tape*>& inputs) {
              RunMerge merge(inputs, kTuple, {share_tuples * kTuple, refill, ahead}, random);
              merge.fill();
              while (!merge.ended()) {
                (void)merge.advance(merge.stop());
                std::vector<std::int64_t> before;
                for (std::size_t i = 0; i < inputs.size(); ++i)
                  before.push_back(world.blocks_read(i));
                merge.refill();
                ++result.stops;
                for (std::size_t i = 0; i < before.size(); ++i) {
                  result.reads += world.blocks_read(i) > before[i] ? 1 : 0;
                }
              }
            });
  return result;
}

// A share of 1,500 tuples of 60,000: 40 shares, the first of which fill() reads.
TEST(RunMerge, RefillOneReadsOneTapeAtATime) {
  const Stops stops = stops_of(Refill::one, 10, 1500);
  EXPECT_EQ(stops.reads, 10 * (40 - 1));
  EXPECT_NEAR(static_cast<double>(stops.stops), 10.0 * (40 - 1), 10.0);
}

TEST(RunMerge, RefillAllReadsEveryTapeAtOnce) {
  const Stops stops = stops_of(Refill::all, 10, 1500);
  // The first tape that is dry comes a little sooner than the average one.
  EXPECT_GE(stops.stops, 40 - 1);
  EXPECT_LE(stops.stops, 40 * 5 / 4);
  EXPECT_GE(stops.reads, 9 * (stops.stops - 3));
}

TEST(RunMerge, ASmallShareIsReadMoreOften) {
  const auto ratio = static_cast<double>(stops_of(Refill::all, 10, 500).stops) /
                     static_cast<double>(stops_of(Refill::all, 10, 1500).stops);
  EXPECT_GT(ratio, 2.7);
  EXPECT_LT(ratio, 4.0);
}

TEST(RunMerge, ReadingAheadChangesNoDecision) {
  EXPECT_EQ(stops_of(Refill::one, 6, 1500, true).stops, stops_of(Refill::one, 6, 1500).stops);
}

TEST(RunMerge, WhatFitsInMemoryIsReadAtOnce) {
  World world;
  Prng random(1);
  const std::vector<std::int64_t> runs{1000 * kTuple, 500 * kTuple};
  world.run(runs, [&](const std::vector<Tape*>& inputs) {
    RunMerge merge(inputs, kTuple, {1000 * kTuple, Refill::one, false}, random);
    merge.fill();
    EXPECT_EQ(merge.stop(), 1.0);
    EXPECT_EQ(world.blocks_read(), ceil_div(runs[0], kPayload) + ceil_div(runs[1], kPayload));
    EXPECT_EQ(merge.advance(1.0), total(runs));
    EXPECT_TRUE(merge.ended());
  });
}

// Keys are known to be spread over the whole run: where memory ends is so, too.
TEST(RunMerge, TheShareEndsWhereItsKeysDo) {
  constexpr int kTimes = 400;
  constexpr double kShare = 0.1;
  double sum = 0.0;
  double squares = 0.0;
  Prng random(3);
  for (int i = 0; i < kTimes; ++i) {
    World world;
    world.run({10'000 * kTuple}, [&](const std::vector<Tape*>& inputs) {
      RunMerge merge(inputs, kTuple, {1000 * kTuple, Refill::one, false}, random);
      merge.fill();
      sum += merge.stop();
      squares += merge.stop() * merge.stop();
    });
  }
  const double mean = sum / kTimes;
  const double deviation = std::sqrt(squares / kTimes - mean * mean);
  EXPECT_NEAR(mean, kShare, 0.001);
  EXPECT_NEAR(deviation, kShare / std::sqrt(1000.0), 0.0005);
}

TEST(RunMerge, MemoryForNothingIsRefused) {
  Prng random(1);
  EXPECT_THROW(RunMerge({}, kTuple, {0, Refill::one, false}, random), OperatingError);
  EXPECT_THROW(RunMerge({}, 0, {1, Refill::one, false}, random), OperatingError);
}

TEST(RunMerge, ATapeWithoutARunIsABug) {
  World world;
  Prng random(1);
  EXPECT_THROW(world.run({kTuple},
                         [&](const std::vector<Tape*>& inputs) {
                           inputs[0]->drop_front_run();
                           const RunMerge merge(inputs, kTuple, {1000, Refill::one, false}, random);
                         }),
               Bug);
}

}  // namespace test_run_merge
}  // namespace flashlab::dbms
