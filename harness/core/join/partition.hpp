// Splitting: records go to the write buffer of their partition, full buffers go to the device.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "join/io_window.hpp"
#include "join/read_stream.hpp"
#include "join/record.hpp"
#include "join/space.hpp"

namespace flashlab::join {

struct Partition {
  std::vector<Piece> pieces;  // one per write buffer
  std::int64_t records = 0;
  std::int64_t lowest_key = std::numeric_limits<std::int64_t>::max();
  std::int64_t highest_key = std::numeric_limits<std::int64_t>::min();

  // No hash function can split a partition of one key.
  [[nodiscard]] bool one_key() const { return records > 0 && lowest_key == highest_key; }
};

class PartitionWriter final : private IoListener {
 public:
  // `memory` holds buffers_needed() buffers of `unit` bytes; the device is written in multiples of
  // `block`.
  PartitionWriter(IoWindow& window, Space& space, std::uint32_t partitions,
                  std::span<std::byte> memory, Bytes unit, Bytes block);

  // One per partition, and one more per write that may be under way while the next buffer fills.
  static std::int64_t buffers_needed(std::int64_t partitions, std::uint32_t depth) {
    return partitions + static_cast<std::int64_t>(depth) - 1;
  }

  void append(std::uint32_t partition, const Record& record);
  // Writes what is left, waits for all writes, and hands over the partitions.
  [[nodiscard]] std::vector<Partition> finish();

 private:
  struct Open {
    Record* next = nullptr;  // nullptr: has no buffer
    Record* end = nullptr;
    std::uint32_t buffer = 0;
  };
  void io_done(std::uint32_t slot) override { free_buffers_.push_back(slot); }
  void open(Open& open);
  void flush(std::uint32_t partition);

  IoWindow& window_;
  Space& space_;
  std::span<std::byte> memory_;
  std::size_t unit_;
  std::size_t block_;
  std::int64_t records_not_charged_ = 0;
  std::size_t buffers_;
  std::vector<Open> open_;
  std::vector<Partition> partitions_;
  std::vector<std::uint32_t> free_buffers_;
};

}  // namespace flashlab::join
