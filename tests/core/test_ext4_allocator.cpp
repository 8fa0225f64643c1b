#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "kernel/ext4/allocator.hpp"
#include "repeat.hpp"

namespace flashlab::kernel::ext4 {
namespace test_ext4_allocator {

using Piece = Run;  // Run is a name of GoogleTest's

constexpr std::int64_t kPerGroup = 32'768;

AllocatorRules recent() {
  AllocatorRules rules;
  rules.recent = true;
  return rules;
}

struct File {
  std::uint64_t number = 0;
  std::vector<Piece> runs;
  std::optional<Preallocation> kept;

  [[nodiscard]] std::int64_t blocks() const {
    std::int64_t sum = 0;
    for (const Piece& run : runs) sum += run.blocks;
    return sum;
  }
  [[nodiscard]] std::optional<Tail> tail() const {
    if (runs.empty()) return std::nullopt;
    return Tail{blocks(), runs.back().end()};
  }
  [[nodiscard]] std::int64_t kept_blocks() const { return kept ? kept->run.blocks : 0; }
};

class World {
 public:
  explicit World(std::int64_t group_count, const AllocatorRules& rules = {})
      : groups(group_count * kPerGroup, kPerGroup), allocator(groups, rules) {}

  // One request; `size` of the file with what else waits to be written.
  std::optional<Piece> ask(File& file, std::int64_t blocks, std::int64_t size) {
    const std::optional<Piece> run =
        allocator.allocate(file.number, file.blocks(), blocks, size, file.tail(), file.kept);
    if (run) file.runs.push_back(*run);
    return run;
  }
  std::optional<Piece> ask_closed(File& file, std::int64_t blocks) {
    const std::optional<Piece> run =
        allocator.allocate_closed(blocks, file.blocks() + blocks, file.tail(), file.kept);
    if (run) file.runs.push_back(*run);
    return run;
  }
  void close(File& file) {
    if (file.kept) groups.give_back(file.kept->run);
    file.kept.reset();
  }
  // Nothing but these runs is free.
  void leave(const std::vector<Piece>& free) {
    for (GroupNumber group = 0; group < groups.count(); ++group) {
      const std::vector<Piece> runs = groups.runs(group);
      for (const Piece& run : runs) groups.take(run);
    }
    for (const Piece& run : free) groups.give_back(run);
  }

  Groups groups;
  Allocator allocator;
};

TEST(Ext4AllocatorSize, GrowsInPowersOfTwoThenInWindows) {
  const auto expected = [](std::int64_t size) -> std::int64_t {
    if (size <= 256) return static_cast<std::int64_t>(std::bit_ceil(static_cast<unsigned>(size)));
    return size <= 1024 ? 512 : size <= 2048 ? 1024 : 2048;
  };
  for (const std::int64_t size :
       {17, 32, 33, 64, 65, 127, 128, 200, 256, 257, 512, 1023, 1024, 1025, 2048, 2049, 9000}) {
    World world(4);
    File file;
    ASSERT_EQ(world.ask(file, 8, size), (Piece{kPerGroup, 8}));
    EXPECT_EQ(file.runs[0].blocks + file.kept_blocks(), expected(size)) << size;
    EXPECT_EQ(file.kept->logical, 8);
    EXPECT_EQ(file.kept->run.begin, file.runs[0].end());
    EXPECT_EQ(world.groups.free_blocks(), 4 * kPerGroup - expected(size));
  }
}

// A window is counted from the file's begin: in it, only what the file does not have yet is taken.
TEST(Ext4AllocatorSize, AWindowEndsAtAMultipleOfItsLength) {
  World world(4);
  File file;
  while (file.blocks() < 300) (void)world.ask(file, 300 - file.blocks(), 300);
  ASSERT_EQ(file.blocks() + file.kept_blocks(), 512);
  world.close(file);
  ASSERT_TRUE(world.ask(file, 10, 310));
  EXPECT_EQ(file.blocks() + file.kept_blocks(), 512);
}

TEST(Ext4AllocatorKept, IsUsedBeforeAnythingIsSearchedFor) {
  World world(4);
  File file;
  ASSERT_EQ(world.ask(file, 20, 20), (Piece{kPerGroup, 20}));
  EXPECT_EQ(world.allocator.counters().requests, 1U);
  ASSERT_EQ(world.ask(file, 5, 25), (Piece{kPerGroup + 20, 5}));
  ASSERT_EQ(world.ask(file, 50, 75), (Piece{kPerGroup + 25, 7}));
  EXPECT_FALSE(file.kept);
  EXPECT_EQ(world.allocator.counters().requests, 1U);
  EXPECT_EQ(world.groups.free_blocks(), 4 * kPerGroup - 32);
}

TEST(Ext4AllocatorKept, BelongsBehindTheFilesEnd) {
  World world(4);
  File file;
  (void)world.ask(file, 20, 20);
  file.kept->logical = 24;
  EXPECT_THROW((void)world.ask(file, 5, 25), Bug);
}

TEST(Ext4AllocatorSmall, FilesShareAPiece) {
  World world(4);
  std::vector<File> files(3);
  BlockNumber next = kPerGroup;
  for (File& file : files) {
    ASSERT_EQ(world.ask(file, 16, 16), (Piece{next, 16}));
    EXPECT_FALSE(file.kept);
    next += 16;
  }
  EXPECT_EQ(world.allocator.counters().requests, 1U);
  EXPECT_EQ(world.allocator.shared_blocks(), 512 - 48);
  EXPECT_EQ(world.groups.free_blocks(), 4 * kPerGroup - 512);
  world.allocator.drop_shared();
  EXPECT_EQ(world.allocator.shared_blocks(), 0);
  EXPECT_EQ(world.groups.free_blocks(), 4 * kPerGroup - 48);
}

TEST(Ext4AllocatorSmall, ASpentPieceIsFollowedByAnother) {
  World world(4);
  std::vector<File> files(33);
  for (File& file : files) ASSERT_TRUE(world.ask(file, 16, 16));
  EXPECT_EQ(world.allocator.counters().requests, 2U);
  EXPECT_EQ(world.allocator.shared_blocks(), 512 - 16);
}

TEST(Ext4AllocatorSmall, TheFileThatGrowsBeyondIsSmallNoMore) {
  World world(4);
  File file;
  ASSERT_TRUE(world.ask(file, 16, 16));
  ASSERT_TRUE(world.ask(file, 4, 20));
  EXPECT_EQ(file.blocks() + file.kept_blocks(), 32);  // its window began with what it has
  EXPECT_EQ(world.allocator.shared_blocks(), 512 - 16);
}

TEST(Ext4AllocatorGoal, IsThePlaceBehindTheLastBlock) {
  World world(4);
  File file;
  ASSERT_TRUE(world.ask(file, 32, 32));
  ASSERT_EQ(world.ask(file, 32, 64), (Piece{file.runs[0].end(), 32}));
  EXPECT_EQ(world.allocator.counters().at_goal, 1U);
}

TEST(Ext4AllocatorGoal, IsLeftWhenSomebodyElseIsThere) {
  World world(4);
  File file;
  File other{1, {}, {}};
  ASSERT_TRUE(world.ask(file, 32, 32));
  ASSERT_EQ(world.ask(other, 32, 32), (Piece{file.runs[0].end(), 32}));
  ASSERT_TRUE(world.ask(file, 32, 64));
  EXPECT_NE(file.runs[1].begin, file.runs[0].end());
  EXPECT_EQ(world.allocator.counters().at_goal, 0U);
}

// All or nothing: a part of the request does not go there.
TEST(Ext4AllocatorGoal, HoldsTheWholeRequestOrNone) {
  World world(4);
  File file;
  ASSERT_TRUE(world.ask(file, 32, 32));
  world.groups.take({file.runs[0].end() + 16, 1});
  ASSERT_TRUE(world.ask(file, 32, 64));
  EXPECT_EQ(world.allocator.counters().at_goal, 0U);
}

TEST(Ext4AllocatorGoal, OfAllFilesIsTheGroupThatServedLast) {
  for (const std::uint32_t goals : {1U, 2U}) {
    AllocatorRules rules;
    rules.stream_goals = goals;
    World world(6, rules);
    world.groups.take({kPerGroup, kPerGroup});
    File one{2, {}, {}};
    ASSERT_EQ(world.ask(one, 64, 64), (Piece{2 * kPerGroup, 64}));
    world.groups.give_back({kPerGroup, kPerGroup});
    File other{3, {}, {}};
    ASSERT_TRUE(world.ask(other, 64, 64));
    EXPECT_EQ(world.groups.group_of(other.runs[0].begin), goals == 1 ? 2 : 1);
    File third{4, {}, {}};
    ASSERT_TRUE(world.ask(third, 64, 64));
    EXPECT_EQ(world.groups.group_of(third.runs[0].begin), 2);
  }
}

TEST(Ext4AllocatorSearch, TheSmallestChunkThatWillDoTheLowestOfThem) {
  World world(3);
  const BlockNumber base = kPerGroup;
  world.leave({{base + 512, 128}, {base + 1024, 64}, {base + 2048, 64}, {base + 4096, 32}});
  File file;
  ASSERT_TRUE(world.ask(file, 64, 64));
  EXPECT_EQ(file.runs[0], (Piece{base + 1024, 64}));
}

TEST(Ext4AllocatorSearch, AChunkIsAligned) {
  World world(3);
  const BlockNumber base = kPerGroup;
  world.leave({{base + 32, 96}, {base + 300, 400}});  // their chunks: 32, 64; 4, 16, 64, 128, ...
  File file;
  ASSERT_TRUE(world.ask(file, 64, 64));
  EXPECT_EQ(file.runs[0], (Piece{base + 64, 64}));
}

// A flexible group's first one is left out while aligned chunks are looked for, and only then.
TEST(Ext4AllocatorSearch, MetadatasGroupIsSparedByTheAlignedSearch) {
  World world(33);
  File file;
  ASSERT_TRUE(world.ask(file, 64, 64));
  EXPECT_EQ(world.groups.group_of(file.runs[0].begin), 1);

  World odd(33);
  EXPECT_EQ(odd.allocator.allocate_plain(0, 100, std::nullopt), (Piece{0, 100}));

  World last(33);
  last.leave({{16 * kPerGroup, 128}});
  File there;
  ASSERT_TRUE(last.ask(there, 64, 64));
  EXPECT_EQ(there.runs[0], (Piece{16 * kPerGroup, 64}));
}

TEST(Ext4AllocatorSearch, TheBestFitOfTheFirstRuns) {
  World world(2);
  const BlockNumber base = kPerGroup;
  world.leave({{base, 100}, {base + 128, 75}, {base + 256, 90}});
  EXPECT_EQ(world.allocator.allocate_plain(0, 70, std::nullopt), (Piece{base + 128, 70}));
}

TEST(Ext4AllocatorSearch, AnExactFitEndsIt) {
  World world(2);
  const BlockNumber base = kPerGroup;
  world.leave({{base, 100}, {base + 128, 70}, {base + 256, 70}});
  EXPECT_EQ(world.allocator.allocate_plain(0, 70, std::nullopt), (Piece{base + 128, 70}));
}

TEST(Ext4AllocatorSearch, LooksAtAFewRunsOnly) {
  for (const bool far : {false, true}) {
    World world(2);
    std::vector<Piece> free;
    const std::int64_t before = far ? 40 : 3;
    for (std::int64_t i = 0; i < before; ++i) free.push_back({kPerGroup + 128 * i, 100});
    free.push_back({kPerGroup + 128 * before, 70});  // fits exactly
    world.leave(free);
    const BlockNumber expected = far ? kPerGroup : free.back().begin;
    EXPECT_EQ(world.allocator.allocate_plain(0, 70, std::nullopt), (Piece{expected, 70}));
  }
}

// Recent kernels sort groups from 16 on: what is asked for comes from the one with least to lose.
TEST(Ext4AllocatorSearch, RecentKernelsTakeTheGroupWithTheLeastToLose) {
  for (const bool is_recent : {false, true}) {
    for (const std::int64_t group_count : {15, 18}) {
      const bool sorted = is_recent && group_count > 15;
      World world(group_count, is_recent ? recent() : AllocatorRules{});
      world.leave({{kPerGroup, 8192}, {2 * kPerGroup, 64}, {3 * kPerGroup, 300}});
      File file;
      ASSERT_TRUE(world.ask(file, 64, 64));  // an aligned chunk
      EXPECT_EQ(world.groups.group_of(file.runs[0].begin), sorted ? 2 : 1);
      const auto any = world.allocator.allocate_plain(1, 200, std::nullopt);  // a long run
      ASSERT_TRUE(any);
      EXPECT_EQ(world.groups.group_of(any->begin), sorted ? 3 : 1);
    }
  }
}

// What lies behind the goal comes before what lies below it, however much it has to lose.
TEST(Ext4AllocatorSearch, RecentKernelsLookBehindTheGoalFirst) {
  World world(18, recent());
  world.leave({{2 * kPerGroup, 64}, {5 * kPerGroup, 8192}});
  world.groups.take({2 * kPerGroup, 64});
  File one;
  ASSERT_TRUE(world.ask(one, 64, 64));  // the goal is group 5 now
  world.groups.give_back({2 * kPerGroup, 64});
  File other;
  ASSERT_TRUE(world.ask(other, 64, 64));
  EXPECT_EQ(world.groups.group_of(other.runs[0].begin), 5);
}

// A group without any used block is in one class with those that have a few (mb_avg_fragment_size).
TEST(Ext4AllocatorSearch, AnEmptyGroupIsInOneClassWithOneThatHasALittle) {
  World world(18, recent());
  world.leave({{kPerGroup, kPerGroup}, {2 * kPerGroup + 100, kPerGroup - 100}});
  const auto run = world.allocator.allocate_plain(0, 3000, std::nullopt);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->begin, kPerGroup);
}

// Without a chunk or run of that length: the longest run, or where groups are sorted a shorter one
// that has at least what is needed now.
TEST(Ext4AllocatorSearch, RecentKernelsPreferAShorterWholeChunk) {
  for (const std::int64_t group_count : {2, 18}) {
    for (const std::int64_t asked : {20, 40}) {
      World world(group_count, recent());
      const BlockNumber base = kPerGroup;
      world.leave({{base, 40}, {base + 64, 48}, {base + 128, 40}});
      File file;
      ASSERT_TRUE(world.ask(file, asked, 64));
      const bool shorter = group_count == 18 && asked == 20;
      EXPECT_EQ(file.runs[0].begin, shorter ? base : base + 64);
      EXPECT_EQ(file.kept_blocks(), (shorter ? 32 : 48) - asked);
      EXPECT_EQ(world.allocator.counters().shortened, 1U);
    }
  }
}

// Down to an eighth of what was wanted (s_mb_best_avail_max_trim_order).
TEST(Ext4AllocatorSearch, RecentKernelsDoNotShortenTooMuch) {
  for (const std::int64_t order : {6, 5}) {
    World world(18, recent());
    const std::int64_t chunk = std::int64_t{1} << order;
    const BlockNumber base = kPerGroup;
    std::vector<Piece> free;
    for (std::int64_t i = 0; i < 40; ++i) free.push_back({base + 256 * i, chunk});
    free.push_back({base + 20'001, chunk + chunk / 2});  // longer, and without such a chunk
    world.leave(free);
    File file;
    ASSERT_TRUE(world.ask(file, 1, 512));
    const bool whole_chunk = file.runs[0].begin == base;
    EXPECT_EQ(whole_chunk, order == 6);
  }
}

// Among the first few runs of a group count those that are long enough, in recent kernels.
TEST(Ext4AllocatorSearch, RecentKernelsDoNotCountRunsThatAreTooShort) {
  for (const bool is_recent : {false, true}) {
    World world(2, is_recent ? recent() : AllocatorRules{});
    std::vector<Piece> free{{kPerGroup, 256}};
    for (std::int64_t i = 1; i < 15; ++i) free.push_back({kPerGroup + 1024 + 64 * i, 60});
    free.push_back({kPerGroup + 8192, 70});  // fits exactly
    world.leave(free);
    const BlockNumber expected = is_recent ? free.back().begin : kPerGroup;
    EXPECT_EQ(world.allocator.allocate_plain(0, 70, std::nullopt), (Piece{expected, 70}));
  }
}

TEST(Ext4AllocatorClosed, GetsWhatItNeedsAndKeepsNothing) {
  World world(4);
  File file;
  ASSERT_TRUE(world.ask(file, 20, 20));
  world.close(file);
  const std::int64_t before = world.groups.free_blocks();
  ASSERT_TRUE(world.ask_closed(file, 50));
  EXPECT_EQ(file.blocks(), 70);
  EXPECT_FALSE(file.kept);
  EXPECT_EQ(world.groups.free_blocks(), before - 50);
  EXPECT_EQ(world.groups.group_of(file.runs[1].begin), world.groups.group_of(file.runs[0].begin));
}

TEST(Ext4AllocatorClosed, UsesWhatIsKept) {
  World world(4);
  File file;
  ASSERT_TRUE(world.ask(file, 20, 20));
  ASSERT_EQ(world.ask_closed(file, 12), (Piece{kPerGroup + 20, 12}));
  EXPECT_FALSE(file.kept);
}

TEST(Ext4AllocatorClosed, SmallFilesShareInRecentKernels) {
  for (const bool is_recent : {false, true}) {
    World world(4, is_recent ? recent() : AllocatorRules{});
    File file;
    ASSERT_TRUE(world.ask_closed(file, 5));
    EXPECT_EQ(world.allocator.shared_blocks(), is_recent ? 507 : 0);
    EXPECT_EQ(world.groups.free_blocks(), 4 * kPerGroup - (is_recent ? 512 : 5));
  }
}

TEST(Ext4AllocatorFull, GivesThePartsThatAreLeftAndThenNothing) {
  World world(2);
  world.leave({{7, 3}, {kPerGroup + 9, 1}});
  File file;
  EXPECT_EQ(world.ask(file, 100, 100), (Piece{7, 3}));
  EXPECT_EQ(world.ask(file, 97, 100), (Piece{kPerGroup + 9, 1}));
  EXPECT_EQ(world.ask(file, 96, 100), std::nullopt);
  EXPECT_EQ(world.ask_closed(file, 5), std::nullopt);
  File small;
  EXPECT_EQ(world.ask(small, 1, 1), std::nullopt);
  EXPECT_EQ(world.allocator.allocate_plain(0, 64, std::nullopt), std::nullopt);
  EXPECT_EQ(world.groups.free_blocks(), 0);
}

TEST(Ext4AllocatorFull, AFileAtTheDevicesEndLooksElsewhere) {
  World world(1);
  world.leave({{64, 64}, {kPerGroup - 32, 32}});
  File file;
  file.runs.push_back({kPerGroup - 32, 32});
  world.groups.take(file.runs[0]);
  ASSERT_TRUE(world.ask(file, 32, 64));
  EXPECT_EQ(file.runs[1], (Piece{64, 32}));
}

// --- any files, in any order

class AnyFiles {
 public:
  AnyFiles(std::uint64_t seed, const AllocatorRules& rules)
      : random_(seed), world_(2, rules), files_(24) {
    for (std::size_t i = 0; i < files_.size(); ++i) files_[i].number = i;
  }

  void step() {
    File& file = files_[random_.below(files_.size())];
    const std::uint64_t what = random_.below(16);
    if (what == 0) {
      remove(file);
    } else if (what == 1) {
      world_.close(file);
    } else if (what == 2) {
      grow(file, [&](std::int64_t blocks) { return world_.ask_closed(file, blocks); });
    } else if (what == 3) {
      grow(file, [&](std::int64_t blocks) { return plain(file, blocks); });
    } else {
      const auto more = static_cast<std::int64_t>(random_.below(300));
      grow(file, [&](std::int64_t blocks) {
        return world_.ask(file, blocks, file.blocks() + blocks + more);
      });
    }
  }
  // Everything belongs to one, and all that belongs to nobody is free.
  void check() const {
    std::vector<Piece> all;
    for (const File& file : files_) {
      all.insert(all.end(), file.runs.begin(), file.runs.end());
      if (file.kept) all.push_back(file.kept->run);
    }
    std::int64_t sum = world_.groups.free_blocks() + world_.allocator.shared_blocks();
    for (const Piece& run : all) sum += run.blocks;
    ASSERT_EQ(sum, 2 * kPerGroup);
    for (GroupNumber group = 0; group < 2; ++group) {
      const std::vector<Piece>& free = world_.groups.runs(group);
      all.insert(all.end(), free.begin(), free.end());
    }
    std::sort(all.begin(), all.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < all.size(); ++i) ASSERT_LE(all[i - 1].end(), all[i].begin);
  }
  void end() {
    for (File& file : files_) remove(file);
    world_.allocator.drop_shared();
    EXPECT_EQ(world_.groups.free_blocks(), 2 * kPerGroup);
    EXPECT_EQ(world_.groups.runs(0), (std::vector<Piece>{{0, kPerGroup}}));
  }

 private:
  std::optional<Piece> plain(File& file, std::int64_t blocks) {
    world_.close(file);
    const std::optional<Piece> run =
        world_.allocator.allocate_plain(file.number, blocks, file.tail());
    if (run) file.runs.push_back(*run);
    return run;
  }
  void grow(const File& file, const std::function<std::optional<Piece>(std::int64_t)>& ask) {
    const auto blocks = 1 + static_cast<std::int64_t>(random_.below(1 << random_.below(12)));
    const std::int64_t end = file.blocks() + blocks;
    while (file.blocks() < end) {
      const std::optional<Piece> run = ask(end - file.blocks());
      if (!run) {
        // Only what small files share may be left.
        ASSERT_EQ(world_.groups.free_blocks(), 0);
        return;
      }
      ASSERT_GE(run->blocks, 1);
      ASSERT_LE(file.blocks(), end);
    }
  }
  void remove(File& file) {
    world_.close(file);
    for (const Piece& run : file.runs) world_.groups.give_back(run);
    file.runs.clear();
  }

  Prng random_;
  World world_;
  std::vector<File> files_;
};

TEST(Ext4AllocatorRandom, NothingIsGivenTwiceAndNothingIsLost) {
  for (int repeat = 0; repeat < 4 * repeats(); ++repeat) {
    AllocatorRules rules = repeat % 2 == 0 ? AllocatorRules{} : recent();
    rules.stream_goals = repeat % 4 < 2 ? 1 : 3;
    AnyFiles files(static_cast<std::uint64_t>(repeat), rules);
    for (int step = 0; step < 3000; ++step) {
      ASSERT_NO_FATAL_FAILURE(files.step());
      if (step % 16 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(files.check());
    }
    files.end();
  }
}

}  // namespace test_ext4_allocator
}  // namespace flashlab::kernel::ext4
