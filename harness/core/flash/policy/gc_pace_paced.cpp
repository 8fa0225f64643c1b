// One block before it must, and then in step with the host: the copies are spread over the pages
// that the host writes until the block is free, so that no single write waits for a whole block.
#include <algorithm>

#include "flash/policy/gc_pace.hpp"

namespace flashlab::flash {

namespace {

std::uint32_t in_step(const PaceView& view) {
  // The host may write no more meanwhile than the block gains, or it never catches up.
  const std::uint32_t gains = (view.slots - view.valid) / view.slots_per_page;
  const std::uint32_t pages = std::max(std::min(gains, view.host_pages), 1U);
  const std::uint32_t units = std::max(view.valid, 1U);
  return (units + pages - 1) / pages;
}

}  // namespace

GcPace pace_paced() { return {1, in_step}; }

}  // namespace flashlab::flash
