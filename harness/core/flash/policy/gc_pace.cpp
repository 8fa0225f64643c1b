#include "flash/policy/gc_pace.hpp"

#include "base/policy_table.hpp"

namespace flashlab::flash {

GcPace find_gc_pace(std::string_view name) { return find_policy(kGcPaces, "gc_pace", name).make(); }

}  // namespace flashlab::flash
