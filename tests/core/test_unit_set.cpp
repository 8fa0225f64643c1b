#include <gtest/gtest.h>

#include <vector>

#include "base/extent_set.hpp"
#include "base/prng.hpp"
#include "flash/unit_set.hpp"
#include "ssd_world.hpp"

namespace flashlab::flash {
namespace test_unit_set {

Geometry drive() { return Geometry(parameters().geometry); }

// What was chosen, in whole units.
Extent drawn(Prng& random, const Geometry& geometry) {
  const std::int64_t sectors = to_sectors(geometry.unit()).count();
  const auto begin = static_cast<std::int64_t>(random.below(geometry.lpns()));
  const std::uint64_t most = random.below(4) == 0 ? geometry.lpns() / 2 : 20;
  const auto end = std::min<std::int64_t>(begin + static_cast<std::int64_t>(random.below(most)),
                                          geometry.lpns());
  return {Lba{begin * sectors}, Lba{end * sectors}};
}

TEST(UnitSet, IsASetOfSectors) {
  const Geometry geometry = drive();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Prng random(seed);
    UnitSet set(geometry);
    ExtentSet obvious;
    for (int i = 0; i < 500; ++i) {
      const Extent extent = drawn(random, geometry);
      if (random.below(50) == 0) {
        set.clear();
        obvious.clear();
      } else if (random.below(2) == 0) {
        set.insert(extent);
        obvious.insert(extent);
      } else {
        set.erase(extent);
        obvious.erase(extent);
      }
      ASSERT_EQ(set.extents(), obvious.extents()) << seed << ", step " << i;
      ASSERT_EQ(set.empty(), obvious.empty());
    }
  }
}

TEST(UnitSet, ComesBackFromWhatItSaved) {
  const Geometry geometry = drive();
  Prng random(1);
  UnitSet set(geometry);
  for (int i = 0; i < 20; ++i) set.insert(drawn(random, geometry));
  const auto saved = saved_by([&](Archive& a) { set.archive(a); });
  UnitSet other(geometry);
  other.insert(drawn(random, geometry));
  restore_all(saved, [&](Archive& a) { other.archive(a); });
  EXPECT_EQ(other.extents(), set.extents());
}

TEST(UnitSet, RefusesWhatTheDriveHasNot) {
  const Geometry geometry = drive();
  ExtentSet beyond;
  const Lba end = to_lba(geometry.capacity());
  beyond.insert({end, end + to_sectors(geometry.unit())});
  const auto saved = saved_by([&](Archive& a) { beyond.archive(a); });
  UnitSet set(geometry);
  EXPECT_THROW(restore_all(saved, [&](Archive& a) { set.archive(a); }), OperatingError);
  EXPECT_TRUE(set.empty());
}

}  // namespace test_unit_set
}  // namespace flashlab::flash
