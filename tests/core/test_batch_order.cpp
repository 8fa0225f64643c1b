#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "dbms/batch_order.hpp"

namespace flashlab::dbms {
namespace test_batch_order {

using namespace literals;

constexpr JoinInput kOrders{150'000, Bytes{21'000'000}, 120.0};
constexpr JoinInput kLineitem{600'000, Bytes{92'000'000}, 120.0};
constexpr HashShape kShape{150'000, 16'384, 64};

// o_orderkey of the generator's first rows.
constexpr std::array<std::uint32_t, 24> kFirstKeys{1,  2,  3,  4,  5,  6,  7,  32, 33, 34, 35, 36,
                                                   37, 38, 39, 64, 65, 66, 67, 68, 69, 70, 71, 96};

BatchOrder ordered(const JoinInput& input, std::uint64_t seed = 0,
                   const HashShape& shape = kShape) {
  Prng random(seed);
  return order_of(input, shape, 8_KiB, random);
}

// What a server answers: SELECT hashint4(k)::bigint & 4294967295 (PostgreSQL 15).
TEST(PostgresHash, IsTheServers) {
  EXPECT_EQ(postgres_hash(1), 2'389'907'270U);
  EXPECT_EQ(postgres_hash(2), 1'134'484'726U);
  EXPECT_EQ(postgres_hash(8), 2'247'367'172U);
  EXPECT_EQ(postgres_hash(33), 2'642'622'639U);
  EXPECT_EQ(postgres_hash(5'999'975), 2'234'082'161U);
  EXPECT_EQ(postgres_hash(6'000'000), 3'777'471'408U);
  EXPECT_EQ(postgres_hash(2'147'483'647), 4'198'209'043U);
}

TEST(BatchOrder, FollowsTpchsKeysAndTheBitsAboveTheBuckets) {
  std::vector<std::uint32_t> expected;
  for (const std::uint32_t key : kFirstKeys) {
    const std::uint32_t batch = (postgres_hash(key) >> 3) & 3;
    if (batch != 0) expected.push_back(batch);
  }
  // A tuple fills a block.
  const BatchOrder order = ordered({24, Bytes{2'400}, 8192.0}, 0, {24, 8, 4});
  EXPECT_EQ(order.filled, expected);
  ASSERT_EQ(order.scanned.size(), expected.size());
  EXPECT_TRUE(std::is_sorted(order.scanned.begin(), order.scanned.end()));
  EXPECT_LE(order.scanned.back(), 24);
}

// With 2^20 buckets and 2^16 batches the batch's upper bits are the hash's lowest.
TEST(BatchOrder, RotatesTheHash) {
  const HashShape shape{1, 1 << 20, 1 << 16};
  const BatchOrder order = ordered({1, Bytes{100}, 100.0}, 0, shape);
  const std::uint32_t hash = postgres_hash(1);
  EXPECT_EQ(order.made, std::vector<std::uint32_t>{((hash >> 20) | (hash << 12)) & 0xffffU});
}

TEST(BatchOrder, HasEachTupleInABlockOnce) {
  for (const JoinInput& input : {kOrders, kLineitem}) {
    const BatchOrder order = ordered(input);
    const auto rests = std::count(order.has_rest.begin(), order.has_rest.end(), true);
    EXPECT_EQ(std::accumulate(order.blocks.begin(), order.blocks.end(), std::int64_t{0}),
              static_cast<std::int64_t>(order.filled.size()) + rests);
    EXPECT_GT(rests, 60);
    EXPECT_EQ(order.blocks[0], 0);
    const double bytes = static_cast<double>(input.tuples) * input.temp_tuple_bytes * 63 / 64;
    // A block per file is not whole: half of it, on average.
    EXPECT_NEAR(static_cast<double>(order.filled.size()), bytes / 8192 - 63 * 0.5,
                0.01 * bytes / 8192 + 12);
    EXPECT_LE(order.scanned.back(), input.tuples);
    EXPECT_GT(order.scanned.back(), input.tuples - 200);  // there are 64 blocks to be filled
    EXPECT_TRUE(std::is_sorted(order.scanned.begin(), order.scanned.end()));
  }
}

TEST(BatchOrder, MakesEachFileOnceForItsFirstTuple) {
  const BatchOrder order = ordered(kOrders);
  EXPECT_EQ(order.made.size(), 63U);
  EXPECT_EQ(std::set(order.made.begin(), order.made.end()).size(), 63U);
  EXPECT_FALSE(std::is_sorted(order.made.begin(), order.made.end()));
  const BatchOrder few = ordered({10, Bytes{1'000}, 120.0});
  EXPECT_LE(few.made.size(), 10U);
  EXPECT_TRUE(few.filled.empty());  // none is whole
  for (const std::uint32_t batch : few.made) EXPECT_EQ(few.blocks[batch], 1);
}

TEST(BatchOrder, BatchesAreAsUnevenAsChanceMakesThem) {
  const BatchOrder order = ordered(kOrders);
  std::vector<double> tuples(64);
  for (std::int64_t key = 0; key < kOrders.tuples; ++key) {
    const auto used = static_cast<std::uint32_t>(key + 1);  // the numbers of dbgen's orders
    const std::uint32_t sparse = used / 8 * 32 + used % 8;
    tuples[(postgres_hash(sparse) >> 14) & 63] += 1.0;
  }
  const double mean = 150'000.0 / 64;
  double chi = 0.0;
  for (const double n : tuples) chi += (n - mean) * (n - mean) / mean;
  EXPECT_GT(chi, 63 - 4 * std::sqrt(2.0 * 63));  // neither dealt out in turn
  EXPECT_LT(chi, 63 + 4 * std::sqrt(2.0 * 63));  // nor uneven
  for (std::size_t batch = 1; batch < 64; ++batch) {
    EXPECT_EQ(order.blocks[batch],
              static_cast<std::int64_t>(std::ceil(tuples[batch] * 120 / 8192)));
  }
}

TEST(BatchOrder, OfTheOuterTableIsThatOfItsKeys) {
  const BatchOrder inner = ordered(kOrders);
  const BatchOrder outer = ordered(kLineitem);
  EXPECT_EQ(inner.made, outer.made);
  EXPECT_EQ(outer.filled, ordered(kLineitem).filled);
  EXPECT_NE(outer.filled, ordered(kLineitem, 1).filled);
  EXPECT_EQ(inner.filled, ordered(kOrders, 1).filled);
}

}  // namespace test_batch_order
}  // namespace flashlab::dbms
