// A resource that serves one transfer at a time: a channel bus, the host link.
//
// Transfers may be reserved ahead (a read's data will need the channel when its page has been
// sensed); another one uses the gap before it if it fits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/archive.hpp"
#include "base/units.hpp"

namespace flashlab::flash {

// transfer_time, which divides 128-bit numbers, remembered for the last size: mostly the same
// again.
class TransferTime {
 public:
  explicit TransferTime(BytesPerSecond rate) : rate_(rate) {}
  Nanos operator()(Bytes bytes) {
    if (bytes != last_) {
      last_ = bytes;
      time_ = transfer_time(bytes, rate_);
    }
    return time_;
  }

 private:
  BytesPerSecond rate_;
  Bytes last_;
  Nanos time_;
};

class Lane {
 public:
  // Takes the first `length` of free time at or after `ready`; returns when it begins.
  Nanos take(Nanos ready, Nanos length) {
    if (ready >= last_end_) {  // behind everything: the common case
      if (ready > last_end_ || busy_.size() == past_) {
        busy_.push_back({ready, ready + length});
      } else {
        busy_.back().end += length;
      }
      last_end_ = ready + length;
      return ready;
    }
    if (reaches_last(ready)) return append(length);
    return take_gap(ready, length);
  }
  // Whether what is taken from `ready` on lies behind all that is reserved.
  [[nodiscard]] bool row_fits(Nanos ready) const {
    return ready >= last_end_ || reaches_last(ready);
  }
  // Where a row fits: takes `transfers` times `length`, one after the other, as so many calls of
  // `take` would; returns when the last of them ends.
  Nanos take_row(Nanos ready, Nanos length, std::int64_t transfers) {
    take(ready, length);
    append(length * (transfers - 1));
    return last_end_;
  }

  // Nothing will be asked for before `when` any more.
  void forget_before(Nanos when) {
    while (past_ + 1 < busy_.size() && busy_[past_].end < when) ++past_;
    if (past_ <= kPastMost) return;
    busy_.erase(busy_.begin(), busy_.begin() + static_cast<std::ptrdiff_t>(past_));
    past_ = 0;
  }

  void reset(Nanos when) {
    busy_.clear();
    past_ = 0;
    last_end_ = when;
  }
  void archive(Archive& a) { a.all(busy_, past_, last_end_); }

 private:
  struct Interval {
    Nanos begin;
    Nanos end;
  };

  // From `ready` on it is busy until the last transfer's end.
  [[nodiscard]] bool reaches_last(Nanos ready) const {
    return busy_.size() > past_ && busy_.back().begin <= ready;
  }
  Nanos append(Nanos length) {
    const Nanos begin = last_end_;
    busy_.back().end += length;
    last_end_ += length;
    return begin;
  }

  Nanos take_gap(Nanos ready, Nanos length) {
    // From the back: a request mostly belongs near the end.
    auto at = busy_.end();
    const auto first = busy_.begin() + static_cast<std::ptrdiff_t>(past_);
    while (at != first && std::prev(at)->end > ready) --at;
    Nanos begin = ready;
    while (at != busy_.end() && at->begin < begin + length) {
      begin = at->end;
      ++at;
    }
    insert(at, begin, begin + length);
    last_end_ = busy_.back().end;
    return begin;
  }

  void insert(std::vector<Interval>::iterator at, Nanos begin, Nanos end) {
    const bool joins_left =
        at != busy_.begin() + static_cast<std::ptrdiff_t>(past_) && std::prev(at)->end == begin;
    const bool joins_right = at != busy_.end() && at->begin == end;
    if (joins_left && joins_right) {
      std::prev(at)->end = at->end;
      busy_.erase(at);
    } else if (joins_left) {
      std::prev(at)->end = end;
    } else if (joins_right) {
      at->begin = begin;
    } else {
      busy_.insert(at, {begin, end});
    }
  }

  // Erasing from a vector's front costs its length: done for so many at once.
  static constexpr std::size_t kPastMost = 256;

  std::vector<Interval> busy_;  // ascending, disjoint, not touching
  std::size_t past_ = 0;        // so many of them, from the front, are forgotten
  Nanos last_end_;
};

}  // namespace flashlab::flash
