#include "host/policy/io_scheduler.hpp"

#include "base/policy_table.hpp"

namespace flashlab::host {

std::unique_ptr<IoScheduler> make_io_scheduler(const IoSchedulerParameters& parameters,
                                               bool rotational) {
  return find_policy(kIoSchedulers, "I/O scheduler", parameters.policy)
      .make(parameters, rotational);
}

}  // namespace flashlab::host
