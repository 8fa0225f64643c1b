// A flag that another thread raises (Ctrl-C) and that long work looks at between two operations.
#pragma once

#include <atomic>

#include "base/check.hpp"

namespace flashlab {

class Cancel {
 public:
  Cancel() = default;
  // Raised with its parent, too.
  explicit Cancel(const Cancel* parent) : parent_(parent) {}

  void raise() { raised_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool raised() const {
    return raised_.load(std::memory_order_relaxed) || (parent_ != nullptr && parent_->raised());
  }
  void check() const {
    if (raised()) [[unlikely]]
      throw OperatingError(ErrorKind::interrupted, "interrupted");
  }

 private:
  const Cancel* parent_ = nullptr;
  std::atomic<bool> raised_{false};
};

}  // namespace flashlab
