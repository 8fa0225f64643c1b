// FIFO: the block that was closed first, whatever it holds.
#include "flash/policy/victim.hpp"

namespace flashlab::flash {

namespace {

class Fifo final : public VictimPolicy {
 public:
  std::size_t choose(const VictimView& view) const override {
    std::size_t oldest = view.valid.size();
    for (std::size_t i = 0; i < view.valid.size(); ++i) {
      if (view.valid[i] >= view.withheld) continue;
      if (oldest == view.valid.size() || view.closed_at[i] < view.closed_at[oldest]) oldest = i;
    }
    return oldest;
  }
};

}  // namespace

std::unique_ptr<VictimPolicy> make_fifo(const VictimParameters& /*parameters*/) {
  return std::make_unique<Fifo>();
}

}  // namespace flashlab::flash
