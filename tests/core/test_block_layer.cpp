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

  std::optional<Held> device;
  std::optional<BlockLayer> layer;
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
