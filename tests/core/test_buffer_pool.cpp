#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "dbms/innodb/buffer_pool.hpp"
#include "repeat.hpp"

namespace flashlab::dbms::innodb {
namespace test_buffer_pool {

using namespace literals;

constexpr Nanos kOldTime = 1'000_ms;

// The same, slow and obvious: one list of pages, newest first, whose last `old` pages are old.
class NaivePool {
 public:
  explicit NaivePool(std::size_t frames) : frames_(frames) {}

  bool add(PageId page, bool is_made) {
    if (list.size() == frames_) return false;
    const auto at = static_cast<std::ptrdiff_t>(is_made ? 0 : list.size() - old);
    list.insert(list.begin() + at, page);
    if (!is_made) ++old;
    moved_[page] = is_made ? evictions_ : 0;
    first_used_.erase(page);
    balance();
    return true;
  }
  void use(PageId page, Nanos now) {
    const auto [first, is_first] = first_used_.try_emplace(page, now);
    if (evictions_ == 0) return;
    // 646 of 4,096: a quarter of what is not old.
    if (is_young(page) && evictions_ - moved_[page] < frames_ * 646 / 4096) return;
    if (!is_young(page) && now - first->second < kOldTime) return;
    if (!is_young(page)) --old;
    std::erase(list, page);
    list.insert(list.begin(), page);
    moved_[page] = evictions_;
    balance();
  }
  void evict(PageId page) {
    if (!is_young(page)) --old;
    std::erase(list, page);
    ++evictions_;
    balance();
  }
  void dirty(PageId page) {
    if (std::ranges::find(dirtied, page) == dirtied.end()) dirtied.push_back(page);
  }
  void clean(PageId page) { std::erase(dirtied, page); }

  [[nodiscard]] bool is_young(PageId page) const {
    const auto at = static_cast<std::size_t>(std::ranges::find(list, page) - list.begin());
    return at < list.size() - old;
  }

  std::vector<PageId> list;
  std::size_t old = 0;
  std::vector<PageId> dirtied;  // the first one first

 private:
  // 37 % of what there is, in 1,024ths, give or take one.
  void balance() {
    const std::size_t wanted = list.size() * 378 / 1024;
    if (old > wanted + 1) old = wanted + 1;
    if (old + 1 < wanted) old = wanted - 1;
  }

  std::size_t frames_;
  std::size_t evictions_ = 0;
  std::map<PageId, std::size_t> moved_;
  std::map<PageId, Nanos> first_used_;
};

void expect_same(BufferPool& pool, const NaivePool& naive) {
  std::vector<PageId> list;
  for (FrameId f = pool.oldest(); f != kNone; f = pool.at(f).newer) {
    EXPECT_EQ(pool.find(pool.at(f).page), f);
    EXPECT_EQ(pool.at(f).old, !naive.is_young(pool.at(f).page));
    list.insert(list.begin(), pool.at(f).page);
  }
  ASSERT_EQ(list, naive.list);
  std::vector<PageId> dirtied;
  for (FrameId f = pool.first_dirtied(); f != kNone; f = pool.at(f).dirtied_later) {
    dirtied.push_back(pool.at(f).page);
  }
  ASSERT_EQ(dirtied, naive.dirtied);
  EXPECT_EQ(pool.dirty_frames(), naive.dirtied.size());
  EXPECT_EQ(pool.free_frames(), pool.size() - naive.list.size());
}

class Both {
 public:
  explicit Both(std::uint64_t seed)
      : random_(seed), frames_(64 + below(64)), pool_(frames_, kPages, kOldTime), naive_(frames_) {}

  void step(Lsn lsn) {
    now_ += Nanos{below(20'000'000)};
    const PageId page = below(kPages);
    const FrameId frame = pool_.find(page);
    if (frame == kNone) return add(page);
    const bool dirty = pool_.at(frame).dirty();
    switch (below(5)) {
      case 0:
        if (dirty) return clean(frame);
        pool_.evict(frame);
        naive_.evict(page);
        EXPECT_EQ(pool_.find(page), kNone);
        break;
      case 1:
        pool_.dirty(frame, lsn);
        naive_.dirty(page);
        if (!dirty) {
          EXPECT_EQ(pool_.at(frame).oldest, lsn);
        }
        EXPECT_LE(pool_.at(frame).oldest, lsn);
        break;
      default:
        pool_.use(frame, now_);
        naive_.use(page, now_);
    }
  }
  void compare() { expect_same(pool_, naive_); }

 private:
  static constexpr PageId kPages = 200;

  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(random_.below(bound));
  }
  void add(PageId page) {
    if (pool_.free_frames() == 0) evict_oldest();
    const bool is_made = below(4) == 0;
    EXPECT_EQ(pool_.add(page, is_made) != kNone, naive_.add(page, is_made));
  }
  void evict_oldest() {
    const FrameId frame = pool_.oldest();
    if (pool_.at(frame).dirty()) clean(frame);
    naive_.evict(pool_.at(frame).page);
    pool_.evict(frame);
  }
  void clean(FrameId frame) {
    naive_.clean(pool_.at(frame).page);
    pool_.clean(frame);
  }

  Prng random_;
  std::uint32_t frames_;
  Nanos now_;
  BufferPool pool_;
  NaivePool naive_;
};

TEST(BufferPoolRandom, IsTheListThatItStandsFor) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(10 * repeats()); ++seed) {
    SCOPED_TRACE(seed);
    Both both(seed);
    for (Lsn lsn = 1; lsn <= 3000; ++lsn) {
      both.step(lsn);
      both.compare();
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Reads pages from there on, one after the other.
void scan(BufferPool& pool, PageId first, PageId end) {
  for (PageId page = first; page < end; ++page) {
    if (pool.free_frames() == 0) pool.evict(pool.oldest());
    ASSERT_NE(pool.add(page), kNone);
  }
}

TEST(BufferPool, AScanDoesNotDriveOutWhatIsUsed) {
  BufferPool pool(128, 10'000, kOldTime);
  scan(pool, 0, 129);
  for (std::int64_t second = 0; second < 8; ++second) {  // those that others push out come back
    for (PageId page = 60; page < 120; ++page) pool.use(pool.find(page), kOldTime * second);
  }
  scan(pool, 200, 5'000);
  for (PageId page = 60; page < 120; ++page) EXPECT_NE(pool.find(page), kNone) << page;
}

// Nor what is used within a second of its first use, however often: so a scan may use its pages.
TEST(BufferPool, APageIsYoungWhenItIsUsedASecondAfterItsFirstUse) {
  BufferPool pool(128, 10'000, kOldTime);
  scan(pool, 0, 129);
  const FrameId frame = pool.find(128);
  ASSERT_TRUE(pool.at(frame).old);
  for (Nanos now = 500_ms; now < 1'500_ms; now += 100_ms) {
    pool.use(frame, now);
    EXPECT_TRUE(pool.at(frame).old);
  }
  pool.use(frame, 1'500_ms);
  EXPECT_FALSE(pool.at(frame).old);
  EXPECT_EQ(pool.at(frame).newer, kNone);
}

TEST(BufferPool, NothingMovesBeforeTheFirstEviction) {
  BufferPool pool(128, 10'000, kOldTime);
  scan(pool, 0, 128);
  const FrameId frame = pool.find(127);
  pool.use(frame, 0_ms);
  pool.use(frame, 5'000_ms);
  EXPECT_TRUE(pool.at(frame).old);
  scan(pool, 200, 201);
  pool.use(frame, 5'000_ms);
  EXPECT_FALSE(pool.at(frame).old);
}

TEST(BufferPool, APageThatIsMadeIsYoungAtOnce) {
  BufferPool pool(128, 10'000, kOldTime);
  scan(pool, 0, 100);
  const FrameId frame = pool.add(200, true);
  EXPECT_FALSE(pool.at(frame).old);
  EXPECT_EQ(pool.at(frame).newer, kNone);
}

// A quarter of the young part of 128 is 20.
TEST(BufferPool, AYoungPageMovesWhenAsManyAsAQuarterOfThemWereEvicted) {
  BufferPool pool(128, 10'000, kOldTime);
  scan(pool, 0, 150);
  const FrameId frame = pool.find(149);
  for (const Nanos now : {0_ms, kOldTime}) pool.use(frame, now);
  ASSERT_EQ(pool.at(frame).newer, kNone);
  const FrameId newest = pool.find(148);
  for (const Nanos now : {0_ms, kOldTime}) pool.use(newest, now);
  scan(pool, 200, 219);
  pool.use(frame, kOldTime);
  EXPECT_EQ(pool.at(newest).newer, kNone) << "19";
  scan(pool, 219, 220);
  pool.use(frame, kOldTime);
  EXPECT_EQ(pool.at(frame).newer, kNone) << "20";
}

TEST(BufferPool, IsFullWhenItIs) {
  BufferPool pool(64, 100, kOldTime);
  for (PageId page = 0; page < 64; ++page) EXPECT_NE(pool.add(page), kNone);
  EXPECT_EQ(pool.add(64), kNone);
  EXPECT_EQ(pool.find(64), kNone);
  EXPECT_EQ(pool.free_frames(), 0U);
}

TEST(BufferPool, NobodyEvictsWhatIsDirtyOrBusy) {
  BufferPool pool(64, 100, kOldTime);
  const FrameId frame = pool.add(1);
  pool.dirty(frame, 5);
  EXPECT_THROW(pool.evict(frame), Bug);
  pool.clean(frame);
  EXPECT_THROW(pool.clean(frame), Bug);
  pool.at(frame).reading = true;
  EXPECT_THROW(pool.evict(frame), Bug);
  pool.at(frame).reading = false;
  pool.at(frame).writing = true;
  EXPECT_THROW(pool.evict(frame), Bug);
  pool.at(frame).writing = false;
  pool.evict(frame);
  EXPECT_EQ(pool.find(1), kNone);
}

TEST(BufferPool, TooSmallIsRefused) {
  EXPECT_THROW(BufferPool(63, 100, kOldTime), OperatingError);
  EXPECT_EQ(BufferPool(64, 100, kOldTime).size(), 64U);
}

}  // namespace test_buffer_pool
}  // namespace flashlab::dbms::innodb
