#include "dbms/batch_order.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace flashlab::dbms {

namespace {

// Of the order with number `i`, from 0 on: the first 8 of 32 numbers, of which there is no 0.
std::uint32_t sparse_key(std::int64_t i) {
  return static_cast<std::uint32_t>((i + 1) / 8 * 32 + (i + 1) % 8);
}

}  // namespace

std::uint32_t postgres_hash(std::uint32_t key) {
  std::uint32_t c = 0x9e3779b9U + 4U + 3'923'095U;  // a golden ratio, the key's length, a seed
  std::uint32_t a = c + key;
  std::uint32_t b = c;
  // Each takes in another one, and less of that one rotated.
  const auto mix = [](std::uint32_t& into, std::uint32_t from, int bits) {
    into = (into ^ from) - std::rotl(from, bits);
  };
  mix(c, b, 14);
  mix(a, c, 11);
  mix(b, a, 25);
  mix(c, b, 16);
  mix(a, c, 4);
  mix(b, a, 14);
  mix(c, b, 24);
  return c;
}

BatchOrder order_of(const JoinInput& input, const HashShape& shape, Bytes block, Prng& random) {
  BatchOrder order;
  const auto batches = static_cast<std::size_t>(shape.batches);
  order.blocks.resize(batches);
  order.has_rest.resize(batches);
  std::vector<double> waiting(batches);  // bytes
  std::vector<char> has_file(batches);
  const int bucket_bits = std::countr_zero(static_cast<std::uint64_t>(shape.buckets));
  const double mean = static_cast<double>(input.tuples) / static_cast<double>(shape.keys);
  const std::int64_t most = std::max<std::int64_t>(2 * std::llround(mean) - 1, 1);
  const auto whole = static_cast<double>(block.count());
  std::int64_t scanned = 0;
  const auto fill = [&](std::size_t batch) {
    order.filled.push_back(static_cast<std::uint32_t>(batch));
    order.scanned.push_back(scanned);
    ++order.blocks[batch];
  };
  for (std::int64_t key = 0; scanned < input.tuples; ++key) {
    const std::uint32_t hash = postgres_hash(sparse_key(key % shape.keys));
    const std::size_t batch = std::rotr(hash, bucket_bits) & (batches - 1);
    const std::int64_t drawn =
        1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most)));
    for (std::int64_t left = std::min(drawn, input.tuples - scanned); left > 0; --left) {
      ++scanned;
      if (batch == 0) continue;
      if (!has_file[batch]) order.made.push_back(static_cast<std::uint32_t>(batch));
      has_file[batch] = true;
      waiting[batch] += input.temp_tuple_bytes;
      for (; waiting[batch] >= whole; waiting[batch] -= whole) fill(batch);
    }
  }
  for (std::size_t batch = 1; batch < batches; ++batch) {
    if (waiting[batch] == 0.0) continue;
    order.has_rest[batch] = true;
    ++order.blocks[batch];
  }
  return order;
}

}  // namespace flashlab::dbms
