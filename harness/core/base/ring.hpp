// A queue in one piece of memory that grows: where std::deque would allocate every few elements.
#pragma once

#include <cstddef>
#include <vector>

#include "base/archive.hpp"

namespace flashlab {

template <class T>
class Ring {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return slots_[(head_ + i) & (slots_.size() - 1)]; }
  const T& operator[](std::size_t i) const { return slots_[(head_ + i) & (slots_.size() - 1)]; }
  T& front() { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }

  void push_back(const T& value) {
    if (size_ == slots_.size()) grow();
    ++size_;
    back() = value;
  }
  void pop_front() {
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
  }
  void clear() { head_ = size_ = 0; }
  void archive(Archive& a) { a.all(slots_, head_, size_); }

 private:
  void grow() {
    std::vector<T> larger(slots_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = (*this)[i];
    slots_.swap(larger);
    head_ = 0;
  }

  std::vector<T> slots_ = std::vector<T>(16);  // a power of two
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace flashlab
