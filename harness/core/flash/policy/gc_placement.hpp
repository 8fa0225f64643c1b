// Where does a collection put what it copies?
//
// One file per policy, and for each one here: its declaration and its line in the table.
#pragma once

#include <array>
#include <string_view>

#include "base/device.hpp"

namespace flashlab::flash {

// Copies are written as logs, each with a page of its own that is being filled.
struct CopyLog {
  StreamId log = 0;        // dense from 0, at most as many as there are streams
  bool with_host = false;  // its pages lie in the blocks that the host fills with that stream
};

// Of what the stream's writes left behind; must always answer the same.
using CopyLogOf = CopyLog (*)(StreamId stream);

CopyLog copies_mixed(StreamId stream);
CopyLog copies_separate(StreamId stream);
CopyLog copies_by_stream(StreamId stream);

struct GcPlacement {
  std::string_view name;
  CopyLogOf log_of;
};
inline constexpr std::array kGcPlacements{
    GcPlacement{"mixed", copies_mixed},
    GcPlacement{"separate", copies_separate},
    GcPlacement{"by_stream", copies_by_stream},
};

// Throws OperatingError for a name that is not in the table.
CopyLogOf find_gc_placement(std::string_view name);

}  // namespace flashlab::flash
