#include <gtest/gtest.h>

#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "kernel/ext4/groups.hpp"
#include "repeat.hpp"

namespace flashlab::kernel::ext4 {
namespace test_ext4_groups {

using Piece = Run;  // Run is a name of GoogleTest's

// One flag per block, and every question answered by looking at all of them.
class Bitmap {
 public:
  Bitmap(std::int64_t blocks, std::int64_t per_group)
      : free_(static_cast<std::size_t>(blocks), true), per_group_(per_group) {}

  [[nodiscard]] std::int64_t blocks() const { return static_cast<std::int64_t>(free_.size()); }
  [[nodiscard]] bool free(BlockNumber block) const {
    return free_[static_cast<std::size_t>(block)];
  }
  void set(const Piece& run, bool free) {
    for (BlockNumber b = run.begin; b < run.end(); ++b) free_[static_cast<std::size_t>(b)] = free;
  }
  [[nodiscard]] BlockNumber begin(GroupNumber group) const { return group * per_group_; }
  [[nodiscard]] BlockNumber end(GroupNumber group) const {
    return std::min((group + 1) * per_group_, blocks());
  }
  [[nodiscard]] std::vector<Piece> runs(GroupNumber group) const {
    std::vector<Piece> runs;
    for (BlockNumber block = begin(group); block < end(group); ++block) {
      if (!free(block)) continue;
      if (!runs.empty() && runs.back().end() == block) {
        ++runs.back().blocks;
      } else {
        runs.push_back({block, 1});
      }
    }
    return runs;
  }
  [[nodiscard]] int largest_order(GroupNumber group) const {
    for (int order = Groups::kOrders - 1; order >= 0; --order) {
      const std::int64_t length = std::int64_t{1} << order;
      for (BlockNumber b = begin(group); b + length <= end(group); b += length) {
        if (all({b, length}, true)) return order;
      }
    }
    return -1;
  }
  [[nodiscard]] std::int64_t free_from(BlockNumber block, std::int64_t wanted) const {
    const BlockNumber border = end(block / per_group_);
    std::int64_t n = 0;
    while (n < wanted && block + n < border && free(block + n)) ++n;
    return n;
  }
  [[nodiscard]] bool all(const Piece& run, bool free) const {
    for (BlockNumber b = run.begin; b < run.end(); ++b) {
      if (this->free(b) != free) return false;
    }
    return true;
  }

 private:
  std::vector<bool> free_;
  std::int64_t per_group_;
};

void expect_equal(const Groups& groups, const Bitmap& bitmap) {
  std::int64_t all = 0;
  for (GroupNumber group = 0; group < groups.count(); ++group) {
    const std::vector<Piece> runs = bitmap.runs(group);
    ASSERT_EQ(groups.runs(group), runs);
    std::int64_t free = 0;
    for (const Piece& run : runs) free += run.blocks;
    ASSERT_EQ(groups.free_in(group), free);
    ASSERT_EQ(groups.largest_order(group), bitmap.largest_order(group));
    all += free;
  }
  ASSERT_EQ(groups.free_blocks(), all);
}

TEST(Ext4GroupsRandom, AreABitmap) {
  for (int repeat = 0; repeat < repeats(); ++repeat) {
    Prng random(static_cast<std::uint64_t>(repeat));
    constexpr std::int64_t kBlocks = 3 * 64 + 21;  // the last group is shorter
    constexpr std::int64_t kPerGroup = 64;
    Groups groups(kBlocks, kPerGroup);
    Bitmap bitmap(kBlocks, kPerGroup);
    ASSERT_EQ(groups.count(), 4);
    for (int step = 0; step < 3000; ++step) {
      const auto begin = static_cast<BlockNumber>(random.below(kBlocks));
      const BlockNumber border = bitmap.end(begin / kPerGroup);
      const auto blocks = 1 + static_cast<std::int64_t>(random.below(12));
      const Piece run{begin, std::min(blocks, border - begin)};
      ASSERT_EQ(groups.free_from(begin, blocks), bitmap.free_from(begin, blocks));
      if (bitmap.all(run, true)) {
        groups.take(run);
        bitmap.set(run, false);
      } else if (bitmap.all(run, false)) {
        groups.give_back(run);
        bitmap.set(run, true);
      } else {
        ASSERT_THROW(groups.take(run), Bug);
        ASSERT_THROW(groups.give_back(run), Bug);
      }
      ASSERT_NO_FATAL_FAILURE(expect_equal(groups, bitmap));
    }
  }
}

TEST(Ext4Groups, ARunEndsAtItsGroupsBorder) {
  Groups groups(96, 32);
  EXPECT_EQ(groups.free_from(30, 10), 2);
  EXPECT_EQ(groups.runs(1), (std::vector<Piece>{{32, 32}}));
  EXPECT_THROW(groups.take({30, 4}), Bug);
  groups.take({30, 2});
  groups.take({32, 2});
  EXPECT_THROW(groups.give_back({30, 4}), Bug);
  groups.give_back({30, 2});
  groups.give_back({32, 2});
  EXPECT_EQ(groups.runs(0), (std::vector<Piece>{{0, 32}}));
  EXPECT_EQ(groups.runs(1), (std::vector<Piece>{{32, 32}}));
}

TEST(Ext4Groups, NothingIsTakenOrGivenBackTwice) {
  Groups groups(64, 32);
  EXPECT_THROW(groups.give_back({3, 1}), Bug);
  groups.take({3, 5});
  EXPECT_THROW(groups.take({7, 1}), Bug);
  EXPECT_THROW(groups.take({2, 2}), Bug);
  EXPECT_THROW(groups.take({9, 0}), Bug);
  EXPECT_THROW(groups.give_back({7, 2}), Bug);
  EXPECT_THROW(groups.give_back({2, 2}), Bug);
  EXPECT_THROW(groups.give_back({3, 0}), Bug);
  EXPECT_EQ(groups.free_blocks(), 59);
}

TEST(Ext4Groups, AChunkIsAPowerOfTwoAtAMultipleOfItsLength) {
  EXPECT_EQ(chunk_order(32, 8, 0), 3);
  EXPECT_EQ(chunk_order(36, 64, 0), 2);
  EXPECT_EQ(chunk_order(36, 64, 36), 6);  // counted from the group's begin
  EXPECT_EQ(chunk_order(33, 64, 0), 0);
  EXPECT_EQ(chunk_order(0, 32'768, 0), Groups::kOrders - 1);
  EXPECT_EQ(Groups(32'768, 32'768).largest_order(0), Groups::kOrders - 1);
}

}  // namespace test_ext4_groups
}  // namespace flashlab::kernel::ext4
