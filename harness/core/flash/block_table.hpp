// The life of blocks: free, open (pages are handed out), closed (all pages programmed), erased.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/archive.hpp"
#include "base/check.hpp"
#include "flash/geometry.hpp"

namespace flashlab::flash {

class BlockTable {
 public:
  explicit BlockTable(const Geometry& geometry);

  [[nodiscard]] std::uint32_t free_blocks(Group group) const {
    return static_cast<std::uint32_t>(free_[group].size());
  }
  // Opens the block that has been free for longest: erases spread by themselves.
  Block open(Group group, std::uint16_t stream);
  // Pages of an open block are complete. True if the last one was: the block is closed.
  bool pages_complete(Block block, std::uint32_t pages) {
    FLASHLAB_CHECK(pages_open_[block] >= pages);
    pages_open_[block] -= pages;
    if (pages_open_[block] > 0) return false;
    closed_at_[block] = ++closings_;
    return true;
  }
  void erase(Block block);

  // The blocks of a group become what those of `one`, a table of one group, are; none was used yet.
  void adopt(const BlockTable& one, Group group);

  [[nodiscard]] bool is_closed(Block block) const { return closed_at_[block] != 0; }
  [[nodiscard]] std::uint16_t stream(Block block) const { return stream_[block]; }
  [[nodiscard]] std::uint32_t erases(Block block) const { return erases_[block]; }
  // When each block of a group was closed, counted in closings; 0 unless closed.
  [[nodiscard]] std::span<const std::uint64_t> closed_at(Group group) const;
  [[nodiscard]] std::uint64_t closings() const { return closings_; }

  void archive(Archive& a);

 private:
  std::uint32_t blocks_per_group_;
  std::uint32_t pages_per_block_;
  std::vector<std::deque<Block>> free_;  // by group, longest free first
  std::vector<std::uint32_t> pages_open_;
  std::vector<std::uint64_t> closed_at_;
  std::vector<std::uint32_t> erases_;
  std::vector<std::uint16_t> stream_;
  std::uint64_t closings_ = 0;
};

}  // namespace flashlab::flash
