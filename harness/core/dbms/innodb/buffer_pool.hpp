// InnoDB's buffer pool: which pages are in memory, who goes next, what is dirty since when.
//
//  - LRU list in two parts: a page that is read in enters at the head of the old part (37 % of the
//    list, innodb_old_blocks_pct), one that is made at the head of the list. An old page becomes
//    young when it is used so long after its first use (innodb_old_blocks_time). A young page moves
//    to the head only if as many pages have been evicted since it last did as a quarter of the
//    young part has: 16 % of the pool. Before the first eviction nothing moves
//    (buf_page_peek_if_too_old, buf_page_peek_if_young).
//  - Flush list: dirty pages in the order in which they became dirty.
//
// Mechanism only: whoever uses it decides when to evict and flush, and does the I/O.
// Source: MySQL 5.6 and MariaDB 10.11, buf0lru.cc, buf0buf.ic, buf0flu.cc. Left out: that a list of
// fewer than 512 pages has no old part, and that this is 20 pages off before it is set right
// (BUF_LRU_OLD_MIN_LEN, BUF_LRU_OLD_TOLERANCE: absolute numbers, where here the pool shrinks with
// the rest); read-ahead, instances.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/prefetch.hpp"
#include "base/units.hpp"
#include "dbms/tpcc/tables.hpp"

namespace flashlab::dbms::innodb {

using tpcc::PageId;
using Lsn = std::uint64_t;
using FrameId = std::uint32_t;

inline constexpr FrameId kNone = std::numeric_limits<FrameId>::max();
inline constexpr Nanos kNever{std::numeric_limits<std::int64_t>::max()};

struct Frame {
  PageId page = 0;
  FrameId newer = kNone;  // in the LRU list
  FrameId older = kNone;
  FrameId dirtied_later = kNone;  // in the flush list
  FrameId dirtied_earlier = kNone;
  std::uint32_t evictions = 0;  // of the pool, when the page last moved to the head
  Lsn oldest = 0;               // of the changes that are not flushed; 0: clean
  Nanos first_used = kNever;
  bool reading = false;
  bool writing = false;
  bool old = false;

  [[nodiscard]] bool dirty() const { return oldest != 0; }
  [[nodiscard]] bool busy() const { return reading || writing; }
};

class BufferPool {
 public:
  // `old_time`: of an old page between its first use and the one that makes it young. Throws
  // OperatingError for a pool of fewer than 64 frames.
  BufferPool(std::uint32_t frames, PageId most_pages, Nanos old_time);

  [[nodiscard]] FrameId find(PageId page) const { return where_[page]; }
  [[nodiscard]] Frame& at(FrameId frame) { return frames_[frame]; }
  // Hints, for the speed of the simulation.
  void expect_place(PageId page) const { prefetch(&where_[page]); }
  void expect(FrameId frame) const { prefetch(&frames_[frame]); }

  // Puts the page into a free frame, as old or, one that is made, as young; kNone if there is none.
  FrameId add(PageId page, bool is_made = false);
  // The page in it was used.
  void use(FrameId frame, Nanos now);
  // Clean, and nobody reads or writes it.
  void evict(FrameId frame);
  void dirty(FrameId frame, Lsn lsn);
  void clean(FrameId frame);

  // The least recently used frame, and from there on to newer ones.
  [[nodiscard]] FrameId oldest() const { return oldest_; }
  // The frame that was dirtied first, and from there on to later ones.
  [[nodiscard]] FrameId first_dirtied() const { return first_dirtied_; }
  [[nodiscard]] std::uint32_t dirty_frames() const { return dirty_; }
  [[nodiscard]] std::uint32_t free_frames() const {
    return static_cast<std::uint32_t>(free_.size());
  }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(frames_.size()); }

 private:
  void unlink(FrameId frame);
  void link_newest(FrameId frame);
  void link_old(FrameId frame);
  [[nodiscard]] bool is_too_old(const Frame& frame, Nanos now) const;
  void balance();

  Nanos old_time_;
  std::uint32_t stays_young_;  // while fewer have been evicted
  std::vector<Frame> frames_;
  std::vector<FrameId> where_;  // by page
  std::vector<FrameId> free_;
  FrameId newest_ = kNone;
  FrameId oldest_ = kNone;
  FrameId old_head_ = kNone;  // the newest one of the old part
  std::uint32_t old_count_ = 0;
  std::uint32_t listed_ = 0;
  std::uint32_t evictions_ = 0;
  FrameId first_dirtied_ = kNone;
  FrameId last_dirtied_ = kNone;
  std::uint32_t dirty_ = 0;
};

}  // namespace flashlab::dbms::innodb
