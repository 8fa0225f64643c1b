// How long I/Os take from the application's side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/device.hpp"

namespace flashlab::io {

struct PathProbe {
  std::vector<std::int64_t> latencies_ns;  // by completion
  std::int64_t elapsed_ns = 0;
};

// `count` reads or writes (op) of `size` at random places of the first `span` bytes of a block
// device or file, `depth` of them at a time, past the page cache. Throws OperatingError.
PathProbe probe_path(const std::string& path, Op op, Bytes size, Bytes span, std::uint32_t count,
                     std::uint32_t depth);

}  // namespace flashlab::io
