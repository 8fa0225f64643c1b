#include "flash/policy/gc_placement.hpp"

#include "base/policy_table.hpp"

namespace flashlab::flash {

CopyLogOf find_gc_placement(std::string_view name) {
  return find_policy(kGcPlacements, "gc_placement", name).log_of;
}

}  // namespace flashlab::flash
