#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/prng.hpp"
#include "flash/ssd.hpp"
#include "host/driver.hpp"
#include "late_host.hpp"
#include "repeat.hpp"
#include "ssd_world.hpp"

namespace flashlab::flash {
namespace test_ssd {

using namespace literals;
using host::Driver;
using host::JobParameters;

constexpr Nanos kProgrammed = 540_us;  // over the channel, and into the cells

Share sum(std::span<const Share> shares) {
  Share whole;
  for (const Share& share : shares) whole += share;
  return whole;
}

// --- costs

TEST(Ssd, ReadsOnOneChannelShareIt) {
  SsdParameters p = parameters();
  p.geometry.channels = 1;
  p.geometry.dies_per_channel = 2;
  p.nand.channel_rate = BytesPerSecond{40'960'000};  // 100 us a unit
  World world(p);
  world.ssd.precondition(1.0, 0.0, 0);
  const Tag first = world.submit(read(0));
  const Tag second = world.submit(read(4));  // the other die
  EXPECT_EQ(world.end_of(first), 5_us + 50_us + 100_us + 4_us + 7_us);
  EXPECT_EQ(world.end_of(second), world.end_of(first) + 100_us);
}

TEST(Ssd, ProgramsOnOneChannelShareIt) {
  SsdParameters p = parameters();
  p.geometry.channels = 1;
  p.geometry.dies_per_channel = 2;
  p.nand.channel_rate = BytesPerSecond{40'960'000};
  World world(p);
  world.submit(write(0, 8));
  const Nanos flushed = world.end_of(world.submit(flush()));
  // The second page leaves when the first has left the channel, 400 us later.
  EXPECT_EQ(flushed, 5_us + 4_us * 4 + 400_us * 2 + 500_us);
}

TEST(Ssd, AFullBufferHoldsWritesBack) {
  World world(parameters());
  for (int i = 0; i < 8; ++i) EXPECT_EQ(world.takes(write(4 * i, 4)), 5_us + 16_us + 3_us);
  EXPECT_GT(world.takes(write(32, 4)), 300_us);
}

// Pages go to two dies in turn, of which one is slow.
TEST(Ssd, ThePageThatIsProgrammedFirstMakesRoom) {
  SsdParameters p = parameters();
  p.write_buffer = 16_KiB * 4;
  World world(p);
  world.ssd.slow_die(0, 100'000, world.now);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(world.takes(write(4 * i, 4)), 5_us + 16_us + 3_us);
  EXPECT_LT(world.takes(write(16, 4)), 2 * kProgrammed);
  EXPECT_LT(world.takes(write(20, 4)), 2 * kProgrammed);
  EXPECT_LT(world.takes(write(24, 4)), 2 * kProgrammed);
  EXPECT_GT(world.takes(write(28, 4)), 40_ms) << "all that are left wait for the slow one";
  EXPECT_GT(world.takes(flush()), 100_ms);
}

TEST(Ssd, DataFromLongAgoTakesNoRoomInTheBuffer) {
  World world(parameters());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(world.takes(write(4 * i)), 5_us + 4_us + 3_us);
    world.ssd.assume_written(units(4 * i + 1, 1));
  }
  EXPECT_EQ(world.ssd.in_doubt(world.now), Extents{});
}

TEST(Ssd, AFlushWaitsForThePrograms) {
  World world(parameters());
  world.takes(write(0));
  EXPECT_EQ(world.takes(flush()), 5_us + kProgrammed);
  EXPECT_EQ(world.cut(), Extents{});
}

TEST(Ssd, ADirectWriteWaitsForItsProgram) {
  World world(parameters());
  EXPECT_EQ(world.takes(fua(0)), 5_us + 4_us + 3_us + kProgrammed);
  EXPECT_EQ(world.cut(), Extents{});
}

TEST(Ssd, AWriteIsAnsweredWhenAllOfItIsInTheBuffer) {
  World world(parameters());
  for (int i = 0; i < 7; ++i) world.takes(write(4 * i, 4));
  world.takes(write(101, 4));
  // 100 waits for room; 101 replaces what waits to be programmed.
  EXPECT_GT(world.takes(write(100, 2)), 100_us);
  EXPECT_EQ(world.ssd.counters().coalesced_units, 1U);
}

TEST(Ssd, ANonQueuedTrimIsAloneInTheDrive) {
  SsdParameters p = parameters();
  p.trim.queued = false;
  World world(p);
  world.ssd.precondition(1.0, 0.0, 0);
  const Tag before = world.submit(read(0));
  const Tag trimmed = world.submit(trim(8, 4));
  const Tag after = world.submit(read(100));
  EXPECT_EQ(world.end_of(trimmed), world.end_of(before) + 5_us + 1500_ns + 100_ns);
  EXPECT_EQ(world.end_of(after), world.end_of(trimmed) + 76_us);
}

// As SATA's FLUSH CACHE EXT, which is no NCQ command.
TEST(Ssd, ANonQueuedFlushIsAloneInTheDrive) {
  for (const bool queued : {false, true}) {
    SsdParameters p = parameters();
    p.trim.queued = queued;
    World world(p);
    world.ssd.precondition(1.0, 0.0, 0);
    const Tag before = world.submit(read(0));
    const Tag flushed = world.submit(flush());
    const Tag after = world.submit(read(100));
    const Nanos begun = queued ? 5_us : world.end_of(before);
    EXPECT_EQ(world.end_of(flushed), begun + 5_us);
    EXPECT_EQ(world.end_of(after), world.end_of(flushed) + 76_us);
    world.now = world.end_of(after);
    world.submit(write(0));
    const Tag longer = world.submit(flush());
    const Nanos first =
        std::min(world.end_of(world.submit(read(200))), world.end_of(world.submit(read(204))));
    EXPECT_EQ(first > world.end_of(longer), !queued) << "on the die that programs nothing";
  }
}

TEST(Ssd, AQueuedTrimTakesTheFirmwareOnly) {
  World world(parameters());
  world.ssd.precondition(1.0, 0.0, 0);
  world.submit(read(0));
  const Tag trimmed = world.submit(trim(8, 4));
  const Tag after = world.submit(read(100));
  EXPECT_EQ(world.end_of(trimmed), 10_us + 1600_ns);
  EXPECT_EQ(world.end_of(after), 10_us + 1600_ns + 76_us);
}

TEST(Ssd, PaddingUsesUpTheSlcCache) {
  SsdParameters p = parameters();
  p.slc.cache = 16_KiB * 2;
  World world(p);
  for (int i = 0; i < 4; ++i) {
    world.takes(write(i));
    EXPECT_EQ(world.takes(flush()), 5_us + (i < 2 ? 240_us : kProgrammed));
  }
}

TEST(Ssd, AProgramWaitsForTheMergeReadsOfItsPage) {
  World world(parameters());
  world.ssd.precondition(1.0, 0.0, 0);
  world.submit(part(Op::write, 4 * kUnitSectors, 4));
  world.submit(write(8, 3));
  EXPECT_EQ(world.end_of(world.submit(flush())), 15_us + 60_us + kProgrammed);
  EXPECT_EQ(world.ssd.counters().merge_reads, 1U);
}

TEST(Ssd, AProgramWaitsForNoMergeReadOfAnotherPage) {
  World world(parameters());
  world.ssd.precondition(1.0, 0.0, 0);
  world.ssd.slow_die(0, 1'000'000, world.now);
  world.takes(part(Op::write, 0, 4));
  world.submit(read(0));  // now at the latest its rest is read, for 50 ms
  EXPECT_EQ(world.ssd.counters().merge_reads, 1U);
  world.submit(write(100, 3));
  world.submit(write(200, 4));
  const auto die_of = [&](Lpn lpn) {
    return world.ssd.ftl().geometry().die_of(world.ssd.ftl().map().find(lpn));
  };
  ASSERT_EQ(die_of(0), 0U);
  ASSERT_EQ(die_of(200), 1U);
  world.now += 2 * kProgrammed;
  EXPECT_EQ(world.cut(), (Extents{units(0, 1), units(100, 3)}));
}

// The flush's command is handled before the data of the one before it is there.
TEST(Ssd, AProgramOfAPaddedPageWaitsForItsData) {
  World world(parameters());
  world.submit(write(0, 3));
  EXPECT_EQ(world.end_of(world.submit(flush())), 5_us + 4_us * 3 + kProgrammed);
}

// --- units that are written in part: quarters of them

SsdParameters coarse() {
  SsdParameters p = parameters();
  p.geometry.map_unit = 16_KiB;
  return p;
}

std::uint64_t programs(const World& world) { return world.ssd.nand().counters().page_programs; }

TEST(SsdParts, WaitForEachOther) {
  World world(coarse());
  for (int i = 0; i < 3; ++i) world.takes(write(i));
  EXPECT_EQ(programs(world), 0U);
  world.takes(write(3));
  EXPECT_EQ(programs(world), 1U);
  for (const int i : {9, 4, 11, 8, 6, 5, 10, 7}) world.takes(write(i));
  EXPECT_EQ(programs(world), 3U);
  EXPECT_EQ(world.ssd.ftl().counters().host_units, 3U);
  EXPECT_EQ(world.ssd.counters().coalesced_units, 0U);
}

// The unit's program needs the data that came last, wherever that lies.
TEST(SsdParts, AreProgrammedWhenAllOfThemAreThere) {
  World world(coarse());
  world.submit(write(1, 3));  // there at 5 + 12 us
  world.submit(write(0));     // behind it on the link
  EXPECT_EQ(programs(world), 1U);
  EXPECT_EQ(world.end_of(world.submit(flush())), 5_us + 16_us + kProgrammed);
}

TEST(SsdParts, AreMergedOnlyWhenTheyLeaveAsSuch) {
  for (const bool mapped : {false, true}) {
    World world(coarse());
    if (mapped) world.ssd.precondition(1.0, 0.0, 0);
    world.takes(write(0));
    world.takes(write(5, 2));
    EXPECT_EQ(world.ssd.counters().merge_reads, 0U);
    EXPECT_EQ(world.takes(flush()), 5_us + (mapped ? 50_us + 40_us : 0_us) + kProgrammed);
    EXPECT_EQ(world.ssd.counters().merge_reads, mapped ? 2U : 0U);
    EXPECT_EQ(programs(world), 2U);
    EXPECT_EQ(world.cut(), Extents{});
  }
}

TEST(SsdParts, LeaveWithADirectWrite) {
  World world(coarse());
  world.takes(write(0));
  world.takes(fua(100));
  EXPECT_EQ(programs(world), 2U);
  EXPECT_EQ(world.cut(), Extents{});
}

TEST(SsdParts, OfAUnitThatIsWrittenWholeAreGone) {
  World world(coarse());
  world.takes(write(1));
  world.takes(write(0, 4));
  EXPECT_EQ(programs(world), 1U);
  EXPECT_EQ(world.ssd.counters().coalesced_units, 1U);
  world.takes(flush());
  EXPECT_EQ(programs(world), 1U);
}

TEST(SsdParts, ThatAreWrittenAgainAreCoalesced) {
  World world(coarse());
  for (const int first : {0, 0, 1, 0}) world.takes(write(first, 2));
  EXPECT_EQ(world.ssd.counters().coalesced_units, 3U);
  EXPECT_EQ(sum(world.ssd.ftl().attribution().by_range()).coalesced_units, 3U);
  EXPECT_EQ(programs(world), 0U);
}

TEST(SsdParts, AreReadFromTheBufferAndTheRestFromFlash) {
  World world(coarse());
  world.ssd.precondition(1.0, 0.0, 0);
  world.takes(write(1, 2));
  EXPECT_EQ(world.takes(read(1, 2)), 5_us + 8_us + 7_us);
  EXPECT_EQ(programs(world), 0U);
  EXPECT_EQ(world.takes(read(2, 2)), 5_us + 50_us + 40_us + 8_us + 7_us);
  EXPECT_EQ(world.ssd.counters().merge_reads, 1U);
  EXPECT_EQ(world.ssd.counters().buffer_hits, 1U);
  EXPECT_EQ(programs(world), 1U);  // it was complete then
}

TEST(SsdParts, OfWhatHoldsNothingElseAreReadAtOnce) {
  World world(coarse());
  world.takes(write(1));
  EXPECT_EQ(world.takes(read(0, 8)), 5_us + 32_us + 7_us);
  EXPECT_EQ(world.ssd.counters().buffer_hits, 1U);
  EXPECT_EQ(world.ssd.counters().unmapped_reads, 1U);
  EXPECT_EQ(programs(world), 0U);
}

// The buffer holds 8 units: half of them may wait for their rest.
TEST(SsdParts, LeaveWhenTooManyWaitTheOldestFirst) {
  World world(coarse());
  for (const int unit : {3, 0, 2, 1}) world.takes(write(4 * unit));
  world.takes(write(4 * 3 + 1));
  EXPECT_EQ(programs(world), 0U);
  world.takes(write(4 * 9));
  EXPECT_EQ(programs(world), 1U);
  EXPECT_TRUE(world.maps(3));
  for (const Lpn lpn : {0U, 2U, 1U, 9U}) EXPECT_FALSE(world.maps(lpn)) << lpn;
  world.takes(write(4 * 2, 4));
  world.takes(write(4 * 8));  // there is room again
  EXPECT_FALSE(world.maps(0));
}

// However small it is, what waits and open pages leave room for one that is complete.
TEST(SsdParts, NeverFillTheBuffer) {
  for (const std::int64_t per_page : {1, 4}) {
    for (const StreamId streams : {1, 3}) {
      SsdParameters p = parameters();
      p.geometry.map_unit = 16_KiB / per_page;
      p.geometry.overprovision_ratio = 2.0;
      p.ftl.streams = streams;
      p.placement = "id";
      p.write_buffer = 16_KiB * (streams + 1);
      World world(p);
      world.ssd.precondition(1.0, 0.0, 0);
      Prng random(7);
      for (int i = 0; i < 2000; ++i) {
        Request request = part(Op::write, static_cast<std::int64_t>(random.below(8000)), 1);
        if (random.below(2) == 0)
          request = write(4 * static_cast<std::int64_t>(random.below(250)), 4);
        request.stream = static_cast<StreamId>(random.below(streams));
        world.submit(request);
      }
      EXPECT_GT(world.ssd.counters().merge_reads, 100U);
    }
  }
}

TEST(SsdParts, AreForgottenByATrimOfTheirUnit) {
  World world(coarse());
  world.takes(write(0, 4));
  world.takes(flush());
  for (const int block : {1, 2, 5}) world.takes(write(block));
  world.takes(trim(0, 4));
  world.takes(trim(4, 3));  // not all of it
  EXPECT_EQ(world.ssd.counters().coalesced_units, 1U);
  world.takes(flush());
  EXPECT_EQ(programs(world), 2U);
  EXPECT_FALSE(world.maps(0));
  EXPECT_TRUE(world.maps(1));
  EXPECT_EQ(world.ssd.counters().merge_reads, 0U);
}

// It was never on flash; what was there before may come back.
TEST(SsdParts, LeaveTheirUnitInDoubtWhenTheyAreTrimmed) {
  World world(coarse());
  world.takes(write(0, 4));
  world.takes(flush());
  world.takes(trim(0, 4));
  world.takes(write(1));
  world.takes(trim(0, 4));
  EXPECT_EQ(world.cut(), Extents{units(0, 4)});
}

TEST(SsdParts, AreInDoubtUntilTheyAreProgrammed) {
  for (const bool is_protected : {false, true}) {
    SsdParameters p = coarse();
    p.power_loss_protection = is_protected;
    World world(p);
    world.takes(write(1));
    world.now += 10'000_ms;
    EXPECT_EQ(world.cut(), is_protected ? Extents{} : Extents{units(0, 4)});
    EXPECT_GT(world.takes(read(1)), 50_us);  // and they are in RAM no more
    EXPECT_EQ(world.cut(), Extents{});
  }
}

TEST(SsdParts, FollowTheLastOfThem) {
  SsdParameters p = coarse();
  p.ftl.streams = 2;
  p.placement = "id";
  p.ftl.gc_placement = "by_stream";
  World world(p);
  for (const int block : {0, 1, 2, 3}) {
    Request request = write(block);
    request.stream = block < 3 ? 0 : 1;
    world.takes(request);
  }
  EXPECT_EQ(world.ssd.ftl().attribution().by_stream()[0].host_units, 0U);
  EXPECT_EQ(world.ssd.ftl().attribution().by_stream()[1].host_units, 1U);
}

TEST(SsdParts, AreSaved) {
  World world(coarse());
  world.ssd.precondition(1.0, 0.0, 0);
  for (const int block : {9, 0, 5, 1}) world.takes(write(block));
  World restored(coarse());
  restored.restore(world.saved());
  restored.now = world.now;
  EXPECT_EQ(restored.saved(), world.saved());
  for (World* each : {&world, &restored}) {
    for (const int block : {2, 3, 13, 17, 21}) each->takes(write(block));
    each->takes(flush());
    EXPECT_EQ(each->ssd.counters().merge_reads, 5U);
  }
  EXPECT_EQ(restored.saved(), world.saved());
}

TEST(SsdParts, MakeADriveUsed) {
  World world(coarse());
  world.takes(write(1));
  EXPECT_THROW(world.ssd.to_steady_state(0), OperatingError);
  world.ssd.precondition(0.0, 0.0, 0);
  EXPECT_TRUE(world.maps(0));
  EXPECT_EQ(world.cut(), Extents{});
}

// --- TRIM

TEST(SsdTrim, ForgetsWholeUnitsAndNoOthers) {
  World world(parameters());
  world.takes(write(0, 16));
  world.takes(part(Op::trim, 4, 24));  // half of unit 0, units 1 and 2, half of unit 3
  for (const Lpn lpn : {0U, 3U, 4U, 15U}) EXPECT_TRUE(world.maps(lpn)) << lpn;
  for (const Lpn lpn : {1U, 2U}) EXPECT_FALSE(world.maps(lpn)) << lpn;
  world.takes(part(Op::trim, 5 * kUnitSectors + 1, 6));
  EXPECT_TRUE(world.maps(5));
  EXPECT_EQ(world.ssd.ftl().counters().trimmed_units, 2U);
}

TEST(SsdTrim, TakesEveryRangeOfACommand) {
  World world(parameters());
  world.takes(write(0, 16));
  const std::vector<Extent> ranges{units(1, 2), units(6, 1), units(10, 3)};
  Request request = trim(1, 2);
  request.ranges = ranges;
  EXPECT_EQ(world.takes(request), 5_us + 900_ns + 600_ns * 3 + 100_ns * 4);
  for (Lpn lpn = 0; lpn < 16; ++lpn) {
    const bool gone = lpn == 1 || lpn == 2 || lpn == 6 || (lpn >= 10 && lpn < 13);
    EXPECT_EQ(world.maps(lpn), !gone) << lpn;
  }
  const std::vector<Extent> many(5, units(0, 1));
  request.ranges = many;
  EXPECT_THROW(world.ssd.submit(99, request, world.now), OperatingError);
}

// Puts everything off until somebody else takes over.
class PutsOff final : public TrimPolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "puts off"; }
  Nanos command(std::span<const Extent> ranges, TrimTarget& /*target*/,
                TrimCounters& /*counters*/) override {
    pending_.insert(pending_.end(), ranges.begin(), ranges.end());
    return Nanos{0};
  }
  Nanos retire(TrimTarget& target, TrimCounters& /*counters*/) override {
    for (const Extent& extent : pending_) target.unmap(extent);
    return 10_us * static_cast<std::int64_t>(pending_.size());
  }

 private:
  Extents pending_;
};

TEST(SsdTrim, AnotherPolicyLosesNothingOfTheOneBefore) {
  World world(parameters());
  world.takes(write(0, 16));
  world.ssd.set_trim_policy(std::make_unique<PutsOff>(), world.now);
  EXPECT_EQ(world.takes(trim(2, 3)), 5_us);
  EXPECT_EQ(world.takes(trim(8)), 5_us);
  EXPECT_TRUE(world.maps(2));
  world.now += 10_ms;
  world.ssd.set_trim_policy("none", world.now);
  for (const Lpn lpn : {2U, 3U, 4U, 8U}) EXPECT_FALSE(world.maps(lpn)) << lpn;
  EXPECT_TRUE(world.maps(5));
  EXPECT_EQ(world.takes(flush()), 10_us * 2 + 5_us);
}

TEST(SsdTrim, APolicyCanBeChanged) {
  World world(parameters());
  world.takes(write(0, 16));
  EXPECT_EQ(world.ssd.trim_policy(), "immediate");
  world.ssd.set_trim_policy("none", world.now);
  EXPECT_EQ(world.ssd.trim_policy(), "none");
  EXPECT_EQ(world.takes(trim(2, 3)), 5_us);
  EXPECT_TRUE(world.maps(2));
  EXPECT_THROW(world.ssd.set_trim_policy("sometimes", world.now), OperatingError);
  EXPECT_EQ(world.ssd.trim_policy(), "none");
  world.ssd.set_trim_policy("immediate", world.now);
  world.takes(trim(2, 3));
  EXPECT_FALSE(world.maps(2));
  EXPECT_EQ(world.ssd.counters().device.trim_ios, 2U);
}

TEST(SsdTrim, ThePolicyIsSaved) {
  World changed(parameters());
  changed.ssd.set_trim_policy("none", changed.now);
  changed.takes(write(0, 16));
  World restored(parameters());
  restored.restore(changed.saved());
  EXPECT_EQ(restored.ssd.trim_policy(), "none");
  restored.takes(trim(2));
  EXPECT_TRUE(restored.maps(2));
  changed.ssd.set_trim_policy(std::make_unique<PutsOff>(), changed.now);
  EXPECT_THROW(restored.restore(changed.saved()), OperatingError);
}

// --- what a drive does for itself

// 4 dies, and a cache that holds all that is written.
SsdParameters cached(const char* policy) {
  SsdParameters p = parameters();
  p.geometry.dies_per_channel = 2;
  p.slc.policy = policy;
  p.slc.cache = 4_MiB;
  return p;
}

// Writes 200 pages; returns how many are folded in 20 ms of the rest that follows.
std::uint64_t folded(World& world) {
  for (int i = 0; i < 200; ++i) world.takes(write(4 * i, 4));
  world.takes(flush());
  world.now += 5_ms;
  world.ssd.wake(world.now);
  const std::uint64_t before = world.ssd.counters().folded_pages;
  world.now += 20_ms;
  world.ssd.wake(world.now);
  return world.ssd.counters().folded_pages - before;
}

constexpr Nanos kFold = 50_us + 40_us + kProgrammed;  // on a channel that nobody else wants

TEST(SsdIdle, AllDiesFold) {
  for (const char* policy : {"fixed", "dynamic"}) {
    World world(cached(policy));
    const std::uint64_t pages = folded(world);
    EXPECT_GE(pages, 4 * (20_ms / kFold) * 9 / 10) << policy;
    EXPECT_LE(pages, 4 * (20_ms / kFold + 1)) << policy;
  }
}

TEST(SsdIdle, ADieThatIsSlowHoldsBackNoOther) {
  for (const char* policy : {"fixed", "dynamic"}) {
    World world(cached(policy));
    world.ssd.slow_die(1, 20'000, world.now);
    EXPECT_GE(folded(world), 3 * (20_ms / kFold) * 9 / 10) << policy;
  }
}

TEST(SsdIdle, AllDiesCollect) {
  for (const char* allocation : {"per_die", "global"}) {
    SsdParameters p = parameters();
    p.geometry.allocation = allocation;
    p.geometry.dies_per_channel = 2;
    p.geometry.overprovision_ratio = 3.0;
    p.background_gc = true;
    p.background_target = 100;
    World world(p);
    world.ssd.to_steady_state(1);
    world.now += p.background_idle + 1_ns;
    world.ssd.wake(world.now);
    const std::uint64_t groups = world.ssd.ftl().geometry().groups();
    EXPECT_EQ(world.ssd.ftl().counters().idle_collections, groups);
    world.now += 1_us;  // they have it to do
    world.ssd.wake(world.now);
    EXPECT_EQ(world.ssd.ftl().counters().idle_collections, groups);
    world.now += 10'000_ms;
    world.ssd.wake(world.now);
    EXPECT_GT(world.ssd.ftl().counters().idle_collections, 4 * groups);
  }
}

// --- a slow die

// Unit 0 and 4 lie on different dies.
TEST(SsdSlowDie, ReadsTakeLonger) {
  World world(parameters());
  world.ssd.precondition(1.0, 0.0, 0);
  const Die slow = world.ssd.ftl().geometry().die_of(world.ssd.ftl().map().find(4));
  ASSERT_NE(slow, world.ssd.ftl().geometry().die_of(world.ssd.ftl().map().find(0)));
  world.ssd.slow_die(slow, 2500, world.now);
  EXPECT_EQ(world.takes(read(0)), 76_us);
  EXPECT_EQ(world.takes(read(4)), 76_us + 75_us);
  world.ssd.slow_die(slow, 1000, world.now);
  EXPECT_EQ(world.takes(read(4)), 76_us);
}

TEST(SsdSlowDie, ProgramsErasesAndCopiesTakeLonger) {
  SsdParameters p = parameters();
  p.geometry.channels = 1;
  p.slc.cache = 16_KiB;
  std::array<NandCounters, 2> all;
  for (const std::int64_t factor : {1, 3}) {
    World world(p);
    world.ssd.slow_die(0, 1000 * factor, world.now);
    EXPECT_EQ(world.takes(fua(0, 4)), 5_us + 16_us + 40_us + 200_us * factor);
    for (int i = 0; i < 3000; ++i) {
      world.takes(fua(i * 37 % 1000));
    }
    world.now += 1'000_ms;  // what was written to the SLC cache is moved
    world.ssd.wake(world.now);
    all[factor == 1 ? 0 : 1] = world.ssd.nand().counters();
  }
  const auto [one, three] = all;
  EXPECT_GT(one.block_erases, 50U);
  EXPECT_EQ(one.erase, 3_ms * static_cast<std::int64_t>(one.block_erases));
  EXPECT_EQ(three.erase, one.erase * 3);
  EXPECT_EQ(one.page_programs, three.page_programs);
  EXPECT_EQ(three.fold - one.fold, (50_us + 500_us) * 2);
  const std::uint64_t folds = 1;
  const auto host_pages = static_cast<std::int64_t>(3001 - one.slc_programs);
  const auto copied = static_cast<std::int64_t>(one.page_programs - folds) - host_pages -
                      static_cast<std::int64_t>(one.slc_programs);
  EXPECT_GT(copied, 50);
  EXPECT_EQ(three.gc_program - one.gc_program, 500_us * 2 * copied);
}

TEST(SsdSlowDie, WhatHasBegunIsFinishedAsItWas) {
  World world(parameters());
  world.submit(write(0, 4));
  world.now = 5_us + 16_us + 1_ns;
  world.ssd.slow_die(0, 4000, world.now);
  world.ssd.slow_die(1, 4000, world.now);
  EXPECT_EQ(world.end_of(world.submit(flush())), 5_us + 16_us + kProgrammed);
  world.now = 10_ms;
  world.submit(write(4, 4));
  EXPECT_EQ(world.end_of(world.submit(flush())), 10_ms + 5_us + 16_us + 40_us + 2_ms);
}

TEST(SsdSlowDie, IsSaved) {
  World world(parameters());
  world.ssd.precondition(1.0, 0.0, 0);
  for (const std::int64_t die : {0, 1}) world.ssd.slow_die(die, 3000, world.now);
  World restored(parameters());
  restored.restore(world.saved());
  EXPECT_EQ(restored.takes(read(0)), 76_us + 100_us);
  EXPECT_EQ(restored.cut(), Extents{});
  EXPECT_EQ(restored.takes(read(0)), 76_us + 100_us);
}

TEST(SsdSlowDie, OneThatCannotBeIsRefused) {
  World world(parameters());
  for (const std::int64_t die : {-1, 2}) {
    EXPECT_THROW(world.ssd.slow_die(die, 2000, world.now), OperatingError);
  }
  for (const std::int64_t thousandths : {0, 999, 1'000'001}) {
    EXPECT_THROW(world.ssd.slow_die(0, thousandths, world.now), OperatingError);
  }
}

// --- who wrote what

TEST(SsdShares, BelongToTheStreamThatWrote) {
  SsdParameters p = parameters();
  p.ftl.streams = 2;
  p.placement = "id";
  p.ftl.gc_placement = "by_stream";
  p.ranges = {{"low", units(0, 8), 0}};
  World world(p);
  for (int i = 0; i < 12; ++i) {
    Request request = write(i);
    request.stream = i < 3 ? 1 : 0;
    world.takes(request);
  }
  world.takes(flush());
  const auto& shares = world.ssd.ftl().attribution();
  EXPECT_EQ(shares.by_stream()[0].host_units, 9U);
  EXPECT_EQ(shares.by_stream()[1].host_units, 3U);
  EXPECT_EQ(shares.by_stream()[0].padded_units, 3U);
  EXPECT_EQ(shares.by_stream()[1].padded_units, 1U);
  EXPECT_EQ(shares.by_range()[0].host_units, 8U);
  EXPECT_EQ(shares.by_range()[1].host_units, 4U);
}

// --- named ranges, changed while the drive is in use

SsdParameters two_streams() {
  SsdParameters p = parameters();
  p.ftl.streams = 2;
  p.placement = "range";
  p.ftl.gc_placement = "by_stream";
  return p;
}

// Streams never share a block.
std::set<Block> blocks_of(const World& world, std::int64_t unit, std::int64_t n) {
  std::set<Block> found;
  for (std::int64_t i = unit; i < unit + n; ++i) {
    const Slot slot = world.ssd.ftl().map().find(static_cast<Lpn>(i));
    if (slot != kNoSlot) found.insert(world.ssd.ftl().geometry().block_of(slot));
  }
  return found;
}

bool are_apart(const std::set<Block>& a, const std::set<Block>& b) {
  return std::none_of(a.begin(), a.end(), [&](Block block) { return b.contains(block); });
}

void write_at_random_places(World& world, int writes) {
  Prng random(5);
  for (int i = 0; i < writes; ++i) {
    world.takes(write(static_cast<std::int64_t>(random.below(1000))));
  }
}

void expect_parts_sum_to_the_whole(const Ssd& ssd) {
  const FtlCounters& ftl = ssd.ftl().counters();
  const Attribution& shares = ssd.ftl().attribution();
  for (const Share& whole : {sum(shares.by_range()), sum(shares.by_stream())}) {
    EXPECT_EQ(whole.host_units, ftl.host_units);
    EXPECT_EQ(whole.copied_units, ftl.copied_units);
    EXPECT_EQ(whole.padded_units, ftl.padded_units);
    EXPECT_EQ(whole.coalesced_units, ssd.counters().coalesced_units);
  }
}

TEST(SsdRanges, WritesFollowThemFromThenOn) {
  World world(two_streams());
  for (int i = 0; i < 64; ++i) world.takes(write(i));
  EXPECT_FALSE(are_apart(blocks_of(world, 8, 24), blocks_of(world, 32, 32)));
  world.ssd.set_ranges({{"journal", units(8, 24), 1}}, world.now);
  EXPECT_FALSE(are_apart(blocks_of(world, 8, 24), blocks_of(world, 32, 32)));
  for (int i = 0; i < 64; ++i) world.takes(write(i));
  EXPECT_TRUE(are_apart(blocks_of(world, 8, 24), blocks_of(world, 0, 8)));
  EXPECT_TRUE(are_apart(blocks_of(world, 8, 24), blocks_of(world, 32, 32)));
  world.ssd.set_ranges({{"journal", units(32, 32), 1}}, world.now);
  for (int i = 0; i < 64; ++i) world.takes(write(i));
  EXPECT_TRUE(are_apart(blocks_of(world, 32, 32), blocks_of(world, 0, 32)));
  EXPECT_EQ(world.ssd.ftl().attribution().by_stream()[1].host_units, 24U + 32U);
}

// The same without placement: the parameters alone decide.
TEST(SsdRanges, WithoutPlacementTheyAreOnlyCounted) {
  SsdParameters p = two_streams();
  p.placement = "none";
  World world(p);
  world.ssd.set_ranges({{"journal", units(8, 24), 1}}, world.now);
  for (int i = 0; i < 64; ++i) world.takes(write(i));
  EXPECT_FALSE(are_apart(blocks_of(world, 8, 24), blocks_of(world, 32, 32)));
  EXPECT_EQ(world.ssd.ftl().attribution().by_range()[0].host_units, 24U);
}

TEST(SsdRanges, WhatWasCountedBeforeIsTheRests) {
  World world(two_streams());
  world.ssd.set_ranges({{"a", units(0, 16), 1}}, world.now);
  write_at_random_places(world, 4000);
  world.takes(write(3));
  world.takes(write(3));  // is in RAM still
  world.takes(flush());
  const Share before = sum(world.ssd.ftl().attribution().by_range());
  EXPECT_GT(before.copied_units, 0U);
  EXPECT_GT(before.padded_units, 0U);
  EXPECT_GT(before.coalesced_units, 0U);
  world.ssd.set_ranges({{"b", units(16, 16), 1}, {"c", units(32, 8), 0}}, world.now);
  const auto shares = world.ssd.ftl().attribution().by_range();
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_EQ(shares[0].host_units + shares[1].host_units, 0U);
  expect_parts_sum_to_the_whole(world.ssd);
  for (const int unit : {15, 16, 31, 32, 39, 40}) world.takes(write(unit));
  EXPECT_EQ(shares[0].host_units, 2U);
  EXPECT_EQ(shares[1].host_units, 2U);
  EXPECT_EQ(shares[2].host_units, before.host_units + 2);
  expect_parts_sum_to_the_whole(world.ssd);
}

TEST(SsdRanges, UnitsThatAreWrittenAgainInRamAreCountedToTheirs) {
  World world(two_streams());
  world.ssd.set_ranges({{"a", units(0, 1), 1}}, world.now);
  for (const int unit : {0, 0, 0, 1, 1}) world.takes(write(unit));
  const auto shares = world.ssd.ftl().attribution().by_range();
  EXPECT_EQ(shares[0].host_units, 1U);
  EXPECT_EQ(shares[0].coalesced_units, 2U);
  EXPECT_EQ(shares[1].host_units, 1U);
  EXPECT_EQ(shares[1].coalesced_units, 1U);
  expect_parts_sum_to_the_whole(world.ssd);
}

TEST(SsdRanges, WhatTheDriveDidForItselfBeforeIsTheRests) {
  SsdParameters p = two_streams();
  p.background_gc = true;
  World world(p);
  write_at_random_places(world, 4000);
  const std::uint64_t copied = world.ssd.ftl().counters().copied_units;
  world.now += 1000_ms;  // it collects meanwhile
  world.ssd.set_ranges({{"all", units(0, 1024), 1}}, world.now);
  EXPECT_GT(world.ssd.ftl().counters().copied_units, copied);
  const auto shares = world.ssd.ftl().attribution().by_range();
  EXPECT_EQ(shares[0].copied_units, 0U);
  world.ssd.wake(world.now);
  EXPECT_EQ(shares[0].copied_units, 0U);
  EXPECT_EQ(shares[1].copied_units, world.ssd.ftl().counters().copied_units);
}

TEST(SsdRanges, AreSaved) {
  World changed(two_streams());
  changed.ssd.set_ranges({{"a", units(0, 16), 1}, {"long name", units(16, 16), 0}}, changed.now);
  for (int i = 0; i < 40; ++i) changed.takes(write(i));
  SsdParameters p = two_streams();
  p.ranges = {{"other", units(100, 8), 1}};
  World restored(p);
  restored.restore(changed.saved());
  ASSERT_EQ(restored.ssd.ranges().size(), 2U);
  EXPECT_EQ(restored.ssd.ranges()[1].name, "long name");
  EXPECT_EQ(restored.ssd.ranges()[1].extent.begin, units(16, 1).begin);
  EXPECT_EQ(restored.ssd.ranges()[1].extent.end, units(31, 1).end);
  EXPECT_EQ(restored.saved(), changed.saved());
  for (World* world : {&changed, &restored}) {
    for (int i = 0; i < 1000; ++i) world->takes(write(i * 37 % 200));
    EXPECT_TRUE(are_apart(blocks_of(*world, 0, 16), blocks_of(*world, 16, 184)));
    expect_parts_sum_to_the_whole(world->ssd);
  }
  EXPECT_EQ(restored.saved(), changed.saved());
}

TEST(SsdRanges, AStateWithRangesThatTheDriveCannotHaveIsRefused) {
  World changed(two_streams());
  changed.ssd.set_ranges({{"a", units(0, 16), 1}}, changed.now);
  World restored(parameters());
  EXPECT_THROW(restored.restore(changed.saved()), OperatingError);
  World other(parameters());
  World of_two_streams(two_streams());
  EXPECT_THROW(other.restore(of_two_streams.saved()), OperatingError);
}

TEST(SsdRanges, OnesThatCannotBeAreRefusedAndChangeNothing) {
  World world(two_streams());
  world.ssd.set_ranges({{"good", units(0, 8), 1}}, world.now);
  const std::vector<std::vector<NamedRange>> bad = {
      {{"empty", units(8, 0), 0}},
      {{"outside", units(1020, 5), 0}},
      {{"negative", {Lba{-8}, Lba{8}}, 0}},
      {{"unaligned", {Lba{4}, Lba{8}}, 0}},
      {{"unaligned end", {Lba{8}, Lba{12}}, 0}},
      {{"one", units(8, 8), 0}, {"overlaps", units(15, 8), 1}},
      {{"second", units(16, 8), 0}, {"first", units(0, 8), 1}},
      {{"no such stream", units(8, 8), 2}},
      {{std::string("a\0b", 3), units(8, 8), 0}}};
  for (const auto& ranges : bad) {
    EXPECT_THROW(world.ssd.set_ranges(ranges, world.now), OperatingError) << ranges.back().name;
  }
  ASSERT_EQ(world.ssd.ranges().size(), 1U);
  EXPECT_EQ(world.ssd.ranges()[0].name, "good");
  world.takes(write(0));
  EXPECT_EQ(world.ssd.ftl().attribution().by_range()[0].host_units, 1U);
}

// What a range counts is what an obvious count of the same requests gives.
TEST(SsdRanges, AgreeWithACountOfTheRequests) {
  Prng random(11);
  World world(two_streams());
  for (int round = 0; round < 30; ++round) {
    std::vector<NamedRange> ranges;
    std::int64_t at = static_cast<std::int64_t>(random.below(40));
    while (at + 60 < 1024 && ranges.size() < 8) {
      const auto length = static_cast<std::int64_t>(1 + random.below(60));
      ranges.push_back({"r", units(at, length), static_cast<StreamId>(random.below(2))});
      at += length + static_cast<std::int64_t>(random.below(3) * random.below(60));
    }
    world.ssd.set_ranges(ranges, world.now);
    std::vector<std::uint64_t> written(ranges.size());
    for (int i = 0; i < 100; ++i) {
      const auto unit = static_cast<std::int64_t>(random.below(1016));
      const auto n = static_cast<std::int64_t>(1 + random.below(8));
      world.takes(write(unit, n));
      for (std::int64_t u = unit; u < unit + n; ++u) {
        for (std::size_t r = 0; r < ranges.size(); ++r) {
          const Lba lba{u * kUnitSectors};
          written[r] += ranges[r].extent.begin <= lba && lba < ranges[r].extent.end ? 1 : 0;
        }
      }
    }
    const auto shares = world.ssd.ftl().attribution().by_range();
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      EXPECT_EQ(shares[r].host_units + shares[r].coalesced_units, written[r]);
    }
    expect_parts_sum_to_the_whole(world.ssd);
  }
}

// --- power cuts

TEST(SsdPowerCut, TakesWhatIsInAnOpenPageHoweverLongItWaited) {
  World world(parameters());
  world.takes(write(5));
  world.now += 10'000_ms;
  EXPECT_EQ(world.cut(), Extents{units(5, 1)});
  EXPECT_EQ(world.cut(), Extents{});
}

TEST(SsdPowerCut, LeavesWhatIsProgrammed) {
  for (const Nanos early : {1_ns, 0_ns}) {
    World world(parameters());
    world.takes(write(8, 4));
    world.now = 5_us + 4_us * 4 + kProgrammed - early;
    EXPECT_EQ(world.cut(), early > Nanos{0} ? Extents{units(8, 4)} : Extents{});
  }
}

TEST(SsdPowerCut, TakesAWriteThatIsNotAnsweredEvenWithProtection) {
  SsdParameters p = parameters();
  p.power_loss_protection = true;
  World world(p);
  world.takes(write(0, 2));
  world.submit(write(4, 3));
  EXPECT_EQ(world.cut(), Extents{units(4, 3)});
}

TEST(SsdPowerCut, TakesWhatWasMovedBeforeItWasProgrammed) {
  SsdParameters p = parameters();
  p.geometry.capacity = 1_MiB;
  p.geometry.pages_per_block = 2;
  p.nand.program_page = 1'000'000_ms;  // nothing is ever programmed
  p.write_buffer = 16_MiB;
  p.ftl.victim.policy = "fifo";
  World world(p);
  for (int u = 0; u < 256; ++u) world.takes(write(u));
  // What is trimmed and written again takes a new place; what was trimmed is collected.
  for (int i = 0; i < 4000 && world.ssd.ftl().counters().copied_units < 20; ++i) {
    world.takes(trim(i * 3 % 256));
    world.takes(write(i * 3 % 256));
  }
  EXPECT_GE(world.ssd.ftl().counters().copied_units, 20U);
  EXPECT_EQ(world.cut(), Extents{units(0, 256)});
}

TEST(SsdPowerCut, TakesATrimUntilAFlush) {
  World world(parameters());
  world.takes(write(0, 8));
  world.takes(flush());
  world.takes(trim(2, 3));
  World same(parameters());
  same.takes(write(0, 8));
  same.takes(flush());
  same.takes(trim(2, 3));
  same.takes(flush());
  EXPECT_EQ(world.cut(), Extents{units(2, 3)});
  EXPECT_EQ(same.cut(), Extents{});
}

// What is certain about every unit, from nothing but commands, answers and the shortest time in
// which anything can reach the cells.
class Ledger {
 public:
  Ledger(std::size_t units, bool protection, Nanos quickest)
      : units_(units), protection_(protection), quickest_(quickest) {}

  void submit(const Request& request, Nanos now, Nanos answered) {
    if (request.op == Op::flush) {
      for (Unit& unit : units_) {
        unit.flushed = true;
        // A flush covers what was answered when it came; more may be, nobody knows.
        if (unit.answered <= now) unit.safe = std::min(unit.safe, answered);
      }
    }
    if (request.op != Op::write && request.op != Op::trim) return;
    const std::int64_t first = request.lba.index();
    const std::int64_t last = first + request.sectors.count();
    for (std::int64_t u = first / kUnitSectors; u * kUnitSectors < last; ++u) {
      Unit& unit = units_[static_cast<std::size_t>(u)];
      const bool whole = first <= u * kUnitSectors && (u + 1) * kUnitSectors <= last;
      const bool at_once = request.op == Op::write && (request.fua || protection_);
      const bool written = request.op == Op::write || unit.written;
      const bool trimmed = request.op == Op::trim;
      // Of a unit that was trimmed in part nothing is certain: the part is in flight, the rest not.
      // Nor of one with two changes in flight, which may concern different sectors.
      const bool vague = (trimmed && !(whole && unit.written)) || (unit.changed && unit.busy > now);
      const Nanos busy = std::max(unit.changed ? unit.busy : Nanos{0}, answered);
      const Nanos safe = at_once || (trimmed && protection_) ? answered : kNever;
      unit = {true, written, trimmed, vague, now, answered, busy, safe, false};
      if (trimmed && whole) unit.written = false;
    }
  }

  void expect_agreement(const Extents& doubt, Nanos now) const {
    std::vector<bool> in_doubt(units_.size());
    Lba last{-1};
    for (const Extent& e : doubt) {
      ASSERT_LT(last, e.begin);
      ASSERT_LT(e.begin, e.end);
      last = e.end;
      for (std::int64_t u = e.begin.index() / kUnitSectors; u * kUnitSectors < e.end.index(); ++u) {
        in_doubt[static_cast<std::size_t>(u)] = true;
      }
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const Unit& unit = units_[u];
      const bool durable = !unit.changed || (unit.safe <= now && !unit.vague);
      const bool lost = unit.changed && !unit.vague && is_lost(unit, now);
      if (durable) {
        ASSERT_FALSE(in_doubt[u]) << "unit " << u;
      }
      if (lost) {
        ASSERT_TRUE(in_doubt[u]) << "unit " << u;
      }
    }
  }
  // The power is back: whatever is there now, stays.
  void after_cut() {
    for (Unit& unit : units_) unit.changed = false;
  }

 private:
  static constexpr Nanos kNever{INT64_MAX};
  struct Unit {
    bool changed = false;
    bool written = false;
    bool trimmed = false;
    bool vague = false;
    Nanos submitted;
    Nanos answered;
    Nanos busy;            // the last answer of all
    Nanos safe = kNever;   // from then on
    bool flushed = false;  // a flush has come since
  };

  [[nodiscard]] bool is_lost(const Unit& unit, Nanos now) const {
    if (unit.answered > now) return true;
    if (protection_) return false;
    if (unit.trimmed) return !unit.flushed;
    return now < unit.submitted + quickest_;
  }

  std::vector<Unit> units_;
  bool protection_;
  Nanos quickest_;
};

SsdParameters some_parameters(Prng& random) {
  SsdParameters p = parameters();
  p.geometry.page = 4_KiB * static_cast<std::int64_t>(1 + random.below(4));
  p.geometry.capacity = 1_MiB;
  p.geometry.pages_per_block = static_cast<std::int64_t>(2 + random.below(7));
  p.geometry.allocation = random.below(3) == 0 ? "global" : "per_die";
  p.geometry.dies_per_channel = static_cast<std::int64_t>(1 + random.below(2));
  p.geometry.overprovision_ratio = 0.6 + static_cast<double>(random.below(10)) / 5.0;
  p.write_buffer = p.geometry.page * static_cast<std::int64_t>(4 + random.below(20));
  p.ftl.streams = static_cast<StreamId>(1 + random.below(3));
  p.placement = "id";
  p.ftl.gc_placement = std::array{"mixed", "separate", "by_stream"}[random.below(3)];
  p.ftl.gc_pace = random.below(2) == 0 ? "whole" : "paced";
  p.ftl.victim.policy = std::array{"greedy", "fifo", "d_choices", "cost_benefit"}[random.below(4)];
  p.power_loss_protection = random.below(4) == 0;
  p.slc.cache = random.below(3) == 0 ? 256_KiB : Bytes{0};
  p.background_gc = random.below(2) == 0;
  p.trim.queued = random.below(2) == 0;
  if (random.below(2) == 0) p.slc.policy = "dynamic";
  return p;
}

Request next(Prng& random, std::int64_t units) {
  const std::uint64_t kind = random.below(20);
  const std::int64_t span = random.below(2) == 0 ? units : units / 6;
  const auto n = static_cast<std::int64_t>(1 + random.below(6));
  const auto unit = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(span - n)));
  Request request = write(unit, n);
  if (kind == 0) return flush();
  if (kind < 3) request.op = Op::trim;
  if (kind >= 3 && kind < 7) request.op = Op::read;
  request.fua = kind == 7;
  request.stream = static_cast<StreamId>(random.below(4));
  if (random.below(4) == 0) {  // parts of units
    request.lba = request.lba + Sectors{static_cast<std::int64_t>(random.below(kUnitSectors))};
    const Sectors left = Lba{units * kUnitSectors} - request.lba;
    request.sectors = std::min(left, Sectors{static_cast<std::int64_t>(1 + random.below(20))});
  }
  return request;
}

TEST(SsdPowerCut, AgreesWithALedger) {
  int ran = 0;
  for (std::uint64_t seed = 0; ran < 60 * repeats(); ++seed) {
    Prng random(seed);
    const SsdParameters p = some_parameters(random);
    std::unique_ptr<World> world;
    try {
      world = std::make_unique<World>(p);
    } catch (const OperatingError&) {
      continue;
    }
    ++ran;
    const std::int64_t units = p.geometry.capacity / p.geometry.map_unit;
    const Nanos quickest = p.slc.cache > Bytes{0} ? p.nand.slc_program_page : p.nand.program_page;
    Ledger ledger(static_cast<std::size_t>(units), p.power_loss_protection, quickest);
    const std::array gaps{0_ns, 0_ns, 1_us, 20_us, 300_us, 2_ms, 50_ms};
    for (int i = 0; i < 800; ++i) {
      const Request request = next(random, units);
      const Tag tag = world->submit(request);
      ledger.submit(request, world->now, world->end_of(tag));
      world->now += gaps[random.below(gaps.size())];
      if (random.below(25) != 0) continue;
      const Extents expected = world->ssd.in_doubt(world->now);
      const Extents doubt = world->cut();
      ASSERT_EQ(doubt, expected);
      ledger.expect_agreement(doubt, world->now);
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", step " << i;
      ASSERT_EQ(world->cut(), Extents{});
      ledger.after_cut();
    }
    for (Lpn lpn = 0; lpn < static_cast<Lpn>(units); ++lpn) {
      const Slot slot = world->ssd.ftl().map().find(lpn);
      ASSERT_TRUE(slot == kNoSlot || world->ssd.ftl().map().lpn_at(slot) == lpn);
    }
  }
}

// What could make a difference to it: who asks when.
SsdParameters some_touchy_parameters(Prng& random) {
  SsdParameters p = some_parameters(random);
  p.geometry.channels = static_cast<std::int64_t>(1 + random.below(3));
  p.nand.jitter_ratio = random.below(2) == 0 ? 0.0 : 0.3;
  p.nand.seed = random.next();
  if (random.below(3) == 0) p.command_time = 0_ns;
  p.queue_depth = static_cast<std::uint32_t>(1 + random.below(32));
  return p;
}

// So many drives that exist, each with its seed.
template <class Work>
void on_touchy_drives(int drives, Work work) {
  for (std::uint64_t seed = 0; drives > 0; ++seed) {
    Prng random(seed);
    const SsdParameters p = some_touchy_parameters(random);
    try {
      const World possible(p);
    } catch (const OperatingError&) {
      continue;
    }
    --drives;
    work(p, random);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

template <class Counters>
void expect_same_bytes(const Counters& a, const Counters& b) {
  EXPECT_EQ(std::memcmp(&a, &b, sizeof(Counters)), 0);
}

// Both have been woken at the same time.
void expect_same(const Ssd& a, const Ssd& b) {
  expect_same_bytes(a.counters(), b.counters());
  expect_same_bytes(a.ftl().counters(), b.ftl().counters());
  expect_same_bytes(a.nand().counters(), b.nand().counters());
  for (Lpn lpn = 0; lpn < a.ftl().geometry().lpns(); ++lpn) {
    ASSERT_EQ(a.ftl().map().find(lpn), b.ftl().map().find(lpn)) << "unit " << lpn;
  }
  for (Block block = 0; block < a.ftl().geometry().blocks(); ++block) {
    ASSERT_EQ(a.ftl().blocks().erases(block), b.ftl().blocks().erases(block));
  }
}

constexpr std::array kGaps{0_ns, 0_ns, 10_us, 300_us, 5_ms, 60_ms};

// A late call computes the times of a punctual one, so calls that come for nothing change nothing.
TEST(SsdRandom, ACallForNothingChangesNothing) {
  std::uint64_t copied = 0;
  on_touchy_drives(60 * repeats(), [&](const SsdParameters& p, Prng& random) {
    World punctual(p);
    World nervous(p);
    for (int i = 0; i < 800; ++i) {
      const Request request = next(random, 256);
      ASSERT_EQ(punctual.end_of(punctual.submit(request)), nervous.end_of(nervous.submit(request)))
          << "step " << i;
      const Nanos gap = kGaps[random.below(kGaps.size())];
      for (int call = 0; call < 4; ++call) {
        if (random.below(2) == 0) {
          nervous.ssd.wake(nervous.now);
        } else {
          (void)nervous.ssd.in_doubt(nervous.now);
        }
        nervous.now += gap / 4;
      }
      punctual.now = nervous.now;
    }
    copied += punctual.ssd.ftl().counters().copied_units;
    EXPECT_EQ(punctual.ssd.in_doubt(punctual.now), nervous.ssd.in_doubt(nervous.now));
    if (random.below(2) == 0) {
      EXPECT_EQ(punctual.cut(), nervous.cut());
      return;
    }
    // An operation that begins in a moment may be counted already, or not yet.
    for (World* world : {&punctual, &nervous}) world->ssd.wake(world->now + 1'000_ms);
    expect_same(punctual.ssd, nervous.ssd);
  });
  EXPECT_GT(copied, 1000U);
}

// A page that is on its way to the second die, and one that a flush sends to the first (slow) die
// at the moment at which the other would begin: on the channel the first die goes first.
TEST(SsdRandom, AQuestionLeavesRoomForWhatStillComesAtThatMoment) {
  SsdParameters p = parameters();
  p.geometry.channels = 1;
  p.geometry.dies_per_channel = 2;
  p.command_time = 0_ns;
  p.ftl.streams = 2;
  p.placement = "id";
  for (const bool asks : {false, true}) {
    World world(p);
    world.ssd.slow_die(0, 2000, world.now);
    Request other = write(8, 4);
    other.stream = 1;
    world.takes(other);
    world.now = 10_ms;
    world.takes(write(0));
    other.lba = Lba{16 * kUnitSectors};
    world.now = 20_ms;
    world.submit(other);
    world.now += 16_us;  // all of it is there
    if (asks) {
      EXPECT_EQ(world.ssd.in_doubt(world.now).size(), 2U);
    }
    EXPECT_EQ(world.end_of(world.submit(flush())), world.now + 40_us + 1'000_us);
  }
}

TEST(SsdRandom, AReplayDoesWhatTheLateHostSaw) {
  std::uint64_t copied = 0;
  std::uint64_t ahead = 0;
  std::uint64_t folded = 0;
  on_touchy_drives(60 * repeats(), [&](const SsdParameters& p, Prng& random) {
    const auto make = [&](Host& host) { return std::make_unique<Ssd>(p, host); };
    LateHost late(make, Prng(random.next()));
    for (int i = 0; i < 600; ++i) {
      late.submit(next(random, 256));
      late.pass(kGaps[random.below(kGaps.size())]);
    }
    late.drain();
    Driver driver(make);
    ASSERT_EQ(replay(driver, late), late.times());
    const auto& live = dynamic_cast<const Ssd&>(late.device());
    expect_same(live, dynamic_cast<const Ssd&>(driver.device()));
    copied += live.ftl().counters().copied_units;
    ahead += live.ftl().counters().idle_collections;
    folded += live.counters().folded_pages;
  });
  EXPECT_GT(std::min({copied, ahead, folded}), 100U);
}

// --- jobs

std::unique_ptr<Driver> driver_of(const SsdParameters& p) {
  return std::make_unique<Driver>([&](Host& host) { return std::make_unique<Ssd>(p, host); });
}

JobParameters job(std::uint64_t requests) {
  JobParameters j;
  j.block = 4_KiB;
  j.span = units(0, 1024);
  j.requests = requests;
  return j;
}

host::RunResult run(Driver& driver, const JobParameters& j, Nanos interval = {}) {
  return driver.run(std::span(&j, 1), {true, interval}, Cancel())[0];
}

std::uint64_t count(const host::RunResult& r, Op op) {
  return r.ops[static_cast<std::size_t>(op)].ios;
}

TEST(Job, MixesAsItIsTold) {
  JobParameters j = job(10'000);
  j.read_ratio = 0.5;
  j.trim_ratio = 0.2;
  j.flush_every = 9;
  const host::RunResult r = run(*driver_of(parameters()), j);
  EXPECT_EQ(count(r, Op::flush), 1000U);
  EXPECT_NEAR(static_cast<double>(count(r, Op::read)), 4500, 200);
  EXPECT_NEAR(static_cast<double>(count(r, Op::trim)), 1800, 150);
  EXPECT_EQ(r.rows.size(), 10'000U);
}

TEST(Job, StaysInItsSpan) {
  for (const char* pattern : {"sequential", "random", "hot_cold", "zipf"}) {
    JobParameters j = job(3000);
    j.pattern = pattern;
    j.read_ratio = 1.0;
    j.span = units(100, 50);
    std::set<std::int64_t> seen;
    for (const host::RequestRow& row : run(*driver_of(parameters()), j).rows) {
      EXPECT_TRUE(j.span.contains({row.lba, row.lba + row.sectors}));
      seen.insert(row.lba.index());
    }
    EXPECT_GE(seen.size(), std::string(pattern) == "zipf" ? 20U : 50U) << pattern;
  }
}

TEST(Job, HotDataGetsItsShare) {
  JobParameters j = job(20'000);
  j.pattern = "hot_cold";
  j.read_ratio = 1.0;
  std::uint64_t hot = 0;
  for (const host::RequestRow& row : run(*driver_of(parameters()), j).rows) {
    hot += row.lba < Lba{102 * kUnitSectors} ? 1U : 0U;
  }
  EXPECT_NEAR(static_cast<double>(hot), 18'000, 200);
}

TEST(Driver, KeepsTheDevicesQueueDepth) {
  SsdParameters p = parameters();
  p.queue_depth = 1;
  const auto one = driver_of(p);
  JobParameters j = job(200);
  j.read_ratio = 1.0;
  j.depth = 4;
  const host::RunResult r = run(*one, j);
  // One at a time (nothing is mapped: 16 us each), and each waits for the three before it.
  EXPECT_EQ(r.end - r.begin, 16_us * 200);
  EXPECT_EQ(r.rows.back().latency, 16_us * 4);
}

TEST(Driver, AnOpenLoopDoesNotWaitForAnswers) {
  JobParameters j = job(100);
  j.read_ratio = 1.0;
  j.interval = 2_us;
  j.depth = 1;
  const host::RunResult r = run(*driver_of(parameters()), j);
  EXPECT_EQ(r.rows.size(), 100U);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(r.rows[i].submitted, 2_us * static_cast<std::int64_t>(i + 1));
  }
  // The firmware takes 5 us each: the last one waits behind all others, part of it in the host.
  EXPECT_EQ(r.rows.back().submitted + r.rows.back().latency, 2_us + 5_us * 100 + 11_us);
}

TEST(Driver, AJobEndsWithItsDuration) {
  JobParameters j = job(0);
  j.read_ratio = 1.0;
  j.duration = 1_ms;
  const host::RunResult r = run(*driver_of(parameters()), j);
  EXPECT_EQ(count(r, Op::read), 63U);  // one every 16 us, the last before 1 ms
}

TEST(Driver, CountsByInterval) {
  JobParameters j = job(200);
  j.read_ratio = 1.0;
  const host::RunResult r = run(*driver_of(parameters()), j, 160_us);
  ASSERT_EQ(r.intervals.size(), 21U);
  EXPECT_EQ(r.intervals[0].ios, 9U);  // those that ended before its end
  EXPECT_EQ(r.intervals[5].ios, 10U);
  EXPECT_EQ(r.intervals[20].ios, 1U);
  EXPECT_EQ(r.intervals[5].latency_max, 16_us);
}

TEST(Driver, ACancelledRunLeavesADeviceThatWorks) {
  const auto driver = driver_of(parameters());
  Cancel cancel;
  cancel.raise();
  JobParameters j = job(100'000);
  j.depth = 64;
  EXPECT_THROW(driver->run(std::span(&j, 1), {}, cancel), OperatingError);
  EXPECT_EQ(count(run(*driver, job(50)), Op::write), 50U);
}

}  // namespace test_ssd
}  // namespace flashlab::flash
