// On-demand read-ahead, as Linux has it since 2.6.23: which window of a file is read in one go.
//
// Modelled from its description (F. Wu, "Sequential file prefetching in Linux", 2010, and the
// comments of the kernel's documentation), in blocks instead of pages:
//  - a first read of a file, or one that goes on where the last one ended, opens a window of a few
//    requests; each following window is twice as large, up to the limit;
//  - the window's last part carries a marker: a read that meets it starts the next window before
//    the reader has to wait for it;
//  - a read that goes on where neither the window nor the last read ended, but whose preceding
//    blocks are cached, is taken for one of several interleaved sequential streams;
//  - any other read is random, and reads what was asked for only.
// Since Linux 6.11 ("readahead: disentangle async and sync readahead", mm/readahead.c) only a
// marker continues a window: what is missed where the next one would begin, its pages being evicted
// or its marker passed over, opens one as small as the first. One state per open file: interleaved
// streams of one file drive each other's out.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flashlab::kernel {

struct ReadWindow {
  std::int64_t begin = 0;  // in blocks
  std::int64_t blocks = 0;
  std::int64_t marked = -1;  // the block that starts the next window; below 0: none
};

class ReadAhead {
 public:
  explicit ReadAhead(bool misses_open = false) : misses_open_(misses_open) {}

  // A block was not cached. `history`: how many blocks right before it are, at most `limit`.
  template <class History>
  ReadWindow missed(std::int64_t block, std::int64_t limit, const History& history) {
    if (limit <= 1) return {block, 1, -1};
    if (block == 0) return opened(block, limit);
    if (!misses_open_ && (block == begin_ + blocks_ || block == marked())) {
      return next(block, limit);
    }
    if (block == last_ || block == last_ + 1) return opened(block, limit);
    const std::int64_t before = history();
    if (before <= 1) return {block, 1, -1};
    begin_ = block;
    blocks_ = std::min((before >= block ? 2 * before : before) + 1, limit);
    ahead_ = 1;
    return window(block, limit);
  }

  // A read met the marker on `block`; `hole` is the first block after it that is not cached.
  ReadWindow met_marker(std::int64_t block, std::int64_t hole, std::int64_t limit) {
    if (block == marked() || (!misses_open_ && block == begin_ + blocks_)) {
      return next(block, limit);
    }
    if (hole - block > limit) return {};
    begin_ = hole;
    blocks_ = grown(hole - block + 1, limit);
    ahead_ = blocks_;
    return window(block, limit);
  }

  // The last block that was read.
  void read(std::int64_t block) { last_ = block; }

 private:
  ReadWindow opened(std::int64_t block, std::int64_t limit) {
    begin_ = block;
    blocks_ = std::min<std::int64_t>(limit >= 32 ? 4 : 2, limit);
    ahead_ = blocks_ - 1;
    return window(block, limit);
  }
  ReadWindow next(std::int64_t block, std::int64_t limit) {
    begin_ += blocks_;
    blocks_ = grown(blocks_, limit);
    ahead_ = blocks_;
    return window(block, limit);
  }
  // A window whose marker is the very block that is read now would be met at once: the next window
  // comes with it.
  ReadWindow window(std::int64_t block, std::int64_t limit) {
    if (!misses_open_ && ahead_ == blocks_ && begin_ == block) {
      ahead_ = grown(blocks_, limit);
      blocks_ += ahead_;
    }
    return {begin_, blocks_, marked()};
  }
  [[nodiscard]] std::int64_t marked() const { return begin_ + blocks_ - ahead_; }
  static std::int64_t grown(std::int64_t blocks, std::int64_t limit) {
    return std::min(blocks < limit / 16 ? 4 * blocks : 2 * blocks, limit);
  }

  bool misses_open_;
  std::int64_t begin_ = -1;
  std::int64_t blocks_ = 0;
  std::int64_t ahead_ = 0;
  std::int64_t last_ = -2;
};

}  // namespace flashlab::kernel
