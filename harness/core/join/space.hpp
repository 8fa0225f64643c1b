// The space on the device that a user's partitions are written to, in units of one write buffer.
//
// Units are handed out in the order in which buffers fill up, so partitions that grow together lie
// interleaved: writing is sequential, reading a partition back is not. This is the paper's layout
// ("scattered over the device in write-buffer units"). Units that are given back are used again
// only when there is no fresh space left.
#pragma once

#include <deque>

#include "base/check.hpp"
#include "join/spec.hpp"

namespace flashlab::join {

class Space {
 public:
  Space(const Scratch& scratch, Bytes unit)
      : scratch_(scratch), unit_(unit), next_(scratch.begin) {}

  [[nodiscard]] Bytes take() {
    if (next_ + unit_ <= scratch_.end) {
      const Bytes taken = next_;
      next_ += unit_;
      return taken;
    }
    if (given_back_.empty()) {
      throw OperatingError(ErrorKind::disk_full,
                           "the partitions do not fit the space kept for them on the device (" +
                               std::to_string((scratch_.end - scratch_.begin).count()) +
                               " bytes per user)");
    }
    const Bytes taken = given_back_.front();
    given_back_.pop_front();
    return taken;
  }

  void give_back(Bytes offset) { given_back_.push_back(offset); }

 private:
  Scratch scratch_;
  Bytes unit_;
  Bytes next_;
  std::deque<Bytes> given_back_;
};

}  // namespace flashlab::join
