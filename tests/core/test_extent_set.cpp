#include <gtest/gtest.h>

#include <set>

#include "base/extent_set.hpp"
#include "base/prng.hpp"

namespace flashlab {
namespace test_extent_set {

Extent extent(std::int64_t begin, std::int64_t n) { return {Lba{begin}, Lba{begin + n}}; }

using Extents = std::vector<Extent>;
using Plain = std::set<std::int64_t>;

TEST(ExtentSet, MergesWhatTouches) {
  ExtentSet set;
  set.insert(extent(100, 10));
  set.insert(extent(120, 10));
  set.insert(extent(110, 10));
  EXPECT_EQ(set.extents(), Extents{extent(100, 30)});
}

TEST(ExtentSet, SweepsUpwardsThenStartsAgain) {
  ExtentSet set;
  for (const std::int64_t lba : {10, 500, 900}) set.insert(extent(lba, 5));
  EXPECT_EQ(set.take(Lba{300}, Sectors{100})->begin, Lba{500});
  EXPECT_EQ(set.take(Lba{505}, Sectors{100})->begin, Lba{900});
  EXPECT_EQ(set.take(Lba{905}, Sectors{100})->begin, Lba{10});
  EXPECT_FALSE(set.take(Lba{0}, Sectors{100}));
}

TEST(ExtentSet, TakesAnExtentFromItsStart) {
  ExtentSet set;
  set.insert(extent(100, 100));
  set.insert(extent(300, 100));
  EXPECT_EQ(set.take(Lba{150}, Sectors{1000}), extent(100, 100));
}

TEST(ExtentSet, TakesNoMoreThanAsked) {
  ExtentSet set;
  set.insert(extent(0, 100));
  EXPECT_EQ(set.take(Lba{0}, Sectors{30})->length(), Sectors{30});
  EXPECT_EQ(set.bytes(), Bytes{70 * 512});
}

TEST(ExtentSet, ErasesTheMiddleOfAnExtent) {
  ExtentSet set;
  set.insert(extent(0, 100));
  set.erase(extent(40, 20));
  EXPECT_EQ(set.extents(), (Extents{extent(0, 40), extent(60, 40)}));
  EXPECT_EQ(set.bytes(), Bytes{80 * 512});
}

TEST(ExtentSet, AnEmptyExtentChangesNothing) {
  ExtentSet set;
  set.insert(extent(7, 0));
  EXPECT_TRUE(set.empty());
  set.insert(extent(0, 10));
  set.erase(extent(5, 0));
  EXPECT_EQ(set.extents(), Extents{extent(0, 10)});
}

TEST(ExtentSet, ForgetsAll) {
  ExtentSet set;
  set.insert(extent(0, 100));
  set.clear();
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.bytes(), Bytes{0});
}

Extents runs_of(const Plain& plain) {
  Extents runs;
  for (const std::int64_t sector : plain) {
    if (runs.empty() || runs.back().end != Lba{sector}) runs.push_back(extent(sector, 0));
    runs.back().end = Lba{sector + 1};
  }
  return runs;
}

Plain between(const Plain& plain, const Extent& e) {
  return {plain.lower_bound(e.begin.index()), plain.lower_bound(e.end.index())};
}

ExtentSet saved_and_restored(ExtentSet& set) {
  std::vector<std::byte> bytes;
  Archive save = Archive::saving(bytes);
  set.archive(save);
  ExtentSet restored;
  restored.insert(extent(3, 4));  // what was there before does not survive
  Archive restore = Archive::restoring(bytes);
  restored.archive(restore);
  EXPECT_TRUE(restore.at_end());
  return restored;
}

// The reference is a set of sectors: slow, and obvious.
TEST(ExtentSet, EqualsASetOfSectors) {
  Prng random(7);
  ExtentSet set;
  Plain plain;
  for (int step = 0; step < 20'000; ++step) {
    const auto begin = static_cast<std::int64_t>(random.below(2000));
    const auto n = 1 + static_cast<std::int64_t>(random.below(40));
    const Extent here = extent(begin, n);
    const Plain common = between(plain, here);
    ASSERT_EQ(set.missing(here).count(), n - static_cast<std::int64_t>(common.size()));
    ASSERT_EQ(set.contains(here), std::cmp_equal(common.size(), n));
    ASSERT_EQ(set.overlapping(here), runs_of(common));
    const std::uint64_t action = random.below(5);
    if (action < 3) {
      set.insert(here);
      for (std::int64_t s = begin; s < begin + n; ++s) plain.insert(s);
    } else if (action == 3) {
      set.erase(here);
      for (const std::int64_t s : common) plain.erase(s);
    } else if (const auto taken = set.take(Lba{begin}, Sectors{n})) {
      ASSERT_LE(taken->length().count(), n);
      for (std::int64_t s = taken->begin.index(); s < taken->end.index(); ++s) {
        ASSERT_EQ(plain.erase(s), 1U);
      }
    }
    ASSERT_EQ(set.bytes().count(), static_cast<std::int64_t>(plain.size()) * 512);
    ASSERT_EQ(set.empty(), plain.empty());
    if (step % 100 != 0) continue;
    ASSERT_EQ(set.extents(), runs_of(plain));
    set = saved_and_restored(set);
    ASSERT_EQ(set.extents(), runs_of(plain));
    ASSERT_EQ(set.bytes().count(), static_cast<std::int64_t>(plain.size()) * 512);
  }
}

}  // namespace test_extent_set
}  // namespace flashlab
