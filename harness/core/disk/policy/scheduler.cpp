#include "disk/policy/scheduler.hpp"

#include "base/policy_table.hpp"

namespace flashlab::disk {

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Scheduler> (*make)();
};

constexpr std::array kTable{
    Entry{"fcfs", make_fcfs},
    Entry{"elevator", make_elevator},
    Entry{"sptf", make_sptf},
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(std::string_view name) {
  return find_policy(kTable, "disk scheduler", name).make();
}

}  // namespace flashlab::disk
