#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kernel/dirty_pace.hpp"

namespace flashlab::kernel {
namespace {

using host::Process;

constexpr std::int64_t kLimit = 2000;
constexpr Nanos kSecond{1'000'000'000};
constexpr Nanos kStep{1'000'000};

DirtyPaceParameters bound(bool is_strict) {
  return {.background = kLimit / 2,
          .limit = kLimit,
          .is_strict = is_strict,
          .block = Bytes{8192},
          .second = kSecond};
}

struct Course {
  double dirty = 0;           // mean of the second half
  std::int64_t most = 0;      // of all
  std::vector<double> rates;  // of each writer in that half, blocks per second
  double bandwidth = 0;       // as estimated at the end
};

// Writers that write whenever they are let, for so long, and a device that writes back what `speed`
// says (blocks per second, at that time), from the background's bound on.
Course course(DirtyPace& pace, const DirtyPaceParameters& p, Process writers, Nanos length,
              const std::function<double(Nanos)>& speed, Nanos step = kStep) {
  std::vector<Nanos> sleeps(writers);
  std::vector<std::int64_t> waiting(writers, 0);
  std::vector<double> made(writers, 0.0);
  Course found;
  double left = 0.0;
  std::int64_t dirty = 0;
  std::int64_t looks = 0;
  pace.begin(Nanos{0});
  for (Nanos now; now < length; now += step) {
    if (dirty > p.background) left += speed(now) * static_cast<double>(step.count()) / 1e9;
    const std::int64_t done = std::min(static_cast<std::int64_t>(left), dirty);
    left -= static_cast<double>(done);
    dirty -= done;
    pace.written_back(done);
    for (Process writer = 0; writer < writers; ++writer) {
      for (int most = 0; most < 64 && sleeps[writer] <= now; ++most) {
        const std::int64_t blocks = 1 - std::exchange(waiting[writer], 0);
        const auto [until, again] = pace.after(writer, blocks, dirty += blocks, now);
        sleeps[writer] = until;
        waiting[writer] = again ? 1 : 0;
        if (now >= length / 2) made[writer] += static_cast<double>(blocks);
      }
    }
    found.most = std::max(found.most, dirty);
    if (now >= length / 2) {
      found.dirty += static_cast<double>(dirty);
      ++looks;
    }
  }
  found.dirty /= static_cast<double>(looks);
  for (const double blocks : made) {
    found.rates.push_back(blocks / (static_cast<double>((length - length / 2).count()) / 1e9));
  }
  found.bandwidth = pace.bandwidth();
  return found;
}

TEST(DirtyPace, IsTheDevicesWhereTheKernelSteersToAndNothingAtTheLimit) {
  for (const bool is_strict : {false, true}) {
    const DirtyPace pace(bound(is_strict));
    EXPECT_EQ(pace.free_run(), kLimit * 3 / 4);
    EXPECT_EQ(pace.setpoint(), is_strict ? kLimit * 3 / 4 : kLimit * 7 / 8);
    EXPECT_DOUBLE_EQ(pace.ratio(pace.setpoint()), 1.0);
    EXPECT_EQ(pace.ratio(kLimit), 0.0);
    for (std::int64_t dirty = pace.free_run(); dirty < kLimit; ++dirty) {
      EXPECT_GE(pace.ratio(dirty), pace.ratio(dirty + 1)) << dirty;
    }
  }
  // A bound of the device's own leaves half of the way nearly free.
  const DirtyPace own(bound(true));
  EXPECT_NEAR(own.ratio(own.setpoint() + kLimit / 8), 0.875, 1e-12);
}

TEST(DirtyPace, NobodySleepsInTheFreeRun) {
  DirtyPace pace(bound(true));
  for (std::int64_t dirty = 1; dirty <= pace.free_run(); ++dirty) {
    EXPECT_EQ(pace.after(0, 1, dirty, Nanos{0}).until, Nanos{0});
  }
}

TEST(DirtyPace, WritersShareWhatTheDeviceTakes) {
  for (const bool is_strict : {false, true}) {
    for (const Process writers : {1U, 2U, 5U}) {
      for (const double speed : {700.0, 3000.0}) {
        const DirtyPaceParameters p = bound(is_strict);
        DirtyPace pace(p);
        const Course found = course(pace, p, writers, 120 * kSecond, [&](Nanos) { return speed; });
        EXPECT_NEAR(found.bandwidth, speed, 0.05 * speed);
        EXPECT_GT(found.dirty, static_cast<double>(pace.free_run()) * 0.97);
        EXPECT_LT(found.dirty, static_cast<double>(kLimit));
        for (const double rate : found.rates) {
          EXPECT_NEAR(rate, speed / writers, 0.1 * speed / writers) << writers << " at " << speed;
        }
      }
    }
  }
}

TEST(DirtyPace, AtTheLimitTheyWaitUntilTheDeviceGoesOn) {
  const DirtyPaceParameters p = bound(true);
  DirtyPace pace(p);
  const auto still = [](Nanos now) { return now < 20 * kSecond ? 3000.0 : 0.0; };
  const Course found = course(pace, p, 3, 60 * kSecond, still);
  EXPECT_GE(found.most, kLimit);
  EXPECT_LE(found.most, kLimit + 3 * kLimit / 4);
  for (const double rate : found.rates) EXPECT_EQ(rate, 0.0);
  EXPECT_TRUE(pace.after(0, 1000, kLimit, 61 * kSecond).again);
}

// A device that is slowed down sees the same in its own time, if the kernel's clock is as much
// faster.
TEST(DirtyPace, KnowsNoTimeButTheKernelsClock) {
  const DirtyPaceParameters p = bound(true);
  DirtyPaceParameters faster = p;
  faster.second = kSecond / 8;
  DirtyPace one(p);
  DirtyPace other(faster);
  const double mean = course(one, p, 1, 80 * kSecond, [](Nanos) { return 3000.0; }).dirty;
  const auto eightfold = [](Nanos) { return 24'000.0; };
  const Course seen = course(other, faster, 1, 10 * kSecond, eightfold, kStep / 8);
  EXPECT_NEAR(seen.dirty, mean, 0.02 * mean);
}

TEST(DirtyPace, ASecondOfNoLengthIsRefused) {
  DirtyPaceParameters p = bound(true);
  p.second = Nanos{0};
  EXPECT_ANY_THROW((void)DirtyPace(p));
}

}  // namespace
}  // namespace flashlab::kernel
