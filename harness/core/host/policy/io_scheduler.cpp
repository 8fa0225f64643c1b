#include "host/policy/io_scheduler.hpp"

#include "base/policy_table.hpp"

namespace flashlab::host {

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<IoScheduler> (*make)(bool rotational);
};

constexpr std::array kTable{
    Entry{"none", make_none},
    Entry{"cfq", make_cfq},
    Entry{"deadline", make_deadline},
};

}  // namespace

std::unique_ptr<IoScheduler> make_io_scheduler(std::string_view name, bool rotational) {
  return find_policy(kTable, "I/O scheduler", name).make(rotational);
}

}  // namespace flashlab::host
