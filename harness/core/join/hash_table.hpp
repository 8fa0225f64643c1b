// The in-memory table of one build partition: chains of record indices, no record is copied.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "join/record.hpp"

namespace flashlab::join {

struct Matches {
  std::uint64_t count = 0;
  std::uint64_t checksum = 0;
};

class HashTable {
 public:
  // For records that lie in `area`, at most as many as fit there.
  explicit HashTable(std::span<const std::byte> area);

  // Memory of the table itself, without the records, for an area of the given size.
  [[nodiscard]] static Bytes memory(Bytes area);

  void clear(std::int64_t expected_records);
  void insert(std::span<const Record> records);  // must lie in the area
  [[nodiscard]] Matches probe(std::span<const Record> records) const;

 private:
  // Chains end at kEnd; index i is the record at area + i * 128.
  static constexpr std::uint32_t kEnd = UINT32_MAX;
  // Records are looked up in groups, each step for the whole group: the cache misses of a group
  // overlap instead of adding up.
  static constexpr std::size_t kGroup = 16;

  [[nodiscard]] std::uint32_t bucket(std::int64_t key) const;

  const Record* base_;
  std::vector<std::uint32_t> heads_;
  std::vector<std::uint32_t> next_;
  std::uint32_t shift_ = 31;
};

}  // namespace flashlab::join
