#include "flash/policy/victim.hpp"

#include "base/policy_table.hpp"

namespace flashlab::flash {

std::unique_ptr<VictimPolicy> make_victim_policy(const VictimParameters& parameters) {
  require(parameters.choices >= 1 && parameters.choices <= 4096,
          "gc_choices: must lie between 1 and 4096");
  return find_policy(kVictimPolicies, "gc_policy", parameters.policy).make(parameters);
}

}  // namespace flashlab::flash
