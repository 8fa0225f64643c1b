#include "dbms/policy/merge_plan.hpp"

#include "base/policy_table.hpp"

namespace flashlab::dbms {

std::unique_ptr<MergePlan> make_merge_plan(std::string_view name, std::int64_t order) {
  require(order >= 2 && order <= 100'000, "merge order: must lie between 2 and 100,000");
  return find_policy(kMergePlans, "merge plan", name).make(order);
}

}  // namespace flashlab::dbms
