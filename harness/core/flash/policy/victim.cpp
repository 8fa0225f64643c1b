#include "flash/policy/victim.hpp"

#include "base/policy_table.hpp"

namespace flashlab::flash {

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<VictimPolicy> (*make)(std::uint32_t choices);
};

constexpr std::array kTable{
    Entry{"greedy", make_greedy},
    Entry{"fifo", make_fifo},
    Entry{"d_choices", make_d_choices},
    Entry{"cost_benefit", make_cost_benefit},
};

}  // namespace

std::unique_ptr<VictimPolicy> make_victim_policy(std::string_view name, std::uint32_t choices) {
  require(choices >= 1 && choices <= 4096, "gc_choices: must lie between 1 and 4096");
  return find_policy(kTable, "gc_policy", name).make(choices);
}

}  // namespace flashlab::flash
