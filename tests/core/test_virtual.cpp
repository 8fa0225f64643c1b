#include <gtest/gtest.h>

#include <vector>

#include "base/check.hpp"
#include "io/virtual.hpp"

namespace flashlab::io {
namespace test_virtual {

using namespace literals;

// Every request takes 100 us, any number at once.
class Fixed final : public DeviceModel {
 public:
  explicit Fixed(Host& host) : host_(host) {}
  void submit(Tag tag, const Request& /*request*/, Nanos now) override {
    host_.done(tag, now + 100_us);
  }
  void wake(Nanos /*now*/) override {}
  std::vector<Extent> in_doubt(Nanos /*now*/) override { return {}; }
  void archive(Archive& /*a*/) override {}
  [[nodiscard]] Bytes capacity() const override { return 64_MiB; }
  [[nodiscard]] bool rotational() const override { return false; }
  [[nodiscard]] std::uint32_t queue_depth() const override { return 32; }

 private:
  void restart(Nanos /*now*/) override {}

  Host& host_;
};

VirtualStorage make(std::int64_t cores = 2, Nanos submit = 0_us, Nanos complete = 0_us) {
  return VirtualStorage([](Host& host) { return std::make_unique<Fixed>(host); },
                        {cores, submit, complete, 512_KiB, {"none"}}, Bytes{512}, Bytes{512},
                        std::make_shared<ChunkPool>());
}

TEST(VirtualStorage, OneUserTakesWhatTheDeviceTakes) {
  auto storage = make();
  std::vector<std::byte> block(512);
  Nanos end;
  storage.run(
      1, 1,
      [&](std::uint32_t, Channel& channel) {
        for (int i = 0; i < 10; ++i) {
          channel.submit({Op::read, Bytes{0}, block, 0});
          (void)channel.wait();
        }
        end = channel.now();
      },
      Cancel());
  EXPECT_EQ(end, 1000_us);
}

TEST(VirtualStorage, CpuTimeOfUsersOverlapsAcrossCoresAndNoFurther) {
  for (const auto& [cores, expected] : {std::pair{1, 40_us}, {2, 20_us}, {8, 10_us}}) {
    auto storage = make(cores);
    Nanos last;
    storage.run(
        4, 1,
        [&](std::uint32_t, Channel& channel) {
          channel.compute(10_us);
          last = std::max(last, channel.now());
        },
        Cancel());
    EXPECT_EQ(last, expected) << cores;
  }
}

TEST(VirtualStorage, HostCostsAreChargedPerTransfer) {
  auto storage = make(1, 7_us, 3_us);
  std::vector<std::byte> block(512);
  Nanos end;
  storage.run(
      1, 1,
      [&](std::uint32_t, Channel& channel) {
        channel.submit({Op::read, Bytes{0}, block, 0});
        (void)channel.wait();
        end = channel.now();
      },
      Cancel());
  EXPECT_EQ(end, 110_us);
}

TEST(VirtualStorage, SeveralTransfersOverlap) {
  auto storage = make();
  std::vector<std::byte> block(512 * 4);
  Nanos end;
  storage.run(
      1, 4,
      [&](std::uint32_t, Channel& channel) {
        for (Tag tag = 0; tag < 4; ++tag) {
          channel.submit({Op::read, Bytes{0}, std::span(block).subspan(tag * 512, 512), tag});
        }
        std::vector<bool> seen(4);
        for (int i = 0; i < 4; ++i) seen[channel.wait()] = true;
        EXPECT_EQ(seen, std::vector<bool>(4, true));
        end = channel.now();
      },
      Cancel());
  EXPECT_EQ(end, 100_us);
}

TEST(VirtualStorage, UsersTakeTurnsInTheOrderOfTime) {
  auto storage = make(4);
  std::vector<std::uint32_t> order;
  storage.run(
      3, 1,
      [&](std::uint32_t user, Channel& channel) {
        std::vector<std::byte> block(512);
        channel.compute((3 - user) * 10_us);
        channel.submit({Op::read, Bytes{0}, block, 0});
        (void)channel.wait();
        order.push_back(user);
      },
      Cancel());
  EXPECT_EQ(order, (std::vector<std::uint32_t>{2, 1, 0}));
}

TEST(VirtualStorage, AnErrorOfOneUserEndsTheRunAndTheStorage) {
  auto storage = make();
  std::vector<std::byte> block(512);
  const auto body = [&](std::uint32_t user, Channel& channel) {
    channel.submit({Op::read, Bytes{0}, block, 0});
    (void)channel.wait();
    if (user == 1) throw OperatingError(ErrorKind::io, "broken");
    for (int i = 0; i < 100; ++i) {
      channel.submit({Op::read, Bytes{0}, block, 0});
      (void)channel.wait();
    }
  };
  EXPECT_THROW(storage.run(3, 1, body, Cancel()), OperatingError);
  EXPECT_THROW(storage.run(1, 1, body, Cancel()), Bug);
}

TEST(VirtualStorage, CancellingEndsTheRun) {
  auto storage = make();
  std::vector<std::byte> block(512);
  Cancel cancel;
  cancel.raise();
  EXPECT_THROW(storage.run(
                   2, 1,
                   [&](std::uint32_t, Channel& channel) {
                     while (true) {
                       channel.submit({Op::read, Bytes{0}, block, 0});
                       (void)channel.wait();
                     }
                   },
                   cancel),
               OperatingError);
}

TEST(VirtualStorage, MoreInFlightThanAskedForIsABug) {
  auto storage = make();
  std::vector<std::byte> block(512);
  EXPECT_THROW(storage.run(
                   1, 1,
                   [&](std::uint32_t, Channel& channel) {
                     channel.submit({Op::read, Bytes{0}, block, 0});
                     channel.submit({Op::read, Bytes{0}, block, 1});
                   },
                   Cancel()),
               Bug);
}

}  // namespace test_virtual
}  // namespace flashlab::io
