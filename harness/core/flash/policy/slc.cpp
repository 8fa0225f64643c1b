#include "flash/policy/slc.hpp"

#include "base/policy_table.hpp"

namespace flashlab::flash {

std::unique_ptr<SlcPolicy> make_slc_policy(const SlcParameters& p, const Geometry& geometry) {
  require(p.cache.count() >= 0, "slc_cache: must not be negative");
  require(p.dynamic_ratio >= 0.0 && p.dynamic_ratio <= 1.0,
          "slc_dynamic_ratio: must lie between 0 and 1");
  const SlcEntry& entry = find_policy(kSlcPolicies, "slc", p.policy);
  if (p.cache == Bytes{0} && p.dynamic_ratio == 0.0) return nullptr;
  return entry.make(p, geometry);
}

}  // namespace flashlab::flash
