// The engine against the obvious join, here for the sanitizers; the wide properties are in
// tests/core/test_join_engine.py.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/prng.hpp"
#include "io/file.hpp"
#include "io/memory.hpp"
#include "join/join.hpp"
#include "join/record.hpp"

namespace flashlab::join {
namespace test_join {

using namespace literals;

std::vector<Record> records(std::size_t n, std::uint64_t distinct, Prng& random) {
  std::vector<Record> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    RecordContent& c = out[i].content;
    c.key = static_cast<std::int64_t>(random.below(distinct));
    c.row = i;
    c.columns[0] = static_cast<std::uint32_t>(random.next());
    c.signature = signature_of(c);
  }
  return out;
}

std::pair<std::uint64_t, std::uint64_t> oracle(const std::vector<Record>& build,
                                               const std::vector<Record>& probe) {
  std::multimap<std::int64_t, RecordContent> table;
  for (const Record& r : build) table.emplace(r.content.key, r.content);
  std::uint64_t matches = 0;
  std::uint64_t checksum = 0;
  for (const Record& r : probe) {
    for (auto [it, end] = table.equal_range(r.content.key); it != end; ++it) {
      ++matches;
      checksum += match_checksum(it->second, r.content);
    }
  }
  return {matches, checksum};
}

void place(io::MemoryStorage& storage, Bytes offset, const std::vector<Record>& rows) {
  const auto bytes = std::as_bytes(std::span(rows));
  std::copy(bytes.begin(), bytes.end(), storage.data().begin() + offset.count());
}

TEST(Join, EqualsTheObviousJoin) {
  Prng random(3);
  for (int round = 0; round < 150; ++round) {
    const std::uint64_t distinct = 1 + random.below(round % 3 == 0 ? 3 : 500);
    const auto build = records(random.below(600), distinct, random);
    const auto probe = records(random.below(900), distinct, random);
    io::MemoryStorage storage(8_MiB, Bytes{512});
    place(storage, Bytes{0}, build);
    place(storage, 1_MiB, probe);
    JoinSpec spec;
    spec.algorithm = round % 2 == 0 ? Algorithm::grace : Algorithm::hybrid;
    spec.write_buffer = Bytes{512} * static_cast<std::int64_t>(1 + random.below(4));
    spec.read_buffer = spec.write_buffer * static_cast<std::int64_t>(1 + random.below(20));
    spec.input_io = Bytes{512} * static_cast<std::int64_t>(1 + random.below(6));
    spec.queue_depth = static_cast<std::uint32_t>(1 + random.below(9));
    spec.hash_seed = random.next();
    const UserJob job{{Bytes{0}, static_cast<std::int64_t>(build.size())},
                      {1_MiB, static_cast<std::int64_t>(probe.size())},
                      {2_MiB, 8_MiB}};
    const auto result = run_joins(storage, spec, {&job, 1}, Cancel()).front();
    ASSERT_EQ(std::pair(result.matches, result.checksum), oracle(build, probe)) << round;
  }
}

}  // namespace test_join
}  // namespace flashlab::join
