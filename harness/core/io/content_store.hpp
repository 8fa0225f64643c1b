// The bytes behind a virtual-time device.
//
// Experiments in virtual time move real data, so that a join's result can be checked, but fixed
// width records are mostly padding. The store keeps the leading `kept` bytes of every `cell` bytes
// and insists that the rest is zero: a write that would lose data is refused as a bug, never
// dropped. With kept == cell it is plain memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "io/chunk_pool.hpp"

namespace flashlab::io {

class ContentStore {
 public:
  // Throws OperatingError unless 0 < kept <= cell and cell divides the block size.
  ContentStore(Bytes capacity, Bytes cell, Bytes kept, std::shared_ptr<ChunkPool> pool);
  ~ContentStore();
  ContentStore(const ContentStore&) = delete;
  ContentStore& operator=(const ContentStore&) = delete;

  [[nodiscard]] Bytes capacity() const { return capacity_; }
  [[nodiscard]] Bytes cell() const { return cell_; }

  void write(Bytes offset, std::span<const std::byte> data);
  // What was never written reads as zeros.
  void read(Bytes offset, std::span<std::byte> data) const;
  // Puts `cells` under [offset, ...) without a copy: `kept` bytes of each cell, one after another.
  // The memory stays the caller's, must outlive the store, and is never written to.
  void mount(Bytes offset, std::span<const std::byte> cells);
  // The part of the device that so many kept bytes stand for.
  [[nodiscard]] Bytes bytes_of(std::size_t kept) const {
    return cell_ * static_cast<std::int64_t>(kept / kept_bytes_);
  }

 private:
  struct Mounted {
    std::int64_t first_cell;
    std::span<const std::byte> cells;
  };
  // Neighbouring cells that lie side by side in memory; `first` is nullptr if never written.
  struct Run {
    const std::byte* first;
    std::int64_t cells;
  };
  [[nodiscard]] Run run_at(std::int64_t cell) const;
  [[nodiscard]] std::byte* writable(std::int64_t cell);
  [[nodiscard]] std::int64_t cells_of(std::span<const std::byte> memory) const {
    return static_cast<std::int64_t>(memory.size() / kept_bytes_);
  }

  Bytes capacity_;
  Bytes cell_;
  std::size_t cell_bytes_;
  std::size_t kept_bytes_;
  std::int64_t chunk_cells_;
  std::shared_ptr<ChunkPool> pool_;
  std::vector<std::byte*> chunks_;  // nullptr: never written
  std::vector<Mounted> mounted_;
};

}  // namespace flashlab::io
