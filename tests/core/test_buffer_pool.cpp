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

// The same, slow and obvious: one list of pages, newest first, whose last `old` pages are old.
class NaivePool {
 public:
  explicit NaivePool(std::size_t frames) : frames_(frames) {}

  bool add(PageId page) {
    if (list.size() == frames_) return false;
    list.insert(list.end() - static_cast<std::ptrdiff_t>(old), page);
    ++old;
    moved_[page] = 0;
    balance();
    return true;
  }
  void use(PageId page) {
    if (is_young(page) && evictions_ - moved_[page] <= frames_ / 4) return;
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
  // Three eighths of what there is, give or take one.
  void balance() {
    const std::size_t wanted = list.size() * 3 / 8;
    if (old > wanted + 1) old = wanted + 1;
    if (old + 1 < wanted) old = wanted - 1;
  }

  std::size_t frames_;
  std::size_t evictions_ = 0;
  std::map<PageId, std::size_t> moved_;
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
      : random_(seed), frames_(64 + below(64)), pool_(frames_, kPages), naive_(frames_) {}

  void step(Lsn lsn) {
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
        pool_.use(frame);
        naive_.use(page);
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
    EXPECT_EQ(pool_.add(page) != kNone, naive_.add(page));
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

TEST(BufferPool, AScanDoesNotDriveOutWhatIsUsed) {
  BufferPool pool(128, 10'000);
  for (PageId page = 0; page < 128; ++page) ASSERT_NE(pool.add(page), kNone);
  for (PageId page = 0; page < 60; ++page) pool.use(pool.find(page));
  for (PageId page = 200; page < 5'000; ++page) {
    if (pool.free_frames() == 0) pool.evict(pool.oldest());
    ASSERT_NE(pool.add(page), kNone);
  }
  for (PageId page = 0; page < 60; ++page) EXPECT_NE(pool.find(page), kNone) << page;
}

TEST(BufferPool, IsFullWhenItIs) {
  BufferPool pool(64, 100);
  for (PageId page = 0; page < 64; ++page) EXPECT_NE(pool.add(page), kNone);
  EXPECT_EQ(pool.add(64), kNone);
  EXPECT_EQ(pool.find(64), kNone);
  EXPECT_EQ(pool.free_frames(), 0U);
}

TEST(BufferPool, NobodyEvictsWhatIsDirtyOrBusy) {
  BufferPool pool(64, 100);
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
  EXPECT_THROW(BufferPool(63, 100), OperatingError);
  EXPECT_EQ(BufferPool(64, 100).size(), 64U);
}

}  // namespace test_buffer_pool
}  // namespace flashlab::dbms::innodb
