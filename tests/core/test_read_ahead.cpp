#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/prng.hpp"
#include "kernel/read_ahead.hpp"

namespace flashlab::kernel {
namespace test_read_ahead {

// A reader of one endless file whose blocks are all kept, and that never waits.
class Reader {
 public:
  explicit Reader(std::int64_t limit, bool misses_open = false)
      : limit_(limit), state_(misses_open) {}

  // Returns the windows that the read opens: none, one, or two.
  std::vector<ReadWindow> read(std::int64_t block) {
    std::vector<ReadWindow> opened;
    if (!cached.contains(block)) {
      const ReadWindow window = state_.missed(block, limit_, [&] { return history(block); });
      EXPECT_LE(window.begin, block);
      EXPECT_GT(window.begin + window.blocks, block);
      opened.push_back(take(window));
    }
    if (markers_.erase(block) != 0) {
      opened.push_back(take(state_.met_marker(block, hole(block), limit_)));
    }
    state_.read(block);
    return opened;
  }

  std::set<std::int64_t> cached;

 private:
  ReadWindow take(const ReadWindow& window) {
    for (std::int64_t i = 0; i < window.blocks; ++i) cached.insert(window.begin + i);
    if (window.marked >= 0) markers_.insert(window.marked);
    return window;
  }
  [[nodiscard]] std::int64_t history(std::int64_t block) const {
    std::int64_t n = 0;
    while (n < limit_ && cached.contains(block - n - 1)) ++n;
    return n;
  }
  [[nodiscard]] std::int64_t hole(std::int64_t block) const {
    std::int64_t at = block + 1;
    while (at - block <= limit_ && cached.contains(at)) ++at;
    return at;
  }

  std::int64_t limit_;
  ReadAhead state_;
  std::set<std::int64_t> markers_;
};

class SequentialRead : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Limits, SequentialRead, ::testing::Values(2, 3, 16, 32, 64, 128, 256));

TEST_P(SequentialRead, WindowsGrowUpToTheLimitWithoutGapsOrOverlap) {
  const std::int64_t limit = GetParam();
  Reader reader(limit);
  std::vector<ReadWindow> windows;
  for (std::int64_t block = 0; block < 20 * limit; ++block) {
    for (const ReadWindow& window : reader.read(block)) windows.push_back(window);
  }
  ASSERT_GE(windows.size(), 10U);
  EXPECT_EQ(windows[0].begin, 0);
  for (std::size_t i = 1; i < windows.size(); ++i) {
    const std::int64_t before = windows[i - 1].blocks;
    EXPECT_EQ(windows[i].begin, windows[i - 1].begin + before);
    EXPECT_LE(windows[i].blocks, limit);
    if (before < limit) {
      EXPECT_GE(windows[i].blocks, std::min(2 * before, limit));
      EXPECT_LE(windows[i].blocks, before < limit / 16 ? 4 * before : 2 * before);
    }
  }
  EXPECT_EQ(windows.back().blocks, limit);
}

TEST_P(SequentialRead, TheNextWindowIsOpenedWhileBlocksOfTheLastOneAreLeft) {
  const std::int64_t limit = GetParam();
  Reader reader(limit);
  (void)reader.read(0);
  for (std::int64_t block = 1; block < 20 * limit; ++block) {
    EXPECT_TRUE(reader.cached.contains(block)) << block;
    const std::int64_t end = *reader.cached.rbegin() + 1;
    for (const ReadWindow& window : reader.read(block)) {
      EXPECT_EQ(window.begin, end);
      // A whole window is left, but for the first one.
      if (window.begin > limit) {
        EXPECT_EQ(end - block, limit);
      }
    }
  }
}

// What was read ahead and evicted before it was read: where the next window would begin.
TEST(ReadAhead, AMissAtAWindowsEndContinuesItOrOpensOneOfItsOwn) {
  for (const bool misses_open : {false, true}) {
    Reader reader(16, misses_open);
    std::int64_t block = 0;
    do {
      (void)reader.read(block++);
    } while (*reader.cached.rbegin() < 60);
    const std::int64_t end = *reader.cached.rbegin() + 1;
    reader.cached.clear();
    const ReadWindow window = reader.read(end).at(0);
    EXPECT_EQ(window.begin, end);
    EXPECT_EQ(window.blocks, misses_open ? 1 : 32) << "random, or two windows at once";
    EXPECT_EQ(reader.read(end + 1).empty(), !misses_open);
  }
}

// Read in order nothing is missed: markers continue all windows in both.
TEST(ReadAhead, AStreamThatIsReadInOrderHasTheSameWindowsWhereverMissesOpenTheirOwn) {
  const auto windows = [](bool misses_open) {
    Reader reader(32, misses_open);
    std::vector<std::int64_t> begins;
    for (std::int64_t block = 0; block < 400; ++block) {
      for (const ReadWindow& window : reader.read(block)) begins.push_back(window.begin);
    }
    return begins;
  };
  EXPECT_EQ(windows(false), windows(true));
}

TEST(ReadAhead, ARandomReadReadsOneBlock) {
  Reader reader(16);
  for (const std::int64_t block : {100, 900, 500, 300, 502, 504, 900 + 17}) {
    const std::vector<ReadWindow> windows = reader.read(block);
    ASSERT_EQ(windows.size(), 1U) << block;
    EXPECT_EQ(windows[0].begin, block);
    EXPECT_EQ(windows[0].blocks, 1);
    EXPECT_LT(windows[0].marked, 0);
  }
}

TEST(ReadAhead, AFilesFirstBlockIsNotRandom) {
  Reader reader(16);
  (void)reader.read(100);
  EXPECT_GT(reader.read(0)[0].blocks, 1);
}

TEST(ReadAhead, TheSecondBlockInARowIsNotRandom) {
  Reader reader(16);
  EXPECT_EQ(reader.read(100)[0].blocks, 1);
  EXPECT_GT(reader.read(101)[0].blocks, 1);
}

TEST(ReadAhead, ALimitOfOneBlockReadsWhatIsAskedFor) {
  Reader reader(1);
  for (std::int64_t block = 0; block < 20; ++block) {
    const std::vector<ReadWindow> windows = reader.read(block);
    ASSERT_EQ(windows.size(), 1U);
    EXPECT_EQ(windows[0].blocks, 1);
  }
}

// Each stream drives the other's window out of the state; what is cached before it gives it away.
TEST(ReadAhead, InterleavedStreamsAreRecognisedByTheirCachedPast) {
  constexpr std::int64_t kLimit = 16;
  constexpr std::int64_t kApart = 100'000;
  Reader reader(kLimit);
  std::int64_t opened = 0;
  std::int64_t largest = 0;
  for (std::int64_t block = 1; block <= 320; ++block) {
    for (const std::int64_t stream : {1, 2, 3}) {
      for (const ReadWindow& window : reader.read(stream * kApart + block)) {
        ++opened;
        largest = std::max(largest, window.blocks);
      }
    }
  }
  EXPECT_EQ(largest, kLimit);
  EXPECT_LT(opened, 3 * 320 / (kLimit / 2));
}

// The window after a stream's recognition is as large as what of it is cached.
TEST(ReadAhead, AStreamsFirstWindowIsAsLongAsItsPast) {
  for (std::int64_t past = 2; past < 16; ++past) {
    Reader reader(16);
    for (std::int64_t i = 1; i <= past; ++i) reader.cached.insert(1000 - i);
    const std::vector<ReadWindow> windows = reader.read(1000);
    ASSERT_EQ(windows.size(), 1U);
    EXPECT_EQ(windows[0].begin, 1000);
    EXPECT_EQ(windows[0].blocks, past + 1);
    EXPECT_EQ(windows[0].marked, 1000 + past);
  }
}

TEST(ReadAhead, AMarkerFarBeforeTheNextHoleOpensNothing) {
  ReadAhead state;
  (void)state.missed(0, 16, [] { return std::int64_t{0}; });
  EXPECT_EQ(state.met_marker(500, 500 + 17, 16).blocks, 0);
  const ReadWindow window = state.met_marker(500, 500 + 8, 16);
  EXPECT_EQ(window.begin, 508);
  EXPECT_GT(window.blocks, 0);
}

}  // namespace test_read_ahead
}  // namespace flashlab::kernel
