// TRIM policies in the drive: what they cost whom, and that they do not differ in what is left.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/prng.hpp"
#include "repeat.hpp"
#include "ssd_world.hpp"

namespace flashlab::flash {
namespace test_trim_policies {

constexpr Nanos kSlice = 100_ns;                     // buffer and map
constexpr Nanos kHandling = 5_us + 900_ns + 600_ns;  // command, TRIM, one range
constexpr std::int64_t kSliceUnits = 4;

SsdParameters delayed(const char* policy = "delayed") {
  SsdParameters p = parameters();
  p.trim.policy = policy;
  p.trim.costs.list = 10_ns;
  return p;
}

// Lets time pass until nothing is pending.
void rest(World& world) {
  world.now += 1000_ms;
  world.ssd.wake(world.now);
}

std::set<Lpn> mapped(const World& world) {
  std::set<Lpn> found;
  for (Lpn lpn = 0; lpn < world.ssd.ftl().geometry().lpns(); ++lpn) {
    if (world.maps(lpn)) found.insert(lpn);
  }
  return found;
}

// --- the three parts of the cost, and when they are paid

TEST(TrimCost, ImmediatePaysAllPartsInTheCommand) {
  World world(delayed("immediate"));
  world.takes(write(0, 64));
  EXPECT_EQ(world.takes(trim(0, 64)), kHandling + kSlice * 16);
  const TrimCounters& c = world.ssd.counters().trim;
  EXPECT_EQ(c.command_time, 1500_ns);
  EXPECT_EQ(c.buffer_time, 40_ns * 16);
  EXPECT_EQ(c.map_time, 60_ns * 16);
  EXPECT_EQ(c.list_time + c.idle_time + c.drain_time + c.forced_time, 0_ns);
}

TEST(TrimCost, DelayedPaysTheHandlingInTheCommandAndTheRestWhenIdle) {
  World world(delayed());
  world.takes(write(0, 64));
  EXPECT_EQ(world.takes(trim(0, 64)), kHandling);
  for (Lpn lpn = 0; lpn < 64; ++lpn) EXPECT_TRUE(world.maps(lpn)) << lpn;
  rest(world);
  for (Lpn lpn = 0; lpn < 64; ++lpn) EXPECT_FALSE(world.maps(lpn)) << lpn;
  const TrimCounters& c = world.ssd.counters().trim;
  EXPECT_EQ(c.command_time, 1500_ns);
  EXPECT_EQ(c.buffer_time, 40_ns * 16);
  EXPECT_EQ(c.map_time, 60_ns * 16);
  EXPECT_EQ(c.idle_time, c.buffer_time + c.map_time + c.list_time);
  EXPECT_EQ(c.drain_time + c.forced_time, 0_ns);
}

TEST(TrimCost, NoneTakesTheCommandAndNothingElse) {
  World world(delayed("none"));
  world.takes(write(0, 64));
  EXPECT_EQ(world.takes(trim(0, 64)), 5_us);
  rest(world);
  EXPECT_TRUE(world.maps(63));
  EXPECT_EQ(world.ssd.trim_status(), nullptr);
}

TEST(TrimCost, ACommandWaitsForOneStepAtMost) {
  for (std::int64_t at = 0; at < 2500; at += 37) {
    World alone(delayed("none"));
    World world(delayed());
    for (World* w : {&alone, &world}) {
      w->ssd.precondition(1.0, 0.0, 0);
      w->takes(trim(0, 64));
    }
    world.now += Nanos{at};
    alone.now = world.now;
    const Nanos waits = world.takes(read(200)) - alone.takes(read(200));
    // A step, its look into the list, and a search of what is pending before the read itself.
    EXPECT_GE(waits, 0_ns);
    EXPECT_LE(waits, kSlice + 10_ns + 10_ns);
  }
}

TEST(TrimCost, ALongerStepIsOnePieceOfWork) {
  SsdParameters p = delayed();
  p.trim.delay.step_slices = 8;
  p.trim.delay.batch_map_ratio = 0.5;
  p.trim.costs.list = 0_ns;
  World world(p);
  world.ssd.precondition(1.0, 0.0, 0);
  world.takes(trim(0, 64));
  rest(world);
  // Two steps of eight slices.
  EXPECT_EQ(world.ssd.counters().trim.map_time, (60_ns + 30_ns * 7) * 2);
  EXPECT_EQ(world.ssd.counters().trim.buffer_time, 40_ns * 16);
  EXPECT_FALSE(world.maps(0));
}

TEST(TrimCost, AFullTableIsPaidForInTheCommand) {
  SsdParameters p = delayed();
  p.trim.delay.pending_ranges = 2;
  p.trim.costs.list = 0_ns;
  World world(p);
  world.ssd.precondition(1.0, 0.0, 0);
  EXPECT_EQ(world.takes(trim(0, 16)), kHandling);
  EXPECT_EQ(world.takes(trim(100, 16)), kHandling);
  // The oldest range has been at it during the second command, and makes room within the third.
  const Nanos third = world.takes(trim(200, 16));
  EXPECT_GE(third, kHandling);
  const std::vector<Extent> ranges{units(300, 16), units(400, 16), units(500, 16)};
  Request many = trim(300, 16);
  many.ranges = ranges;
  EXPECT_GE(world.takes(many), kHandling + 600_ns * 2 + kSlice * kSliceUnits);
  EXPECT_GT(world.ssd.counters().trim.forced_time, 0_ns);
  EXPECT_GT(world.ssd.trim_status()->full_tables, 0U);
  rest(world);
  for (const Lpn lpn : {0U, 100U, 200U, 300U, 400U, 515U}) EXPECT_FALSE(world.maps(lpn)) << lpn;
}

TEST(TrimCost, WritesPayForTheListOnlyWhileSomethingIsPending) {
  World world(delayed());
  const Nanos alone = world.takes(write(0, 4));
  rest(world);
  world.ssd.reset_counters();
  world.takes(trim(64, 64));
  EXPECT_GT(world.takes(write(100, 4)), alone);
  EXPECT_GT(world.ssd.counters().trim.forced_time, 0_ns);
  rest(world);
  EXPECT_EQ(world.takes(write(200, 4)), alone);
}

// --- the paper's figure 1

// TRIM of blocks, a write of some of them, and then the drive is idle.
TEST(TrimScenario, AWriteAfterATrimSurvivesIt) {
  for (const bool checked : {true, false}) {
    World world(delayed(checked ? "delayed" : "delayed_unchecked"));
    world.takes(write(0, 64));
    world.takes(trim(0, 64));
    world.takes(write(20, 10));
    rest(world);
    for (Lpn lpn = 0; lpn < 64; ++lpn) {
      EXPECT_EQ(world.maps(lpn), checked && lpn >= 20 && lpn < 30) << lpn;
    }
  }
}

// A write between two TRIMs of the same blocks came after the first, and before the second.
TEST(TrimScenario, AWriteBetweenTwoTrimsIsErasedByTheSecond) {
  World world(delayed());
  world.takes(write(0, 64));
  world.takes(trim(0, 64));
  world.takes(write(20, 10));
  world.takes(trim(16, 8));
  rest(world);
  for (Lpn lpn = 0; lpn < 64; ++lpn) {
    EXPECT_EQ(world.maps(lpn), lpn >= 24 && lpn < 30) << lpn;
  }
}

// --- reads

TEST(TrimDelayed, AReadOfWhatIsPendingAppliesItFirst) {
  World world(delayed());
  world.ssd.precondition(1.0, 0.0, 0);
  world.takes(trim(0, 64));
  world.takes(read(20));
  EXPECT_FALSE(world.maps(20));
  EXPECT_TRUE(world.maps(40));
  EXPECT_EQ(world.ssd.counters().unmapped_reads, 1U);
  EXPECT_EQ(world.ssd.counters().buffer_hits, 0U);
  EXPECT_GT(world.ssd.counters().trim.forced_time, 0_ns);
  EXPECT_EQ(world.ssd.trim_status()->reads_of_pending, 1U);
}

TEST(TrimDelayed, TheRestOfAUnitThatIsWrittenInPartIsReadAfterItsTrim) {
  World world(delayed());
  world.ssd.precondition(1.0, 0.0, 0);
  world.takes(trim(0, 64));
  world.takes(part(Op::write, 8 * kUnitSectors, 3));
  world.takes(flush());
  EXPECT_EQ(world.ssd.counters().merge_reads, 0U);  // there is nothing any more to be merged with
  rest(world);
  EXPECT_TRUE(world.maps(8));
  EXPECT_FALSE(world.maps(9));
}

// --- collection

// Writes at random over a full drive, with TRIMs in between and no pause at all.
void press(World& world, int writes, std::uint64_t seed) {
  Prng random(seed);
  const std::uint64_t all = world.ssd.ftl().geometry().lpns();
  for (int i = 0; i < writes; ++i) {
    const auto at = static_cast<std::int64_t>(random.below(all - 16));
    if (random.below(8) == 0) world.submit(trim(at, 16));
    const auto to = static_cast<std::int64_t>(random.below(all));
    world.now = std::max(world.now, world.end_of(world.submit(write(to))));
  }
}

TEST(TrimDelayed, ACollectionWaitsForWhatIsPendingAndCopiesNoDeadPages) {
  std::vector<std::uint64_t> copied;
  for (const char* policy : {"none", "immediate", "delayed"}) {
    SsdParameters p = delayed(policy);
    p.geometry.overprovision_ratio = 0.3;
    p.trim.costs.map = 20_us;  // so that what is pending is not done between two writes
    World world(p);
    world.ssd.precondition(1.0, 2.0, 1);
    press(world, 4000, 7);
    copied.push_back(world.ssd.ftl().counters().copied_units);
    if (policy != std::string("delayed")) continue;
    EXPECT_GT(world.ssd.counters().trim.drain_time, 1_ms);
    EXPECT_GT(world.ssd.trim_status()->drains, 10U);
    rest(world);
    EXPECT_EQ(world.ssd.trim_status()->pending_ranges, 0U);
  }
  EXPECT_LT(static_cast<double>(copied[1]), 0.8 * static_cast<double>(copied[0]));
  EXPECT_NEAR(static_cast<double>(copied[2]), static_cast<double>(copied[1]),
              0.05 * static_cast<double>(copied[1]));
}

// --- what is left, whatever the policy, the tables and the moments

struct Habit {
  const char* name;
  std::uint32_t ranges;
  std::uint32_t entries;
  bool merge;
  std::uint32_t step;
};

class TrimHabits : public testing::TestWithParam<Habit> {
 protected:
  [[nodiscard]] static SsdParameters of_habit() {
    SsdParameters p = delayed();
    p.geometry.overprovision_ratio = 0.3;
    const Habit& h = GetParam();
    p.trim.delay = {h.ranges, h.entries, h.merge, h.step, 0.5};
    return p;
  }
};

Request drawn(Prng& random, std::uint64_t all) {
  const auto length = static_cast<std::int64_t>(1 + random.below(24));
  const auto at = static_cast<std::int64_t>(random.below(all - 24));
  switch (random.below(8)) {
    case 0:
      return flush();
    case 1:
    case 2:
    case 3:
      return trim(at, length);
    case 4:
      return read(at, length);
    default:
      return write(at, 1 + length / 4);
  }
}

Nanos drawn_pause(Prng& random) {
  const std::uint64_t longest = random.below(3) == 0 ? 2'000'000 : 3'000;
  return Nanos{static_cast<std::int64_t>(random.below(longest))};
}

// What is where, what was counted, what is in doubt; and what comes next takes as long.
void expect_same(World& a, World& b, Prng random) {
  const std::uint64_t all = a.ssd.ftl().geometry().lpns();
  for (int i = 0; i < 100; ++i) {
    const Request request = drawn(random, all);
    ASSERT_EQ(a.takes(request), b.takes(request)) << i;
  }
  for (Lpn lpn = 0; lpn < all; ++lpn) {
    ASSERT_EQ(a.ssd.ftl().map().find(lpn), b.ssd.ftl().map().find(lpn)) << lpn;
  }
  EXPECT_EQ(a.ssd.in_doubt(a.now), b.ssd.in_doubt(b.now));
  const TrimCounters& x = a.ssd.counters().trim;
  const TrimCounters& y = b.ssd.counters().trim;
  EXPECT_EQ(x.slices, y.slices);
  EXPECT_EQ(x.list_time, y.list_time);
  EXPECT_EQ(x.idle_time, y.idle_time);
  EXPECT_EQ(x.drain_time, y.drain_time);
  EXPECT_EQ(x.forced_time, y.forced_time);
  EXPECT_EQ(a.ssd.trim_status()->list_probes, b.ssd.trim_status()->list_probes);
  EXPECT_EQ(a.ssd.trim_status()->yields, b.ssd.trim_status()->yields);
}

TEST_P(TrimHabits, LeaveTheMapAsImmediateDoes) {
  for (int round = 0; round < 3 * repeats(); ++round) {
    SsdParameters other = of_habit();
    other.trim.policy = "immediate";
    World world(of_habit());
    World reference(other);
    Prng random(static_cast<std::uint64_t>(100 + round));
    const std::uint64_t all = world.ssd.ftl().geometry().lpns();
    for (int i = 0; i < 3000; ++i) {
      const Request request = drawn(random, all);
      const Nanos pause = drawn_pause(random);
      for (World* w : {&world, &reference}) {
        w->takes(request);
        w->now += pause;
      }
      // What is read is gone by then.
      for (std::int64_t k = 0; request.op == Op::read && k < request.sectors.count() / 8; ++k) {
        const auto lpn = static_cast<Lpn>(request.lba.index() / kUnitSectors + k);
        ASSERT_EQ(world.maps(lpn), reference.maps(lpn));
      }
    }
    rest(world);
    ASSERT_EQ(mapped(world), mapped(reference));
    ASSERT_EQ(world.ssd.trim_status()->forgotten_blocks, 0U);
    ASSERT_EQ(world.ssd.trim_status()->list_entries, 0U);
  }
}

TEST_P(TrimHabits, AreTheSameHoweverOftenSomebodyLooks) {
  World often(of_habit());
  World never(of_habit());
  Prng random(5);
  Prng looks(6);
  const std::uint64_t all = often.ssd.ftl().geometry().lpns();
  for (int i = 0; i < 3000; ++i) {
    const Request request = drawn(random, all);
    const Nanos pause = drawn_pause(random);
    ASSERT_EQ(often.takes(request), never.takes(request)) << i;
    const Nanos to = often.now + pause;
    for (std::uint64_t n = looks.below(3); n > 0; --n) {
      often.now += Nanos{static_cast<std::int64_t>(
          looks.below(static_cast<std::uint64_t>((to - often.now).count()) + 1))};
      looks.below(2) == 0 ? often.ssd.wake(often.now) : (void)often.ssd.in_doubt(often.now);
    }
    often.now = to;
    never.now += pause;
  }
  often.ssd.wake(often.now);
  never.ssd.wake(never.now);
  expect_same(often, never, random);
}

TEST_P(TrimHabits, GoOnFromASavedState) {
  World world(of_habit());
  Prng random(9);
  const std::uint64_t all = world.ssd.ftl().geometry().lpns();
  for (int i = 0; i < 500; ++i) world.takes(drawn(random, all));
  world.takes(trim(0, 24));
  World restored(of_habit());
  restored.restore(world.saved());
  restored.now = world.now;
  for (int i = 0; i < 500; ++i) {
    const Request request = drawn(random, all);
    ASSERT_EQ(restored.takes(request), world.takes(request));
  }
  expect_same(restored, world, random);
}

INSTANTIATE_TEST_SUITE_P(All, TrimHabits,
                         testing::Values(Habit{"paper", 1024, 2048, false, 1},
                                         Habit{"merged", 1024, 2048, true, 1},
                                         Habit{"batched", 1024, 2048, false, 16},
                                         Habit{"small", 3, 2, false, 1},
                                         Habit{"no_list", 8, 1, true, 4}),
                         [](const auto& at) { return std::string(at.param.name); });

// --- slices that the map cannot hold in part

TEST(TrimDelayed, OfASliceThatIsOneUnitOnlyWholeOnesAreTrimmed) {
  SsdParameters p = delayed();
  p.geometry.map_unit = 16_KiB;
  World world(p);
  world.takes(write(0, 32));
  world.takes(trim(2, 12));  // half of unit 0, units 1 and 2, half of unit 3
  world.takes(write(9, 1));  // which is in unit 2
  world.takes(flush());
  rest(world);
  EXPECT_TRUE(world.maps(0));
  EXPECT_FALSE(world.maps(1));
  EXPECT_TRUE(world.maps(2));
  EXPECT_TRUE(world.maps(3));
}

// A part of a unit came before the TRIM and leaves the buffer after it.
TEST(TrimDelayed, WhatWaitsForTheRestOfItsUnitIsTrimmedToo) {
  SsdParameters p = delayed();
  p.geometry.map_unit = 16_KiB;
  World world(p);
  world.takes(write(0, 8));
  world.takes(flush());
  for (const int block : {1, 6}) world.takes(write(block));
  world.takes(trim(0, 4));
  EXPECT_GT(world.ssd.trim_status()->pending_ranges, 0U);
  world.takes(flush());
  EXPECT_FALSE(world.maps(0));
  EXPECT_TRUE(world.maps(1));
  EXPECT_EQ(world.ssd.counters().merge_reads, 1U);
}

// --- power cuts, and other ends

TEST(TrimDelayed, APowerCutForgetsWhatIsPending) {
  SsdParameters p = delayed();
  p.trim.costs.map = 2_ms;  // a single slice is applied before the flush
  World world(p);
  world.takes(write(0, 64));
  world.takes(flush());
  EXPECT_EQ(world.ssd.in_doubt(world.now), Extents{});
  world.takes(trim(0, 64));
  world.takes(write(20, 4));
  world.takes(flush());  // the write's sake: TRIMs stay pending, as they may
  EXPECT_GT(world.ssd.trim_status()->pending_ranges, 0U);
  EXPECT_EQ(world.cut(), (Extents{units(4, 16), units(24, 40)}));
  rest(world);
  for (Lpn lpn = 0; lpn < 64; ++lpn) EXPECT_EQ(world.maps(lpn), lpn >= 4) << lpn;
  EXPECT_EQ(world.ssd.trim_status()->pending_ranges, 0U);
}

TEST(TrimDelayed, WhatWasAppliedIsSafeAfterAFlush) {
  World world(delayed());
  world.takes(write(0, 64));
  world.takes(trim(0, 64));
  rest(world);
  EXPECT_EQ(world.ssd.in_doubt(world.now), Extents{units(0, 64)});
  world.takes(flush());
  EXPECT_EQ(world.cut(), Extents{});
}

TEST(TrimDelayed, AnotherPolicyFindsNothingPending) {
  World world(delayed());
  world.takes(write(0, 64));
  world.takes(trim(0, 64));
  world.ssd.set_trim_policy("none", world.now);
  EXPECT_EQ(mapped(world).size(), 0U);
  EXPECT_GT(world.takes(flush()), 5_us + kSlice * 16);
}

TEST(TrimDelayed, DataFromLongAgoIsNotErasedByWhatWasPending) {
  World world(delayed());
  world.takes(write(0, 64));
  world.takes(trim(0, 64));
  world.ssd.assume_written(units(8, 4));
  rest(world);
  EXPECT_EQ(mapped(world), (std::set<Lpn>{8, 9, 10, 11}));
}

TEST(TrimDelayed, RefusesTablesThatItCannotHave) {
  SsdParameters p = delayed();
  p.trim.delay.step_slices = 3;
  EXPECT_THROW(World{p}, OperatingError);
  p = delayed();
  p.trim.delay.pending_ranges = 0;
  EXPECT_THROW(World{p}, OperatingError);
  p = delayed();
  p.trim.costs.slice = 12_KiB;
  EXPECT_THROW(World{p}, OperatingError);
  p = delayed();
  p.trim.delay.batch_map_ratio = 1.5;
  EXPECT_THROW(World{p}, OperatingError);
}

TEST(TrimDelayed, AStateOfOtherTablesIsRefused) {
  World world(delayed());
  SsdParameters p = delayed();
  p.trim.delay.pending_ranges = 512;
  World other(p);
  EXPECT_THROW(other.restore(world.saved()), OperatingError);
}

}  // namespace test_trim_policies
}  // namespace flashlab::flash
