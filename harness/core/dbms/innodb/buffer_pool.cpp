#include "dbms/innodb/buffer_pool.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::dbms::innodb {

namespace {

constexpr std::uint32_t kLeastFrames = 64;

// BUF_LRU_OLD_RATIO_DIV, and what innodb_old_blocks_pct's 37 % are of it.
constexpr std::uint32_t kWhole = 1024;
constexpr std::uint32_t kOld = 37 * kWhole / 100;

std::uint32_t part(std::uint32_t frames, std::uint32_t of, std::uint32_t whole) {
  return static_cast<std::uint32_t>(std::uint64_t{frames} * of / whole);
}

}  // namespace

BufferPool::BufferPool(std::uint32_t frames, PageId most_pages, Nanos old_time)
    : old_time_(old_time), stays_young_(part(frames, kWhole - kOld, 4 * kWhole)) {
  require(frames >= kLeastFrames, "buffer pool: at least 64 pages");
  frames_.resize(frames);
  where_.assign(most_pages, kNone);
  free_.reserve(frames);
  for (FrameId frame = frames; frame-- > 0;) free_.push_back(frame);
}

FrameId BufferPool::add(PageId page, bool is_made) {
  FLASHLAB_CHECK(where_[page] == kNone);
  if (free_.empty()) return kNone;
  const FrameId frame = free_.back();
  free_.pop_back();
  frames_[frame] = Frame{};
  frames_[frame].page = page;
  where_[page] = frame;
  if (is_made) {
    link_newest(frame);
  } else {
    link_old(frame);
  }
  ++listed_;
  balance();
  return frame;
}

void BufferPool::use(FrameId frame, Nanos now) {
  Frame& f = frames_[frame];
  f.first_used = std::min(f.first_used, now);
  if (!is_too_old(f, now)) return;
  unlink(frame);
  link_newest(frame);
  balance();
}

bool BufferPool::is_too_old(const Frame& f, Nanos now) const {
  if (evictions_ == 0) return false;
  if (f.old) return now - f.first_used >= old_time_;
  return evictions_ - f.evictions >= stays_young_;
}

void BufferPool::evict(FrameId frame) {
  Frame& f = frames_[frame];
  FLASHLAB_CHECK(!f.dirty() && !f.busy());
  unlink(frame);
  --listed_;
  ++evictions_;
  where_[f.page] = kNone;
  free_.push_back(frame);
  balance();
}

void BufferPool::dirty(FrameId frame, Lsn lsn) {
  Frame& f = frames_[frame];
  if (f.dirty()) return;
  f.oldest = lsn;
  f.dirtied_earlier = last_dirtied_;
  f.dirtied_later = kNone;
  (last_dirtied_ == kNone ? first_dirtied_ : frames_[last_dirtied_].dirtied_later) = frame;
  last_dirtied_ = frame;
  ++dirty_;
}

void BufferPool::clean(FrameId frame) {
  Frame& f = frames_[frame];
  FLASHLAB_CHECK(f.dirty());
  (f.dirtied_earlier == kNone ? first_dirtied_ : frames_[f.dirtied_earlier].dirtied_later) =
      f.dirtied_later;
  (f.dirtied_later == kNone ? last_dirtied_ : frames_[f.dirtied_later].dirtied_earlier) =
      f.dirtied_earlier;
  f.oldest = 0;
  --dirty_;
}

void BufferPool::unlink(FrameId frame) {
  Frame& f = frames_[frame];
  if (old_head_ == frame) old_head_ = f.older;
  if (f.old) --old_count_;
  (f.newer == kNone ? newest_ : frames_[f.newer].older) = f.older;
  (f.older == kNone ? oldest_ : frames_[f.older].newer) = f.newer;
  f.newer = f.older = kNone;
}

void BufferPool::link_newest(FrameId frame) {
  Frame& f = frames_[frame];
  f.old = false;
  f.evictions = evictions_;
  f.newer = kNone;
  f.older = newest_;
  (newest_ == kNone ? oldest_ : frames_[newest_].newer) = frame;
  newest_ = frame;
}

// At the head of the old part; below the last young page if there is no old part.
void BufferPool::link_old(FrameId frame) {
  Frame& f = frames_[frame];
  f.old = true;
  f.older = old_head_;
  f.newer = old_head_ == kNone ? oldest_ : frames_[old_head_].newer;
  (f.newer == kNone ? newest_ : frames_[f.newer].older) = frame;
  (f.older == kNone ? oldest_ : frames_[f.older].newer) = frame;
  old_head_ = frame;
  ++old_count_;
}

// Moves the border until the old part has its share of what is listed, give or take one page.
void BufferPool::balance() {
  const std::uint32_t wanted = part(listed_, kOld, kWhole);
  while (old_count_ > wanted + 1) {
    frames_[old_head_].old = false;
    old_head_ = frames_[old_head_].older;
    --old_count_;
  }
  while (old_count_ + 1 < wanted) {
    old_head_ = old_head_ == kNone ? oldest_ : frames_[old_head_].newer;
    frames_[old_head_].old = true;
    ++old_count_;
  }
}

}  // namespace flashlab::dbms::innodb
