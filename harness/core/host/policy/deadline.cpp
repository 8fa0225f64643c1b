// Deadline, the default I/O scheduler of Ubuntu 14.04's kernels (3.13 to 3.19).
//
// Modelled from its documentation (Linux Documentation/block/deadline-iosched.txt, Red Hat's
// Performance Tuning Guide for its release 6, the kernel's change log) and its published defaults,
// not from its code:
//  - reads and writes wait apart, each in order of address and in order of arrival;
//  - requests go out in batches of one direction, upwards only, until fifo_batch have gone or
//    nothing lies further up;
//  - between batches reads are preferred, but after writes_starved batches of reads that writes had
//    to wait for, it is their turn;
//  - a batch goes on upwards where the last one ended, unless the direction changes, nothing is
//    left there, or the oldest request of the direction has expired: then it begins at the oldest.
//    Only the direction that has been chosen is looked at, and only between batches;
//  - a flush does not queue: it is for what has completed, and goes out at once.
//
// Requests that touch are not merged: a BlockRequest is a part of one user's one transfer, and its
// completion would have to be told to several. Who wants large requests submits large transfers.
#include <deque>
#include <iterator>
#include <list>
#include <map>

#include "host/policy/io_scheduler.hpp"

namespace flashlab::host {

namespace {

using namespace literals;

constexpr Nanos kReadExpire = 500_ms;    // read_expire
constexpr Nanos kWriteExpire = 5000_ms;  // write_expire
constexpr int kBatch = 16;               // fifo_batch
constexpr int kWritesStarved = 2;        // writes_starved

// The waiting requests of one direction.
class Side {
 public:
  explicit Side(Nanos patience) : patience_(patience) {}

  [[nodiscard]] bool empty() const { return by_age_.empty(); }
  [[nodiscard]] Lba oldest() const { return by_age_.front().request.request.lba; }
  [[nodiscard]] bool expired(Nanos now) const { return now >= by_age_.front().expires; }

  void add(const BlockRequest& request, Nanos now) {
    by_age_.push_back({request, now + patience_});
    by_address_.emplace(request.request.lba, std::prev(by_age_.end()));
  }

  [[nodiscard]] bool has_from(Lba lba) const {
    return !by_address_.empty() && by_address_.rbegin()->first >= lba;
  }

  // The next one from `lba` upwards; of those at one address, the oldest.
  BlockRequest take_from(Lba lba) {
    const auto it = by_address_.lower_bound(lba);
    const BlockRequest request = it->second->request;
    by_age_.erase(it->second);
    by_address_.erase(it);
    return request;
  }

 private:
  struct Waiting {
    BlockRequest request;
    Nanos expires;
  };

  Nanos patience_;
  std::list<Waiting> by_age_;
  std::multimap<Lba, std::list<Waiting>::iterator> by_address_;
};

class Deadline final : public IoScheduler {
 public:
  void add(const BlockRequest& request, Nanos now) override {
    const Op op = request.request.op;
    if (op == Op::flush) {
      flushes_.push_back(request);
    } else {
      (op == Op::read ? reads_ : writes_).add(request, now);
    }
  }

  Dispatch next(Nanos now) override {
    if (!flushes_.empty()) {
      const BlockRequest flush = flushes_.front();
      flushes_.pop_front();
      return {flush, std::nullopt};
    }
    if (left_in_batch_ == 0 || !batch_->has_from(position_)) {
      if (reads_.empty() && writes_.empty()) return {};
      begin_batch(now);
    }
    --left_in_batch_;
    const BlockRequest request = batch_->take_from(position_);
    position_ = request.request.lba;
    return {request, std::nullopt};
  }

  void completed(std::uint32_t /*user*/, Nanos /*now*/) override {}

 private:
  void begin_batch(Nanos now) {
    Side& side = next_side();
    const bool goes_on = &side == batch_ && side.has_from(position_) && !side.expired(now);
    if (!goes_on) position_ = side.oldest();
    batch_ = &side;
    left_in_batch_ = kBatch;
  }

  Side& next_side() {
    const bool writes_turn = reads_.empty() || reads_preferred_ == kWritesStarved;
    if (!writes_.empty() && writes_turn) {
      reads_preferred_ = 0;
      return writes_;
    }
    if (!writes_.empty()) ++reads_preferred_;
    return reads_;
  }

  Side reads_{kReadExpire};
  Side writes_{kWriteExpire};
  std::deque<BlockRequest> flushes_;
  Side* batch_ = nullptr;  // the direction of the present batch
  int left_in_batch_ = 0;
  Lba position_;             // where the last request that went out begins
  int reads_preferred_ = 0;  // batches of reads since the last one of writes, while writes waited
};

}  // namespace

std::unique_ptr<IoScheduler> make_deadline(const IoSchedulerParameters& /*p*/,
                                           bool /*rotational*/) {
  return std::make_unique<Deadline>();
}

}  // namespace flashlab::host
