// Which stream does a write belong to, and where does garbage collection put what it moves?
#pragma once

#include <cstdint>
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
using Placement = StreamId (*)(const Request& request, std::span<const RangeStream> ranges,
                               StreamId streams);

// none: one stream for everything. id: the request's stream id, unknown ones count as 0. range: by
// the request's first address; outside of all ranges 0. Throws OperatingError for other names.
Placement find_placement(std::string_view name);

// Where a collection's copies go. mixed: into the blocks that the host fills; separate: into blocks
// of their own; by_stream: into blocks of their own, one for each stream of the victims.
enum class GcPlacement : std::uint8_t { mixed, separate, by_stream };
GcPlacement find_gc_placement(std::string_view name);

// When a collection's copies are made. whole: all of a victim's, when a block is needed; paced: in
// step with the host's writes, from one block before that.
enum class GcPace : std::uint8_t { whole, paced };
GcPace find_gc_pace(std::string_view name);

}  // namespace flashlab::flash
