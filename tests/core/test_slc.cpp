// The dynamic SLC cache in a drive: what enters it leaves it once, and its size follows what is
// mapped. Page by page it is compared with a slow reference in tests/devices/test_slc_reference.py.
#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "ssd_world.hpp"

namespace flashlab::flash {
namespace test_slc {

constexpr Nanos kRest = 100'000_ms;
constexpr Bytes kPage = 16_KiB;

// 4 MiB in units of 4 KiB, pages of four.
SsdParameters dynamic(Bytes cache, double ratio, bool fold_first = false) {
  SsdParameters p = parameters();
  p.slc = {"dynamic", cache, ratio, fold_first};
  return p;
}

// Long after it was asked for anything.
void rest(World& world) {
  world.now += kRest;
  world.ssd.wake(world.now);
}

std::uint64_t left(const World& world) {
  const SlcStatus s = *world.ssd.slc_status();
  return s.folded_idle + s.folded_pressed + s.dropped;
}

TEST(SlcDynamic, AnEmptyDriveTakesItsShareOfTheFreeSpace) {
  World world(dynamic(Bytes{0}, 0.25));
  for (int i = 0; i < 52; ++i) world.takes(write(4 * i, 4));
  // n pages in it, n written: 4 n <= 0.25 (1024 - 4 n)
  EXPECT_EQ(world.ssd.nand().counters().slc_programs, 51U);
  EXPECT_EQ(left(world), 0U);
}

TEST(SlcDynamic, AsTheDriveFillsItShrinks) {
  World world(dynamic(kPage * 2, 0.25));
  for (int i = 0; i < 256; ++i) world.takes(write(4 * i, 4));
  const SlcStatus status = *world.ssd.slc_status();
  EXPECT_EQ(world.ssd.nand().counters().slc_programs - status.folded_pressed, 2U);
  EXPECT_EQ(status.dropped, 0U);
}

TEST(SlcDynamic, WhatIsTrimmedIsNeverProgrammedAgainAndItsRoomComesBack) {
  World world(dynamic(Bytes{0}, 0.25));
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 40; ++i) world.takes(write(4 * i, 4));
    world.takes(trim(0, 160));
    rest(world);
  }
  EXPECT_EQ(world.ssd.nand().counters().slc_programs, 200U);
  EXPECT_EQ(world.ssd.slc_status()->dropped, 200U);
  EXPECT_EQ(world.ssd.counters().folded_pages, 0U);
}

TEST(SlcDynamic, WithoutARestToo) {
  World world(dynamic(kPage * 48, 0.0));
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 40; ++i) world.takes(write(4 * i, 4));
    world.takes(trim(0, 160));
  }
  // A stretch of 16 is given up when there is no room for the next page.
  EXPECT_EQ(world.ssd.nand().counters().slc_programs, 200U);
  EXPECT_EQ(world.ssd.counters().folded_pages, 0U);
}

TEST(SlcDynamic, WhatIsWantedIsFoldedOnceWhenIdle) {
  World world(dynamic(kPage * 40, 0.0));
  for (int i = 0; i < 40; ++i) world.takes(write(4 * i, 4));
  world.takes(write(0, 4));  // past it; the first page is nobody's now
  rest(world);
  EXPECT_EQ(world.ssd.slc_status()->folded_idle, 39U);
  EXPECT_EQ(world.ssd.slc_status()->dropped, 1U);
  rest(world);
  EXPECT_EQ(left(world), 40U);
}

TEST(SlcDynamic, APageOfWhichAPartIsWantedIsFolded) {
  World world(dynamic(kPage * 4, 0.0));
  world.takes(write(0, 4));
  world.takes(trim(0, 3));
  rest(world);
  EXPECT_EQ(world.ssd.slc_status()->folded_idle, 1U);
}

TEST(SlcDynamic, PastAFullCacheIsSlowerAndFoldingFirstSlowerStill) {
  Nanos cached;
  std::array<Nanos, 2> full;
  for (const bool fold_first : {false, true}) {
    World world(dynamic(kPage * 8, 0.0, fold_first));
    for (int i = 0; i < 8; ++i) cached = world.takes(fua(4 * i, 4));
    full[fold_first ? 1 : 0] = world.takes(fua(32, 4));
    EXPECT_EQ(world.ssd.slc_status()->folded_pressed, fold_first ? 1U : 0U);
  }
  EXPECT_EQ(full[0] - cached, 300_us);  // 500 in place of 200
  EXPECT_EQ(full[1] - cached, 50_us + 40_us + 40_us + 500_us);
}

TEST(SlcDynamic, WhatWasCollectedIsInItNoMore) {
  Prng random(3);
  World world(dynamic(kPage * 100, 0.0));
  for (int i = 0; i < 6000; ++i) world.takes(write(static_cast<std::int64_t>(random.below(1000))));
  EXPECT_GT(world.ssd.ftl().counters().erases, 100U);
  rest(world);
  const SlcStatus status = *world.ssd.slc_status();
  EXPECT_EQ(left(world), world.ssd.nand().counters().slc_programs);
  EXPECT_GT(status.dropped, 0U);
}

TEST(SlcDynamic, ASavedDriveGoesOnAsItWould) {
  Prng random(5);
  World world(dynamic(kPage * 8, 0.1));
  World other(dynamic(kPage * 8, 0.1));
  for (int i = 0; i < 500; ++i) world.takes(write(static_cast<std::int64_t>(random.below(900)), 4));
  other.restore(world.saved());
  other.now = world.now;
  for (int i = 0; i < 500; ++i) {
    const auto at = static_cast<std::int64_t>(random.below(900));
    ASSERT_EQ(world.takes(i % 5 == 0 ? trim(at, 4) : write(at, 4)),
              other.takes(i % 5 == 0 ? trim(at, 4) : write(at, 4)));
  }
  rest(world);
  rest(other);
  EXPECT_EQ(left(world), left(other));
  EXPECT_EQ(world.saved(), other.saved());
}

TEST(SlcDynamic, ADriveWithoutHasNothingToSay) {
  World without(parameters());
  EXPECT_FALSE(without.ssd.slc_status());
  SsdParameters p = parameters();
  p.slc.cache = kPage;
  World fixed(p);
  EXPECT_FALSE(fixed.ssd.slc_status());
  p.slc.policy = "elastic";
  EXPECT_THROW(World{p}, OperatingError);
  EXPECT_THROW(World{dynamic(kPage, 1.5)}, OperatingError);
  EXPECT_THROW(World{dynamic(Bytes{-1}, 0.5)}, OperatingError);
}

}  // namespace test_slc
}  // namespace flashlab::flash
