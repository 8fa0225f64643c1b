#include <gtest/gtest.h>

#include <vector>

#include "base/check.hpp"
#include "serial_device.hpp"

namespace flashlab::host {
namespace test_machine {

using namespace literals;
using testing_host::machine_over;

HostParameters host_of(std::int64_t cores, std::int64_t threads_per_core = 1,
                       double smt_gain = 0.0) {
  HostParameters host = testing_host::plain_host(cores);
  host.threads_per_core = threads_per_core;
  host.smt_gain = smt_gain;
  return host;
}

// When each of `processes` has done `steps` pieces of CPU time of 10 us, the last of them.
Nanos all_done(const HostParameters& host, std::uint32_t processes, int steps = 1) {
  const auto machine = machine_over({}, 1024_MiB, host);
  machine->run(
      processes,
      [&](Process self) {
        for (int i = 0; i < steps; ++i) machine->compute(self, 10_us);
      },
      Cancel());
  return machine->now();
}

TEST(MachineCompute, AsManyAsCoresGoSideBySide) {
  for (std::uint32_t processes = 1; processes <= 4; ++processes) {
    EXPECT_EQ(all_done(host_of(4), processes, 10), 100_us);
  }
}

TEST(MachineCompute, MoreThanCoresWaitForOne) {
  EXPECT_EQ(all_done(host_of(4), 8, 10), 200_us);
  EXPECT_EQ(all_done(host_of(1), 3, 10), 300_us);
}

TEST(MachineCompute, ACoresSecondThreadAddsItsGain) {
  // Two threads of one core: together 1.25 times a core's work in the same time.
  EXPECT_EQ(all_done(host_of(1, 2, 0.25), 1, 10), 100_us);
  const Nanos both = all_done(host_of(1, 2, 0.25), 2, 100);
  EXPECT_GT(both, 2000_us * 100 / 125 - 20_us);
  EXPECT_LT(both, 2000_us * 100 / 125 + 20_us);
}

TEST(MachineCompute, ThreadsThatFindACoreOfTheirOwnAreNotSlowed) {
  EXPECT_EQ(all_done(host_of(4, 2, 0.25), 4, 10), 100_us);
  EXPECT_GT(all_done(host_of(4, 2, 0.25), 5, 10), 100_us);
}

TEST(MachineCompute, AFullGainIsAsGoodAsCores) {
  EXPECT_EQ(all_done(host_of(2, 2, 1.0), 4, 10), all_done(host_of(4), 4, 10));
}

TEST(Machine, SleepersWakeInTheOrderOfTime) {
  const auto machine = machine_over();
  std::vector<Process> order;
  machine->run(
      5,
      [&](Process self) {
        machine->sleep_until(self, (5 - self) * 10_us);
        EXPECT_EQ(machine->now(), (5 - self) * 10_us);
        order.push_back(self);
        machine->sleep_until(self, 0_us);  // the past takes no time
        EXPECT_EQ(machine->now(), (5 - self) * 10_us);
      },
      Cancel());
  EXPECT_EQ(order, (std::vector<Process>{4, 3, 2, 1, 0}));
}

TEST(Machine, AProcessWaitsUntilItIsCalledAndItsConditionHolds) {
  const auto machine = machine_over();
  bool ready = false;
  Nanos woken;
  machine->run(
      2,
      [&](Process self) {
        if (self == 0) {
          machine->wait(self, [&] { return ready; });
          woken = machine->now();
          return;
        }
        machine->sleep_until(self, 10_us);
        machine->wake(0);  // for nothing
        machine->sleep_until(self, 20_us);
        ready = true;
        machine->wake(0);
        machine->sleep_until(self, 30_us);
      },
      Cancel());
  EXPECT_EQ(woken, 20_us);
}

TEST(Machine, WaitingForNothingIsABug) {
  const auto machine = machine_over();
  EXPECT_THROW(machine->run(
                   2, [&](Process self) { machine->wait(self, [] { return false; }); }, Cancel()),
               Bug);
}

class Counter final : public IoOwner {
 public:
  void io_done(std::uint32_t cookie) override { cookies.push_back(cookie); }
  std::vector<std::uint32_t> cookies;
};

TEST(Machine, TheEndOfARequestIsToldToItsOwner) {
  const auto machine = machine_over();
  Counter one;
  Counter other;
  machine->run(
      1,
      [&](Process self) {
        for (std::uint32_t i = 0; i < 6; ++i) {
          machine->submit(self, {Op::read, Lba{8 * i}, Sectors{8}}, i % 2 == 0 ? one : other, i);
        }
        machine->wait(self, [&] { return one.cookies.size() + other.cookies.size() == 6; });
        EXPECT_EQ(machine->now(), testing_host::device_of(*machine).served.back().done);
      },
      Cancel());
  EXPECT_EQ(one.cookies, (std::vector<std::uint32_t>{0, 2, 4}));
  EXPECT_EQ(other.cookies, (std::vector<std::uint32_t>{1, 3, 5}));
}

TEST(Machine, WhoeverWatchesSeesEveryRequestAsItIsSubmitted) {
  const auto machine = machine_over();
  Counter owner;
  std::vector<std::pair<std::int64_t, Nanos>> seen;
  const auto submit = [&](Process self, std::int64_t lba, Sectors sectors) {
    const std::size_t before = owner.cookies.size();
    machine->submit(self, {Op::read, Lba{lba}, sectors}, owner, 0);
    machine->wait(self, [&] { return owner.cookies.size() > before; });
  };
  Nanos second;
  machine->run(
      1,
      [&](Process self) {
        submit(self, 8, Sectors{8});
        machine->watch([&](const Request& request, Nanos now) {
          seen.emplace_back(request.lba.index(), now);
        });
        second = machine->now();
        submit(self, 16, Sectors{1 << 14});  // split below: one request to those above
        machine->watch({});
        submit(self, 24, Sectors{8});
      },
      Cancel());
  EXPECT_EQ(seen, (std::vector<std::pair<std::int64_t, Nanos>>{{16, second}}));
}

TEST(Machine, TheFirstErrorEndsAllAndTheMachine) {
  const auto machine = machine_over();
  int unwound = 0;
  struct Guard {
    int& count;
    ~Guard() { ++count; }
  };
  const auto body = [&](Process self) {
    const Guard guard{unwound};
    machine->sleep_until(self, (self + 1) * 10_us);
    if (self == 1) throw OperatingError(ErrorKind::io, "broken");
    machine->sleep_until(self, 100_us);
  };
  EXPECT_THROW(machine->run(3, body, Cancel()), OperatingError);
  EXPECT_EQ(unwound, 3);
  EXPECT_THROW(machine->run(1, [](Process) {}, Cancel()), Bug);
}

}  // namespace test_machine
}  // namespace flashlab::host
