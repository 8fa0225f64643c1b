#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/prng.hpp"
#include "flash/ftl.hpp"
#include "flash/lane.hpp"
#include "flash/steady_state.hpp"
#include "flash/timeless.hpp"
#include "host/latency_histogram.hpp"
#include "repeat.hpp"

namespace flashlab::flash {
namespace test_ftl {

// --- the translation layer: invariants after random operations

struct Shape {
  GeometryParameters geometry;
  FtlParameters ftl;
};

template <class T, std::size_t N>
T one_of(Prng& random, const std::array<T, N>& all) {
  return all[random.below(N)];
}

// Small, of any kind, and legal most of the time.
Shape some_shape(Prng& random) {
  Shape s;
  GeometryParameters& g = s.geometry;
  g.map_unit = Bytes{4096};
  g.page = g.map_unit * static_cast<std::int64_t>(one_of(random, std::array{1, 2, 4}));
  g.planes = static_cast<std::int64_t>(1 + random.below(2));
  g.pages_per_block = static_cast<std::int64_t>(2 + random.below(20));
  g.channels = static_cast<std::int64_t>(1 + random.below(3));
  g.dies_per_channel = static_cast<std::int64_t>(1 + random.below(2));
  g.allocation = random.below(3) == 0 ? "global" : "per_die";
  const Bytes stripe = g.page * g.planes * g.pages_per_block * g.channels * g.dies_per_channel;
  g.capacity = stripe * static_cast<std::int64_t>(4 + random.below(12)) + g.map_unit;
  g.overprovision_ratio = 0.1 + static_cast<double>(random.below(20)) / 10.0;
  s.ftl.victim.policy = one_of(random, std::array{"greedy", "fifo", "d_choices", "cost_benefit"});
  s.ftl.victim.choices = static_cast<std::uint32_t>(1 + random.below(12));
  s.ftl.gc_placement = one_of(random, std::array{"mixed", "separate", "by_stream"});
  s.ftl.gc_pace = random.below(2) == 0 ? "whole" : "paced";
  s.ftl.reserve_blocks = static_cast<std::uint32_t>(1 + random.below(3));
  s.ftl.streams = static_cast<StreamId>(1 + random.below(4));
  s.ftl.seed = random.next();
  return s;
}

// Counts what the FTL tells the dies, and which pages are programmed: no page twice before its
// block is erased, none of a block that is erased later without need.
struct Recorder {
  explicit Recorder(const Geometry& g) : geometry(g), programmed(g.blocks()) {}

  void program(Page page, Die die, Work /*work*/) {
    const Slot first = page * geometry.slots_per_page();
    const Block block = geometry.block_of(first);
    EXPECT_EQ(die, geometry.die_of(first));
    EXPECT_TRUE(programmed[block].insert(page).second) << "page " << page << " is not erased";
    ++programs;
  }
  void copies(Die die, Page to, std::uint32_t pages) {
    for (Page page = to; page < to + pages; ++page) {
      read(die, 1);
      program(page, die, Work::gc);
    }
  }
  void read(Die die, std::uint32_t units) {
    EXPECT_LT(die, geometry.dies());
    EXPECT_LE(units, geometry.slots_per_page());
    EXPECT_GT(units, 0U);
    ++reads;
  }
  void erase(Block block) {
    EXPECT_EQ(programmed[block].size(), geometry.pages_per_block()) << "an open block is erased";
    programmed[block].clear();
    ++erases;
  }
  void settle(Block block, const PageMap& map) {
    EXPECT_EQ(programmed[block].size(), geometry.pages_per_block());
    EXPECT_TRUE(map.is_offered(block));
  }
  void before_choice() { ++choices; }

  const Geometry& geometry;
  std::vector<std::set<Page>> programmed;
  std::uint64_t programs = 0;
  std::uint64_t reads = 0;
  std::uint64_t erases = 0;
  std::uint64_t choices = 0;
};

// Everything that must hold between two calls. `holds`: which units the host expects to be there.
void expect_sound(const Ftl& ftl, const Recorder& nand, const std::vector<bool>& holds,
                  const FtlParameters& p) {
  const Geometry& g = ftl.geometry();
  const PageMap& map = ftl.map();
  std::vector<std::uint32_t> valid(g.blocks());
  std::vector<std::uint32_t> live(g.groups());
  std::set<Slot> used;
  for (Lpn lpn = 0; lpn < g.lpns(); ++lpn) {
    const Slot slot = map.find(lpn);
    ASSERT_EQ(slot != kNoSlot, holds[lpn]) << "unit " << lpn;
    if (slot == kNoSlot) continue;
    ASSERT_LT(slot, g.slots());
    ASSERT_TRUE(used.insert(slot).second) << "slot " << slot << " holds two units";
    ASSERT_EQ(map.lpn_at(slot), lpn);
    ASSERT_TRUE(map.is_valid(slot));
    ++valid[g.block_of(slot)];
    ++live[g.group_of(g.block_of(slot))];
  }
  std::uint64_t bits = 0;
  for (Slot slot = 0; slot < g.slots(); ++slot) bits += map.is_valid(slot) ? 1U : 0U;
  ASSERT_EQ(bits, used.size());
  for (Block block = 0; block < g.blocks(); ++block) {
    ASSERT_EQ(map.valid(block), valid[block]) << "block " << block;
    ASSERT_LE(ftl.blocks().is_closed(block) ? g.pages_per_block() : 0U,
              nand.programmed[block].size());
    if (map.is_offered(block)) {
      ASSERT_TRUE(ftl.blocks().is_closed(block));
    }
  }
  const std::uint32_t least = p.reserve_blocks - (p.gc_pace == "paced" ? 1U : 0U);
  for (Group group = 0; group < g.groups(); ++group) {
    ASSERT_EQ(ftl.live_units(group), live[group]);
    ASSERT_GE(ftl.blocks().free_blocks(group), least);
  }
}

// host + copied + padded = slots of programmed pages + slots that are filled in open pages.
void expect_counted(const Ftl& ftl, const Recorder& nand) {
  const FtlCounters& c = ftl.counters();
  const std::uint64_t pages = c.host_pages + c.gc_pages;
  ASSERT_EQ(nand.programs, pages);
  ASSERT_EQ(nand.reads, c.gc_page_reads);
  ASSERT_EQ(nand.erases, c.erases);
  const std::uint64_t units = c.host_units + c.copied_units + c.padded_units;
  const std::uint64_t complete = pages * ftl.geometry().slots_per_page();
  ASSERT_GE(units, complete);
  std::vector<Slot> open;
  ftl.open_host_slots(open);
  ASSERT_EQ(c.host_units + c.padded_units,
            c.host_pages * ftl.geometry().slots_per_page() + open.size());
  std::uint64_t erases = 0;
  for (Block b = 0; b < ftl.geometry().blocks(); ++b) erases += ftl.blocks().erases(b);
  ASSERT_EQ(erases, c.erases);
  Share by_stream;
  for (const Share& s : ftl.attribution().by_stream()) {
    by_stream.host_units += s.host_units;
    by_stream.copied_units += s.copied_units;
    by_stream.padded_units += s.padded_units;
  }
  ASSERT_EQ(by_stream.host_units, c.host_units);
  ASSERT_EQ(by_stream.copied_units, c.copied_units);
  ASSERT_EQ(by_stream.padded_units, c.padded_units);
}

std::unique_ptr<Ftl> made(const Shape& s) {
  try {
    return std::make_unique<Ftl>(Geometry(s.geometry), s.ftl, std::vector<Attribution::Range>{});
  } catch (const OperatingError&) {
    return nullptr;  // no room: refused, as it should
  }
}

void work_at_random(Ftl& ftl, const FtlParameters& p, Prng& random, int operations, int checks) {
  Recorder nand(ftl.geometry());
  const Lpn lpns = ftl.geometry().lpns();
  std::vector<bool> holds(lpns);
  const auto group = [&] { return static_cast<Group>(random.below(4)); };
  for (int i = 0; i < operations; ++i) {
    const std::uint64_t kind = random.below(100);
    const Lpn span = random.below(2) == 0 ? lpns : lpns / 8 + 1;
    const auto lpn = static_cast<Lpn>(random.below(span));
    const auto stream = static_cast<StreamId>(random.below(p.streams));
    if (kind < 90) {
      const Slot slot = ftl.write(nand, lpn, stream, stream);
      ASSERT_EQ(ftl.map().find(lpn), slot);
      holds[lpn] = true;
    } else if (kind < 97) {
      ASSERT_EQ(ftl.trim(lpn), holds[lpn]);
      holds[lpn] = false;
    } else if (kind < 98) {
      ftl.pad_host_pages(nand);
      ASSERT_FALSE(ftl.has_open_host_page());
    } else {
      ftl.collect_ahead(nand, p.reserve_blocks + group(), [](Group) { return true; });
    }
    if (i % (operations / checks) == 0) {
      expect_sound(ftl, nand, holds, p);
      expect_counted(ftl, nand);
      if (testing::Test::HasFailure()) return;
    }
  }
  expect_sound(ftl, nand, holds, p);
  expect_counted(ftl, nand);
}

TEST(FtlRandom, KeepsItsInvariants) {
  int ran = 0;
  const int wanted = 150 * repeats();
  for (std::uint64_t seed = 0; ran < wanted; ++seed) {
    Prng random(seed);
    const Shape shape = some_shape(random);
    const std::unique_ptr<Ftl> ftl = made(shape);
    if (ftl == nullptr) continue;
    ++ran;
    work_at_random(*ftl, shape.ftl, random, 3000, 15);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(FtlRandom, IsTheSameAfterItsStateWasSaved) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Prng random(seed);
    const Shape shape = some_shape(random);
    const std::unique_ptr<Ftl> ftl = made(shape);
    const std::unique_ptr<Ftl> other = made(shape);
    if (ftl == nullptr) continue;
    Timeless nand;
    write_at_random(*ftl, ftl->geometry().lpns(), 5000, random);
    std::vector<std::byte> bytes;
    Archive saving = Archive::saving(bytes);
    ftl->archive(saving);
    Archive restoring = Archive::restoring(bytes);
    other->archive(restoring);
    ASSERT_TRUE(restoring.at_end());
    for (int i = 0; i < 2000; ++i) {
      const auto lpn = static_cast<Lpn>(random.below(ftl->geometry().lpns()));
      ASSERT_EQ(ftl->write(nand, lpn, 0, 0), other->write(nand, lpn, 0, 0)) << "seed " << seed;
    }
  }
}

TEST(FtlRandom, TheSteadyStateIsSound) {
  int ran = 0;
  for (std::uint64_t seed = 1000; ran < 25; ++seed) {
    Prng random(seed);
    const Shape shape = some_shape(random);
    const std::unique_ptr<Ftl> ftl = made(shape);
    if (ftl == nullptr) continue;
    ++ran;
    reach_steady_state(*ftl, shape.geometry, shape.ftl, seed);
    Recorder nand(ftl->geometry());
    for (Block b = 0; b < ftl->geometry().blocks(); ++b) {
      if (!ftl->blocks().is_closed(b)) continue;
      const Page first = ftl->geometry().page_of(ftl->geometry().first_slot(b));
      for (Page p = 0; p < ftl->geometry().pages_per_block(); ++p) {
        nand.programmed[b].insert(first + p);
      }
    }
    expect_sound(*ftl, nand, std::vector<bool>(ftl->geometry().lpns(), true), shape.ftl);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    write_at_random(*ftl, ftl->geometry().lpns(), 3000, random);
  }
}

Shape plain() {
  Shape s;
  s.geometry = {Bytes{4096 * 4 * 8 * 20}, 0.5, Bytes{16384}, Bytes{4096}, 1, 8, 2, 1, "per_die"};
  return s;
}

TEST(Ftl, NeighbouringPagesLieOnDifferentDies) {
  Shape s = plain();
  Ftl ftl(Geometry(s.geometry), s.ftl, {});
  write_in_order(ftl, 16);
  for (Lpn lpn = 0; lpn < 16; ++lpn) {
    EXPECT_EQ(ftl.geometry().die_of(ftl.map().find(lpn)), lpn / 4 % 2);
  }
}

TEST(Ftl, PacedCollectionNeverCopiesABlockAtOnce) {
  Shape s = plain();
  s.geometry.pages_per_block = 64;
  s.geometry.capacity = Bytes{4096 * 4 * 64 * 20};
  s.ftl.gc_pace = "paced";
  Ftl ftl(Geometry(s.geometry), s.ftl, {});
  write_in_order(ftl, ftl.geometry().lpns());
  Prng random(1);
  Timeless nand;
  std::uint64_t most = 0;
  for (int i = 0; i < 50'000; ++i) {
    const std::uint64_t before = ftl.counters().copied_units;
    ftl.write(nand, static_cast<Lpn>(random.below(ftl.geometry().lpns())), 0, 0);
    most = std::max(most, ftl.counters().copied_units - before);
  }
  EXPECT_GT(ftl.counters().erases, 100U);
  EXPECT_LT(most, ftl.geometry().slots_per_block() / 4);
}

// --- a policy that looks at stretches of blocks against one that looks at each

TEST(Victim, GreedyTakesTheFirstOfThoseWithTheFewestValidSlots) {
  constexpr std::int32_t kWithheld = 1 << 30;
  const auto greedy = make_victim_policy({.policy = "greedy"});
  Prng random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::int32_t> valid(1 + random.below(700));
    for (std::int32_t& count : valid) {
      count =
          static_cast<std::int32_t>(random.below(6 + i)) + (random.below(3) == 0 ? kWithheld : 0);
    }
    valid[random.below(valid.size())] &= ~kWithheld;
    const std::vector<std::uint64_t> closed_at(valid.size());
    const VictimView view{valid, kWithheld, closed_at, 0, 256, random};
    const auto least = std::min_element(valid.begin(), valid.end());
    ASSERT_EQ(greedy->choose(view), static_cast<std::size_t>(least - valid.begin()));
  }
}

// --- a transfer lane against an obvious list of intervals

class ObviousLane {
 public:
  Nanos take(Nanos ready, Nanos length) {
    Nanos begin = ready;
    for (const auto& [from, to] : busy_) {  // ascending
      if (begin + length <= from) break;
      begin = std::max(begin, to);
    }
    busy_.emplace(begin, begin + length);
    return begin;
  }

 private:
  std::map<Nanos, Nanos> busy_;
};

TEST(Lane, UsesTheFirstGapThatIsLongEnough) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(40 * repeats()); ++seed) {
    Prng random(seed);
    Lane lane;
    ObviousLane obvious;
    Nanos now;
    for (int i = 0; i < 600; ++i) {
      now += Nanos{static_cast<std::int64_t>(random.below(20))};
      lane.forget_before(now);
      const Nanos ready = now + Nanos{static_cast<std::int64_t>(random.below(200))};
      const Nanos length{1 + static_cast<std::int64_t>(random.below(15))};
      ASSERT_EQ(lane.take(ready, length), obvious.take(ready, length)) << seed << ", step " << i;
    }
  }
}

TEST(Lane, TakesARowAsOneTransferAfterTheOther) {
  int rows = 0;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(40 * repeats()); ++seed) {
    Prng random(seed);
    Lane lane;
    ObviousLane obvious;
    Nanos now;
    for (int i = 0; i < 600; ++i) {
      now += Nanos{static_cast<std::int64_t>(random.below(40))};
      lane.forget_before(now);
      const Nanos ready = now + Nanos{static_cast<std::int64_t>(random.below(200))};
      const Nanos length{1 + static_cast<std::int64_t>(random.below(15))};
      const auto transfers = 1 + static_cast<std::int64_t>(random.below(5));
      if (lane.row_fits(ready)) {
        const Nanos end = lane.take_row(ready, length, transfers);
        for (std::int64_t k = 1; k < transfers; ++k) obvious.take(ready, length);
        ASSERT_EQ(end, obvious.take(ready, length) + length) << seed << ", step " << i;
        ++rows;
      } else {
        ASSERT_EQ(lane.take(ready, length), obvious.take(ready, length)) << seed << ", step " << i;
      }
    }
  }
  EXPECT_GT(rows, 1000);
}

TEST(Lane, IsFreeAfterAReset) {
  Lane lane;
  EXPECT_EQ(lane.take(Nanos{10}, Nanos{100}), Nanos{10});
  EXPECT_EQ(lane.take(Nanos{20}, Nanos{5}), Nanos{110});
  lane.reset(Nanos{50});
  EXPECT_EQ(lane.take(Nanos{50}, Nanos{5}), Nanos{50});
}

// --- small parts

TEST(Divider, DividesLikeTheProcessor) {
  Prng random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto divisor = static_cast<std::uint32_t>((random.next() >> (32 + random.below(32))) | 1);
    for (const std::uint32_t d : {divisor, divisor + 1 == 0 ? 1U : divisor + 1}) {
      const Divider divider(d);
      const auto n = static_cast<std::uint32_t>(random.next());
      const std::uint32_t multiple = n / d * d;
      for (const std::uint32_t x : {n, multiple, multiple - 1, 0U, d - 1, d, UINT32_MAX}) {
        ASSERT_EQ(divider.quotient(x), x / d) << x << " / " << d;
      }
    }
  }
}

TEST(LatencyHistogram, KnowsEveryValueWithin1Of128) {
  using host::LatencyHistogram;
  Prng random(2);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t value = random.next() >> random.below(64);
    const std::size_t at = LatencyHistogram::bucket(value);
    const std::uint64_t low = LatencyHistogram::lower_bound(at);
    ASSERT_LE(low, value);
    ASSERT_LE(value - low, value / 128) << value;
    if (at < LatencyHistogram::bucket(UINT64_MAX)) {
      ASSERT_GT(LatencyHistogram::lower_bound(at + 1), value) << value;
    }
  }
}

TEST(LatencyHistogram, ItsBucketsAscendWithoutAGap) {
  using host::LatencyHistogram;
  const std::size_t last = LatencyHistogram::bucket(UINT64_MAX);
  for (std::size_t i = 0; i <= last; ++i) {
    ASSERT_EQ(LatencyHistogram::bucket(LatencyHistogram::lower_bound(i)), i);
    if (i > 0) {
      const std::uint64_t before = LatencyHistogram::lower_bound(i) - 1;
      ASSERT_EQ(LatencyHistogram::bucket(before), i - 1);
    }
  }
}

TEST(LatencyHistogram, CountsWhatItGets) {
  host::LatencyHistogram histogram;
  for (const std::int64_t value : {7, 7, 300, -5, 1'000'000}) histogram.add(Nanos{value});
  EXPECT_EQ(histogram.sum_ns(), 1'000'314U);
  EXPECT_EQ(histogram.least_ns(), 0U);
  EXPECT_EQ(histogram.largest_ns(), 1'000'000U);
  EXPECT_EQ(histogram.counts()[7], 2U);
}

}  // namespace test_ftl
}  // namespace flashlab::flash
