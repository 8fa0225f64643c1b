// The drive does not know TRIM: the command is accepted, nothing changes.
#include "flash/policy/trim.hpp"

namespace flashlab::flash {

namespace {

class None final : public TrimPolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "none"; }
  Nanos command(std::span<const Extent> /*ranges*/, TrimTarget& /*target*/,
                TrimCounters& counters) override {
    ++counters.commands;
    return Nanos{0};
  }
};

}  // namespace

std::unique_ptr<TrimPolicy> make_trim_none(const TrimParameters& /*p*/,
                                           const TrimDrive& /*drive*/) {
  return std::make_unique<None>();
}

}  // namespace flashlab::flash
