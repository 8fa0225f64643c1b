#include "disk/policy/scheduler.hpp"

#include "base/policy_table.hpp"

namespace flashlab::disk {

std::unique_ptr<Scheduler> make_scheduler(const SchedulerParameters& parameters) {
  return find_policy(kSchedulers, "disk scheduler", parameters.policy).make(parameters);
}

}  // namespace flashlab::disk
