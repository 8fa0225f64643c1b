#include "join/hash_table.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.hpp"
#include "base/prefetch.hpp"
#include "join/hash.hpp"

namespace flashlab::join {

namespace {

std::uint64_t bucket_count(std::int64_t records) {
  return std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(records, 2)));
}

}  // namespace

HashTable::HashTable(std::span<const std::byte> area)
    : base_(reinterpret_cast<const Record*>(area.data())),
      heads_(bucket_count(static_cast<std::int64_t>(area.size() / sizeof(Record)))),
      next_(area.size() / sizeof(Record)) {}

Bytes HashTable::memory(Bytes area) {
  const std::int64_t records = area / kRecordBytes;
  const auto heads = static_cast<std::int64_t>(bucket_count(records));
  return (heads + records) * Bytes{sizeof(std::uint32_t)};
}

void HashTable::clear(std::int64_t expected_records) {
  const std::uint64_t buckets =
      std::min<std::uint64_t>(bucket_count(expected_records), heads_.size());
  shift_ = 32U - static_cast<std::uint32_t>(std::bit_width(buckets) - 1);
  std::fill_n(heads_.begin(), buckets, kEnd);
}

std::uint32_t HashTable::bucket(std::int64_t key) const { return table_hash(key) >> shift_; }

void HashTable::insert(std::span<const Record> records) {
  const auto first = static_cast<std::uint32_t>(records.data() - base_);
  FLASHLAB_CHECK(records.data() >= base_ && first + records.size() <= next_.size());
  for (std::uint32_t i = 0; i < records.size(); ++i) {
    std::uint32_t& head = heads_[bucket(records[i].content.key)];
    next_[first + i] = head;
    head = first + i;
  }
}

Matches HashTable::probe(std::span<const Record> records) const {
  Matches found;
  std::array<std::uint32_t, kGroup> at;
  for (std::size_t begin = 0; begin < records.size(); begin += kGroup) {
    const std::size_t n = std::min(kGroup, records.size() - begin);
    for (std::size_t i = 0; i < n; ++i) {
      at[i] = bucket(records[begin + i].content.key);
      prefetch(&heads_[at[i]]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      at[i] = heads_[at[i]];
      if (at[i] == kEnd) continue;
      prefetch(&base_[at[i]]);
      prefetch(&next_[at[i]]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const RecordContent& wanted = records[begin + i].content;
      for (std::uint32_t candidate = at[i]; candidate != kEnd; candidate = next_[candidate]) {
        if (base_[candidate].content.key != wanted.key) continue;
        ++found.count;
        found.checksum += match_checksum(base_[candidate].content, wanted);
      }
    }
  }
  return found;
}

}  // namespace flashlab::join
