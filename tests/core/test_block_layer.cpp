#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/check.hpp"
#include "host/block_layer.hpp"

namespace flashlab::host {
namespace test_block_layer {

using namespace literals;

// A device that keeps what it gets until the test completes it.
class Held final : public DeviceModel {
 public:
  Held(std::uint32_t depth, bool rotational) : depth_(depth), rotational_(rotational) {}

  void submit(Tag tag, const Request& request, Nanos /*now*/) override {
    inside[tag] = request;
    order.push_back(request.lba.index());
  }
  void wake(Nanos /*now*/) override {}
  std::vector<Extent> in_doubt(Nanos /*now*/) override { return {}; }
  void archive(Archive& /*a*/) override {}
  [[nodiscard]] Bytes capacity() const override { return Bytes{1 << 30}; }
  [[nodiscard]] bool rotational() const override { return rotational_; }
  [[nodiscard]] std::uint32_t queue_depth() const override { return depth_; }

  std::map<Tag, Request> inside;
  std::vector<std::int64_t> order;

 private:
  void restart(Nanos /*now*/) override {}

  std::uint32_t depth_;
  bool rotational_;
};

class Fixture : public ::testing::Test, public BlockLayerUser {
 protected:
  void make(const std::string& scheduler, std::uint32_t depth = 4, bool rotational = true) {
    device.emplace(depth, rotational);
    const HostParameters host{2, Nanos{0}, Nanos{0}, 512_KiB, {scheduler}};
    layer.emplace(host, *device, *this);
  }

  void io_done(std::uint32_t io, Nanos /*now*/) override { finished.push_back(io); }
  void scheduler_timer_at(Nanos when) override { timer = when; }

  void read(std::uint32_t user, std::uint32_t io, std::int64_t lba, Nanos now,
            std::int64_t sectors = 8) {
    layer->submit(user, io, {Op::read, Lba{lba}, Sectors{sectors}}, now);
  }

  void complete(std::int64_t lba, Nanos now) {
    for (const auto& [tag, request] : device->inside) {
      if (request.lba != Lba{lba}) continue;
      const Tag done = tag;
      device->inside.erase(done);
      layer->request_done(done, now);
      return;
    }
    FAIL() << lba << " is not in the device";
  }

  // Each is done before the next one comes.
  void read_in_turn(std::uint32_t user, const std::vector<std::int64_t>& lbas) {
    for (const std::int64_t lba : lbas) {
      read(user, next_io++, lba, clock);
      clock += 1_ms;
      complete(lba, clock);
    }
  }

  // Whether the disk waits for user 1 when its read there is done, although user 2 wants something.
  bool waits_after(std::int64_t lba) {
    read(1, next_io++, lba, clock);
    read(2, next_io++, 2'000'000, clock);
    clock += 1_ms;
    complete(lba, clock);
    return device->order.back() == lba;
  }

  // For how long a user has the disk that goes on reading from there.
  Nanos slice_of(std::uint32_t user, std::int64_t lba) {
    const Nanos begin = clock;
    while (clock < begin + 1000_ms) {
      clock += 1_ms;
      complete(lba, clock);
      if (device->order.back() != lba) break;
      lba += 8;
      read(user, next_io++, lba, clock);
    }
    return clock - begin;
  }

  std::optional<Held> device;
  std::optional<BlockLayer> layer;
  std::uint32_t next_io = 100;
  Nanos clock;
  std::vector<std::uint32_t> finished;
  std::optional<Nanos> timer;
};

TEST_F(Fixture, NoneKeepsTheOrderAndTheDepth) {
  make("none", 2);
  for (std::uint32_t io = 0; io < 4; ++io) read(0, io, 1000 - 100 * io, 0_us);
  EXPECT_EQ(device->order, (std::vector<std::int64_t>{1000, 900}));
  complete(900, 10_us);
  EXPECT_EQ(device->order, (std::vector<std::int64_t>{1000, 900, 800}));
  EXPECT_EQ(finished, (std::vector<std::uint32_t>{1}));
}

TEST_F(Fixture, ALargeTransferIsSplitAndDoneWhenItsLastPartIs) {
  make("none", 8);
  read(0, 5, 0, 0_us, 2048 + 8);
  EXPECT_EQ(device->order, (std::vector<std::int64_t>{0, 1024, 2048}));
  EXPECT_EQ(layer->requests(), 3U);
  complete(2048, 1_us);
  complete(0, 2_us);
  EXPECT_TRUE(finished.empty());
  complete(1024, 3_us);
  EXPECT_EQ(finished, (std::vector<std::uint32_t>{5}));
}

// Its length is not a transfer's.
TEST_F(Fixture, ATrimIsNotSplit) {
  make("none", 8);
  layer->submit(0, 5, {Op::trim, Lba{64}, Sectors{1 << 20}}, 0_us);
  ASSERT_EQ(device->inside.size(), 1U);
  EXPECT_EQ(device->inside.begin()->second.sectors, Sectors{1 << 20});
  complete(64, 1_us);
  EXPECT_EQ(finished, (std::vector<std::uint32_t>{5}));
}

TEST_F(Fixture, BusyIsTheTimeWithSomethingInTheDevice) {
  make("none", 8);
  read(0, 0, 0, 10_us);
  read(0, 1, 100, 20_us);
  complete(0, 50_us);
  complete(100, 60_us);
  read(0, 2, 0, 100_us);
  complete(0, 130_us);
  EXPECT_EQ(layer->device_busy(), 80_us);
}

// A user that reads nearby keeps the disk for its slice: the other waits although the disk is idle.
TEST_F(Fixture, CfqIdlesForANearbyReader) {
  make("cfq");
  read(1, 0, 1000, 0_us);
  read(2, 1, 900'000, 1_us);
  EXPECT_EQ(device->order, (std::vector<std::int64_t>{1000}));
  complete(1000, 100_us);
  EXPECT_EQ(device->order.size(), 1U);
  ASSERT_TRUE(timer);
  EXPECT_EQ(*timer, 8_ms + 100_us);
  read(1, 2, 1008, 150_us);
  EXPECT_EQ(device->order.back(), 1008);
}

TEST_F(Fixture, CfqGivesUpIdlingInTime) {
  make("cfq");
  read(1, 0, 1000, 0_us);
  read(2, 1, 900'000, 1_us);
  complete(1000, 100_us);
  layer->timer(*timer);
  EXPECT_EQ(device->order.back(), 900'000);
}

TEST_F(Fixture, CfqEndsASliceWhenOthersWait) {
  make("cfq");
  read(1, 0, 1000, 0_us);
  read(2, 1, 900'000, 1_us);
  Nanos now = 0_us;
  std::int64_t lba = 1000;
  std::uint32_t io = 10;
  while (device->order.back() != 900'000) {
    now += 1_ms;
    ASSERT_LT(now, 200_ms);
    complete(lba, now);
    if (device->order.back() == 900'000) break;
    lba += 8;
    read(1, io++, lba, now + 100_us);
  }
  EXPECT_GE(now, 100_ms);
}

TEST_F(Fixture, CfqDoesNotIdleForASeekyUser) {
  make("cfq");
  Nanos now = 0_us;
  for (std::uint32_t i = 0; i < 8; ++i) {  // user 1 earns its reputation
    read(1, i, 100'000 * (i + 1), now);
    now += 1_ms;
    complete(100'000 * (i + 1), now);
  }
  read(1, 20, 5000, now);
  read(2, 21, 900'000, now);
  now += 1_ms;
  complete(5000, now);
  EXPECT_EQ(device->order.back(), 900'000);
}

TEST_F(Fixture, CfqTakesAUserForSeekyFromItsFifthJumpOn) {
  make("cfq");
  read_in_turn(1, {0, 100'000, 200'000, 300'000});
  EXPECT_TRUE(waits_after(400'000));
  make("cfq");
  read_in_turn(1, {0, 100'000, 200'000, 300'000, 400'000});
  EXPECT_FALSE(waits_after(500'000));
}

TEST_F(Fixture, CfqForgetsAJumpAfter32Requests) {
  for (const std::int64_t nearby : {27, 28}) {  // after the fifth jump
    make("cfq");
    read_in_turn(1, {0, 100'000, 200'000, 300'000, 400'000, 500'000});
    for (std::int64_t i = 1; i < nearby; ++i) read_in_turn(1, {500'000 + 8 * i});
    EXPECT_EQ(waits_after(500'000 + 8 * nearby), nearby == 28) << nearby;
  }
}

// From where the last one ended, in both directions.
TEST_F(Fixture, CfqTakesMoreThan800SectorsForAJump) {
  for (const std::int64_t sectors : {-801, -800, 800, 801}) {
    make("cfq");
    read_in_turn(1, {0, 100'000, 200'000, 300'000, 400'000});
    EXPECT_EQ(waits_after(400'008 + sectors), sectors == -800 || sectors == 800) << sectors;
  }
}

// 300 ms between all that there are when one begins, and 100 ms at most.
TEST_F(Fixture, CfqShortensSlicesWithTheNumberOfUsers) {
  make("cfq");
  for (std::uint32_t i = 1; i <= 4; ++i) read(i, i, std::int64_t{400'000} * i, clock);
  EXPECT_EQ(slice_of(1, 400'000), 100_ms);  // it began alone
  EXPECT_EQ(device->order.back(), 800'000);
  EXPECT_EQ(slice_of(2, 800'000), 75_ms);
  EXPECT_EQ(device->order.back(), 1'200'000);
}

TEST_F(Fixture, CfqGoesUpwardsThroughAUsersRequestsAndThenFromTheLowest) {
  make("cfq", 1);
  std::uint32_t io = 0;
  for (const std::int64_t lba : {400, 500, 100, 900, 408}) read(1, io++, lba, 0_us);
  for (const std::int64_t lba : {400, 408, 500, 900}) complete(lba, 1_ms);
  EXPECT_EQ(device->order, (std::vector<std::int64_t>{400, 408, 500, 900, 100}));
}

TEST_F(Fixture, CfqServesOneUserAfterTheOtherWhoeverCameFirst) {
  make("cfq", 1, false);
  read(1, 0, 1000, 0_us);
  read(3, 1, 2000, 0_us);
  read(2, 2, 3000, 0_us);
  complete(1000, 1_ms);
  EXPECT_EQ(device->order.back(), 3000);
  read(1, 3, 1008, 1_ms);
  complete(3000, 2_ms);
  EXPECT_EQ(device->order.back(), 2000);
  complete(2000, 3_ms);
  EXPECT_EQ(device->order.back(), 1008);
}

TEST_F(Fixture, CfqDoesNotIdleWithoutRotation) {
  make("cfq", 4, false);
  read(1, 0, 1000, 0_us);
  read(2, 1, 900'000, 1_us);
  EXPECT_EQ(device->order, (std::vector<std::int64_t>{1000, 900'000}));
}

TEST_F(Fixture, UnknownSchedulerListsTheKnown) {
  try {
    make("lottery");
    FAIL();
  } catch (const OperatingError& error) {
    EXPECT_NE(std::string(error.what()).find("none, cfq, deadline"), std::string::npos);
  }
}

}  // namespace test_block_layer
}  // namespace flashlab::host
