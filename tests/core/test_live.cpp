#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "base/prng.hpp"
#include "disk/hdd.hpp"
#include "flash/ssd.hpp"
#include "host/driver.hpp"
#include "live/device.hpp"
#include "live_host.hpp"
#include "repeat.hpp"

namespace flashlab::live {
namespace test_live {

using namespace literals;
using testing_live::LiveHost;
using testing_live::memory_fd;
using testing_live::Version;

constexpr Bytes kVisible = 2_MiB;
constexpr std::int64_t kSectors = 2 * 1024 * 1024 / 512;
constexpr std::int64_t kBlock = 8;

flash::SsdParameters ssd() {
  flash::SsdParameters p;
  p.geometry = {4_MiB, 0.6, 16_KiB, 4_KiB, 1, 8, 2, 1, "per_die"};
  p.nand = {50_us, 500_us, 3_ms, 200_us, BytesPerSecond{409'600'000}, 0.0, 0};
  p.link_rate = BytesPerSecond{1'024'000'000};
  p.command_time = 5_us;
  p.read_latency = 7_us;
  p.write_latency = 3_us;
  p.write_buffer = 16_KiB * 8;
  p.trim.costs = {900_ns, 600_ns, 40_ns, 60_ns, 16_KiB};
  p.trim.max_ranges = 4;
  p.background_idle = 1_ms;
  p.queue_depth = 8;
  return p;
}

// Its map knows 16 KiB and nothing smaller.
flash::SsdParameters coarse_ssd() {
  flash::SsdParameters p = ssd();
  p.geometry.map_unit = 16_KiB;
  return p;
}

flash::SsdParameters protected_ssd() {
  flash::SsdParameters p = ssd();
  p.power_loss_protection = true;
  return p;
}

disk::HddParameters hdd() {
  disk::HddParameters p;
  p.geometry = {Bytes{1'000'000'000},        RevolutionsPerMinute{7200}, 2,      4,
                BytesPerSecond{100'000'000}, BytesPerSecond{50'000'000}, 800_us, 1_ms};
  p.seek = {100_us, 8_ms, 16_ms, 200_us, 50_us};
  p.link_rate = BytesPerSecond{250'000'000};
  p.command_overhead = 100_us;
  p.cache = 8_MiB;
  p.read_segments = 16;
  p.destage_idle = Nanos{3'600'000'000'000};
  p.queue_depth = 4;
  return p;
}

disk::HddParameters uncached_hdd() {
  disk::HddParameters p = hdd();
  p.write_cache = false;
  return p;
}

LiveDevice::MakeDevice make(const flash::SsdParameters& p) {
  return [p](Host& host) { return std::make_unique<flash::Ssd>(p, host); };
}
LiveDevice::MakeDevice make(const disk::HddParameters& p) {
  return [p](Host& host) { return std::make_unique<disk::Hdd>(p, host); };
}

struct Kind {
  const char* name;
  LiveDevice::MakeDevice make;
  bool durable_when_answered;
};

class World {
 public:
  explicit World(const LiveDevice::MakeDevice& make, Pace pace = Pace::real,
                 std::int64_t slowdown = 1)
      : device(make, memory_fd(kVisible + 64_MiB), kVisible), host(device) {
    device.start();
    device.set_pace(pace, slowdown, Nanos{0});
  }
  LiveCounters counters() {
    LiveCounters found;
    device.look([&](DeviceModel&, LiveCounters& c, Nanos) { found = c; });
    return found;
  }

  LiveDevice device;
  LiveHost host;
};

Extent extent(std::int64_t begin, std::int64_t n) { return {Lba{begin}, Lba{begin + n}}; }

Extent any_extent(Prng& random, std::int64_t begin, std::int64_t end, std::int64_t most) {
  const auto span = static_cast<std::uint64_t>(end - begin);
  const auto at = begin + static_cast<std::int64_t>(random.below(span));
  const auto longest = static_cast<std::uint64_t>(std::min(end - at, most));
  return extent(at, 1 + static_cast<std::int64_t>(random.below(longest)));
}

std::uint64_t answers_in(const host::LatencyHistogram& histogram) {
  const auto& counts = histogram.counts();
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

class Live : public testing::TestWithParam<Kind> {};

const Kind kKinds[] = {{"ssd", make(ssd()), false},
                       {"coarse_ssd", make(coarse_ssd()), false},
                       {"protected_ssd", make(protected_ssd()), true},
                       {"hdd", make(hdd()), false},
                       {"uncached_hdd", make(uncached_hdd()), true}};

INSTANTIATE_TEST_SUITE_P(All, Live, testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Live, KeepsWhatIsWrittenAndForgetsWhatIsTrimmed) {
  for (const Pace pace : {Pace::real, Pace::none}) {
    World world(GetParam().make, pace);
    Prng random(3);
    std::vector<Version> expected(kSectors, 0);
    for (Version version = 1; version <= 40; ++version) {
      const Extent where = any_extent(random, 0, kSectors, 5 * kBlock);
      const bool trims = random.below(4) == 0;
      trims ? world.host.trim(where) : world.host.write(where, version);
      if (random.below(8) == 0) world.host.flush();
      ASSERT_EQ(world.host.wait(), 0U);  // overlapping requests have no order
      std::fill(expected.begin() + where.begin.index(), expected.begin() + where.end.index(),
                trims ? 0 : version);
    }
    const auto found = world.host.versions(extent(0, kSectors));
    EXPECT_TRUE(std::ranges::equal(found, expected));
  }
}

TEST_P(Live, EveryRequestIsAnsweredOnceWhateverElseHappens) {
  constexpr int kThreads = 3;
  constexpr int kRequests = 60;
  World world(GetParam().make);
  std::atomic<int> running = kThreads;
  std::vector<std::thread> users;
  for (int user = 0; user < kThreads; ++user) {
    users.emplace_back([&, user] {
      Prng random(static_cast<std::uint64_t>(user));
      for (int i = 0; i < kRequests; ++i) {
        const Extent where = any_extent(random, 0, kSectors, 2 * kBlock);
        switch (random.below(5)) {
          case 0:
            world.host.flush();
            break;
          case 1:
            world.host.trim(where);
            break;
          case 2:
            world.host.read(where);
            break;
          default:
            world.host.write(where, 1);
        }
        if (random.below(20) == 0) world.host.wait();
      }
      --running;
    });
  }
  Prng random(99);
  std::uint64_t cuts = 0;
  const Pace paces[] = {Pace::real, Pace::none, Pace::real};
  while (running > 0) {
    world.host.wait_for(
        std::min<std::size_t>(world.host.answered() + random.below(20), kThreads * kRequests));
    switch (random.below(6)) {
      case 0:
        world.device.set_pace(paces[random.below(3)], 1, Nanos{0});
        break;
      case 1: {
        (void)world.device.save_model(true);
        break;
      }
      case 2:
        world.device.end_record([](DeviceModel&, LiveCounters&, Nanos) {});
        break;
      case 3:
        world.device.power_cut(random.next(), After::on);
        ++cuts;
        break;
      case 4:
        (void)world.device.take_records();
        world.device.set_honest_flush(random.below(2) == 0);
        break;
      default:
        (void)world.counters();
    }
  }
  for (std::thread& user : users) user.join();
  const std::size_t errors = world.host.wait();
  const LiveCounters counters = world.counters();
  std::uint64_t replies = 0;
  for (const std::uint64_t n : counters.replies) replies += n;
  EXPECT_EQ(replies, static_cast<std::uint64_t>(kThreads * kRequests));
  EXPECT_LE(errors, counters.errors);
  EXPECT_EQ(counters.power_cuts, cuts);
}

TEST_P(Live, HoldsWhatTheDeviceDoesNotTake) {
  World world(GetParam().make, Pace::real, 100);  // nothing is answered before all are there
  for (int i = 0; i < 50; ++i) world.host.write(extent(i * kBlock, kBlock), 1);
  EXPECT_EQ(world.host.wait(), 0U);
  EXPECT_GT(world.counters().held, 0U);
  EXPECT_EQ(world.counters().replies[static_cast<std::size_t>(Op::write)], 50U);
}

// Who writes what, and what of it must survive.
class Ledger {
 public:
  Ledger() : history_(kSectors, {0}), answered_(kSectors, 0), durable_(kSectors, 0) {}

  void issue(const Extent& where, Version version) {
    each(where, [&](std::size_t i) { history_[i].push_back(version); });
  }
  void answer(const Extent& where) {
    each(where, [&](std::size_t i) { answered_[i] = history_[i].size() - 1; });
  }
  // What is answered now, in a part of the device.
  [[nodiscard]] std::vector<std::size_t> answered(const Extent& where) const {
    return {answered_.begin() + where.begin.index(), answered_.begin() + where.end.index()};
  }
  void make_durable(const Extent& where, const std::vector<std::size_t>& then) {
    std::copy(then.begin(), then.end(), durable_.begin() + where.begin.index());
  }

  struct Findings {
    int lost = 0;     // older than what was durable
    int garbage = 0;  // never written there
    int undone = 0;   // older than what was answered: a cut may do that
  };
  // What the device holds after a cut, which is what there is from then on.
  Findings compare(const std::vector<std::optional<Version>>& found) {
    Findings findings;
    for (std::size_t i = 0; i < found.size(); ++i) {
      auto& past = history_[i];
      const auto last = std::find(past.rbegin(), past.rend(), found[i].value_or(UINT64_MAX));
      const auto at = static_cast<std::size_t>(past.rend() - last);  // index + 1; 0: not there
      findings.garbage += at == 0 ? 1 : 0;
      findings.lost += at > 0 && at - 1 < durable_[i] ? 1 : 0;
      findings.undone += at > 0 && at - 1 < answered_[i] ? 1 : 0;
      past = {found[i].value_or(0)};
      answered_[i] = durable_[i] = 0;
    }
    return findings;
  }

 private:
  static void each(const Extent& where, const std::function<void(std::size_t)>& f) {
    for (std::int64_t i = where.begin.index(); i < where.end.index(); ++i) {
      f(static_cast<std::size_t>(i));
    }
  }
  std::vector<std::vector<Version>> history_;
  std::vector<std::size_t> answered_;
  std::vector<std::size_t> durable_;
};

// Writes and trims its part of the device, several requests at a time, until one fails.
void use(World& world, Ledger& ledger, const Extent& part, bool durable_when_answered,
         std::atomic<Version>& versions, Prng random) {
  LiveHost host(world.device);
  const auto parts = static_cast<std::int64_t>(1 + random.below(4));
  const std::int64_t length = part.length().count() / parts;
  for (;;) {
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t begin = part.begin.index() + i * length;
      const Extent where = any_extent(random, begin, begin + length, 3 * kBlock);
      const bool trims = random.below(6) == 0;
      const Version version = trims ? 0 : ++versions;
      ledger.issue(where, version);
      const auto then = [&ledger, where](int error, auto) {
        if (error == 0) ledger.answer(where);
      };
      trims ? host.trim(where, then) : host.write(where, version, then);
    }
    if (host.wait() > 0) return;
    const auto answered = ledger.answered(part);
    if (durable_when_answered) ledger.make_durable(part, answered);
    if (random.below(3) == 0) {
      host.flush();
      if (host.wait() > 0) return;
      ledger.make_durable(part, answered);
    }
  }
}

Ledger::Findings cut_at_random_moments(const Kind& kind, int cuts, bool honest) {
  constexpr std::int64_t kUsers = 3;
  World world(kind.make);
  world.device.set_honest_flush(honest);
  Ledger ledger;
  Ledger::Findings all;
  std::atomic<Version> versions = 0;
  Prng random(17);
  for (int cut = 0; cut < cuts; ++cut) {
    std::vector<std::thread> users;
    for (std::int64_t i = 0; i < kUsers; ++i) {
      const Extent part = extent(i * kSectors / kUsers, kSectors / kUsers);
      users.emplace_back([&, part, seed = random.next()] {
        use(world, ledger, part, kind.durable_when_answered, versions, Prng(seed));
      });
    }
    const std::uint64_t enough = 1 + random.below(60);
    std::uint64_t replies = 0;
    const auto sum = [](const LiveCounters& c) {
      return c.replies[1] + c.replies[2] + c.replies[3];
    };
    const std::uint64_t before = sum(world.counters());
    while (replies < enough) replies = sum(world.counters()) - before;
    world.device.power_cut(random.next(), After::off);
    for (std::thread& user : users) user.join();
    world.device.power_on();
    const auto found = ledger.compare(world.host.versions(extent(0, kSectors)));
    all.lost += found.lost;
    all.garbage += found.garbage;
    all.undone += found.undone;
  }
  return all;
}

TEST_P(Live, APowerCutLosesNothingThatWasFlushed) {
  const auto found = cut_at_random_moments(GetParam(), 12 * repeats(), true);
  EXPECT_EQ(found.lost, 0);
  EXPECT_EQ(found.garbage, 0);
  if (GetParam().durable_when_answered) {
    EXPECT_EQ(found.undone, 0);
  } else {
    EXPECT_GT(found.undone, 0);  // or the cut costs nothing at all
  }
}

TEST_P(Live, APowerCutFindsFlushesThatLie) {
  if (GetParam().durable_when_answered) GTEST_SKIP() << "there is nothing that a flush could do";
  const auto found = cut_at_random_moments(GetParam(), 12, false);
  EXPECT_GT(found.lost, 0);
  EXPECT_EQ(found.garbage, 0);
}

TEST_P(Live, APowerCutFailsWhatIsInFlightAndHeld) {
  World world(GetParam().make, Pace::real, 1000);
  for (int i = 0; i < 40; ++i) world.host.write(extent(i * kBlock, kBlock), 1);
  const PowerCut cut = world.device.power_cut(1, After::on);
  EXPECT_GT(cut.unanswered, 0U);
  EXPECT_EQ(world.host.wait(), cut.unanswered);
  world.device.set_pace(Pace::real, 1, Nanos{0});
  world.host.write(extent(0, kBlock), 2);
  world.host.flush();
  EXPECT_EQ(world.host.wait(), 0U);  // it is back
}

// What was said to be durable stays, even if it is being written again when power goes.
TEST_P(Live, APowerCutKeepsADurableAnswerThatIsWrittenAgain) {
  if (!GetParam().durable_when_answered) GTEST_SKIP() << "an answer says nothing of durability";
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    World world(GetParam().make, Pace::real, 20);
    world.host.write(extent(0, kBlock), 1);
    ASSERT_EQ(world.host.wait(), 0U);
    world.host.write(extent(0, kBlock), 2);
    const auto unanswered = world.device.power_cut(seed, After::on).unanswered;
    ASSERT_EQ(world.host.wait(), unanswered);
    // A busy machine may have cut after the second answer, which counts then.
    const Version durable = unanswered == 0 ? 2 : 1;
    EXPECT_GE(world.host.versions(extent(0, 1)).front(), durable) << seed;
  }
}

// An answer leaves before the model's time, by what the way to the host costs: power may go
// between.
TEST_P(Live, APowerCutKeepsWhatWasWrittenThroughHoweverEarlyItIsAnswered) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    World world(GetParam().make, Pace::real, 20);
    world.device.set_path_cost(Op::write, {Nanos{1'000'000'000}});
    world.host.write(extent(8 * kBlock, kBlock), 1);  // something is in the cache
    world.host.write_through(extent(0, kBlock), 2);
    ASSERT_EQ(world.host.wait(), 0U);
    world.device.power_cut(seed, After::on);
    for (const auto& version : world.host.versions(extent(0, kBlock))) {
      ASSERT_EQ(version, Version{2}) << seed;
    }
  }
}

// A disk writes such a block at once, and leaves in its cache what it had there.
TEST(LiveDisk, APowerCutMayLoseWhatWasWrittenBeforeAWriteThrough) {
  std::int64_t lost = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    World world(make(hdd()));
    world.host.write(extent(8 * kBlock, kBlock), 1);
    ASSERT_EQ(world.host.wait(), 0U);
    world.host.write_through(extent(0, kBlock), 2);
    ASSERT_EQ(world.host.wait(), 0U);
    world.host.write(extent(0, kBlock), 3);
    ASSERT_EQ(world.host.wait(), 0U);
    world.device.power_cut(seed, After::on);
    lost += world.host.versions(extent(8 * kBlock, 1)).front() == Version{0} ? 1 : 0;
    const Version kept = world.host.versions(extent(0, 1)).front().value_or(0);
    ASSERT_TRUE(kept == Version{2} || kept == Version{3}) << kept;
  }
  EXPECT_GT(lost, 0);
}

TEST_P(Live, WhatBeganWithoutPowerFailsThoughItIsAnsweredWithIt) {
  for (int i = 0; i < 20; ++i) {
    World world(GetParam().make);
    world.host.write(extent(0, kBlock), 1);
    world.host.flush();
    ASSERT_EQ(world.host.wait(), 0U);
    world.device.power_cut(1, After::off);
    std::atomic<bool> seen{false};
    std::atomic<bool> go{false};
    std::thread looker([&] {  // has the device meanwhile
      world.device.look([&](DeviceModel&, LiveCounters&, Nanos) {
        seen = true;
        while (!go) std::this_thread::yield();
      });
    });
    while (!seen) std::this_thread::yield();
    std::thread power([&] { world.device.power_on(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::thread writer([&] { world.host.write(extent(0, kBlock), 2); });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    go = true;
    for (std::thread* each : {&looker, &power, &writer}) each->join();
    const bool failed = world.host.wait() == 1;
    const Version found = world.host.versions(extent(0, 1)).front().value_or(0);
    ASSERT_EQ(found, failed ? Version{1} : Version{2}) << "said to be written, and is not";
  }
}

// Whoever waits because the device is being changed is late by that.
TEST(LiveDevice, WhatAChangeHoldsUpIsLate) {
  World world(make(ssd()), Pace::real, 1000);
  LiveCounters counters;
  // On a busy machine the change may begin behind the write: then once more.
  for (int i = 0; i < 50 && counters.held == 0; ++i) {
    world.device.look([&](DeviceModel&, LiveCounters& all, Nanos) { all = {}; });
    world.host.read(extent(0, kBlock));  // 7 us and more of the drive's, so 7 ms
    std::thread change([&] { static_cast<void>(world.device.save_model(false)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    world.host.write(extent(kBlock, kBlock), 1);  // 3 us
    change.join();
    ASSERT_EQ(world.host.wait(), 0U);
    counters = world.counters();
  }
  ASSERT_EQ(counters.held, 1U);
  EXPECT_GT(counters.times_of(Op::write).lateness.largest_ns(), 500'000);
}

// Its arrival is stamped, then its data takes a while, and others move the model's time on: the
// model is asked at their time. With nobody else it is answered late by the same.
TEST(LiveDevice, WhoIsAskedForAfterOthersThatCameLaterIsLate) {
  struct Heard final : Ticket {
    explicit Heard(std::promise<int>& to) : said(to) {}
    void reply(int error) override { said.set_value(error); }
    std::promise<int>& said;
  };
  constexpr Bytes most = 128_MiB;
  flash::SsdParameters large = ssd();
  large.geometry.capacity = most;
  large.link_rate = BytesPerSecond{1'000'000'000'000};  // the model takes next to no time
  LiveDevice device(make(large), memory_fd(most + 64_MiB), most);
  device.start();
  device.set_pace(Pace::real, 1, Nanos{0});
  std::vector<std::byte> data(static_cast<std::size_t>(most.count()), std::byte{1});
  std::promise<int> said;
  std::atomic<bool> ending{false};
  std::thread others([&] {
    while (!ending) device.look([](DeviceModel&, LiveCounters&, Nanos) {});
  });
  const Nanos begin = real_now();
  device.read(Bytes{0}, data, std::make_unique<Heard>(said));
  const Nanos took = real_now() - begin;
  ending = true;
  others.join();
  EXPECT_EQ(said.get_future().get(), 0);
  device.look([&](DeviceModel&, LiveCounters& counters, Nanos) {
    const auto late = counters.times_of(Op::read).lateness.largest_ns();
    EXPECT_GT(2 * late, static_cast<std::uint64_t>(took.count()));
  });
}

// Slow TRIMs say nothing of how late reads may be.
TEST(LiveDevice, EachKindOfRequestHasTimesOfItsOwn) {
  World world(make(ssd()));
  world.device.look([&](DeviceModel&, LiveCounters& counters, Nanos) { counters = {}; });
  world.host.write(extent(0, kBlock), 1);
  world.host.write(extent(kBlock, kBlock), 1);
  for (int i = 0; i < 3; ++i) world.host.read(extent(0, kBlock));
  world.host.trim(extent(0, kBlock));
  for (int i = 0; i < 4; ++i) world.host.flush();
  ASSERT_EQ(world.host.wait(), 0U);
  LiveCounters counters = world.counters();
  const std::array<std::pair<Op, std::uint64_t>, 4> asked{
      {{Op::read, 3}, {Op::write, 2}, {Op::trim, 1}, {Op::flush, 4}}};
  for (const auto& [op, requests] : asked) {
    EXPECT_EQ(answers_in(counters.times_of(op).lateness), requests);
    EXPECT_EQ(answers_in(counters.times_of(op).model_latency), requests);
  }
}

TEST_P(Live, WithoutPowerEverythingFailsAndNothingChanges) {
  World world(GetParam().make);
  world.host.write(extent(0, kBlock), 1);
  world.host.flush();
  ASSERT_EQ(world.host.wait(), 0U);
  world.device.power_cut(1, After::off);
  world.host.write(extent(0, kBlock), 2);
  world.host.trim(extent(0, kBlock));
  world.host.read(extent(0, kBlock));
  world.host.flush();
  EXPECT_EQ(world.host.wait(), 4U);
  world.device.power_on();
  EXPECT_EQ(world.host.versions(extent(0, 1)).front(), Version{1});
}

// What is written without the model is data from long ago: no later cut undoes it.
TEST_P(Live, APowerCutDoesNotUndoWhatWasWrittenWithoutTheModel) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    World world(GetParam().make);
    world.host.write(extent(0, kSectors / 8), 1);
    ASSERT_EQ(world.host.wait(), 0U);
    world.device.set_pace(Pace::none, 1, Nanos{0});
    world.host.write(extent(0, kSectors / 8), 2);
    ASSERT_EQ(world.host.wait(), 0U);
    if (seed % 2 == 0) world.device.set_pace(Pace::real, 1, Nanos{0});
    world.device.power_cut(seed, After::on);
    for (const auto& version : world.host.versions(extent(0, kSectors / 8))) {
      ASSERT_EQ(version, Version{2});
    }
  }
}

// Another process's store: the model takes what is in it for written, and nothing else.
TEST(LiveStore, IsDataFromLongAgoToAModelThatHasNotSeenIt) {
  for (const bool assumed : {false, true}) {
    const int fd = memory_fd(kVisible + 64_MiB);
    const std::vector<std::byte> block(kBlock * kSectorBytes, std::byte{1});
    ASSERT_EQ(::pwrite(fd, block.data(), block.size(), 16 * kBlock * kSectorBytes),
              static_cast<ssize_t>(block.size()));
    LiveDevice device(make(ssd()), fd, kVisible);
    LiveHost host(device);
    device.start();
    if (assumed) device.assume_stored();
    device.set_pace(Pace::virtual_time, 1, Nanos{0});
    const auto time_of_a_read = [&](std::int64_t at) {
      const auto now = [&] {
        Nanos found;
        device.look([&](DeviceModel&, LiveCounters&, Nanos time) { found = time; });
        return found;
      };
      const Nanos before = now();
      EXPECT_EQ(host.versions(extent(at * kBlock, kBlock)).size(), std::size_t{kBlock});
      return now() - before;
    };
    const Nanos stored = time_of_a_read(16);
    const Nanos empty = time_of_a_read(17);
    EXPECT_EQ(stored - empty >= Nanos{50_us}, assumed) << stored.count() << " " << empty.count();
  }
}

TEST(LiveDevice, AStateHasWhatWasWrittenPastTheModel) {
  World world(make(ssd()), Pace::none);
  world.host.write(extent(0, 16 * kBlock), 1);
  ASSERT_EQ(world.host.wait(), 0U);
  const std::vector<std::byte> saved = world.device.save_model(false);
  World another(make(ssd()));
  another.device.restore_model(saved);
  another.device.look([](DeviceModel& model, LiveCounters&, Nanos) {
    const auto& drive = dynamic_cast<const flash::Ssd&>(model);
    for (flash::Lpn lpn = 0; lpn < 32; ++lpn) {
      EXPECT_EQ(drive.ftl().map().find(lpn) != flash::kNoSlot, lpn < 16) << lpn;
    }
  });
}

TEST_P(Live, FaultsHitTheirRangeTheirOperationAndSoManyTimes) {
  World world(GetParam().make);
  world.host.write(extent(0, 4 * kBlock), 1);
  ASSERT_EQ(world.host.wait(), 0U);
  world.device.add_fault({Op::write, extent(kBlock, kBlock), 2});
  const auto write_fails = [&](std::int64_t block) {
    world.host.write(extent(block * kBlock, kBlock), 2);
    return world.host.wait() == 1;
  };
  EXPECT_FALSE(write_fails(0));
  EXPECT_TRUE(write_fails(1));
  EXPECT_TRUE(write_fails(1));
  EXPECT_FALSE(write_fails(2));
  EXPECT_EQ(world.host.versions(extent(kBlock, 1)).front(), Version{1});
  EXPECT_FALSE(write_fails(1));
  world.device.add_fault({Op::read, extent(0, 1), 1'000'000});
  world.host.read(extent(0, 4 * kBlock));
  EXPECT_EQ(world.host.wait(), 1U);
  world.device.clear_faults();
  EXPECT_EQ(world.host.versions(extent(0, 1)).front(), Version{2});
  EXPECT_EQ(world.counters().errors, 3U);
  EXPECT_THROW(world.device.add_fault({Op::flush, {}, 1}), OperatingError);
}

// A flash drive's counters and map; all state of a disk. (What a flash drive keeps of answered
// requests is forgotten at some later call.)
using Seen = std::vector<std::byte>;

Seen seen_of(DeviceModel& model) {
  Seen seen;
  Archive archive = Archive::saving(seen);
  auto* ssd = dynamic_cast<flash::Ssd*>(&model);
  if (ssd == nullptr) {
    model.archive(archive);
    return seen;
  }
  flash::SsdCounters counters = ssd->counters();
  flash::FtlCounters ftl = ssd->ftl().counters();
  archive.all(counters, ftl);
  for (flash::Lpn lpn = 0; lpn < ssd->ftl().geometry().lpns(); ++lpn) {
    flash::Slot slot = ssd->ftl().map().find(lpn);
    archive.all(slot);
  }
  return seen;
}

// Everything at once, and more than the device announces that it takes.
TEST_P(Live, ARecordReplaysToTheLastCounter) {
  World world(GetParam().make);
  for (const Op op : {Op::read, Op::write, Op::trim, Op::flush}) {
    world.device.set_path_cost(op, {50_us, 0.01});  // replies leave before the model's time
  }
  Prng random(5);
  const auto burst = [&] {
    for (int i = 0; i < 60; ++i) {
      const Extent where = any_extent(random, 0, kSectors, 9 * kBlock);
      const std::uint64_t what = random.below(8);
      if (what == 0) world.host.flush();
      if (what == 1) world.host.trim(where);
      if (what == 2) world.host.read(where);
      if (what > 2) world.host.write(where, 1);
    }
    world.host.wait();
  };
  burst();
  const std::vector<std::byte> saved = world.device.save_model(true);
  burst();
  burst();
  Seen live_end;
  Nanos end;
  world.device.end_record([&](DeviceModel& model, LiveCounters&, Nanos now) {
    end = now;
    live_end = seen_of(model);
  });
  burst();
  const std::vector<RecordedRequest> records = world.device.take_records();
  ASSERT_EQ(records.size(), 120U);

  host::Driver driver(GetParam().make);
  Archive restoring = Archive::restoring(saved);
  driver.archive(restoring);
  const Nanos begin = driver.now();
  std::vector<host::TimedRequest> requests;
  for (const RecordedRequest& r : records) {
    requests.push_back({{r.op, r.lba, r.sectors, r.fua, r.stream}, r.time - begin});
  }
  driver.begin_trace(0, {}, true);
  driver.feed_trace(requests, Cancel());
  driver.end_trace(Cancel());
  driver.idle(std::max(end - driver.now(), Nanos{0}));
  EXPECT_EQ(live_end, seen_of(driver.device()));
}

TEST_P(Live, AStateThatDoesNotFitLeavesTheDeviceAsItWas) {
  World world(GetParam().make);
  const auto state = [&] {
    std::vector<std::byte> bytes;
    world.device.look([&](DeviceModel& model, LiveCounters&, Nanos) {
      bytes = saved_by([&](Archive& archive) { model.archive(archive); });
    });
    return bytes;
  };
  world.host.write(extent(0, kBlock), 1);
  ASSERT_EQ(world.host.wait(), 0U);
  const std::vector<std::byte> older = world.device.save_model(false);
  for (int i = 0; i < 20; ++i) world.host.write(extent(i * kBlock, kBlock), 2);
  ASSERT_EQ(world.host.wait(), 0U);
  world.device.set_pace(Pace::none, 1, Nanos{0});  // so that nothing goes on by itself
  const std::vector<std::byte> before = state();
  for (const std::size_t size : {std::size_t{0}, older.size() / 3, older.size() - 1}) {
    const std::vector<std::byte> damaged(older.begin(), older.begin() + static_cast<long>(size));
    EXPECT_THROW(world.device.restore_model(damaged), OperatingError);
    EXPECT_EQ(state(), before);
  }
  std::vector<std::byte> longer = older;
  longer.push_back(std::byte{0});
  EXPECT_THROW(world.device.restore_model(longer), OperatingError);
  EXPECT_EQ(state(), before);
  world.device.restore_model(older);
  EXPECT_NE(state(), before);
  world.device.set_pace(Pace::real, 1, Nanos{0});  // and it is not stuck
  world.host.write(extent(0, kBlock), 3);
  EXPECT_EQ(world.host.wait(), 0U);
}

TEST_P(Live, ALookThatFailsStopsNobody) {
  World world(GetParam().make);
  const auto fail = [](DeviceModel&, LiveCounters&, Nanos) { require(false, "no"); };
  EXPECT_THROW(world.device.look(fail), OperatingError);
  EXPECT_THROW(world.device.end_record(fail), OperatingError);
  world.host.write(extent(0, kBlock), 1);
  EXPECT_EQ(world.host.wait(), 0U);
}

TEST(LiveStreams, WritesCarryTheStreamOfTheirRange) {
  flash::SsdParameters p = ssd();
  p.placement = "id";
  p.ftl.streams = 3;
  World world(make(p));
  world.device.set_streams({{extent(100, 50), 2}, {extent(0, 100), 1}});
  (void)world.device.save_model(true);
  for (const std::int64_t lba : {0, 99, 100, 149, 150}) world.host.write(extent(lba, 1), 1);
  world.host.wait();
  std::vector<StreamId> streams;
  for (const RecordedRequest& r : world.device.take_records()) streams.push_back(r.stream);
  EXPECT_EQ(streams, (std::vector<StreamId>{1, 1, 2, 2, 0}));
  EXPECT_THROW(world.device.set_streams({{extent(0, 10), 1}, {extent(9, 10), 2}}), OperatingError);
}

// At speed virtual the model sees what a host at depth 1 would have shown it, whoever asks how
// fast.
TEST(LiveVirtualTime, AgesTheDriveAsAHostAtDepthOne) {
  World world(make(ssd()), Pace::virtual_time);
  host::Driver driver(make(ssd()));
  Prng random(8);
  std::vector<host::TimedRequest> requests;
  for (int i = 0; i < 4000; ++i) {
    const Extent where = any_extent(random, 0, kSectors, 3 * kBlock);
    const std::uint64_t what = random.below(50);
    const Op op = what == 0 ? Op::flush : what == 1 ? Op::trim : Op::write;
    if (op == Op::flush) world.host.flush();
    if (op == Op::trim) world.host.trim(where);
    if (op == Op::write) world.host.write(where, 1);
    ASSERT_EQ(world.host.wait(), 0U);
    const Extent none = {};
    const Extent& at = op == Op::flush ? none : where;
    requests.push_back({{op, at.begin, at.length(), false, 0}, Nanos{0}});
  }
  driver.begin_trace(1, {}, false);
  driver.feed_trace(requests, Cancel());
  driver.end_trace(Cancel());
  const auto& ftl = dynamic_cast<const flash::Ssd&>(driver.device()).ftl();
  EXPECT_GT(ftl.counters().copied_units, 100U);
  EXPECT_GT(ftl.counters().trimmed_units, 0U);
  Seen seen;
  Nanos now;
  LiveCounters counters;
  world.device.look([&](DeviceModel& model, LiveCounters& c, Nanos time) {
    seen = seen_of(model);
    counters = c;
    now = time;
  });
  driver.device().wake(driver.now());
  EXPECT_EQ(now, driver.now());
  EXPECT_EQ(seen, seen_of(driver.device()));
  EXPECT_EQ(counters.unpaced, 4000U);
  for (const ReplyTimes& times : counters.times) {
    EXPECT_EQ(answers_in(times.lateness), 0U);
    EXPECT_EQ(answers_in(times.model_latency), 0U);
  }
}

TEST(LiveVirtualTime, KeepsDataAndGoesOnInRealTime) {
  World world(make(ssd()), Pace::virtual_time);
  for (int i = 0; i < 20; ++i) world.host.write(extent(i * kBlock, kBlock), 1);
  EXPECT_EQ(world.host.wait(), 0U);
  const auto time_of = [&] {
    Nanos now;
    world.device.look([&](DeviceModel&, LiveCounters&, Nanos time) { now = time; });
    return now;
  };
  const Nanos aged = time_of();
  EXPECT_GT(aged, Nanos{0});
  world.device.set_pace(Pace::real, 1, Nanos{0});
  world.host.write(extent(0, kBlock), 2);
  EXPECT_EQ(world.host.wait(), 0U);
  EXPECT_GT(time_of(), aged);
  EXPECT_EQ(answers_in(world.counters().times_of(Op::write).lateness), 1U);
  world.device.power_cut(1, After::on);
  EXPECT_EQ(world.host.versions(extent(kBlock, 1)).front(), Version{1});
}

TEST(LiveVirtualTime, IsNotForDisks) {
  World world(make(hdd()));
  EXPECT_THROW(world.device.set_pace(Pace::virtual_time, 1, Nanos{0}), OperatingError);
  world.host.write(extent(0, kBlock), 1);
  EXPECT_EQ(world.host.wait(), 0U);
}

TEST(LiveDevice, RefusesSizesThatItCannotHave) {
  for (const Bytes size : {Bytes{0}, 4_MiB + 4_KiB, Bytes{512}}) {
    EXPECT_THROW(LiveDevice(make(ssd()), memory_fd(8_MiB), size), OperatingError);
  }
}

TEST(LiveDevice, StateIsTakenWhenWhatTheDeviceHasIsAnswered) {
  World world(make(ssd()), Pace::real, 1000);
  for (int i = 0; i < 20; ++i) world.host.write(extent(i * kBlock, kBlock), 1);
  world.device.end_record([](DeviceModel&, LiveCounters& counters, Nanos) {
    EXPECT_GE(counters.replies[static_cast<std::size_t>(Op::write)], ssd().queue_depth);
    EXPECT_LT(counters.replies[static_cast<std::size_t>(Op::write)], 20U);
  });
  EXPECT_EQ(world.host.wait(), 0U);
}

TEST(LiveDevice, AStoreThatFailsIsAnErrorAndCounted) {
  LiveDevice device(make(ssd()), -1, kVisible);
  LiveHost host(device);
  device.start();
  host.write(extent(0, 8), 1);
  host.read(extent(0, 8));
  EXPECT_EQ(host.wait(), 2U);
  device.look([](DeviceModel&, LiveCounters& c, Nanos) { EXPECT_EQ(c.store_errors, 2U); });
}

// /dev/zero can be read and written, and not synced.
TEST(LiveStore, IsSyncedBeforeTheHostHearsThatAnythingIsDurable) {
  LiveDevice device(make(ssd()), ::open("/dev/zero", O_RDWR | O_CLOEXEC), kVisible);
  LiveHost host(device);
  device.start();
  for (const Pace pace : {Pace::none, Pace::real, Pace::virtual_time}) {
    device.set_pace(pace, 1, Nanos{0});
    host.write(extent(0, kBlock), 1);
    EXPECT_EQ(host.wait(), 0U);
    host.flush();
    EXPECT_EQ(host.wait(), 1U);
    host.write_through(extent(0, kBlock), 2);
    EXPECT_EQ(host.wait(), 1U);
  }
  device.look([](DeviceModel&, LiveCounters& c, Nanos) { EXPECT_EQ(c.store_errors, 6U); });
  device.set_honest_flush(false);
  host.flush();
  host.write_through(extent(0, kBlock), 3);
  EXPECT_EQ(host.wait(), 0U) << "who lies does not sync";
}

TEST(LiveDevice, MeasuringThePathLeavesTheDataAlone) {
  World world(make(ssd()));
  world.host.write(extent(0, 8), 1);
  world.host.flush();
  world.host.wait();
  world.device.set_pace(Pace::constant, 1, 10_us);
  world.host.write(extent(0, 8), 2);
  EXPECT_EQ(world.host.wait(), 0U);
  EXPECT_EQ(world.host.versions(extent(0, 1)).front(), Version{1});
}

}  // namespace test_live
}  // namespace flashlab::live
