#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "host/fiber.hpp"

namespace flashlab::host {
namespace test_fiber {

TEST(Fiber, PausesInTheMiddleAndGoesOn) {
  std::vector<int> steps;
  Fiber* self = nullptr;
  Fiber fiber([&] {
    steps.push_back(1);
    self->pause();
    steps.push_back(3);
  });
  self = &fiber;
  fiber.resume();
  steps.push_back(2);
  EXPECT_FALSE(fiber.ended());
  fiber.resume();
  EXPECT_TRUE(fiber.ended());
  EXPECT_EQ(steps, (std::vector<int>{1, 2, 3}));
}

TEST(Fiber, ManyTakeTurns) {
  std::string order;
  std::vector<std::unique_ptr<Fiber>> fibers;
  for (char name = 'a'; name < 'e'; ++name) {
    fibers.push_back(std::make_unique<Fiber>([&order, &fibers, name] {
      for (int i = 0; i < 3; ++i) {
        order += name;
        fibers[static_cast<std::size_t>(name - 'a')]->pause();
      }
    }));
  }
  for (int i = 0; i < 4; ++i) {
    for (auto& fiber : fibers) fiber->resume();
  }
  EXPECT_EQ(order, "abcdabcdabcd");
}

TEST(Fiber, AnExceptionReachesWhoResumed) {
  Fiber* self = nullptr;
  Fiber fiber([&] {
    self->pause();
    throw std::runtime_error("from inside");
  });
  self = &fiber;
  fiber.resume();
  EXPECT_THROW(fiber.resume(), std::runtime_error);
  EXPECT_TRUE(fiber.ended());
}

TEST(Fiber, AbandoningUnwindsItsStack) {
  struct Witness {
    bool& destroyed;
    ~Witness() { destroyed = true; }
  };
  bool destroyed = false;
  {
    Fiber* self = nullptr;
    Fiber fiber([&] {
      const Witness witness{destroyed};
      self->pause();
    });
    self = &fiber;
    fiber.resume();
    EXPECT_FALSE(destroyed);
  }
  EXPECT_TRUE(destroyed);
}

TEST(Fiber, OneThatNeverRanIsJustDropped) {
  bool ran = false;
  {
    Fiber fiber([&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

}  // namespace test_fiber
}  // namespace flashlab::host
