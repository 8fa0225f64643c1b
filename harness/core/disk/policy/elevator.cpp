// C-LOOK: the arm sweeps inwards over the queue, then returns to the outermost request.
#include "disk/policy/scheduler.hpp"

namespace flashlab::disk {

namespace {

class Elevator final : public Scheduler {
 public:
  std::size_t choose(const QueueView& view) override {
    const Lba here = view.mechanics.geometry().first_lba(view.head.track);
    std::size_t ahead = view.queue.size();
    std::size_t lowest = 0;
    for (std::size_t i = 0; i < view.queue.size(); ++i) {
      const Lba lba = view.queue[i].lba;
      if (lba < view.queue[lowest].lba) lowest = i;
      if (lba >= here && (ahead == view.queue.size() || lba < view.queue[ahead].lba)) ahead = i;
    }
    return ahead < view.queue.size() ? ahead : lowest;
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_elevator(const SchedulerParameters& /*parameters*/) {
  return std::make_unique<Elevator>();
}

}  // namespace flashlab::disk
