// Which closed block of a group is collected next?
//
// A policy reads a const view and answers with an index into it; the FTL owns blocks and map. One
// file per policy, and for each one here: its declaration, its line in the table, its parameters.
// It may keep no reference to the view.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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

struct VictimParameters {
  std::string policy = "greedy";
  std::uint32_t choices = 10;
};

template <class V>
void describe(V& v, VictimParameters& p) {
  v.required("gc_policy", p.policy, "which closed block of a group is collected next");
  v.optional("gc_choices", p.choices, "the d of d_choices; the others take no notice");
}

std::unique_ptr<VictimPolicy> make_greedy(const VictimParameters& parameters);
std::unique_ptr<VictimPolicy> make_fifo(const VictimParameters& parameters);
std::unique_ptr<VictimPolicy> make_d_choices(const VictimParameters& parameters);
std::unique_ptr<VictimPolicy> make_cost_benefit(const VictimParameters& parameters);

struct VictimEntry {
  std::string_view name;
  std::unique_ptr<VictimPolicy> (*make)(const VictimParameters& parameters);
};
inline constexpr std::array kVictimPolicies{
    VictimEntry{"greedy", make_greedy},
    VictimEntry{"fifo", make_fifo},
    VictimEntry{"d_choices", make_d_choices},
    VictimEntry{"cost_benefit", make_cost_benefit},
};

// Throws OperatingError for a name that is not in the table, or parameters out of range.
std::unique_ptr<VictimPolicy> make_victim_policy(const VictimParameters& parameters);

}  // namespace flashlab::flash
