// The free space of an ext4 file system: block groups, each with its free runs, looked at as the
// kernel's allocator looks at them, in chunks of a buddy system (fs/ext4/mballoc.c).
//
// A chunk is a power of two of blocks at a multiple of its own length; a free run is made of the
// largest chunks that fit. Blocks are counted over the whole file system; no run crosses a group's
// border.
#pragma once

#include <cstdint>
#include <vector>

namespace flashlab::kernel::ext4 {

using BlockNumber = std::int64_t;
using GroupNumber = std::int64_t;

struct Run {  // [begin, begin + blocks)
  BlockNumber begin = 0;
  std::int64_t blocks = 0;
  [[nodiscard]] BlockNumber end() const { return begin + blocks; }
  friend bool operator==(const Run&, const Run&) = default;
};

class Groups {
 public:
  static constexpr int kOrders = 14;  // chunks of 1 to 8,192 blocks

  // All blocks are free. The last group may be shorter than the others.
  Groups(std::int64_t blocks, std::int64_t blocks_per_group);

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(groups_.size()); }
  [[nodiscard]] std::int64_t blocks_per_group() const { return per_group_; }
  [[nodiscard]] std::int64_t free_blocks() const { return free_; }
  [[nodiscard]] GroupNumber group_of(BlockNumber block) const { return block / per_group_; }
  [[nodiscard]] std::int64_t free_in(GroupNumber group) const { return groups_[at(group)].free; }
  // Free runs, ascending.
  [[nodiscard]] const std::vector<Run>& runs(GroupNumber group) const {
    return groups_[at(group)].runs;
  }
  // Of the largest free chunk; -1: there is none.
  [[nodiscard]] int largest_order(GroupNumber group) const;
  // How many blocks from there on are free, of at most `wanted`.
  [[nodiscard]] std::int64_t free_from(BlockNumber block, std::int64_t wanted) const;

  // The run must be free, or used, as a whole.
  void take(const Run& run);
  void give_back(const Run& run);

 private:
  struct Group {
    std::vector<Run> runs;
    std::int64_t free = 0;
    mutable int largest = -1;
    mutable bool known = false;
  };
  static std::size_t at(std::int64_t n) { return static_cast<std::size_t>(n); }

  std::int64_t per_group_;
  std::int64_t free_ = 0;
  std::vector<Group> groups_;
};

// Order of the chunk with which a free run begins, at `begin` of a group that begins at `base`.
int chunk_order(BlockNumber begin, std::int64_t blocks, BlockNumber base);

}  // namespace flashlab::kernel::ext4
