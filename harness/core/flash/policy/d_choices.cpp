// d-choices: the best of d blocks drawn at random, with replacement (Van Houdt, SIGMETRICS 2013;
// Li, Lee and Lui, SIGMETRICS 2013).
#include "flash/policy/victim.hpp"

namespace flashlab::flash {

namespace {

class DChoices final : public VictimPolicy {
 public:
  explicit DChoices(std::uint32_t choices) : choices_(choices) {}

  std::size_t choose(const VictimView& view) const override {
    std::size_t best = draw(view);
    for (std::uint32_t i = 1; i < choices_; ++i) {
      const std::size_t other = draw(view);
      if (view.valid[other] < view.valid[best]) best = other;
    }
    return best;
  }

 private:
  static std::size_t draw(const VictimView& view) {
    while (true) {
      const auto i = static_cast<std::size_t>(view.random.below(view.valid.size()));
      if (view.valid[i] < view.withheld) return i;
    }
  }

  std::uint32_t choices_;
};

}  // namespace

std::unique_ptr<VictimPolicy> make_d_choices(const VictimParameters& parameters) {
  return std::make_unique<DChoices>(parameters.choices);
}

}  // namespace flashlab::flash
