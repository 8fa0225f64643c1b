// Every description holds what base/describe.hpp promises: units in the names, each name once, and
// what is written through it arrives.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/describe.hpp"
#include "dbms/describe.hpp"
#include "disk/describe.hpp"
#include "flash/describe.hpp"
#include "host/describe.hpp"
#include "join/describe.hpp"

namespace flashlab {

namespace test_describe {

class Lister {
 public:
  template <class T>
  void required(const char* name, T& /*member*/, const char* doc) {
    add(name, doc, unit_of<T>(name));
  }
  template <class T>
  void optional(const char* name, T& member, const char* doc) {
    required(name, member, doc);
  }
  template <class P>
  void group(const char* name, P& part, const char* doc) {
    add(name, doc, {"group", ""});
    Lister inner;
    describe(inner, part);
    EXPECT_FALSE(inner.names.empty());
  }
  void beside_profile() {}
  std::set<std::string> names;

 private:
  void add(std::string_view name, std::string_view doc, const Unit& unit) {
    EXPECT_TRUE(names.emplace(name).second) << name << " is described twice";
    EXPECT_TRUE(name.ends_with(unit.suffix)) << name << " is a " << unit.kind;
    EXPECT_NE(doc.data(), nullptr);
  }
};

template <class P>
class Described : public testing::Test {};
using All =
    testing::Types<disk::HddParameters, flash::SsdParameters, host::HostParameters,
                   host::JobParameters, kernel::PageCacheParameters, kernel::ext4::Parameters,
                   join::JoinSpec, join::UserJob, dbms::SortedTable, dbms::SortMergeJoinSpec,
                   dbms::JoinInput, dbms::HashJoinSpec, dbms::TpccSpec>;
TYPED_TEST_SUITE(Described, All);

TYPED_TEST(Described, NamesCarryTheUnitOfTheirTypeAndStandOnce) {
  TypeParam parameters{};
  Lister lister;
  describe(lister, parameters);
  EXPECT_FALSE(lister.names.empty());
}

// Gives times and sizes numbers of their own, in the order in which they come.
class Numberer {
 public:
  template <class T>
  void required(const char* /*name*/, T& member, const char* /*doc*/) {
    if constexpr (std::is_same_v<T, Nanos> || std::is_same_v<T, Bytes>) member = T{next_ += 4096};
    if constexpr (std::is_same_v<T, std::uint64_t>) member = 7;
  }
  template <class T>
  void optional(const char* name, T& member, const char* doc) {
    required(name, member, doc);
  }
  void beside_profile() {}

 private:
  std::int64_t next_ = 0;
};

TEST(Description, SetsWhatFollowsFromAMember) {
  disk::HddParameters disk;
  Numberer numbers;
  describe(numbers, disk);
  EXPECT_GT(disk.seek.head_switch, Nanos{0});
  EXPECT_EQ(disk.geometry.head_skew, disk.seek.head_switch);
  EXPECT_EQ(disk.geometry.cylinder_skew, disk.seek.track_to_track);

  flash::SsdParameters drive;
  describe(numbers, drive);
  EXPECT_EQ(drive.ftl.seed, 7U);
  EXPECT_EQ(drive.nand.seed, mix64(8));

  host::JobParameters job;
  describe(numbers, job);
  EXPECT_EQ(job.span.length(), Sectors{8});
}

// Counters are counted once, all of them.
class Counted {
 public:
  template <class T>
  void operator()(const char* name, const T& /*value*/) {
    EXPECT_TRUE(names.emplace(name).second) << name << " is counted twice";
  }
  std::set<std::string> names;
};

TEST(Description, NamesEveryCounterOnce) {
  Counted disk;
  count(disk, disk::HddCounters{});
  EXPECT_EQ(disk.names.size(), 15U);
  Counted clients;
  count(clients, dbms::ClientResult{});
  EXPECT_EQ(clients.names.size(), sizeof(dbms::ClientResult) / 8);
  Counted cache;
  count(cache, kernel::PageCacheCounters{});
  EXPECT_EQ(cache.names.size(), sizeof(kernel::PageCacheCounters) / 8);
  Counted engine;
  count(engine, dbms::innodb::EngineCounters{});
  EXPECT_EQ(engine.names.size(), sizeof(dbms::innodb::EngineCounters) / 8);
  Counted storage;
  count(storage, dbms::innodb::StorageCounters{});
  EXPECT_EQ(storage.names.size(), sizeof(dbms::innodb::StorageCounters) / 8);
  Counted journal;
  count(journal, kernel::JournalCounters{});
  EXPECT_EQ(journal.names.size(), sizeof(kernel::JournalCounters) / 8);
  Counted delay;
  count(delay, flash::TrimDelayStatus{});
  EXPECT_EQ(delay.names.size(), sizeof(flash::TrimDelayStatus) / 8);
}

}  // namespace test_describe

}  // namespace flashlab
