#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "io/content_store.hpp"

namespace flashlab::io {
namespace test_content_store {

std::vector<std::byte> cells(std::size_t n, std::size_t kept, unsigned char value) {
  std::vector<std::byte> data(n * 128, std::byte{0});
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < kept; ++k) data[i * 128 + k] = std::byte(value + i);
  }
  return data;
}

ContentStore store(std::int64_t capacity = 64 << 20) {
  return ContentStore(Bytes{capacity}, Bytes{128}, Bytes{32}, std::make_shared<ChunkPool>());
}

TEST(ContentStore, WhatWasNeverWrittenIsZero) {
  auto s = store();
  std::vector<std::byte> data(1024, std::byte{7});
  s.read(Bytes{4096}, data);
  EXPECT_EQ(data, std::vector<std::byte>(1024, std::byte{0}));
}

TEST(ContentStore, RefusesToLosePadding) {
  auto s = store();
  auto data = cells(4, 32, 1);
  data[200] = std::byte{1};
  EXPECT_THROW(s.write(Bytes{0}, data), Bug);
}

TEST(ContentStore, MountedCellsAreReadAndNeverWritten) {
  auto s = store();
  std::vector<std::byte> kept(32 * 16, std::byte{9});
  s.mount(Bytes{4096}, kept);
  std::vector<std::byte> data(128 * 18);
  s.read(Bytes{4096 - 128}, data);
  EXPECT_EQ(data[0], std::byte{0});
  EXPECT_EQ(data[128 + 31], std::byte{9});
  EXPECT_EQ(data[128 + 32], std::byte{0});
  EXPECT_EQ(data[128 * 17], std::byte{0});
  EXPECT_THROW(s.write(Bytes{4096}, cells(1, 32, 1)), Bug);
  EXPECT_THROW(s.mount(Bytes{64 << 20}, kept), OperatingError);
}

TEST(ContentStore, EqualsAPlainMapUnderRandomWrites) {
  auto s = store();
  std::map<std::int64_t, unsigned char> plain;
  Prng random(1);
  for (int i = 0; i < 3000; ++i) {
    const auto cell = static_cast<std::int64_t>(random.below(400'000));
    const auto n = 1 + random.below(64);
    const auto value = static_cast<unsigned char>(random.below(100) + 1);
    s.write(Bytes{cell * 128}, cells(n, 32, value));
    for (std::uint64_t k = 0; k < n; ++k) {
      plain[cell + static_cast<std::int64_t>(k)] = static_cast<unsigned char>(value + k);
    }
  }
  std::vector<std::byte> data(128);
  for (const auto& [cell, value] : plain) {
    s.read(Bytes{cell * 128}, data);
    ASSERT_EQ(data[0], std::byte{value}) << cell;
    ASSERT_EQ(data[127], std::byte{0});
  }
}

TEST(ChunkPool, AReusedChunkIsZeroAgain) {
  auto pool = std::make_shared<ChunkPool>();
  {
    ContentStore first(Bytes{1 << 20}, Bytes{128}, Bytes{32}, pool);
    first.write(Bytes{0}, cells(8, 32, 5));
  }
  ContentStore second(Bytes{1 << 20}, Bytes{128}, Bytes{32}, pool);
  second.write(Bytes{1024 * 128}, cells(1, 32, 5));
  std::vector<std::byte> data(1024, std::byte{7});
  second.read(Bytes{0}, data);
  EXPECT_EQ(data, std::vector<std::byte>(1024, std::byte{0}));
}

}  // namespace test_content_store
}  // namespace flashlab::io
