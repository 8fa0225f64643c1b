// CFQ, the default I/O scheduler of the paper's Linux 2.6.35, as far as synchronous users go.
//
// Modelled from its documentation (Linux Documentation/block/cfq-iosched.txt) and its published
// defaults, not from its code:
//  - every user has a queue of its own, sorted by address, and owns the disk for a time slice;
//  - a user that reads nearby keeps the disk idle for up to slice_idle after its last completion,
//    since its next request will be close: this is what keeps two sequential readers from dragging
//    the arm to and fro;
//  - a user that seeks gets no idling: seeky users take turns request by request, and the drive's
//    own queue sorts them;
//  - with low_latency, slices shrink so that all users get a turn within the target latency;
//  - a drive without rotation gets no idling at all.
#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "host/policy/io_scheduler.hpp"

namespace flashlab::host {

namespace {

using namespace literals;

constexpr Nanos kSlice = 100_ms;          // slice_sync
constexpr Nanos kIdle = 8_ms;             // slice_idle
constexpr Nanos kTargetLatency = 300_ms;  // low_latency
constexpr Sectors kNearby{800};           // a jump of more than 400 KiB is a seek
constexpr int kSeekyJumps = 4;            // seeky: more than 4 of the last 32 requests jumped

class Cfq final : public IoScheduler {
 public:
  explicit Cfq(bool rotational) : rotational_(rotational) {}

  void add(const BlockRequest& request, Nanos /*now*/) override {
    User& user = users_[request.user];
    const Lba lba = request.request.lba;
    const Sectors jump = lba > user.last ? lba - user.last : user.last - lba;
    user.jumps = (user.jumps << 1) | (jump > kNearby ? 1U : 0U);
    user.last = lba + request.request.sectors;
    user.waiting.emplace(lba, request);
  }

  Dispatch next(Nanos now) override {
    if (active_) {
      User& user = users_[*active_];
      const bool others_wait = someone_else_waits();
      const bool used_up = now >= slice_end_ && others_wait;
      if (!used_up) {
        if (!user.waiting.empty()) return take(user);
        if (keeps_disk(user)) {
          if (user.in_flight > 0) return {};
          const Nanos until = user.completed + kIdle;
          if (others_wait && now < until) return {std::nullopt, until};
        }
      }
      active_.reset();
    }
    return activate_next(now) ? take(users_[*active_]) : Dispatch{};
  }

  void completed(std::uint32_t id, Nanos now) override {
    User& user = users_[id];
    --user.in_flight;
    user.completed = now;
  }

 private:
  struct User {
    std::multimap<Lba, BlockRequest> waiting;
    Lba last;  // where the last request that came ended
    Lba head;  // where the last request that was dispatched ended
    std::uint32_t jumps = 0;
    std::uint32_t in_flight = 0;
    Nanos completed;
  };

  [[nodiscard]] bool keeps_disk(const User& user) const {
    return rotational_ && std::popcount(user.jumps) <= kSeekyJumps;
  }

  [[nodiscard]] bool someone_else_waits() const {
    return std::any_of(users_.begin(), users_.end(), [&](const auto& entry) {
      return entry.first != *active_ && !entry.second.waiting.empty();
    });
  }

  // Upwards from where the user's last request ended, then from its lowest address.
  Dispatch take(User& user) {
    auto it = user.waiting.lower_bound(user.head);
    if (it == user.waiting.end()) it = user.waiting.begin();
    const BlockRequest request = it->second;
    user.waiting.erase(it);
    user.head = request.request.lba + request.request.sectors;
    ++user.in_flight;
    return {request, std::nullopt};
  }

  // Round robin over the users that have something to do.
  bool activate_next(Nanos now) {
    auto it = users_.upper_bound(last_active_);
    for (std::size_t i = 0; i <= users_.size(); ++i) {
      if (it == users_.end()) it = users_.begin();
      if (it == users_.end()) return false;
      if (!it->second.waiting.empty()) {
        active_ = last_active_ = it->first;
        slice_end_ = now + slice();
        return true;
      }
      ++it;
    }
    return false;
  }

  [[nodiscard]] Nanos slice() const {
    const auto users = static_cast<std::int64_t>(users_.size());
    return std::min(kSlice, kTargetLatency / std::max<std::int64_t>(users, 1));
  }

  bool rotational_;
  std::map<std::uint32_t, User> users_;
  std::optional<std::uint32_t> active_;
  std::uint32_t last_active_ = 0;
  Nanos slice_end_;
};

}  // namespace

std::unique_ptr<IoScheduler> make_cfq(const IoSchedulerParameters& /*p*/, bool rotational) {
  return std::make_unique<Cfq>(rotational);
}

}  // namespace flashlab::host
