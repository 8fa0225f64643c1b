// The page cache of tests of what lies above it: the kernel's defaults, and costs nothing.
#pragma once

#include "kernel/page_cache.hpp"

namespace flashlab::testing_host {

using namespace literals;

// Of this size, in blocks of PostgreSQL's 8 KiB.
inline kernel::PageCacheParameters memory_of(Bytes size) {
  return {.memory = size,
          .block = 8_KiB,
          .read_ahead = 128_KiB,
          .dirty_background_ratio = 0.1,
          .dirty_ratio = 0.2,
          .round = Nanos{0},
          .queue_limit = 128,
          .allocation = 8_MiB,
          .segment = 1024_MiB,
          .begin = Bytes{0},
          .copy_cpu = Nanos{0}};
}

}  // namespace flashlab::testing_host
