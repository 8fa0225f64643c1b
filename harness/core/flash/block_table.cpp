#include "flash/block_table.hpp"

#include <algorithm>

namespace flashlab::flash {

BlockTable::BlockTable(const Geometry& geometry)
    : blocks_per_group_(geometry.blocks_per_group()),
      pages_per_block_(geometry.pages_per_block()),
      free_(geometry.groups()),
      pages_open_(geometry.blocks()),
      closed_at_(geometry.blocks()),
      erases_(geometry.blocks()),
      stream_(geometry.blocks()) {
  for (Block block = 0; block < geometry.blocks(); ++block) {
    free_[geometry.group_of(block)].push_back(block);
  }
}

Block BlockTable::open(Group group, std::uint16_t stream) {
  FLASHLAB_CHECK(!free_[group].empty());
  const Block block = free_[group].front();
  free_[group].pop_front();
  pages_open_[block] = pages_per_block_;
  stream_[block] = stream;
  return block;
}

void BlockTable::erase(Block block) {
  FLASHLAB_CHECK(is_closed(block));
  closed_at_[block] = 0;
  ++erases_[block];
  free_[block / blocks_per_group_].push_back(block);
}

// Ages are counted in closings of all groups, which close blocks at the same rate.
void BlockTable::adopt(const BlockTable& one, Group group) {
  const Block first = group * blocks_per_group_;
  const std::uint64_t groups = free_.size();
  closings_ = std::max(closings_, one.closings_ * groups);
  free_[group].clear();
  for (const Block block : one.free_[0]) free_[group].push_back(first + block);
  for (Block block = 0; block < blocks_per_group_; ++block) {
    pages_open_[first + block] = one.pages_open_[block];
    stream_[first + block] = one.stream_[block];
    closed_at_[first + block] = one.closed_at_[block] * groups;
  }
}

std::span<const std::uint64_t> BlockTable::closed_at(Group group) const {
  return std::span(closed_at_).subspan(std::size_t{group} * blocks_per_group_, blocks_per_group_);
}

void BlockTable::archive(Archive& a) {
  for (std::deque<Block>& group : free_) a.one(group);
  a.all(pages_open_, closed_at_, erases_, stream_, closings_);
}

}  // namespace flashlab::flash
