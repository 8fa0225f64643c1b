#include <gtest/gtest.h>

#include <set>

#include "base/prng.hpp"
#include "disk/dirty_set.hpp"

namespace flashlab::disk {
namespace {

Extent extent(std::int64_t begin, std::int64_t n) { return {Lba{begin}, Lba{begin + n}}; }

TEST(DirtySet, MergesWhatTouches) {
  DirtySet dirty;
  dirty.insert(extent(100, 10));
  dirty.insert(extent(120, 10));
  dirty.insert(extent(110, 10));
  const auto all = dirty.take(Lba{0}, Sectors{1000});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->begin, Lba{100});
  EXPECT_EQ(all->end, Lba{130});
  EXPECT_TRUE(dirty.empty());
}

TEST(DirtySet, SweepsUpwardsThenStartsAgain) {
  DirtySet dirty;
  for (const std::int64_t lba : {10, 500, 900}) dirty.insert(extent(lba, 5));
  EXPECT_EQ(dirty.take(Lba{300}, Sectors{100})->begin, Lba{500});
  EXPECT_EQ(dirty.take(Lba{505}, Sectors{100})->begin, Lba{900});
  EXPECT_EQ(dirty.take(Lba{905}, Sectors{100})->begin, Lba{10});
  EXPECT_FALSE(dirty.take(Lba{0}, Sectors{100}));
}

TEST(DirtySet, TakesNoMoreThanAsked) {
  DirtySet dirty;
  dirty.insert(extent(0, 100));
  EXPECT_EQ(dirty.take(Lba{0}, Sectors{30})->length(), Sectors{30});
  EXPECT_EQ(dirty.bytes(), Bytes{70 * 512});
}

// The reference is a set of sectors: slow, and obvious.
TEST(DirtySet, EqualsASetOfSectors) {
  Prng random(7);
  DirtySet dirty;
  std::set<std::int64_t> plain;
  for (int step = 0; step < 20'000; ++step) {
    const auto begin = static_cast<std::int64_t>(random.below(2000));
    const auto n = 1 + static_cast<std::int64_t>(random.below(40));
    std::int64_t missing = 0;
    for (std::int64_t s = begin; s < begin + n; ++s) missing += plain.contains(s) ? 0 : 1;
    ASSERT_EQ(dirty.missing(extent(begin, n)).count(), missing);
    ASSERT_EQ(dirty.contains(extent(begin, n)), missing == 0);
    if (random.below(3) != 0) {
      dirty.insert(extent(begin, n));
      for (std::int64_t s = begin; s < begin + n; ++s) plain.insert(s);
    } else if (const auto taken = dirty.take(Lba{begin}, Sectors{n})) {
      ASSERT_LE(taken->length().count(), n);
      for (std::int64_t s = taken->begin.index(); s < taken->end.index(); ++s) {
        ASSERT_EQ(plain.erase(s), 1U);
      }
    }
    ASSERT_EQ(dirty.bytes().count(), static_cast<std::int64_t>(plain.size()) * 512);
    ASSERT_EQ(dirty.empty(), plain.empty());
  }
}

}  // namespace
}  // namespace flashlab::disk
