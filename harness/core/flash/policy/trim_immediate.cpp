// Everything is done before the command is acknowledged.
#include "base/check.hpp"
#include "flash/policy/trim.hpp"

namespace flashlab::flash {

namespace {

class Immediate final : public TrimPolicy {
 public:
  explicit Immediate(const TrimCosts& costs) : costs_(costs) {}

  [[nodiscard]] std::string_view name() const override { return "immediate"; }

  Nanos command(std::span<const Extent> ranges, TrimTarget& target,
                TrimCounters& counters) override {
    std::int64_t slices = 0;
    for (const Extent& range : ranges) {
      slices += slices_of(range);
      target.unmap(range);
    }
    const auto count = static_cast<std::int64_t>(ranges.size());
    const Nanos handling = costs_.command + costs_.range * count;
    ++counters.commands;
    counters.ranges += ranges.size();
    counters.slices += static_cast<std::uint64_t>(slices);
    counters.command_time += handling;
    counters.buffer_time += costs_.buffer * slices;
    counters.map_time += costs_.map * slices;
    return handling + (costs_.buffer + costs_.map) * slices;
  }

 private:
  // Every slice that the range touches is looked at.
  [[nodiscard]] std::int64_t slices_of(const Extent& range) const {
    const std::int64_t first = to_bytes(range.begin) / costs_.slice;
    return ceil_div(to_bytes(range.end).count(), costs_.slice.count()) - first;
  }

  TrimCosts costs_;
};

}  // namespace

std::unique_ptr<TrimPolicy> make_trim_immediate(const TrimParameters& p,
                                                const TrimDrive& /*drive*/) {
  return std::make_unique<Immediate>(p.costs);
}

}  // namespace flashlab::flash
