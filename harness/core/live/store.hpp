// The data of a live device: a sparse file, or memory that looks like one (memfd).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/extent.hpp"

namespace flashlab::live {

class Store {
 public:
  // Takes the descriptor over. It must be open for reading and writing.
  explicit Store(int fd) : fd_(fd) {}
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // All return 0 or an errno. What was never written, or was punched, reads as zeros.
  [[nodiscard]] int read(Bytes offset, std::span<std::byte> into) const;
  [[nodiscard]] int write(Bytes offset, std::span<const std::byte> data);
  [[nodiscard]] int punch(Bytes offset, Bytes length);
  // What was written is on the file's disk; memory has none (noop_fsync, mm/shmem.c).
  [[nodiscard]] int sync();

  // Whether any part of the extent was written, and not punched since.
  [[nodiscard]] bool holds_data(const Extent& extent) const;
  // The parts of the extent that were, ascending.
  [[nodiscard]] std::vector<Extent> written(const Extent& extent) const;

 private:
  int fd_;
};

}  // namespace flashlab::live
