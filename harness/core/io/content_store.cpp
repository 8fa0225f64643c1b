#include "io/content_store.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"

namespace flashlab::io {

namespace {

constexpr Bytes kBlock{4096};

// Eight bytes at a time: this runs once over every byte that a simulated experiment writes.
bool all_zero(const std::byte* data, std::size_t n) {
  std::uint64_t any = 0;
  std::size_t i = 0;
  for (; i + sizeof any <= n; i += sizeof any) {
    std::uint64_t word;
    std::memcpy(&word, data + i, sizeof word);
    any |= word;
  }
  for (; i < n; ++i) any |= std::to_integer<std::uint64_t>(data[i]);
  return any == 0;
}

}  // namespace

ContentStore::ContentStore(Bytes capacity, Bytes cell, Bytes kept, std::shared_ptr<ChunkPool> pool)
    : capacity_(capacity),
      cell_(cell),
      cell_bytes_(static_cast<std::size_t>(cell.count())),
      kept_bytes_(static_cast<std::size_t>(kept.count())),
      chunk_cells_(static_cast<std::int64_t>(ChunkPool::kChunkBytes) / kept.count()),
      pool_(std::move(pool)) {
  require(kept > Bytes{0} && kept <= cell && kBlock % cell == Bytes{0},
          "content store: 0 < kept <= cell must hold, and cells must fill a block");
  chunks_.resize(static_cast<std::size_t>(ceil_div(capacity / cell, chunk_cells_)));
}

ContentStore::~ContentStore() {
  for (std::byte* chunk : chunks_) {
    if (chunk != nullptr) pool_->give_back(chunk);
  }
}

ContentStore::Run ContentStore::run_at(std::int64_t cell) const {
  for (const Mounted& m : mounted_) {
    const std::int64_t into = cell - m.first_cell;
    if (into < 0 || into >= cells_of(m.cells)) continue;
    return {m.cells.data() + static_cast<std::size_t>(into) * kept_bytes_,
            cells_of(m.cells) - into};
  }
  const std::int64_t into = cell % chunk_cells_;
  std::int64_t cells = chunk_cells_ - into;
  for (const Mounted& m : mounted_) {  // a run ends where a mounted one begins
    if (m.first_cell > cell) cells = std::min(cells, m.first_cell - cell);
  }
  const std::byte* chunk = chunks_[static_cast<std::size_t>(cell / chunk_cells_)];
  if (chunk == nullptr) return {nullptr, cells};
  return {chunk + static_cast<std::size_t>(into) * kept_bytes_, cells};
}

std::byte* ContentStore::writable(std::int64_t cell) {
  std::byte*& chunk = chunks_[static_cast<std::size_t>(cell / chunk_cells_)];
  if (chunk == nullptr) chunk = pool_->take();
  return chunk + static_cast<std::size_t>(cell % chunk_cells_) * kept_bytes_;
}

void ContentStore::write(Bytes offset, std::span<const std::byte> data) {
  FLASHLAB_CHECK(offset % cell_ == Bytes{0} && data.size() % cell_bytes_ == 0);
  std::int64_t cell = offset / cell_;
  const std::byte* source = data.data();
  for (auto left = static_cast<std::int64_t>(data.size() / cell_bytes_); left > 0;) {
    for (const Mounted& m : mounted_) {
      FLASHLAB_CHECK(cell < m.first_cell || cell >= m.first_cell + cells_of(m.cells));
    }
    std::byte* target = writable(cell);
    const std::int64_t n = std::min(left, run_at(cell).cells);
    for (std::int64_t i = 0; i < n; ++i, source += cell_bytes_, target += kept_bytes_) {
      FLASHLAB_CHECK(all_zero(source + kept_bytes_, cell_bytes_ - kept_bytes_));
      std::memcpy(target, source, kept_bytes_);
    }
    cell += n;
    left -= n;
  }
}

void ContentStore::read(Bytes offset, std::span<std::byte> data) const {
  FLASHLAB_CHECK(offset % cell_ == Bytes{0} && data.size() % cell_bytes_ == 0);
  std::int64_t cell = offset / cell_;
  std::memset(data.data(), 0, data.size());
  std::byte* target = data.data();
  for (auto left = static_cast<std::int64_t>(data.size() / cell_bytes_); left > 0;) {
    const Run run = run_at(cell);
    const std::int64_t n = std::min(left, run.cells);
    const std::byte* source = run.first;
    for (std::int64_t i = 0; i < n && run.first != nullptr; ++i, source += kept_bytes_) {
      std::memcpy(target + static_cast<std::size_t>(i) * cell_bytes_, source, kept_bytes_);
    }
    target += static_cast<std::size_t>(n) * cell_bytes_;
    cell += n;
    left -= n;
  }
}

void ContentStore::mount(Bytes offset, std::span<const std::byte> cells) {
  require(offset % cell_ == Bytes{0} && cells.size() % kept_bytes_ == 0,
          "content store: only whole cells can be mounted");
  const std::int64_t count = static_cast<std::int64_t>(cells.size() / kept_bytes_);
  require(offset + count * cell_ <= capacity_, "content store: does not fit the device");
  mounted_.push_back({offset / cell_, cells});
}

}  // namespace flashlab::io
