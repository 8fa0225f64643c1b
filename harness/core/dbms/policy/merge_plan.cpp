#include "dbms/policy/merge_plan.hpp"

#include "base/policy_table.hpp"

namespace flashlab::dbms {

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<MergePlan> (*make)(std::int64_t order);
};

constexpr std::array kTable{
    Entry{"polyphase", make_polyphase},
    Entry{"balanced", make_balanced},
};

}  // namespace

std::unique_ptr<MergePlan> make_merge_plan(std::string_view name, std::int64_t order) {
  require(order >= 2 && order <= 100'000, "merge order: must lie between 2 and 100,000");
  return find_policy(kTable, "merge plan", name).make(order);
}

}  // namespace flashlab::dbms
