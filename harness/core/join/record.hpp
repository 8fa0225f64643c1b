// The record of the join: 128 bytes, fixed width, as in the paper.
//
// The first 32 bytes are real columns of TPC-H orders or lineitem, the rest is the paper's padding.
// harness/workloads/tpch.py writes this layout; both sides check it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/prng.hpp"
#include "base/units.hpp"

namespace flashlab::join {

struct RecordContent {
  std::int64_t key;          // o_orderkey, l_orderkey
  std::uint64_t row;         // position in its table, from 0
  std::uint32_t columns[2];  // o_custkey, o_orderdate; l_partkey, l_suppkey
  std::uint64_t signature;   // of all of the above
};

struct Record {
  RecordContent content;
  std::byte padding[96];
};

inline constexpr Bytes kRecordBytes{128};
static_assert(sizeof(RecordContent) == 32 && sizeof(Record) == 128);
static_assert(std::is_trivially_copyable_v<Record>);

// A record that was lost, torn, moved or changed does not carry its own signature any more. The
// constant makes that true of a record of zeros, too: lost data often reads as zeros.
constexpr std::uint64_t signature_of(const RecordContent& c) {
  const std::uint64_t columns = (static_cast<std::uint64_t>(c.columns[1]) << 32) | c.columns[0];
  constexpr std::uint64_t kNotZero = 0x9e3779b97f4a7c15ULL;
  return mix64(static_cast<std::uint64_t>(c.key) + mix64(c.row + mix64(columns + kNotZero)));
}

// What a match adds to the join's checksum: symmetric, independent of order, and (unlike a sum of
// the two sides) different for every pairing.
constexpr std::uint64_t match_checksum(const RecordContent& a, const RecordContent& b) {
  return (a.signature & 0xffffffffU) * (b.signature & 0xffffffffU);
}

}  // namespace flashlab::join
