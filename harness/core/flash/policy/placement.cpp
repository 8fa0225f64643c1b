#include "flash/policy/placement.hpp"

#include <algorithm>

#include "base/policy_table.hpp"

namespace flashlab::flash {

namespace {

StreamId by_nothing(const Request& /*request*/, std::span<const RangeStream> /*ranges*/,
                    StreamId /*streams*/) {
  return 0;
}

StreamId by_id(const Request& request, std::span<const RangeStream> /*ranges*/, StreamId streams) {
  return request.stream < streams ? request.stream : StreamId{0};
}

StreamId by_range(const Request& request, std::span<const RangeStream> ranges, StreamId streams) {
  const auto at = std::ranges::upper_bound(ranges, request.lba, {},
                                           [](const RangeStream& r) { return r.extent.end; });
  if (at == ranges.end() || request.lba < at->extent.begin || at->stream >= streams) return 0;
  return at->stream;
}

struct PlacementEntry {
  std::string_view name;
  Placement place;
};
struct GcEntry {
  std::string_view name;
  GcPlacement place;
};
struct PaceEntry {
  std::string_view name;
  GcPace pace;
};

constexpr std::array kPlacements{
    PlacementEntry{"none", by_nothing},
    PlacementEntry{"id", by_id},
    PlacementEntry{"range", by_range},
};
constexpr std::array kGcPlacements{
    GcEntry{"mixed", GcPlacement::mixed},
    GcEntry{"separate", GcPlacement::separate},
    GcEntry{"by_stream", GcPlacement::by_stream},
};

constexpr std::array kPaces{
    PaceEntry{"whole", GcPace::whole},
    PaceEntry{"paced", GcPace::paced},
};

}  // namespace

Placement find_placement(std::string_view name) {
  return find_policy(kPlacements, "placement", name).place;
}

GcPlacement find_gc_placement(std::string_view name) {
  return find_policy(kGcPlacements, "gc_placement", name).place;
}

GcPace find_gc_pace(std::string_view name) { return find_policy(kPaces, "gc_pace", name).pace; }

}  // namespace flashlab::flash
