// The tables that policies are found in by name.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/policy_table.hpp"
#include "bind/convert.hpp"
#include "dbms/policy/merge_plan.hpp"
#include "dbms/run_merge.hpp"
#include "host/job.hpp"
#include "host/policy/io_scheduler.hpp"

namespace flashlab::bind {

namespace {

struct Table {
  std::string_view name;  // of the parameter
  std::vector<std::string> (*names)();
};

constexpr std::array kTables{
    Table{"gc_policy", [] { return names_of(flash::kVictimPolicies); }},
    Table{"gc_placement", [] { return names_of(flash::kGcPlacements); }},
    Table{"gc_pace", [] { return names_of(flash::kGcPaces); }},
    Table{"placement", [] { return names_of(flash::kPlacements); }},
    Table{"slc", [] { return names_of(flash::kSlcPolicies); }},
    Table{"trim", [] { return names_of(flash::kTrimPolicies); }},
    Table{"scheduler", [] { return names_of(disk::kSchedulers); }},
    Table{"io_scheduler", [] { return names_of(host::kIoSchedulers); }},
    Table{"pattern", [] { return names_of(host::kPatterns); }},
    Table{"merge", [] { return names_of(dbms::kMergePlans); }},
    Table{"refill", [] { return names_of(dbms::kRefills); }},
};

}  // namespace

void bind_policies(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "policy_names",
      [](const std::string& parameter) {
        return find_policy(kTables, "parameter", parameter).names();
      },
      "parameter"_a,
      "What the parameter of this name can be set to (trim, gc_policy, scheduler ...), in the "
      "table's order. Raises BadParameter.");
}

}  // namespace flashlab::bind
