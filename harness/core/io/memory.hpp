// Storage that is plain memory and completes everything at once: the engine without a device.
#pragma once

#include <chrono>
#include <vector>

#include "io/storage.hpp"

namespace flashlab::io {

class MemoryStorage final : public Storage {
 public:
  MemoryStorage(Bytes capacity, Bytes block);

  [[nodiscard]] Bytes capacity() const override {
    return Bytes{static_cast<std::int64_t>(data_.size())};
  }
  [[nodiscard]] Bytes block() const override { return block_; }
  // Users run one after another: there is no time in which they could overlap.
  void run(std::uint32_t users, std::uint32_t depth, const Body& body,
           const Cancel& cancel) override;

  [[nodiscard]] std::span<std::byte> data() { return data_; }

 private:
  Bytes block_;
  std::vector<std::byte> data_;
};

}  // namespace flashlab::io
