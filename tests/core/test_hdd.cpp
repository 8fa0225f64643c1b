#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/prng.hpp"
#include "disk/hdd.hpp"
#include "late_host.hpp"

namespace flashlab::disk {
namespace test_hdd {

using namespace literals;

constexpr std::int64_t kSectors = 1'000'000'000 / 512;
constexpr Nanos kIdle = 10_ms;

HddParameters parameters() {
  HddParameters p;
  p.geometry = {Bytes{1'000'000'000},        RevolutionsPerMinute{7200}, 2,      4,
                BytesPerSecond{100'000'000}, BytesPerSecond{50'000'000}, 800_us, 1_ms};
  p.seek = {1_ms, 8_ms, 16_ms, 800_us, 200_us};
  p.link_rate = BytesPerSecond{250'000'000};
  p.command_overhead = 100_us;
  p.cache = 8_MiB;
  p.read_segments = 16;
  p.destage_idle = kIdle;
  p.queue_depth = 31;
  return p;
}

// Dirty data stays in the cache until a flush or a full cache.
HddParameters lazy() {
  HddParameters p = parameters();
  p.destage_idle = Nanos{3'600'000'000'000};
  return p;
}

Extent extent(std::int64_t begin, std::int64_t n) { return {Lba{begin}, Lba{begin + n}}; }
Request read(std::int64_t lba, std::int64_t n = 8) { return {Op::read, Lba{lba}, Sectors{n}}; }
Request write(std::int64_t lba, std::int64_t n = 8) { return {Op::write, Lba{lba}, Sectors{n}}; }
Request fua(std::int64_t lba, std::int64_t n = 8) {
  Request request = write(lba, n);
  request.fua = true;
  return request;
}
Request flush() { return {Op::flush, Lba{0}, Sectors{0}}; }

using Extents = std::vector<Extent>;

// The world around a disk: its clock, its alarm, and the answers with their times.
class World final : private Host {
 public:
  explicit World(const HddParameters& p) : hdd(p, *this) {}

  Tag submit(const Request& request) {
    const Tag tag = static_cast<Tag>(submitted.size());
    submitted.push_back(now);
    hdd.submit(tag, request, now);
    return tag;
  }
  void run_until(Nanos when) {
    while (alarm && *alarm <= when) ring();
    now = std::max(now, when);
  }
  void run_for(Nanos time) { run_until(now + time); }
  // Until everything is answered.
  void run() {
    while (alarm) ring();
    for (const auto& [tag, when] : answers) now = std::max(now, when);
  }
  Nanos answer(const Request& request) {
    const Tag tag = submit(request);
    run();
    return answers.at(tag);
  }
  [[nodiscard]] bool answered(Tag tag) const {
    return answers.contains(tag) && answers.at(tag) <= now;
  }
  [[nodiscard]] std::size_t unanswered() const {
    std::size_t n = submitted.size();
    for (const auto& [tag, when] : answers) n -= when <= now ? 1U : 0U;
    return n;
  }
  std::vector<std::byte> saved() {
    std::vector<std::byte> bytes;
    Archive a = Archive::saving(bytes);
    hdd.archive(a);
    return bytes;
  }
  void restore(const std::vector<std::byte>& bytes, const World& other) {
    Archive a = Archive::restoring(bytes);
    hdd.archive(a);
    EXPECT_TRUE(a.at_end());
    now = other.now;
    alarm = other.alarm;
    submitted = other.submitted;
    answers = other.answers;
  }

  Nanos now;
  std::optional<Nanos> alarm;
  std::vector<Nanos> submitted;
  std::map<Tag, Nanos> answers;
  Hdd hdd;

 private:
  void ring() {
    now = std::max(now, *alarm);
    alarm.reset();
    hdd.wake(now);
  }
  void done(Tag tag, Nanos when) override {
    EXPECT_LT(tag, submitted.size());
    EXPECT_TRUE(answers.emplace(tag, when).second) << "answered twice";
    EXPECT_GE(when, submitted[tag]);
  }
  void wake_at(Nanos when) override { alarm = when; }
};

void expect_same_counters(const HddCounters& a, const HddCounters& b) {
  EXPECT_EQ(std::memcmp(&a, &b, sizeof(HddCounters)), 0);
}

// --- writes in the cache, direct writes, flushes

TEST(Hdd, ADirectWriteSupersedesOlderDirtyData) {
  World world(parameters());
  world.answer(write(1000, 16));
  world.answer(fua(1004, 4));
  world.run_for(1'000_ms);
  world.hdd.wake(world.now);
  EXPECT_EQ(world.hdd.counters().media_write_bytes, to_bytes(Sectors{16}));
  EXPECT_EQ(world.hdd.power_cut(world.now), Extents{});
}

TEST(Hdd, ADirectWriteLeavesTheDirtyDataAroundIt) {
  World world(lazy());
  world.answer(write(1000, 16));
  world.answer(fua(1004, 4));
  EXPECT_EQ(world.hdd.power_cut(world.now), (Extents{extent(1000, 4), extent(1008, 8)}));
}

TEST(Hdd, ACachedWriteDoesNotPassAQueuedDirectOne) {
  World world(lazy());
  const Tag direct = world.submit(fua(500'000));
  const Tag behind = world.submit(write(500'004));
  const Tag elsewhere = world.submit(write(900'000));
  world.run();
  EXPECT_LT(world.answers.at(elsewhere), world.answers.at(direct));
  EXPECT_LT(world.answers.at(direct), world.answers.at(behind));
  EXPECT_EQ(world.hdd.power_cut(world.now), Extents{extent(900'000, 8)});
}

TEST(Hdd, ADirectWriteDoesNotPassABlockedOne) {
  HddParameters p = lazy();
  p.cache = 1_MiB;
  World world(p);
  world.submit(write(0, 2048));
  const Tag blocked = world.submit(write(500'000, 2048));
  const Tag direct = world.submit(fua(500'100));
  const Tag elsewhere = world.submit(fua(1'000'000));
  world.run();
  EXPECT_LT(world.answers.at(blocked), world.answers.at(direct));
  EXPECT_LT(world.answers.at(elsewhere), world.answers.at(direct));
  world.run_for(60_ms);
  const Extents doubt = world.hdd.power_cut(world.now);
  for (const Extent& e : doubt) EXPECT_FALSE(e.overlaps(extent(500'100, 8)));
}

TEST(Hdd, ADirectWriteMakesRoomForABlockedOne) {
  HddParameters p = lazy();
  p.cache = 1_MiB;
  p.scheduler.policy = "sptf";
  World world(p);
  world.answer(write(0, 2000));
  world.submit(read(1'800'000));
  const Tag direct = world.submit(fua(0, 2000));
  const Tag blocked = world.submit(write(500'000, 2000));
  world.run();
  EXPECT_TRUE(world.answered(direct));
  EXPECT_TRUE(world.answered(blocked));
}

TEST(Hdd, AWriteLargerThanTheCacheGoesToThePlatters) {
  HddParameters p = lazy();
  p.cache = 64_KiB;
  World world(p);
  world.answer(write(0, 129));
  EXPECT_EQ(world.unanswered(), 0U);
  EXPECT_EQ(world.hdd.power_cut(world.now), Extents{});
}

// What is near is always the shorter way; after half a second what is far goes all the same.
TEST(Hdd, SptfStarvesNobody) {
  HddParameters p = parameters();
  p.cache = Bytes{512};
  p.read_segments = 1;
  p.scheduler.policy = "sptf";
  World world(p);
  world.submit(read(1000));
  const Tag distant = world.submit(read(kSectors - 100));
  Tag last = distant;
  for (std::int64_t i = 1; i < 4000; ++i) last = world.submit(read(1000 + 64 * i));
  world.run();
  EXPECT_GT(world.answers.at(distant), 500_ms);
  EXPECT_LT(world.answers.at(distant), 600_ms);
  EXPECT_GT(world.answers.at(last), 1'000_ms) << "it was not the last that was left";
}

// The next track's first sector just arrives when the head has been switched: no time to settle.
// After a pause it takes that time.
TEST(Hdd, DestagingThatGoesOnAtOnceDoesNotSettle) {
  int later = 0;
  for (Nanos pause; pause < 9_ms; pause += 50_us) {
    World world(parameters());
    const Mechanics& m = world.hdd.mechanics();
    const std::int64_t track = m.geometry().locate(Lba{0}).sectors_per_track;
    world.submit(write(0, track));
    const Nanos end = world.answer(flush());
    world.run_for(pause);
    const Nanos begin = world.now;
    world.submit(write(track, track));
    const Nanos next = world.answer(flush());
    const auto accessed = [&](bool settles) {
      return m.access({0, end}, begin, Lba{track}, Sectors{track}, settles).end;
    };
    EXPECT_EQ(next, accessed(pause > Nanos{0})) << pause.count();
    later += accessed(true) > accessed(false) ? 1 : 0;
  }
  EXPECT_GT(later, 2) << "sometimes it decides";
}

HddParameters sharing(double write_share) {
  HddParameters p = lazy();
  p.cache = 1_MiB;
  p.read_segments = 2;
  p.write_share = write_share;
  return p;
}

TEST(Hdd, WritesHoldNoMoreThanTheirShareOfTheCache) {
  for (const double share : {0.0, 0.5}) {
    World world(sharing(share));
    // Less than three quarters of the cache, and more than half.
    world.submit(write(0, 700));
    world.submit(write(1'500'000, 700));
    world.run();
    const bool waited_for_the_arm = world.hdd.counters().media_writes > 0;
    EXPECT_EQ(waited_for_the_arm, share > 0.0);
  }
}

TEST(Hdd, ReadsHaveWhatWritesLeaveOfTheCache) {
  for (const double share : {0.0, 0.5}) {
    World world(sharing(share));
    world.answer(read(0));
    world.run_for(50_ms);  // long enough to fill a segment: 1,024 sectors, or half of them
    world.answer(read(700));
    EXPECT_EQ(world.hdd.counters().buffer_hits, share > 0.0 ? 0U : 1U);
  }
}

// Two segments beside the one that is being filled. A read at its place reads on behind it.
TEST(Hdd, WhatWasReadAheadAndUsedLeastLatelyIsReplaced) {
  HddParameters p = lazy();
  p.cache = 1_MiB;
  p.read_segments = 3;
  World world(p);
  const auto has = [&](std::int64_t begin) {
    const std::uint64_t before = world.hdd.counters().buffer_hits;
    world.answer(read(begin));
    world.run_for(50_ms);
    return world.hdd.counters().buffer_hits > before;
  };
  constexpr std::int64_t kA = 0;
  constexpr std::int64_t kB = 200'000;
  constexpr std::int64_t kC = 400'000;
  constexpr std::int64_t kD = 600'000;
  for (const std::int64_t begin : {kA, kB, kC}) EXPECT_FALSE(has(begin));
  EXPECT_TRUE(has(kA + 100)) << "older than B, but used later";
  EXPECT_FALSE(has(kD));
  EXPECT_TRUE(has(kA + 200));
  EXPECT_FALSE(has(kB + 100));
}

TEST(Hdd, AShareOfTheWholeCacheIsRefused) {
  EXPECT_THROW(World{sharing(1.0)}, OperatingError);
  EXPECT_THROW(World{sharing(-0.1)}, OperatingError);
}

class HddSchedulers : public testing::TestWithParam<const char*> {};

TEST_P(HddSchedulers, OverlappingDirectWritesKeepTheirOrder) {
  HddParameters p = parameters();
  p.write_cache = false;
  p.scheduler.policy = GetParam();
  World world(p);
  Prng random(3);
  std::vector<Extent> extents;
  for (int i = 0; i < 31; ++i) {
    const auto lba = static_cast<std::int64_t>(random.below(60));
    extents.push_back(extent(lba * 30'000 % 1'500'000 + (i % 3), 8));
    world.submit(write(extents.back().begin.index()));
    if (i % 4 == 0) continue;
    extents.push_back(extent(extents.back().begin.index() + 4, 8));
    world.submit(i % 4 == 1 ? read(extents.back().begin.index())
                            : write(extents.back().begin.index()));
  }
  world.run();
  for (Tag older = 0; older < extents.size(); ++older) {
    for (Tag newer = older + 1; newer < extents.size(); ++newer) {
      if (!extents[older].overlaps(extents[newer])) continue;
      EXPECT_LT(world.answers.at(older), world.answers.at(newer));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, HddSchedulers, testing::Values("fcfs", "elevator", "sptf"));

TEST(Hdd, WhatWasReadAheadBeforeADirectWriteIsStale) {
  HddParameters p = parameters();
  p.write_cache = false;
  World world(p);
  world.answer(read(1000));
  world.run_for(50_ms);  // the head has read on, over the sectors that are written next
  world.submit(write(1100));
  world.run();
  world.answer(read(1100));
  EXPECT_EQ(world.hdd.counters().buffer_hits, 0U);
  EXPECT_EQ(world.hdd.counters().media_reads, 2U);
}

TEST(Hdd, AFlushEndsAfterTheDirectWriteBeforeIt) {
  World world(parameters());
  const Tag direct = world.submit(fua(1'000'000));
  const Tag flushed = world.submit(flush());
  world.run();
  EXPECT_GE(world.answers.at(flushed), world.answers.at(direct));
}

TEST(Hdd, ACommandThatComesDuringAFlushStartsAfterIt) {
  World world(parameters());
  world.submit(read(1'000'000));
  const Tag flushed = world.submit(flush());
  const Tag held = world.submit(read(1'000'100));
  world.run_until(200_us);  // the read is served, so the end of the flush is known, but not reached
  const Tag later = world.submit({Op::trim, Lba{0}, Sectors{8}});
  world.run();
  EXPECT_GE(world.answers.at(held), world.answers.at(flushed));
  EXPECT_GE(world.answers.at(later), world.answers.at(flushed));
}

TEST(Hdd, ATrimCountsAllItsRanges) {
  World world(parameters());
  std::vector<Extent> ranges{extent(0, 8), extent(100, 16), extent(5000, 1)};
  Request trim{Op::trim, Lba{0}, Sectors{8}};
  trim.ranges = ranges;
  world.submit(write(77));
  world.submit(flush());
  const Tag held = world.submit(trim);
  ranges.assign(3, extent(0, 1'000'000));  // valid during submit() only
  world.run();
  EXPECT_TRUE(world.answered(held));
  EXPECT_EQ(world.hdd.counters().device.trim_ios, 1U);
  EXPECT_EQ(world.hdd.counters().device.trim_bytes, to_bytes(Sectors{25}));
}

TEST(Hdd, AReadAheadToTheDisksEndLeavesDestagingAlone) {
  World world(parameters());
  world.answer(read(kSectors - 8));
  world.run_for(50_ms);
  world.answer(write(100));
  world.hdd.wake(world.now + 100_ms);
  EXPECT_EQ(world.hdd.counters().media_writes, 1U);
}

// --- power cuts

TEST(HddPowerCut, TakesWhatIsOnlyInTheCache) {
  World world(lazy());
  world.answer(write(1000));
  world.answer(write(1008));
  world.answer(write(3000));
  EXPECT_EQ(world.hdd.power_cut(world.now), (Extents{extent(1000, 16), extent(3000, 8)}));
}

TEST(HddPowerCut, LeavesWhatWasFlushed) {
  World world(lazy());
  world.answer(write(1000));
  world.answer(flush());
  world.answer(write(3000));
  EXPECT_EQ(world.hdd.power_cut(world.now), Extents{extent(3000, 8)});
}

TEST(HddPowerCut, LeavesWhatAnIdleDiskHadWrittenBack) {
  World world(parameters());
  world.answer(write(1000));
  EXPECT_EQ(world.hdd.power_cut(world.now + 1'000_ms), Extents{});
}

TEST(HddPowerCut, HitsWhatIsBeingWrittenBack) {
  World world(parameters());
  world.answer(write(1'000'000));
  world.run_for(kIdle + 1_ms);
  world.hdd.wake(world.now);
  EXPECT_EQ(world.hdd.counters().media_writes, 1U);  // begun, and the seek alone takes longer
  EXPECT_EQ(world.hdd.power_cut(world.now), Extents{extent(1'000'000, 8)});
}

TEST(HddPowerCut, HitsADirectWriteUntilItIsAnswered) {
  for (const Nanos early : {1_ns, 0_ns}) {
    World world(parameters());
    const Tag tag = world.submit(fua(1'000'000));
    world.run();
    World again(parameters());
    again.submit(fua(1'000'000));
    const Extents doubt = again.hdd.power_cut(world.answers.at(tag) - early);
    EXPECT_EQ(doubt, early > Nanos{0} ? Extents{extent(1'000'000, 8)} : Extents{});
  }
}

TEST(HddPowerCut, HitsEveryWriteThatWaits) {
  HddParameters p = lazy();
  p.cache = 1_MiB;
  World world(p);
  world.submit(fua(1'500'000));  // under way
  world.submit(fua(1'000'000));  // queued
  world.submit(write(0, 2048));  // fills the cache
  world.submit(write(500'000));  // blocked
  world.submit(read(700'000));   // in no doubt
  world.submit(flush());         //
  world.submit(write(600'000));  // held
  world.submit(fua(600'004));    // held
  const Extents expected{extent(0, 2048), extent(500'000, 8), extent(600'000, 12),
                         extent(1'000'000, 8), extent(1'500'000, 8)};
  EXPECT_EQ(world.hdd.power_cut(150_us), expected);
}

// Two disks with different pasts, after a power cut at the same time, are the same disk.
TEST(HddPowerCut, LeavesADiskAsAfterPowerOn) {
  HddParameters p = parameters();
  p.cache = 1_MiB;
  World used(p);
  World fresh(p);
  used.submit(flush());
  for (int i = 0; i < 40; ++i) used.submit(i % 3 == 0 ? read(i * 40'000, 64) : write(i * 9'000));
  used.run_until(70_ms);
  fresh.run_until(70_ms);
  used.submit(fua(900'000));
  used.submit(write(800'000));
  EXPECT_FALSE(used.hdd.power_cut(used.now).empty());
  EXPECT_EQ(used.hdd.power_cut(used.now), Extents{});
  EXPECT_EQ(fresh.hdd.power_cut(fresh.now), Extents{});
  EXPECT_EQ(used.hdd.counters().device.flush_ios, 1U);  // the counters stay
  used.alarm.reset();
  for (int i = 0; i < 40; ++i) {
    const Request request = i % 2 == 0 ? read(i * 40'000 % 90'000) : write(i * 77, 300);
    const Nanos first = used.answer(request);
    EXPECT_EQ(first, fresh.answer(request));
  }
  EXPECT_EQ(used.hdd.power_cut(used.now), fresh.hdd.power_cut(fresh.now));
}

// --- random operations

struct Workload {
  Prng random;
  std::int64_t sectors;  // the device's first ones, or last ones
  std::int64_t first = 0;

  Request next() {
    const std::uint64_t kind = random.below(20);
    const auto n = 1 + static_cast<std::int64_t>(random.below(random.below(4) == 0 ? 400 : 16));
    const auto lba = first + static_cast<std::int64_t>(
                                 random.below(static_cast<std::uint64_t>(sectors - n + 1)));
    if (kind == 0) return flush();
    if (kind == 1) return {Op::trim, Lba{lba}, Sectors{n}};
    if (kind < 5) return fua(lba, n);
    return kind < 13 ? write(lba, n) : read(lba, n);
  }
  Nanos gap() {
    const std::array gaps{0_ns, 0_ns, 50_us, 1_ms, 7_ms, 30_ms};
    return gaps[random.below(gaps.size())];
  }
};

HddParameters some_parameters(Prng& random) {
  HddParameters p = random.below(2) == 0 ? parameters() : lazy();
  const std::array caches{1_MiB, 8_MiB, 64_KiB, Bytes{0}};
  const std::array schedulers{"fcfs", "elevator", "sptf"};
  p.cache = caches[random.below(caches.size())];
  p.scheduler.policy = schedulers[random.below(schedulers.size())];
  p.write_cache = random.below(4) != 0;
  p.queue_depth = 1 + static_cast<std::uint32_t>(random.below(32));
  return p;
}

TEST(HddRandom, EveryCommandIsAnsweredOnce) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Prng random(seed);
    World world(some_parameters(random));
    Workload work{Prng(seed), 20'000, seed % 2 == 0 ? 0 : kSectors - 20'000};
    for (int i = 0; i < 200; ++i) {
      world.submit(work.next());
      world.run_for(work.gap());
    }
    world.run();
    ASSERT_EQ(world.unanswered(), 0U) << "seed " << seed;
  }
}

// A late call computes the times of a punctual one, so calls that come for nothing change nothing.
TEST(HddRandom, ACallForNothingChangesNothing) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Prng random(seed);
    const HddParameters p = some_parameters(random);
    World punctual(p);
    World nervous(p);
    Workload work{Prng(seed), 20'000, seed % 2 == 0 ? 0 : kSectors - 20'000};
    for (int i = 0; i < 150; ++i) {
      const Request request = work.next();
      const Nanos gap = work.gap();
      punctual.submit(request);
      nervous.submit(request);
      const Nanos end = punctual.now + gap;
      punctual.run_until(end);
      for (int call = 0; call < 3; ++call) {
        nervous.run_for((end - nervous.now) / 3);
        if (call == 1) {
          (void)nervous.hdd.in_doubt(nervous.now);
        } else {
          nervous.hdd.wake(nervous.now);
        }
      }
      nervous.run_until(end);
    }
    punctual.run();
    nervous.run();
    ASSERT_EQ(punctual.answers, nervous.answers) << "seed " << seed;
    ASSERT_EQ(punctual.now, nervous.now);
    const Extents doubt = punctual.hdd.in_doubt(punctual.now);
    ASSERT_EQ(doubt, nervous.hdd.in_doubt(nervous.now)) << "seed " << seed;
    ASSERT_EQ(doubt, punctual.hdd.power_cut(punctual.now)) << "seed " << seed;
    expect_same_counters(punctual.hdd.counters(), nervous.hdd.counters());
  }
}

TEST(HddRandom, AReplayDoesWhatTheLateHostSaw) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Prng random(seed);
    HddParameters p = some_parameters(random);
    if (seed % 5 == 0) p.command_overhead = 0_ns;
    const auto make = [&](Host& host) { return std::make_unique<Hdd>(p, host); };
    LateHost late(make, Prng(random.next()));
    Workload work{Prng(seed), 20'000, seed % 2 == 0 ? 0 : kSectors - 20'000};
    for (int i = 0; i < 200; ++i) {
      late.submit(work.next());
      late.pass(work.gap());
    }
    late.drain();
    host::Driver driver(make);
    ASSERT_EQ(replay(driver, late), late.times()) << "seed " << seed;
    expect_same_counters(dynamic_cast<const Hdd&>(late.device()).counters(),
                         dynamic_cast<const Hdd&>(driver.device()).counters());
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// What is certain about each sector, from nothing but the commands and their answers.
class Ledger {
 public:
  void submit(Tag tag, const Request& request) { commands_.push_back({tag, request}); }

  struct Certain {
    std::set<std::int64_t> durable;  // cannot be in doubt
    std::set<std::int64_t> lost;     // must be: nothing but the cache can hold it
  };

  [[nodiscard]] Certain at_cut(const World& world, bool lazy) const {
    Certain certain;
    std::set<std::int64_t> maybe;  // written back by now, or not
    bool flush_under_way = false;
    for (const auto& [tag, request] : commands_) {
      const bool answered = world.answered(tag);
      if (request.op == Op::flush && answered) {
        certain.durable.insert(certain.lost.begin(), certain.lost.end());
        certain.durable.insert(maybe.begin(), maybe.end());
        certain.lost.clear();
        maybe.clear();
      }
      flush_under_way = flush_under_way || (request.op == Op::flush && !answered);
      if (request.op != Op::write) continue;
      const bool overtaken = overlaps_open_direct(world, tag, request);
      for (std::int64_t s = request.lba.index(); s < (request.lba + request.sectors).index(); ++s) {
        certain.durable.erase(s);
        certain.lost.erase(s);
        maybe.erase(s);
        if (request.fua) {
          (answered ? certain.durable : certain.lost).insert(s);
        } else {
          (lazy && !overtaken ? certain.lost : maybe).insert(s);
        }
      }
    }
    if (flush_under_way) certain.lost.clear();  // or written back, nobody knows
    return certain;
  }

 private:
  struct Entry {
    Tag tag;
    Request request;
  };
  // A cached write behind a direct one to its sectors may have gone to the platters, too.
  [[nodiscard]] bool overlaps_open_direct(const World& world, Tag tag, const Request& w) const {
    const Extent mine{w.lba, w.lba + w.sectors};
    for (const auto& [older, request] : commands_) {
      if (older >= tag) return false;
      const Extent theirs{request.lba, request.lba + request.sectors};
      const bool open =
          !world.answers.contains(older) || world.answers.at(older) > world.submitted[tag];
      if (request.op == Op::write && open && theirs.overlaps(mine)) return true;
    }
    return false;
  }

  std::vector<Entry> commands_;
};

void expect_in_order(const Extents& doubt) {
  for (std::size_t i = 0; i < doubt.size(); ++i) {
    EXPECT_LT(doubt[i].begin, doubt[i].end);
    if (i > 0) {
      EXPECT_LT(doubt[i - 1].end, doubt[i].begin);
    }
  }
}

void expect_agreement(const Extents& doubt, const Ledger::Certain& certain) {
  expect_in_order(doubt);
  std::set<std::int64_t> sectors;
  for (const Extent& e : doubt) {
    for (std::int64_t s = e.begin.index(); s < e.end.index(); ++s) sectors.insert(s);
  }
  for (const std::int64_t s : certain.durable) ASSERT_FALSE(sectors.contains(s)) << "sector " << s;
  for (const std::int64_t s : certain.lost) ASSERT_TRUE(sectors.contains(s)) << "sector " << s;
}

// The cut comes at any time, also twice in a disk's life.
void cut_at_random(const HddParameters& p, std::uint64_t seed, bool is_lazy,
                   std::array<std::size_t, 2>& seen) {
  Prng random(seed);
  World world(p);
  for (int life = 0; life < 2; ++life) {
    Ledger ledger;
    Workload work{Prng(random.next()), 3'000};
    const std::uint64_t commands = 1 + random.below(60);
    for (std::uint64_t i = 0; i < commands; ++i) {
      const Request request = work.next();
      ledger.submit(world.submit(request), request);
      world.run_for(work.gap());
    }
    world.run_for(Nanos{static_cast<std::int64_t>(random.below(40'000'000))});
    const Extents doubt = world.hdd.power_cut(world.now);
    const Ledger::Certain certain = ledger.at_cut(world, is_lazy);
    seen[0] += certain.durable.size();
    seen[1] += certain.lost.size();
    expect_agreement(doubt, certain);
    world.alarm.reset();
  }
}

TEST(HddRandom, APowerCutTakesNothingDurable) {
  std::array<std::size_t, 2> seen{};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng random(seed);
    HddParameters p = some_parameters(random);
    cut_at_random(p, seed, false, seen);
    if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(seen[0], 10'000U);
}

TEST(HddRandom, APowerCutTakesAllThatOnlyTheCacheHolds) {
  std::array<std::size_t, 2> seen{};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    HddParameters p = lazy();  // and with a cache that never presses
    p.scheduler.policy = seed % 2 == 0 ? "sptf" : "elevator";
    cut_at_random(p, seed, true, seen);
    if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(seen[0], 10'000U);
  EXPECT_GT(seen[1], 10'000U);
}

// --- saving and restoring

TEST(HddArchive, ARestoredDiskGoesOnAsTheOriginal) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    Prng random(seed);
    const HddParameters p = some_parameters(random);
    World original(p);
    World restored(p);
    Workload work{Prng(seed), 20'000, seed % 2 == 0 ? 0 : kSectors - 20'000};
    const std::uint64_t before = random.below(100);
    for (std::uint64_t i = 0; i < before; ++i) {
      original.submit(work.next());
      original.run_for(work.gap());
    }
    restored.submit(read(900'000));  // what it was doing is forgotten
    restored.submit(write(77));
    const std::vector<std::byte> bytes = original.saved();
    restored.restore(bytes, original);
    EXPECT_EQ(restored.saved().size(), bytes.size());
    for (int i = 0; i < 60; ++i) {
      const Request request = work.next();
      const Nanos gap = work.gap();
      for (World* world : {&original, &restored}) {
        world->submit(request);
        world->run_for(gap);
      }
      ASSERT_EQ(original.alarm, restored.alarm) << "seed " << seed;
    }
    const Extents doubt = original.hdd.power_cut(original.now);
    ASSERT_EQ(doubt, restored.hdd.power_cut(restored.now)) << "seed " << seed;
    ASSERT_EQ(original.answers, restored.answers) << "seed " << seed;
    expect_same_counters(original.hdd.counters(), restored.hdd.counters());
  }
}

TEST(HddArchive, DamagedBytesAreAnOperatingError) {
  World world(parameters());
  for (int i = 0; i < 10; ++i) world.submit(i % 2 == 0 ? fua(i * 1000) : write(i * 1000));
  std::vector<std::byte> bytes = world.saved();
  bytes.pop_back();
  World other(parameters());
  Archive a = Archive::restoring(bytes);
  EXPECT_THROW(other.hdd.archive(a), OperatingError);
}

}  // namespace test_hdd
}  // namespace flashlab::disk
