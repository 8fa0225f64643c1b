// One aligned allocation per user, carved anew for every step of the join: the memory that a join
// uses is what it was given, and buffers suit O_DIRECT.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "base/check.hpp"
#include "base/units.hpp"

namespace flashlab::join {

class Arena {
 public:
  static constexpr std::size_t kAlignment = 4096;

  explicit Arena(Bytes size)
      : size_(round_up(static_cast<std::size_t>(size.count()))),
        memory_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size_))) {
    if (!memory_) throw std::bad_alloc();
    (void)madvise(memory_.get(), size_, MADV_HUGEPAGE);
  }

  [[nodiscard]] std::span<std::byte> all() { return {memory_.get(), size_}; }

  void reset() { used_ = 0; }

  [[nodiscard]] std::span<std::byte> take(Bytes size) {
    const auto bytes = static_cast<std::size_t>(size.count());
    FLASHLAB_CHECK(used_ + bytes <= size_);
    const std::span<std::byte> taken{memory_.get() + used_, bytes};
    used_ += round_up(bytes);
    return taken;
  }

  [[nodiscard]] static std::size_t round_up(std::size_t n) {
    return (n + kAlignment - 1) / kAlignment * kAlignment;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::size_t size_;
  std::size_t used_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace flashlab::join
