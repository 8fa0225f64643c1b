#include "join/partition.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"

namespace flashlab::join {

PartitionWriter::PartitionWriter(IoWindow& window, Space& space, std::uint32_t partitions,
                                 std::span<std::byte> memory, Bytes unit, Bytes block)
    : window_(window),
      space_(space),
      memory_(memory),
      unit_(static_cast<std::size_t>(unit.count())),
      block_(static_cast<std::size_t>(block.count())),
      buffers_(memory.size() / unit_),
      open_(partitions),
      partitions_(partitions) {
  FLASHLAB_CHECK(buffers_ >= static_cast<std::size_t>(buffers_needed(partitions, window.depth())));
  for (std::size_t i = buffers_; i > 0; --i) {
    free_buffers_.push_back(static_cast<std::uint32_t>(i - 1));
  }
}

void PartitionWriter::append(std::uint32_t partition, const Record& record) {
  Open& here = open_[partition];
  if (here.next == nullptr) [[unlikely]]
    open(here);
  *here.next++ = record;
  Partition& p = partitions_[partition];
  ++p.records;
  p.lowest_key = std::min(p.lowest_key, record.content.key);
  p.highest_key = std::max(p.highest_key, record.content.key);
  ++records_not_charged_;
  if (here.next == here.end) flush(partition);
}

void PartitionWriter::open(Open& open) {
  while (free_buffers_.empty()) window_.wait_one();
  open.buffer = free_buffers_.back();
  free_buffers_.pop_back();
  open.next = reinterpret_cast<Record*>(memory_.data() + open.buffer * unit_);
  open.end = open.next + unit_ / sizeof(Record);
}

void PartitionWriter::flush(std::uint32_t partition) {
  Open& here = open_[partition];
  std::byte* begin = memory_.data() + here.buffer * unit_;
  auto* end = reinterpret_cast<std::byte*>(here.next);
  const auto used = static_cast<std::size_t>(end - begin);
  const std::size_t size = (used + block_ - 1) / block_ * block_;
  std::memset(end, 0, size - used);
  const Piece piece{space_.take(), Bytes{static_cast<std::int64_t>(size)},
                    static_cast<std::int64_t>(used / sizeof(Record))};
  partitions_[partition].pieces.push_back(piece);
  here.next = nullptr;
  window_.compute({.partitioned = std::exchange(records_not_charged_, 0)});
  window_.start(Op::write, piece.offset, {begin, size}, *this, here.buffer);
}

std::vector<Partition> PartitionWriter::finish() {
  for (std::uint32_t p = 0; p < open_.size(); ++p) {
    if (open_[p].next != nullptr) flush(p);
  }
  while (free_buffers_.size() < buffers_) window_.wait_one();
  return std::move(partitions_);
}

}  // namespace flashlab::join
