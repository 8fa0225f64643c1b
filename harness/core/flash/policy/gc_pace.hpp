// How much of a collection is done before it must be?
//
// When the host needs a block and none is left above the reserve, all of a victim is copied at
// once: no policy can put that off. One that has blocks ahead begins earlier, and says each time
// that the host opens a page how much is copied first. One file per policy, and for each one here:
// its declaration and its line in the table.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace flashlab::flash {

struct PaceView {
  std::uint32_t valid = 0;       // units of the victim that are to be copied yet
  std::uint32_t slots = 0;       // of the victim that were not looked at yet
  std::uint32_t host_pages = 0;  // that the host can write before it needs the block
  std::uint32_t slots_per_page = 1;
};

struct GcPace {
  // A collection is under way while no more free blocks than these lie above the reserve; 0: none
  // before it must. They are kept besides.
  std::uint32_t blocks_ahead = 0;
  // Units to be copied before the host opens its next page; at least so many are. Never asked
  // where no blocks are ahead.
  std::uint32_t (*units)(const PaceView& view) = nullptr;
};

GcPace pace_whole();
GcPace pace_paced();

struct GcPaceEntry {
  std::string_view name;
  GcPace (*make)();
};
inline constexpr std::array kGcPaces{
    GcPaceEntry{"whole", pace_whole},
    GcPaceEntry{"paced", pace_paced},
};

// Throws OperatingError for a name that is not in the table.
GcPace find_gc_pace(std::string_view name);

}  // namespace flashlab::flash
