#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "base/extent_set.hpp"
#include "base/prng.hpp"
#include "live/store.hpp"
#include "live/undo_log.hpp"
#include "repeat.hpp"
#include "stamped.hpp"

namespace flashlab::live {
namespace test_undo_log {

using testing_live::memory_fd;
using testing_live::stamped;
using testing_live::Version;
using testing_live::version_of;

constexpr std::int64_t kBlock = UndoLog::kBlockSectors;
constexpr std::int64_t kSectors = 24 * kBlock;

Extent extent(std::int64_t begin, std::int64_t n) { return {Lba{begin}, Lba{begin + n}}; }

std::vector<Version> versions(const Store& store, std::int64_t sectors = kSectors) {
  std::vector<std::byte> data(static_cast<std::size_t>(sectors * kSectorBytes));
  EXPECT_EQ(store.read(Bytes{0}, data), 0);
  std::vector<Version> found;
  for (std::int64_t i = 0; i < sectors; ++i) {
    const auto sector = std::span(data).subspan(static_cast<std::size_t>(i * kSectorBytes),
                                                static_cast<std::size_t>(kSectorBytes));
    const auto version = version_of(sector, i);
    EXPECT_TRUE(version) << "sector " << i << " is torn";
    found.push_back(version.value_or(UINT64_MAX));
  }
  return found;
}

// A store under a log, and a ledger of everything that each sector has ever held.
class World {
 public:
  World() : store_(memory_fd(Bytes{kSectors * kSectorBytes})) {
    for (auto& sector : history_) sector = {0};
  }

  void write(const Extent& where) {
    ASSERT_EQ(log.save(where, store_), 0);
    ASSERT_EQ(store_.write(to_bytes(where.begin), stamped(where, ++last_)), 0);
    append(where, last_);
  }
  // What holds nothing need not be saved.
  void trim(const Extent& where) {
    if (store_.holds_data(where)) {
      ASSERT_EQ(log.save(where, store_), 0);
    }
    ASSERT_EQ(store_.punch(to_bytes(where.begin), to_bytes(where.length())), 0);
    append(where, 0);
  }
  void begin_flush() {
    std::vector<std::size_t> now;
    for (const auto& sector : history_) now.push_back(sector.size() - 1);
    flushes_.emplace(log.begin_flush(), now);  // equal numbers: the first one is the strictest
  }
  void end_a_flush(Prng& random) {
    if (flushes_.empty()) return;
    auto at = flushes_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random.below(flushes_.size())));
    log.end_flush(at->first);
    for (std::size_t i = 0; i < at->second.size(); ++i) {
      durable_[i] = std::max(durable_[i], at->second[i]);
    }
    flushes_.erase(at);
  }
  void keep_only(const ExtentSet& doubt) {
    log.keep_only(doubt.extents());
    for (std::int64_t block = 0; block < kSectors; block += kBlock) {
      if (overlaps(doubt, extent(block, kBlock))) continue;
      for (std::int64_t i = block; i < block + kBlock; ++i) make_durable(i);
    }
  }
  // Returns how many sectors came back with something else than their last content.
  std::int64_t cut(const ExtentSet& doubt, Prng& random) {
    EXPECT_GE(log.revert(doubt.extents(), random, store_), 0);
    EXPECT_EQ(log.blocks(), 0U);
    std::int64_t undone = 0;
    const std::vector<Version> found = versions(store_);
    for (std::int64_t i = 0; i < kSectors; ++i) {
      const auto at = static_cast<std::size_t>(i);
      auto& past = history_[at];
      const bool doubtful = overlaps(doubt, extent(i, 1));
      const auto first =
          past.begin() + static_cast<std::ptrdiff_t>(doubtful ? durable_[at] : past.size() - 1);
      EXPECT_NE(std::find(first, past.end(), found[at]), past.end())
          << "sector " << i << " holds version " << found[at] << ", last " << past.back();
      undone += found[at] != past.back() ? 1 : 0;
      past.push_back(found[at]);
      make_durable(i);
    }
    flushes_.clear();
    return undone;
  }

  UndoLog log;

 private:
  static bool overlaps(const ExtentSet& set, const Extent& where) {
    return std::ranges::any_of(set.extents(), [&](const Extent& e) { return e.overlaps(where); });
  }
  void append(const Extent& where, Version version) {
    for (std::int64_t i = where.begin.index(); i < where.end.index(); ++i) {
      history_[static_cast<std::size_t>(i)].push_back(version);
    }
  }
  void make_durable(std::int64_t sector) {
    const auto at = static_cast<std::size_t>(sector);
    durable_[at] = history_[at].size() - 1;
  }

  Store store_;
  Version last_ = 0;
  std::array<std::vector<Version>, kSectors> history_;
  std::array<std::size_t, kSectors> durable_{};  // index of the oldest that may come back
  std::map<std::uint64_t, std::vector<std::size_t>> flushes_;
};

Extent any_extent(Prng& random) {
  const auto begin = static_cast<std::int64_t>(random.below(kSectors));
  const auto most = static_cast<std::uint64_t>(std::min(kSectors - begin, 3 * kBlock));
  return extent(begin, 1 + static_cast<std::int64_t>(random.below(most)));
}

ExtentSet any_doubt(Prng& random) {
  ExtentSet doubt;
  for (std::uint64_t n = random.below(6); n > 0; --n) doubt.insert(any_extent(random));
  return doubt;
}

TEST(UndoLog, AgreesWithALedgerOfAllVersions) {
  std::int64_t undone = 0;
  for (int round = 0; round < 120 * repeats(); ++round) {
    SCOPED_TRACE("seed " + std::to_string(round));
    Prng random(static_cast<std::uint64_t>(round));
    World world;
    for (int step = 0; step < 400; ++step) {
      switch (random.below(12)) {
        case 0:
          world.begin_flush();
          break;
        case 1:
          world.end_a_flush(random);
          break;
        case 2:
          world.trim(any_extent(random));
          break;
        case 3:
          if (random.below(4) == 0) world.keep_only(any_doubt(random));
          break;
        case 4:
          if (random.below(8) == 0) undone += world.cut(any_doubt(random), random);
          break;
        default:
          world.write(any_extent(random));
      }
    }
    undone += world.cut(any_doubt(random), random);
    if (HasFailure()) return;
  }
  EXPECT_GT(undone, 1000);  // or it undid nothing
}

// Every version that was the last one when a flush began, since the last flush that ended.
TEST(UndoLog, EveryVersionInDoubtComesBackSomeTime) {
  std::set<Version> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Store store(memory_fd(Bytes{4096}));
    UndoLog log;
    std::uint64_t first_flush = 0;
    for (Version version = 1; version <= 4; ++version) {
      ASSERT_EQ(log.save(extent(0, 8), store), 0);
      ASSERT_EQ(store.write(Bytes{0}, stamped(extent(0, 8), version)), 0);
      const std::uint64_t flush = log.begin_flush();
      if (version == 1) first_flush = flush;
    }
    log.end_flush(first_flush);
    Prng random(seed);
    const std::vector<Extent> doubt{extent(0, 8)};
    ASSERT_GE(log.revert(doubt, random, store), 0);
    seen.insert(versions(store, 8).front());
  }
  EXPECT_EQ(seen, (std::set<Version>{1, 2, 3, 4}));
}

TEST(UndoLog, BlocksAreChosenIndependently) {
  constexpr std::int64_t kBlocks = 64;
  Store store(memory_fd(Bytes{kBlocks * 4096}));
  UndoLog log;
  const Extent all = extent(0, kBlocks * kBlock);
  ASSERT_EQ(log.save(all, store), 0);
  ASSERT_EQ(store.write(Bytes{0}, stamped(all, 1)), 0);
  Prng random(1);
  const std::int64_t changed = log.revert(std::vector<Extent>{all}, random, store);
  EXPECT_GT(changed, all.length().count() / 4);
  EXPECT_LT(changed, all.length().count() * 3 / 4);
}

TEST(UndoLog, KnowsWhenItIsFullAndWhenNotAgain) {
  Store store(memory_fd(Bytes{4096}));
  UndoLog log;
  const auto most = static_cast<std::int64_t>(UndoLog::kMostBlocks);
  ASSERT_EQ(log.save(extent(0, most * kBlock), store), 0);
  EXPECT_FALSE(log.full());
  ASSERT_EQ(log.save(extent(most * kBlock, kBlock), store), 0);
  EXPECT_TRUE(log.full());
  log.keep_only({});
  EXPECT_EQ(log.blocks(), 0U);
  EXPECT_FALSE(log.full());
}

// Bytes that were written, and the parts that hold any: against a plain array.
TEST(Store, AgreesWithAPlainArray) {
  Prng random(7);
  Store store(memory_fd(Bytes{kSectors * kSectorBytes}));
  std::vector<Version> plain(kSectors, 0);
  for (Version step = 1; step <= 3000; ++step) {
    const Extent where = any_extent(random);
    const bool punch = random.below(2) == 0;
    ASSERT_EQ(punch ? store.punch(to_bytes(where.begin), to_bytes(where.length()))
                    : store.write(to_bytes(where.begin), stamped(where, step)),
              0);
    std::fill(plain.begin() + where.begin.index(), plain.begin() + where.end.index(),
              punch ? 0 : step);
    if (step % 50 == 0) {
      ASSERT_EQ(versions(store), plain);
    }
    const Extent asked = any_extent(random);
    const std::vector<Extent> written = store.written(asked);
    ASSERT_EQ(store.holds_data(asked), !written.empty());
    for (std::int64_t i = asked.begin.index(); i < asked.end.index(); ++i) {
      const bool inside = std::ranges::any_of(
          written, [&](const Extent& e) { return e.begin.index() <= i && i < e.end.index(); });
      ASSERT_TRUE(inside || plain[static_cast<std::size_t>(i)] == 0) << "sector " << i;
    }
  }
}

TEST(UndoLog, KeepsNothingOfWhatCannotBeRead) {
  Store closed(-1);
  UndoLog log;
  EXPECT_EQ(log.save(extent(0, 2 * kBlock), closed), EBADF);
  EXPECT_EQ(log.blocks(), 0U);
}

TEST(UndoLog, AWriteThatIsDurableAloneLeavesTheOthersInDoubt) {
  Store store(memory_fd(Bytes{kSectors * kSectorBytes}));
  std::vector<std::set<Version>> seen(4);
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    UndoLog log;
    const auto write = [&](std::int64_t block, Version version) {
      const Extent where = extent(block * kBlock, kBlock);
      ASSERT_EQ(log.save(where, store), 0);
      ASSERT_EQ(store.write(to_bytes(where.begin), stamped(where, version)), 0);
    };
    for (std::int64_t block = 0; block < 4; ++block) write(block, 1);
    log.end_flush(log.begin_flush());
    for (std::int64_t block = 0; block < 3; ++block) write(block, 2);
    const std::uint64_t through = log.begin_flush();
    write(0, 3);
    log.end_write(extent(0, kBlock + 1), through);  // block 0, and a sector of block 1
    Prng random(seed);
    ASSERT_GE(log.revert(std::vector{extent(0, 4 * kBlock)}, random, store), 0);
    const std::vector<Version> found = versions(store, 4 * kBlock);
    for (std::size_t block = 0; block < 4; ++block) seen[block].insert(found[block * kBlock]);
  }
  EXPECT_EQ(seen[0], (std::set<Version>{2, 3}));
  EXPECT_EQ(seen[1], std::set<Version>{2});
  EXPECT_EQ(seen[2], (std::set<Version>{1, 2}));
  EXPECT_EQ(seen[3], std::set<Version>{1});
}

TEST(Store, FailsWithAnErrno) {
  Store store(memory_fd(Bytes{4096}));
  EXPECT_EQ(store.punch(Bytes{0}, Bytes{-1}), EINVAL);
  Store closed(-1);
  std::vector<std::byte> data(512);
  EXPECT_EQ(closed.read(Bytes{0}, data), EBADF);
  EXPECT_EQ(closed.write(Bytes{0}, data), EBADF);
  EXPECT_EQ(closed.sync(), EBADF);
  EXPECT_TRUE(closed.holds_data(extent(0, 1))) << "for all we know";
}

}  // namespace test_undo_log
}  // namespace flashlab::live
