#include "flash/policy/trim.hpp"

#include <algorithm>

#include "base/policy_table.hpp"

namespace flashlab::flash {

std::unique_ptr<TrimPolicy> make_trim_policy(std::string_view name,
                                             const TrimParameters& parameters,
                                             const TrimDrive& drive) {
  const TrimCosts& costs = parameters.costs;
  require(costs.command >= Nanos{0} && costs.range >= Nanos{0} && costs.buffer >= Nanos{0} &&
              costs.map >= Nanos{0} && costs.list >= Nanos{0},
          "trim_command_time, trim_range_time, trim_buffer_time, trim_map_time and trim_list_time: "
          "must not be negative");
  require(costs.slice.count() >= 512, "trim_slice: must be at least 512 B");
  return find_policy(kTrimPolicies, "trim", name).make(parameters, drive);
}

bool is_trim_policy(std::string_view name) {
  return std::any_of(kTrimPolicies.begin(), kTrimPolicies.end(),
                     [&](const TrimEntry& entry) { return entry.name == name; });
}

}  // namespace flashlab::flash
