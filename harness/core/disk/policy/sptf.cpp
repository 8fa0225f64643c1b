// Shortest positioning time first (Seltzer, Chen and Ousterhout, USENIX Winter 1990): seek and
// rotation together, so the request that can start first. A request that has waited longer than
// the age limit goes first, or a steady stream of near ones would starve it.
#include "disk/policy/scheduler.hpp"

namespace flashlab::disk {

namespace {

using namespace literals;

constexpr Nanos kAgeLimit = 500_ms;

class Sptf final : public Scheduler {
 public:
  std::size_t choose(const QueueView& view) override {
    if (view.now - view.queue.front().arrival > kAgeLimit) return 0;
    std::size_t best = 0;
    Nanos best_start;
    for (std::size_t i = 0; i < view.queue.size(); ++i) {
      const Queued& q = view.queue[i];
      const Nanos start = view.mechanics.positioned(view.head, view.now, q.lba, q.write);
      if (i == 0 || start < best_start) {
        best = i;
        best_start = start;
      }
    }
    return best;
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_sptf() { return std::make_unique<Sptf>(); }

}  // namespace flashlab::disk
