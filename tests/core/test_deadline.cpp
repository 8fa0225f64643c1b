// The deadline scheduler alone: what goes out, in which order, and how long anything waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/prng.hpp"
#include "host/policy/io_scheduler.hpp"

namespace flashlab::host {
namespace test_deadline {

using namespace literals;

constexpr std::size_t kBatch = 16;

class Deadline : public ::testing::Test {
 protected:
  void add(Op op, std::int64_t lba, Nanos now = 0_ms) {
    scheduler_->add({0, io_++, {op, Lba{lba}, Sectors{8}}}, now);
  }

  // The addresses of the next n requests, fewer if there are fewer.
  std::vector<std::int64_t> next(std::size_t n, Nanos now = 0_ms) {
    std::vector<std::int64_t> lbas;
    while (lbas.size() < n) {
      const Dispatch dispatch = scheduler_->next(now);
      if (!dispatch.request) break;
      lbas.push_back(dispatch.request->request.lba.index());
    }
    return lbas;
  }

  // Of the next n requests, how many in a row have the same direction: 16, 16, ...; writes
  // negative.
  std::vector<int> directions(std::size_t n) {
    std::vector<int> rows;
    for (; n > 0; --n) {
      const Dispatch dispatch = scheduler_->next(0_ms);
      if (!dispatch.request) break;
      const int step = dispatch.request->request.op == Op::read ? 1 : -1;
      if (rows.empty() || rows.back() * step < 0) rows.push_back(0);
      rows.back() += step;
    }
    return rows;
  }

  std::unique_ptr<IoScheduler> scheduler_ = make_io_scheduler({"deadline"}, true);
  std::uint32_t io_ = 0;
};

using Lbas = std::vector<std::int64_t>;

TEST_F(Deadline, NothingWaitsNothingGoes) {
  const Dispatch dispatch = scheduler_->next(0_ms);
  EXPECT_FALSE(dispatch.request);
  EXPECT_FALSE(dispatch.ask_again);
}

// From the oldest upwards; then from the oldest of the rest.
TEST_F(Deadline, ABatchGoesUpwardsFromTheOldest) {
  for (const std::int64_t lba : {500, 900, 100, 700, 300}) add(Op::read, lba);
  EXPECT_EQ(next(9), (Lbas{500, 700, 900, 100, 300}));
}

TEST_F(Deadline, WhatComesFurtherUpJoinsTheBatch) {
  for (const std::int64_t lba : {500, 900}) add(Op::read, lba);
  EXPECT_EQ(next(1), (Lbas{500}));
  for (const std::int64_t lba : {400, 600}) add(Op::read, lba);
  EXPECT_EQ(next(9), (Lbas{600, 900, 400}));
}

TEST_F(Deadline, RequestsForOneAddressKeepTheirOrder) {
  for (int i = 0; i < 3; ++i) add(Op::write, 500);
  add(Op::write, 600);
  for (std::uint32_t io = 0; io < 4; ++io) EXPECT_EQ(scheduler_->next(0_ms).request->io, io);
}

// The oldest that is left lies behind, but has not expired.
TEST_F(Deadline, WithoutWritesTheNextBatchGoesOnUpwards) {
  add(Op::read, 1000);
  add(Op::read, 8);
  for (std::int64_t i = 1; i < 40; ++i) add(Op::read, 1000 + 8 * i);
  EXPECT_EQ(next(41).back(), 8);
}

TEST_F(Deadline, ReadsGoFirst) {
  add(Op::write, 100);
  add(Op::trim, 150);
  add(Op::read, 900);
  add(Op::read, 800);
  EXPECT_EQ(next(9), (Lbas{900, 800, 100, 150}));
}

TEST_F(Deadline, ABatchThatRunsIsNotInterrupted) {
  for (std::int64_t i = 0; i < 20; ++i) add(Op::write, 1000 + 8 * i);
  EXPECT_EQ(next(1), (Lbas{1000}));
  add(Op::read, 10);
  const Lbas rest = next(20);
  EXPECT_EQ(rest[kBatch - 2], 1000 + 8 * 15);
  EXPECT_EQ(rest[kBatch - 1], 10);
}

TEST_F(Deadline, WritesGetEveryThirdBatch) {
  for (std::int64_t i = 0; i < 100; ++i) {
    add(Op::read, 8 * i);
    add(Op::write, 100'000 + 8 * i);
  }
  EXPECT_EQ(directions(144), (std::vector<int>{32, -16, 32, -16, 32, -16}));
}

// Batches of reads that kept no write waiting do not count.
TEST_F(Deadline, OnlyWritesThatWaitStarve) {
  for (std::int64_t i = 0; i < 200; ++i) add(Op::read, 8 * i);
  EXPECT_EQ(directions(64), (std::vector<int>{64}));
  for (std::int64_t i = 0; i < 20; ++i) add(Op::write, 100'000 + 8 * i);
  EXPECT_EQ(directions(48), (std::vector<int>{32, -16}));
}

TEST_F(Deadline, AfterAChangeOfDirectionABatchBeginsAtTheOldest) {
  for (const std::int64_t lba : {50'000, 60'000, 100}) add(Op::write, lba);
  add(Op::read, 55'000);
  EXPECT_EQ(next(9), (Lbas{55'000, 50'000, 60'000, 100}));
}

// A stream runs away upwards for ever: only its age brings a request behind it out.
template <class Add>
Nanos wait_behind_a_stream(IoScheduler& scheduler, Op op, const Add& add) {
  std::int64_t lba = 1'000'000;
  for (int i = 0; i < 4; ++i) add(op, lba += 8, 0_ms);
  Nanos now = 0_ms;
  EXPECT_TRUE(scheduler.next(now).request);
  add(op, 8, now);
  while (now < 20'000_ms) {
    now += 1_ms;
    add(op, lba += 8, now);
    if (scheduler.next(now).request->request.lba == Lba{8}) break;
  }
  return now;
}

TEST_F(Deadline, AnExpiredRequestIsTheNextBatchsFirst) {
  const auto adder = [&](Op op, std::int64_t lba, Nanos now) { add(op, lba, now); };
  const Nanos read = wait_behind_a_stream(*scheduler_, Op::read, adder);
  EXPECT_GE(read, 500_ms);
  EXPECT_LE(read, 500_ms + 16_ms);
}

TEST_F(Deadline, WritesExpireLater) {
  const auto adder = [&](Op op, std::int64_t lba, Nanos now) { add(op, lba, now); };
  const Nanos write = wait_behind_a_stream(*scheduler_, Op::write, adder);
  EXPECT_GE(write, 5000_ms);
  EXPECT_LE(write, 5000_ms + 16_ms);
}

TEST_F(Deadline, AFlushGoesOutAtOnce) {
  for (std::int64_t i = 0; i < 4; ++i) add(Op::read, 1000 + 8 * i);
  EXPECT_EQ(next(1), (Lbas{1000}));
  add(Op::flush, 0);
  EXPECT_EQ(scheduler_->next(0_ms).request->request.op, Op::flush);
  EXPECT_EQ(next(9), (Lbas{1008, 1016, 1024}));
}

// One request goes out every millisecond. A request that has expired waits at most for the batches
// that the older ones of its direction begin, and for the other direction's between them.
TEST_F(Deadline, EverythingGoesOutOnceAndInTime) {
  struct Waiting {
    Nanos since;
    std::size_t older;
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    scheduler_ = make_io_scheduler({"deadline"}, true);
    io_ = 0;
    Prng prng(seed);
    const std::uint64_t most = 1 + prng.below(200);
    const std::uint64_t read_percent = prng.below(101);
    const std::uint64_t stream_percent = prng.below(101);
    std::map<std::uint32_t, Waiting> waiting[2];
    std::int64_t stream = 1'000'000;
    const std::uint32_t all = 20'000;
    for (Nanos now = 0_ms; io_ < all || waiting[0].size() + waiting[1].size() > 0; now += 1_ms) {
      while (io_ < all && waiting[0].size() + waiting[1].size() < most) {
        const bool read = prng.below(100) < read_percent;
        const bool streams = prng.below(100) < stream_percent;
        auto& mine = waiting[read ? 0 : 1];
        mine[io_] = {now, mine.size()};
        const auto anywhere = static_cast<std::int64_t>(prng.below(1'000'000));
        add(read ? Op::read : Op::write, streams ? stream += 8 : anywhere, now);
      }
      const Dispatch dispatch = scheduler_->next(now);
      ASSERT_TRUE(dispatch.request) << "nothing to do, says it, although requests wait";
      const bool read = dispatch.request->request.op == Op::read;
      auto& mine = waiting[read ? 0 : 1];
      const auto found = mine.find(dispatch.request->io);
      ASSERT_NE(found, mine.end()) << "never came, or went out before";
      const auto [since, older] = found->second;
      mine.erase(found);
      const auto batches = static_cast<std::int64_t>(older + 2) * (read ? 2 : 3);
      const Nanos bound = (read ? 500_ms : 5000_ms) + batches * (kBatch * 1_ms);
      ASSERT_LE(now - since, bound) << "seed " << seed;
    }
    EXPECT_FALSE(scheduler_->next(0_ms).request);
  }
}

}  // namespace test_deadline
}  // namespace flashlab::host
