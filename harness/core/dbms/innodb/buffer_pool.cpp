#include "dbms/innodb/buffer_pool.hpp"

#include "base/check.hpp"

namespace flashlab::dbms::innodb {

namespace {

constexpr std::uint32_t kLeastFrames = 64;

std::uint32_t old_part(std::uint32_t frames) {
  return static_cast<std::uint32_t>(std::uint64_t{frames} * 3 / 8);
}

}  // namespace

BufferPool::BufferPool(std::uint32_t frames, PageId most_pages) {
  require(frames >= kLeastFrames, "buffer pool: at least 64 pages");
  frames_.resize(frames);
  where_.assign(most_pages, kNone);
  free_.reserve(frames);
  for (FrameId frame = frames; frame-- > 0;) free_.push_back(frame);
}

FrameId BufferPool::add(PageId page) {
  FLASHLAB_CHECK(where_[page] == kNone);
  if (free_.empty()) return kNone;
  const FrameId frame = free_.back();
  free_.pop_back();
  frames_[frame] = Frame{};
  frames_[frame].page = page;
  where_[page] = frame;
  link_old(frame);
  ++listed_;
  balance();
  return frame;
}

void BufferPool::use(FrameId frame) {
  Frame& f = frames_[frame];
  const bool recent = !f.old && evictions_ - f.evictions <= size() / 4;
  if (recent) return;
  unlink(frame);
  link_newest(frame);
  f.evictions = evictions_;
  balance();
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
  const std::uint32_t wanted = old_part(listed_);
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
