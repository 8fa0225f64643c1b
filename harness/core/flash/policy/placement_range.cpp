// By the request's first address; outside of all ranges 0.
#include <algorithm>

#include "flash/policy/placement.hpp"

namespace flashlab::flash {

StreamId stream_by_range(const Request& request, std::span<const RangeStream> ranges,
                         StreamId streams) {
  const auto at = std::ranges::upper_bound(ranges, request.lba, {},
                                           [](const RangeStream& r) { return r.extent.end; });
  if (at == ranges.end() || request.lba < at->extent.begin || at->stream >= streams) return 0;
  return at->stream;
}

}  // namespace flashlab::flash
