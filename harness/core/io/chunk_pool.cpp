#include "io/chunk_pool.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace flashlab::io {

ChunkPool::~ChunkPool() {
  for (std::byte* chunk : free_) (void)munmap(chunk, kChunkBytes);
}

std::byte* ChunkPool::take() {
  std::byte* used = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      used = free_.back();
      free_.pop_back();
    }
  }
  if (used != nullptr) {
    std::memset(used, 0, kChunkBytes);
    return used;
  }
  void* fresh =
      mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) throw std::bad_alloc();
  (void)madvise(fresh, kChunkBytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(fresh);
}

void ChunkPool::give_back(std::byte* chunk) {
  const std::lock_guard lock(mutex_);
  free_.push_back(chunk);
}

}  // namespace flashlab::io
