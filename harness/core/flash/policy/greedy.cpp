// Greedy: the block with the fewest valid slots, the first of equals. Optimal for uniform random
// writes (Yang, Pei and Zhu, 2014). A dense scan beats keeping the blocks sorted: every host write
// would pay for the order, one collection in hundreds of writes pays for the scan.
#include <algorithm>

#include "flash/policy/victim.hpp"

namespace flashlab::flash {

namespace {

class Greedy final : public VictimPolicy {
 public:
  std::size_t choose(const VictimView& view) const override {
    std::int32_t least = view.withheld;
    for (const std::int32_t count : view.valid) least = std::min(least, count);  // vectorised
    const auto found = std::find(view.valid.begin(), view.valid.end(), least);
    return static_cast<std::size_t>(found - view.valid.begin());
  }
};

}  // namespace

std::unique_ptr<VictimPolicy> make_greedy(const VictimParameters& /*parameters*/) {
  return std::make_unique<Greedy>();
}

}  // namespace flashlab::flash
