// A large array that starts as zeros and takes memory only where it was written to. Backed by huge
// pages where the system has them: random access to hundreds of megabytes is bound by the TLB.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "base/archive.hpp"
#include "base/prefetch.hpp"

namespace flashlab {

template <class T>
class HugeArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  HugeArray() = default;
  explicit HugeArray(std::size_t size) : size_(size) {
    if (size == 0) return;
    void* at = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    ::madvise(at, bytes(), MADV_HUGEPAGE);  // a hint: where it is refused, small pages do
    data_ = static_cast<T*>(at);
  }
  ~HugeArray() {
    if (data_ != nullptr) ::munmap(data_, bytes());
  }
  HugeArray(HugeArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  HugeArray& operator=(HugeArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  HugeArray(const HugeArray&) = delete;
  HugeArray& operator=(const HugeArray&) = delete;

  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  [[nodiscard]] std::size_t size() const { return size_; }
  void prefetch(std::size_t i) const { prefetch_early(data_ + i); }

  void archive(Archive& a) { a.block(data_, size_); }

 private:
  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(T); }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace flashlab
