// What the store held before writes that a power cut may undo.
//
// A block's earlier content is kept from the first write after a flush began until such a flush has
// ended. So after a cut every block in doubt can be given its last content or one that was durable
// or could have become so; blocks are chosen independently, which reorders and tears requests.
//
// Memory is bounded: whoever owns the log drops what the drive itself has made durable meanwhile
// (`keep_only`). A TRIM that frees more than the bound in one piece is not undone.
#pragma once

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/extent.hpp"
#include "base/prng.hpp"
#include "live/store.hpp"

namespace flashlab::live {

class UndoLog {
 public:
  static constexpr std::int64_t kBlockSectors = 8;  // 4 KiB
  static constexpr std::size_t kMostBlocks = 1 << 16;

  UndoLog() { epochs_.emplace_back(&pool_); }

  // The extent is about to be overwritten: saves what is there. Returns 0 or an errno.
  [[nodiscard]] int save(const Extent& extent, const Store& store);
  // A flush begins. What is saved from here on is younger than it.
  std::uint64_t begin_flush();
  // The flush has ended: everything older than it is durable.
  void end_flush(std::uint64_t flush);
  // The write for which that flush was begun is durable, and nothing else: of what was there before
  // no block that the extent touches comes back.
  void end_write(const Extent& extent, std::uint64_t flush);
  // Whether it is time for keep_only().
  [[nodiscard]] bool full() const { return blocks_ > limit_; }
  // Forgets all blocks outside of these extents (ascending): they are durable.
  void keep_only(std::span<const Extent> in_doubt);
  // The power fails: puts an earlier content into about half of the blocks in doubt, and forgets
  // everything. Returns how many sectors got other content than they had, or -1 if the store
  // failed.
  [[nodiscard]] std::int64_t revert(std::span<const Extent> in_doubt, Prng& random, Store& store);
  void clear();
  [[nodiscard]] std::size_t blocks() const { return blocks_; }

 private:
  using Block = std::int64_t;
  using Content = std::pmr::vector<std::byte>;
  using Epoch = std::pmr::unordered_map<Block, Content>;

  [[nodiscard]] std::vector<const Content*> versions(Block block) const;

  // Blocks come and go by the thousand: given back to the system, each costs a page fault again.
  std::pmr::unsynchronized_pool_resource pool_{{.largest_required_pool_block = 4096}};
  std::deque<Epoch> epochs_;  // the last one is open
  std::uint64_t first_ = 0;   // number of the oldest
  std::size_t blocks_ = 0;
  std::size_t limit_ = kMostBlocks;
};

}  // namespace flashlab::live
