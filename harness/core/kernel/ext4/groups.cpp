#include "kernel/ext4/groups.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace flashlab::kernel::ext4 {

int chunk_order(BlockNumber begin, std::int64_t blocks, BlockNumber base) {
  const auto offset = static_cast<std::uint64_t>(begin - base);
  const int aligned = offset == 0 ? Groups::kOrders - 1 : std::countr_zero(offset);
  const int fitting = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(blocks))) - 1;
  return std::min({aligned, fitting, Groups::kOrders - 1});
}

Groups::Groups(std::int64_t blocks, std::int64_t blocks_per_group) : per_group_(blocks_per_group) {
  for (BlockNumber begin = 0; begin < blocks; begin += per_group_) {
    const std::int64_t length = std::min(per_group_, blocks - begin);
    groups_.push_back({{{begin, length}}, length});
    free_ += length;
  }
}

int Groups::largest_order(GroupNumber number) const {
  const Group& group = groups_[at(number)];
  if (group.known) return group.largest;
  group.largest = -1;
  const BlockNumber base = number * per_group_;
  for (const Run& run : group.runs) {
    // A run of 2^k blocks holds an aligned chunk of 2^(k-1) at least: two orders to try.
    int order = std::min(
        static_cast<int>(std::bit_width(static_cast<std::uint64_t>(run.blocks))) - 1, kOrders - 1);
    while (order > group.largest) {
      const std::int64_t length = std::int64_t{1} << order;
      const std::int64_t offset = run.begin - base;
      const std::int64_t aligned = (offset + length - 1) / length * length;
      if (aligned + length <= offset + run.blocks) group.largest = order;
      --order;
    }
  }
  group.known = true;
  return group.largest;
}

std::int64_t Groups::free_from(BlockNumber block, std::int64_t wanted) const {
  const std::vector<Run>& free = runs(group_of(block));
  auto after = std::upper_bound(free.begin(), free.end(), block,
                                [](BlockNumber b, const Run& run) { return b < run.begin; });
  if (after == free.begin()) return 0;
  const Run& run = *std::prev(after);
  return std::clamp<std::int64_t>(run.end() - block, 0, wanted);
}

void Groups::take(const Run& taken) {
  Group& group = groups_[at(group_of(taken.begin))];
  auto after = std::upper_bound(group.runs.begin(), group.runs.end(), taken.begin,
                                [](BlockNumber b, const Run& run) { return b < run.begin; });
  FLASHLAB_CHECK(after != group.runs.begin());
  const auto run = std::prev(after);
  FLASHLAB_CHECK(taken.blocks > 0 && taken.end() <= run->end());
  const Run left{run->begin, taken.begin - run->begin};
  const Run right{taken.end(), run->end() - taken.end()};
  if (left.blocks > 0 && right.blocks > 0) {
    *run = left;
    group.runs.insert(after, right);
  } else if (left.blocks > 0) {
    *run = left;
  } else if (right.blocks > 0) {
    *run = right;
  } else {
    group.runs.erase(run);
  }
  group.free -= taken.blocks;
  free_ -= taken.blocks;
  group.known = false;
}

void Groups::give_back(const Run& given) {
  const GroupNumber number = group_of(given.begin);
  FLASHLAB_CHECK(given.blocks > 0 && group_of(given.end() - 1) == number);
  Group& group = groups_[at(number)];
  auto after = std::upper_bound(group.runs.begin(), group.runs.end(), given.begin,
                                [](BlockNumber b, const Run& run) { return b < run.begin; });
  FLASHLAB_CHECK(after == group.runs.end() || given.end() <= after->begin);
  FLASHLAB_CHECK(after == group.runs.begin() || std::prev(after)->end() <= given.begin);
  const bool joins_right = after != group.runs.end() && given.end() == after->begin;
  const bool joins_left = after != group.runs.begin() && std::prev(after)->end() == given.begin;
  if (joins_left && joins_right) {
    std::prev(after)->blocks += given.blocks + after->blocks;
    group.runs.erase(after);
  } else if (joins_left) {
    std::prev(after)->blocks += given.blocks;
  } else if (joins_right) {
    after->begin = given.begin;
    after->blocks += given.blocks;
  } else {
    group.runs.insert(after, given);
  }
  group.free += given.blocks;
  free_ += given.blocks;
  group.known = false;
}

}  // namespace flashlab::kernel::ext4
