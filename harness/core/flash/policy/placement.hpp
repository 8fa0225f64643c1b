// Which stream does a write belong to?
//
// One file per policy, and for each one here: its declaration and its line in the table.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "base/device.hpp"
#include "base/extent.hpp"

namespace flashlab::flash {

// A part of the address space with a name: attributed separately, and a stream for placement
// `range`. Declared in ascending order, disjoint.
struct RangeStream {
  Extent extent;
  StreamId stream = 0;
};

// Answers with a stream below `streams`.
using StreamOf = StreamId (*)(const Request& request, std::span<const RangeStream> ranges,
                              StreamId streams);

StreamId one_stream(const Request& request, std::span<const RangeStream> ranges, StreamId streams);
StreamId stream_by_id(const Request& request, std::span<const RangeStream> ranges,
                      StreamId streams);
StreamId stream_by_range(const Request& request, std::span<const RangeStream> ranges,
                         StreamId streams);

struct Placement {
  std::string_view name;
  StreamOf stream_of;
  bool keeps_apart;  // or the drive ignores streams: writes are attributed to the one they name
};
inline constexpr std::array kPlacements{
    Placement{"none", one_stream, false},
    Placement{"id", stream_by_id, true},
    Placement{"range", stream_by_range, true},
};

// Throws OperatingError for a name that is not in the table.
const Placement& find_placement(std::string_view name);

}  // namespace flashlab::flash
