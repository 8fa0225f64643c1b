// Which closed block of a group is collected next?
//
// A policy reads a const view and answers with an index into it; the FTL owns blocks and map. One
// file per policy. It may keep no reference to the view.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/prng.hpp"

namespace flashlab::flash {

struct VictimView {
  // By block of the group. Only blocks with a count below `withheld` may be chosen; there is one.
  std::span<const std::int32_t> valid;
  std::int32_t withheld = 0;
  std::span<const std::uint64_t> closed_at;  // in block closings
  std::uint64_t closings = 0;                // now, on the same clock
  std::uint32_t slots_per_block = 0;
  Prng& random;  // the drive's own
};

class VictimPolicy {
 public:
  virtual ~VictimPolicy() = default;
  [[nodiscard]] virtual std::size_t choose(const VictimView& view) const = 0;
};

// `choices` is the d of d_choices; the others take no notice. Throws OperatingError for a name that
// is not in the table: greedy, fifo, d_choices, cost_benefit.
std::unique_ptr<VictimPolicy> make_victim_policy(std::string_view name, std::uint32_t choices);

std::unique_ptr<VictimPolicy> make_greedy(std::uint32_t choices);
std::unique_ptr<VictimPolicy> make_fifo(std::uint32_t choices);
std::unique_ptr<VictimPolicy> make_d_choices(std::uint32_t choices);
std::unique_ptr<VictimPolicy> make_cost_benefit(std::uint32_t choices);

}  // namespace flashlab::flash
