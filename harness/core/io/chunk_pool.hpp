// Chunks of memory that outlive the store that used them.
//
// A sweep builds and drops a store of some hundred MiB per point; giving that memory back to the
// kernel and faulting it in again took a third of a simulated join's time. Whoever runs a sweep
// owns a pool and hands it to the stores. Thread-safe.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace flashlab::io {

class ChunkPool {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{2} << 20;

  ChunkPool() = default;
  ~ChunkPool();
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  // kChunkBytes of zeros. Throws std::bad_alloc.
  [[nodiscard]] std::byte* take();
  void give_back(std::byte* chunk);

 private:
  std::mutex mutex_;
  std::vector<std::byte*> free_;
};

}  // namespace flashlab::io
