// Shortest positioning time first (Seltzer, Chen and Ousterhout, USENIX Winter 1990): seek and
// rotation together, so the request that can start first. A request that has waited longer than
// the age limit goes first, or a steady stream of near ones would starve it.
#include <cstdint>
#include <cstdlib>

#include "disk/policy/scheduler.hpp"

namespace flashlab::disk {

namespace {

using namespace literals;

constexpr Nanos kAgeLimit = 500_ms;

class Sptf final : public Scheduler {
 public:
  std::size_t choose(const QueueView& view) override {
    if (view.now - view.queue.front().arrival > kAgeLimit) return 0;
    const Mechanics& mechanics = view.mechanics;
    const std::int64_t here = mechanics.geometry().cylinder_of(view.head.track);
    std::size_t best = 0;
    Nanos best_start{INT64_MAX};
    std::int64_t too_far = INT64_MAX;  // cylinders: the seek alone takes until `best_start`
    for (std::size_t i = 0; i < view.queue.size(); ++i) {
      const Queued& q = view.queue[i];
      const std::int64_t distance = std::abs(q.target.cylinder - here);
      if (distance >= too_far) continue;
      const bool same_track = q.target.track == view.head.track;
      const Nanos arrived = view.now + mechanics.arm_time(same_track, distance, q.write);
      if (arrived >= best_start) {
        // A longer seek takes no less; a write's settling and a head switch say nothing of it.
        if (distance > 0 && !q.write) too_far = distance;
        continue;
      }
      const Nanos start = mechanics.passes(q.target, arrived);
      if (start < best_start) {
        best = i;
        best_start = start;
      }
    }
    return best;
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_sptf(const SchedulerParameters& /*parameters*/) {
  return std::make_unique<Sptf>();
}

}  // namespace flashlab::disk
