#include "flash/policy/placement.hpp"

#include "base/policy_table.hpp"

namespace flashlab::flash {

const Placement& find_placement(std::string_view name) {
  return find_policy(kPlacements, "placement", name);
}

}  // namespace flashlab::flash
