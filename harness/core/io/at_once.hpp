// A channel whose transfers are done when submit() returns, and are reported in that order.
#pragma once

#include <deque>

#include "base/check.hpp"
#include "io/storage.hpp"

namespace flashlab::io {

// What derives from it implements submit(), which ends with done(), drain() and now(), of a real
// clock.
class AtOnceChannel : public Channel {
 public:
  Tag wait() override {
    FLASHLAB_CHECK(!completed_.empty());
    const Tag tag = completed_.front();
    completed_.pop_front();
    return tag;
  }

  void compute(Nanos /*cpu*/) override {}

 protected:
  void done(Tag tag) { completed_.push_back(tag); }
  [[nodiscard]] std::size_t unreported() const { return completed_.size(); }
  void forget() noexcept { completed_.clear(); }

 private:
  std::deque<Tag> completed_;
};

}  // namespace flashlab::io
