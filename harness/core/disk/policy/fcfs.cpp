// First come, first served: a drive without command queueing.
#include "disk/policy/scheduler.hpp"

namespace flashlab::disk {

namespace {

class Fcfs final : public Scheduler {
 public:
  std::size_t choose(const QueueView& /*view*/) override { return 0; }
};

}  // namespace

std::unique_ptr<Scheduler> make_fcfs(const SchedulerParameters& /*parameters*/) {
  return std::make_unique<Fcfs>();
}

}  // namespace flashlab::disk
