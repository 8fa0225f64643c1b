// Cost-benefit: the largest (1 - u) / 2u x age, u the valid share (Rosenblum and Ousterhout, "The
// design and implementation of a log-structured file system", 1992; Kawaguchi, Nishioka and Motoda,
// 1995, for flash). Age is counted in block closings since the block was closed.
#include "flash/policy/victim.hpp"

namespace flashlab::flash {

namespace {

class CostBenefit final : public VictimPolicy {
 public:
  std::size_t choose(const VictimView& view) const override {
    std::size_t best = view.valid.size();
    double best_score = -1.0;
    for (std::size_t i = 0; i < view.valid.size(); ++i) {
      if (view.valid[i] == 0) return i;
      if (view.valid[i] >= view.withheld) continue;
      const double score = score_of(view, i);
      if (score <= best_score) continue;
      best = i;
      best_score = score;
    }
    return best;
  }

 private:
  static double score_of(const VictimView& view, std::size_t i) {
    const double u = static_cast<double>(view.valid[i]) / view.slots_per_block;
    const auto age = static_cast<double>(view.closings - view.closed_at[i] + 1);
    return (1.0 - u) / (2.0 * u) * age;
  }
};

}  // namespace

std::unique_ptr<VictimPolicy> make_cost_benefit(const VictimParameters& /*parameters*/) {
  return std::make_unique<CostBenefit>();
}

}  // namespace flashlab::flash
