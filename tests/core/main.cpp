#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "repeat.hpp"

namespace flashlab {

namespace {
int repeat_count = 1;
}

int repeats() { return repeat_count; }

}  // namespace flashlab

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFlag = "--repeats=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kFlag)) continue;
    flashlab::repeat_count = std::max(1, std::atoi(argv[i] + kFlag.size()));
  }
  return RUN_ALL_TESTS();
}
