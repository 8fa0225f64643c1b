#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "dbms/innodb/engine.hpp"
#include "dbms/innodb/storage.hpp"
#include "dbms/tpcc_run.hpp"
#include "repeat.hpp"
#include "serial_device.hpp"

namespace flashlab::dbms::innodb {
namespace test_innodb {

using namespace literals;
using host::Process;
using testing_host::device_of;
using testing_host::machine_over;
using testing_host::SerialDevice;
using testing_host::SerialSpeed;
using tpcc::Access;

constexpr Bytes kPage = 16_KiB;
constexpr PageId kPages = 400;
constexpr SerialSpeed kFast{10_us, BytesPerSecond{std::int64_t{1} << 34}};

StorageParameters storage_of(bool journaled, Bytes redo = 1_MiB) {
  StorageParameters s;
  s.journaled = journaled;
  s.doublewrite = !journaled;
  s.page = kPage;
  s.redo = redo;
  s.doublewrite_area = 1_MiB;
  s.page_cache = 1_MiB;
  s.copy_cpu = 5_us;
  s.other_drive_rate = BytesPerSecond{1'000'000'000};
  s.other_drive_latency = 50_us;
  s.journal.blocks = 512;
  s.journal.stream = 1;
  s.journal.commit_interval = 5'000_ms;
  s.journal.expire = 30'000_ms;
  return s;
}

EngineParameters engine_of(std::int64_t frames) {
  EngineParameters e;
  e.buffer_pool = kPage * frames;
  return e;
}

enum class Place : std::uint8_t { journal, doublewrite, redo, inodes, page };

bool inside(const Extent& extent, Bytes begin) {
  return to_bytes(extent.begin) <= begin && begin < to_bytes(extent.end);
}

enum Service : Process { cleaner, committer, flusher, services };

// The engine over a device that keeps what it was asked, and what users have done to the pages.
class World {
 public:
  World(const StorageParameters& s, const EngineParameters& e, const SerialSpeed& speed = kFast,
        PageId pages = kPages)
      : machine(machine_over(speed)),
        device(device_of(*machine)),
        storage(*machine, s, pages),
        engine(*machine, e, storage, s.page, s.redo, pages) {}

  void run(std::uint32_t users, const std::function<void(Process)>& body) {
    std::uint32_t left = users;
    const auto service = [&](Process self) {
      if (self == committer) return storage.journal().commit_until_stopped(self);
      if (self == flusher) return storage.journal().write_back_until_stopped(self);
      engine.clean_until_stopped(self);
      storage.journal().stop();
    };
    machine->run(
        services + users,
        [&](Process self) {
          if (self < services) return service(self);
          body(self);
          if (--left == 0) engine.stop();
        },
        Cancel());
  }
  void read(Process self, PageId page) { engine.touch(self, {page, Access::read, 0}); }
  void write(Process self, PageId page, std::uint16_t redo_bytes = 200,
             Access access = Access::write) {
    engine.touch(self, {page, access, redo_bytes});
    const Lsn begin = lsn() - redo_bytes;
    changed.try_emplace(page, begin);
    last_change[page] = lsn();
  }
  // Of the end of the log.
  [[nodiscard]] Lsn lsn() const { return 1 + engine.counters().redo_bytes; }
  [[nodiscard]] Place place(const SerialDevice::Served& s) const {
    if (inside(storage.journal_extent(), s.begin)) return Place::journal;
    if (inside(storage.doublewrite_extent(), s.begin)) return Place::doublewrite;
    if (inside(storage.redo_extent(), s.begin)) return Place::redo;
    if (inside(storage.pages_extent(), s.begin)) return Place::page;
    EXPECT_GE(s.begin, to_bytes(storage.redo_extent().end));
    EXPECT_LT(s.begin, to_bytes(storage.pages_extent().begin));
    return Place::inodes;
  }
  [[nodiscard]] PageId page(const SerialDevice::Served& s) const {
    return static_cast<PageId>((s.begin - to_bytes(storage.pages_extent().begin)) / kPage);
  }
  [[nodiscard]] std::map<Place, std::int64_t> written_blocks() const {
    std::map<Place, std::int64_t> found;
    for (const auto& s : device.of(Op::write)) found[place(s)] += s.length / 4_KiB;
    return found;
  }

  std::unique_ptr<host::Machine> machine;
  SerialDevice& device;
  Storage storage;
  Engine engine;
  std::map<PageId, Lsn> changed;      // since it last went home: the begin of the first change
  std::map<PageId, Lsn> last_change;  // its end
};

// --- reads

TEST(InnodbRead, APageIsReadOnceWhoeverAsks) {
  World world(storage_of(false), engine_of(128));
  world.run(8, [&](Process self) {
    for (PageId page = 0; page < 50; ++page) world.read(self, page);
  });
  EXPECT_EQ(world.device.bytes(Op::read), kPage * 50);
  EXPECT_EQ(world.engine.counters().misses, 50U);
  EXPECT_EQ(world.engine.counters().touches, 400U);
  EXPECT_EQ(world.device.bytes(Op::write), Bytes{0});
}

TEST(InnodbRead, APageThatDidNotExistIsNotRead) {
  World world(storage_of(false), engine_of(128));
  world.run(1, [&](Process self) { world.engine.touch(self, {7, Access::create, 100}); });
  EXPECT_EQ(world.device.bytes(Op::read), Bytes{0});
  EXPECT_EQ(world.engine.dirty_pages(), 1U);
}

// Nobody can flush a page to make room: whoever reads has to end first.
TEST(InnodbRead, MoreReadersThanFramesWaitForEachOther) {
  for (const std::int64_t frames : {64, 150}) {
    World world(storage_of(false), engine_of(frames));
    world.run(200, [&](Process self) { world.read(self, self); });
    EXPECT_EQ(world.device.bytes(Op::read), kPage * 200);
    EXPECT_GT(world.engine.counters().frame_wait, Nanos{0});
    EXPECT_LE(world.engine.counters().frame_wait, world.engine.counters().read_wait);
  }
}

TEST(InnodbRead, TheKernelKeepsPagesInDataModeOnly) {
  for (const bool journaled : {false, true}) {
    World world(storage_of(journaled), engine_of(64));
    world.run(1, [&](Process self) {
      for (int round = 0; round < 3; ++round) {
        for (PageId page = 0; page < 128; ++page) world.read(self, page);
      }
    });
    const StorageCounters& counted = world.storage.counters();
    EXPECT_EQ(counted.cached_reads, 0U) << "128 pages do not fit into 64, read in turn";
    StorageParameters s = storage_of(journaled);
    s.page_cache = 4_MiB;
    World larger(s, engine_of(64));
    larger.run(1, [&](Process self) {
      for (int round = 0; round < 3; ++round) {
        for (PageId page = 0; page < 128; ++page) larger.read(self, page);
      }
    });
    EXPECT_EQ(larger.storage.counters().cached_reads > 0, journaled);
    EXPECT_EQ(larger.device.bytes(Op::read),
              kPage * static_cast<std::int64_t>(larger.storage.counters().page_reads));
  }
}

TEST(InnodbRead, TheLogTakesItsPlaceInThePageCacheInDataMode) {
  for (const Bytes redo : {256_KiB, 4_MiB}) {
    StorageParameters s = storage_of(true, 8_MiB);
    s.page_cache = 1_MiB;
    World world(s, engine_of(64));
    world.run(1, [&](Process self) {
      world.storage.read(self, 5);
      const auto step = static_cast<Lsn>((64_KiB).count());
      for (Lsn at = 0; at < static_cast<Lsn>(redo.count()); at += step) {
        world.storage.write_redo(self, at, at + step);
      }
      world.storage.read(self, 5);
    });
    EXPECT_EQ(world.storage.counters().cached_reads, redo < s.page_cache ? 1U : 0U);
  }
}

// --- write-ahead logging, on the order of the device's requests

// In ordered mode every place tells what was written, and a flush makes durable what was answered.
class Audit {
 public:
  explicit Audit(World& world, Bytes redo) : world_(world), redo_(static_cast<Lsn>(redo.count())) {
    world.device.on_submit = [this](const SerialDevice::Served& s) { see(s); };
  }
  [[nodiscard]] Lsn durable() {
    const Nanos now = world_.machine->now();
    for (const auto& [when, lsn] : flushes_) {
      if (when <= now) durable_ = std::max(durable_, lsn);
    }
    std::erase_if(flushes_, [&](const auto& flush) { return flush.first <= now; });
    return durable_;
  }

  int page_writes = 0;
  int doublewritten = 0;
  Lsn longest = 0;  // that the log has had to be

 private:
  void see(const SerialDevice::Served& s) {
    if (s.op == Op::flush) return flush(s);
    if (s.op != Op::write) return;
    switch (world_.place(s)) {
      case Place::redo:
        logged_ = world_.lsn();
        logged_done_ = s.done;
        return check_room();
      case Place::doublewrite:
        doublewritten += static_cast<int>(s.length / kPage);
        copied_ = s.done;
        copies_durable_ = kNever;
        return;
      case Place::page:
        return page(s);
      default:
        return;
    }
  }
  void flush(const SerialDevice::Served& s) {
    if (logged_done_ <= s.submitted) flushes_.emplace_back(s.done, logged_);
    if (copied_ <= s.submitted) copies_durable_ = std::min(copies_durable_, s.done);
    std::erase_if(going_home_, [&](const auto& p) { return p.second.second <= s.submitted; });
  }
  void page(const SerialDevice::Served& s) {
    ++page_writes;
    const PageId page = world_.page(s);
    EXPECT_EQ(s.length, kPage);
    EXPECT_LE(world_.last_change[page], durable()) << "page " << page << " goes before its log";
    EXPECT_LE(page_writes, doublewritten);
    EXPECT_LE(copies_durable_, s.submitted) << "the copy is not durable yet";
    const auto first = world_.changed.find(page);
    ASSERT_TRUE(first != world_.changed.end()) << "page " << page << " was clean";
    going_home_[page] = {first->second, s.done};
    world_.changed.erase(first);
  }
  // What is written over is the log of pages that are durable.
  void check_room() {
    for (const auto& [page, lsn] : world_.changed) longest = std::max(longest, logged_ - lsn);
    for (const auto& [page, sent] : going_home_) longest = std::max(longest, logged_ - sent.first);
    EXPECT_LE(longest, redo_);
  }

  World& world_;
  Lsn redo_;
  Lsn logged_ = 1;
  Nanos logged_done_;
  Lsn durable_ = 1;
  std::vector<std::pair<Nanos, Lsn>> flushes_;
  Nanos copied_;
  Nanos copies_durable_ = kNever;  // by the first flush of all that came behind them
  std::map<PageId, std::pair<Lsn, Nanos>> going_home_;
};

struct Load {
  std::int64_t frames;
  std::uint32_t users;
  Bytes redo;
  PageId pages;
};

void change_pages(World& world, Process self, std::uint64_t seed, PageId pages) {
  Prng random(mix64(seed) + self);
  const auto below = [&](std::uint64_t bound) { return static_cast<PageId>(random.below(bound)); };
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    bool changes = false;
    for (PageId touches = 1 + below(10); touches > 0; --touches) {
      const PageId page = below(pages);
      if (below(2) == 0) {
        world.read(self, page);
      } else {
        world.write(self, page, static_cast<std::uint16_t>(50 + below(400)));
        changes = true;
      }
    }
    if (changes) world.engine.commit(self);
  }
}

TEST(InnodbRandom, TheLogGoesBeforeThePagesAndCopiesBeforeHome) {
  const std::vector<Load> loads{{64, 1, 256_KiB, 100},
                                {64, 8, 256_KiB, 300},
                                {256, 8, 64_KiB, 200},
                                {300, 16, 128_KiB, 400},
                                {64, 30, 1_MiB, 90}};
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(3 * repeats()); ++seed) {
    for (const Load& load : loads) {
      SCOPED_TRACE(testing::Message()
                   << "seed " << seed << ", frames " << load.frames << ", users " << load.users);
      World world(storage_of(false, load.redo), engine_of(load.frames));
      Audit audit(world, load.redo);
      world.run(load.users, [&](Process self) {
        change_pages(world, self, seed, load.pages);
        const Lsn mine = world.lsn();
        world.engine.commit(self);
        EXPECT_GE(audit.durable(), mine) << "a commit that has returned is durable";
      });
      EXPECT_GT(audit.page_writes, 0);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(InnodbRandom, NoPageIsLostOnItsWay) {
  World world(storage_of(false), engine_of(64));
  std::map<PageId, int> home;
  world.device.on_submit = [&](const SerialDevice::Served& s) {
    if (s.op == Op::write && world.place(s) == Place::page) ++home[world.page(s)];
  };
  world.run(4, [&](Process self) { change_pages(world, self, 5, 300); });
  const auto& counted = world.storage.writes_of_page();
  std::uint64_t all = 0;
  for (PageId page = 0; page < kPages; ++page) {
    EXPECT_EQ(counted[page], static_cast<std::uint32_t>(home[page])) << page;
    all += counted[page];
  }
  EXPECT_EQ(all, world.storage.counters().pages_home);
  EXPECT_EQ(all, world.storage.counters().pages_flushed);
  const EngineCounters& engine = world.engine.counters();
  EXPECT_EQ(all, engine.lru_flushed + engine.list_flushed);
}

// --- commits

TEST(InnodbCommit, OfManyAtATimeIsOneWriteOfTheLog) {
  World world(storage_of(false), engine_of(128));
  constexpr std::uint32_t kUsers = 16;
  world.run(kUsers, [&](Process self) {
    world.read(self, self);
    for (int i = 0; i < 50; ++i) {
      world.write(self, self);
      world.engine.commit(self);
    }
  });
  EXPECT_LE(world.storage.counters().redo_syncs, 50U * kUsers / 4);
  EXPECT_GE(world.storage.counters().redo_syncs, 50U);
}

TEST(InnodbCommit, WithNothingNewCostsNothing) {
  World world(storage_of(false), engine_of(128));
  world.run(1, [&](Process self) {
    world.engine.commit(self);
    EXPECT_TRUE(world.device.served.empty());
    world.write(self, 1);
    world.engine.commit(self);
    const std::size_t requests = world.device.served.size();
    world.engine.commit(self);
    EXPECT_EQ(world.device.served.size(), requests);
  });
}

TEST(InnodbCommit, InDataModeTheLogIsJournaledToo) {
  StorageParameters s = storage_of(true);
  s.tick = 1_ns;  // each write changes its file's times
  World world(s, engine_of(128));
  world.run(1, [&](Process self) {
    for (std::uint64_t i = 1; i <= 20; ++i) {
      world.write(self, 3);
      world.engine.commit(self);
      EXPECT_EQ(world.storage.journal().counters().commits, i);
      // Descriptor, block of the log, its inode, record.
      EXPECT_EQ(world.storage.journal().counters().written_blocks, 4 * i);
    }
  });
  EXPECT_EQ(world.storage.counters().redo_sectors, 0U) << "none has gone home";
}

TEST(InnodbCommit, TheLogIsWrittenRoundAndRound) {
  for (const bool journaled : {false, true}) {
    StorageParameters s = storage_of(journaled, 64_KiB);
    World world(s, engine_of(128));
    std::set<std::int64_t> blocks;
    world.device.on_submit = [&](const SerialDevice::Served& served) {
      if (served.op != Op::write || world.place(served) != Place::redo) return;
      const std::int64_t first =
          (served.begin - to_bytes(world.storage.redo_extent().begin)) / 4_KiB;
      for (std::int64_t b = 0; b < served.length / 4_KiB; ++b) blocks.insert(first + b);
    };
    world.run(1, [&](Process self) {
      for (int i = 0; i < 600; ++i) {
        world.write(self, static_cast<PageId>(i % 100), 1000);
        if (i % 5 == 0) world.engine.commit(self);
      }
    });
    EXPECT_TRUE(journaled || blocks.size() == 16U) << "every block of the log, and no other";
    for (const std::int64_t block : blocks) EXPECT_LT(block, 16);
    EXPECT_EQ(world.written_blocks()[Place::redo],
              static_cast<std::int64_t>(world.storage.counters().redo_sectors / 8));
  }
}

// Past the page cache a write of the log is as short as the device's blocks are.
TEST(InnodbCommit, TheLogIsWrittenInItsBlocks) {
  for (const Bytes block : {Bytes{512}, 4_KiB}) {
    StorageParameters s = storage_of(false, 64_KiB);
    s.redo_block = block;
    World world(s, engine_of(128));
    std::vector<SerialDevice::Served> writes;
    world.device.on_submit = [&](const SerialDevice::Served& served) {
      if (served.op == Op::write && world.place(served) == Place::redo) writes.push_back(served);
    };
    world.run(1, [&](Process self) {
      for (int i = 0; i < 300; ++i) {
        world.write(self, 1, 700);
        world.engine.commit(self);
      }
    });
    Bytes all;
    for (const auto& one : writes) {
      EXPECT_EQ((one.begin - to_bytes(world.storage.redo_extent().begin)) % block, Bytes{0});
      EXPECT_EQ(one.length % block, Bytes{0});
      EXPECT_LT(one.length, Bytes{700} + block * 2);
      all += one.length;
    }
    EXPECT_GE(writes.size(), 300U);
    EXPECT_GE(all.count(), 300 * 700) << "all that was logged";
    EXPECT_EQ(all.count(), 512 * static_cast<std::int64_t>(world.storage.counters().redo_sectors));
  }
}

TEST(InnodbCommit, OneThatAllLogIsNoMultipleOfIsRefused) {
  for (const Bytes block : {Bytes{0}, Bytes{700}, 3_KiB, 8_KiB}) {
    StorageParameters s = storage_of(false);
    s.redo_block = block;
    EXPECT_THROW(World(s, engine_of(64)), OperatingError) << block.count();
  }
}

// --- whom use keeps in the pool

TEST(InnodbPool, UseOfAFilesPagesKeepsThemOnlyWhereTheyAreMadeYoung) {
  const auto reads_of_first = [](bool age) {
    EngineParameters e = engine_of(64);
    e.old_blocks_time = Nanos{0};  // the run takes milliseconds
    e.file_pages_age = age;
    World world(storage_of(false), e);
    std::int64_t reads = 0;
    world.device.on_submit = [&](const SerialDevice::Served& served) {
      if (served.op == Op::read && world.page(served) == 0) ++reads;
    };
    world.run(1, [&](Process self) {
      for (int round = 0; round < 40; ++round) {
        for (PageId page = 1; page < 17; ++page) {
          world.write(self, page + 16 * static_cast<PageId>(round % 20));
        }
        world.engine.touch(self, {0, Access::file, 30});
      }
    });
    return reads;
  };
  EXPECT_EQ(reads_of_first(false), 1);
  EXPECT_GT(reads_of_first(true), 5);
}

TEST(InnodbPool, APageIsYoungASecondAfterItsFirstUse) {
  for (const Nanos old_time : {100_ms, 1'000_ms}) {
    EngineParameters e = engine_of(64);
    e.old_blocks_time = old_time;
    World world(storage_of(false), e);
    world.run(1, [&](Process self) {
      for (PageId page = 0; page < 80; ++page) world.read(self, page);
      world.machine->sleep_until(self, world.machine->now() + 500_ms);
      world.read(self, 79);
      for (PageId page = 100; page < 200; ++page) world.read(self, page);
      const std::uint64_t misses = world.engine.counters().misses;
      world.read(self, 79);
      EXPECT_EQ(world.engine.counters().misses == misses, old_time == 100_ms);
    });
  }
}

TEST(InnodbPool, APageThatIsMadeIsYoung) {
  EngineParameters e = engine_of(64);
  e.most_dirty_ratio = 0.0;  // what is dirty would stay, however old
  World world(storage_of(false), e);
  world.run(1, [&](Process self) {
    for (PageId page = 0; page < 80; ++page) world.read(self, page);
    world.write(self, 90, 100, Access::create);
    world.machine->sleep_until(self, world.machine->now() + 50_ms);
    EXPECT_EQ(world.engine.dirty_pages(), 0U);
    for (PageId page = 100; page < 200; ++page) world.read(self, page);
    world.read(self, 90);
  });
  EXPECT_EQ(world.engine.counters().misses, 180U);
}

// --- flushing

TEST(InnodbFlush, WhatWasChangedGoesHomeWhenTooMuchIsDirty) {
  for (const bool journaled : {false, true}) {
    EngineParameters e = engine_of(128);
    e.most_dirty_ratio = 0.0;
    World world(storage_of(journaled), e);
    world.run(1, [&](Process self) {
      for (PageId page = 0; page < 60; ++page) world.write(self, page);
      world.machine->sleep_until(self, world.machine->now() + 5'000_ms);
      EXPECT_EQ(world.engine.dirty_pages(), 0U);
      EXPECT_GE(world.storage.counters().pages_flushed, 60U);
      world.machine->sleep_until(self, world.machine->now() + 40'000_ms);
      for (PageId page = 0; page < 60; ++page) {
        EXPECT_GE(world.storage.writes_of_page()[page], 1U) << page;
      }
    });
  }
}

TEST(InnodbFlush, TakesTheOldestChangesFirst) {
  EngineParameters e = engine_of(256);
  e.batch_pages = 10;
  e.lru_scan_depth = 0;
  World world(storage_of(false, 64_KiB), e);
  std::vector<PageId> home;
  world.device.on_submit = [&](const SerialDevice::Served& s) {
    if (s.op == Op::write && world.place(s) == Place::page) home.push_back(world.page(s));
  };
  world.run(1, [&](Process self) {
    for (PageId page = 0; page < 200; ++page) world.write(self, page, 500);
  });
  ASSERT_GT(home.size(), 40U);
  for (std::size_t i = 0; i < home.size(); ++i) EXPECT_EQ(home[i], i);
  EXPECT_EQ(world.engine.counters().lru_flushed, 0U);
}

TEST(InnodbFlush, ReadersWaitForAFrameWhereAllIsDirty) {
  EngineParameters e = engine_of(64);
  e.most_dirty_ratio = 1.0;
  World world(storage_of(false), e);
  world.run(1, [&](Process self) {
    for (PageId page = 0; page < 64; ++page) world.write(self, page);
    EXPECT_EQ(world.engine.counters().batches, 0U);
    for (PageId page = 100; page < 130; ++page) world.read(self, page);
  });
  EXPECT_GT(world.engine.counters().frame_wait, Nanos{0});
  EXPECT_EQ(world.engine.counters().lru_flushed, 64U);
}

TEST(InnodbFlush, ChangesWaitWhereTheLogIsFull) {
  const SerialSpeed slow{500_us, BytesPerSecond{200'000'000}};
  World world(storage_of(false, 64_KiB), engine_of(256), slow);
  Audit audit(world, 64_KiB);
  world.run(8, [&](Process self) {
    Prng random(self);
    for (int i = 0; i < 100; ++i) {
      world.write(self, static_cast<PageId>(random.below(200)), 400);
    }
    world.engine.commit(self);
  });
  EXPECT_GT(world.engine.counters().age_wait, Nanos{0});
  EXPECT_GT(audit.longest, Lsn{64 * 1024} / 2);
}

// Pages on their way need their log as much as those that wait.
TEST(InnodbFlush, TheLogKeepsWhatPagesOnTheirWayNeed) {
  const SerialSpeed slow{500_us, BytesPerSecond{200'000'000}};
  World world(storage_of(false, 64_KiB), engine_of(1000), slow, 800);
  Audit audit(world, 64_KiB);
  world.run(4, [&](Process self) {
    for (PageId i = 0; i < 200; ++i) {
      world.write(self, (self - services) * 200 + i, 400, Access::create);
      if (i % 10 == 0) world.engine.commit(self);
    }
  });
  EXPECT_GT(audit.longest, Lsn{64 * 1024} / 2);
}

// --- what is written where

TEST(InnodbStorage, OrderedModeWritesEveryPageTwiceAndInodesToTheJournal) {
  World world(storage_of(false), engine_of(64));
  world.run(4, [&](Process self) { change_pages(world, self, 1, 200); });
  const StorageCounters& counted = world.storage.counters();
  auto found = world.written_blocks();
  EXPECT_EQ(found[Place::page], static_cast<std::int64_t>(4 * counted.pages_home));
  EXPECT_EQ(found[Place::doublewrite], found[Place::page]);
  EXPECT_EQ(static_cast<std::int64_t>(counted.doublewrite_blocks), found[Place::doublewrite]);
  EXPECT_EQ(static_cast<std::int64_t>(counted.redo_sectors / 8), found[Place::redo]);
  EXPECT_GT(found[Place::redo], 0);
  EXPECT_EQ(found[Place::journal],
            static_cast<std::int64_t>(world.storage.journal().counters().written_blocks));
  // Descriptor, at most all three inodes, record; superblocks.
  const auto commits = static_cast<std::int64_t>(world.storage.journal().counters().commits);
  const auto more = static_cast<std::int64_t>(world.storage.journal().counters().checkpoints);
  EXPECT_GE(found[Place::journal], 3 * commits + more);
  EXPECT_LE(found[Place::journal], 5 * commits + more);
}

// Each write of the log begins at once, and is all that the log's inode hears of.
TEST(InnodbStorage, AFsyncCommitsTheInodeOnceATick) {
  for (const bool journaled : {false, true}) {
    for (const Nanos tick : {1_ms, 4_ms}) {
      StorageParameters s = storage_of(journaled);
      s.tick = tick;
      s.journal.blocks = 4096;
      World world(s, engine_of(128));
      std::set<std::int64_t> ticks;
      world.run(1, [&](Process self) {
        for (int i = 0; i < 100; ++i) {
          world.write(self, 3, 40);  // all in the log's first block
          ticks.insert(world.machine->now() / tick);
          world.engine.commit(self);
          world.machine->sleep_until(self, world.machine->now() + 300_us);
        }
      });
      EXPECT_GT(ticks.size(), 5U);
      EXPECT_LT(ticks.size(), 60U);
      const auto& journal = world.storage.journal().counters();
      if (journaled) {  // descriptor, block of the log, record; the inode
        EXPECT_EQ(journal.commits, 100U);
        EXPECT_EQ(journal.written_blocks, 300U + ticks.size());
      } else {  // descriptor, inode, record
        EXPECT_EQ(journal.commits, ticks.size());
        EXPECT_EQ(journal.written_blocks, 3 * ticks.size());
      }
      EXPECT_EQ(world.device.of(Op::flush).size(), 100U) << "each is durable";
    }
  }
}

// The tables', the log's and the doublewrite buffer's: in one tick each changes once.
TEST(InnodbStorage, EachFileHasAnInodeOfItsOwn) {
  StorageParameters s = storage_of(false);
  s.tick = 1'000'000_ms;
  World world(s, engine_of(64));
  world.run(4, [&](Process self) { change_pages(world, self, 1, 200); });
  const auto& journal = world.storage.journal().counters();
  EXPECT_EQ(journal.written_blocks, 2 * journal.commits + 3) << "descriptors, records, inodes";
}

TEST(InnodbStorage, FdatasyncOfWhatIsWrittenInPlaceLeavesTheTimesToTheInterval) {
  StorageParameters s = storage_of(false);
  s.sync_commits_inode = false;
  s.journal.commit_interval = 10_ms;
  s.journal.flusher_interval = 1_ms;
  World world(s, engine_of(128));
  std::uint64_t commits = 0;
  Nanos end;
  world.run(1, [&](Process self) {
    for (int i = 0; i < 100; ++i) {
      world.write(self, 3, 40);  // all in the log's first block
      world.engine.commit(self);
      world.machine->sleep_until(self, world.machine->now() + 300_us);
    }
    commits = world.storage.journal().counters().commits;
    end = world.machine->now();
  });
  EXPECT_GE(commits, 1U);
  EXPECT_LE(s.journal.commit_interval * static_cast<std::int64_t>(commits), end);
  const auto& journal = world.storage.journal().counters();
  EXPECT_EQ(journal.written_blocks, 3 * journal.commits) << "descriptor, the log's inode, record";
  EXPECT_EQ(world.device.of(Op::flush).size(), 100U + journal.commits) << "each is durable";
}

TEST(InnodbStorage, FdatasyncInDataModeCommitsWhatWasWritten) {
  StorageParameters s = storage_of(true);
  s.sync_commits_inode = false;
  s.tick = 1'000'000_ms;
  World world(s, engine_of(128));
  world.run(1, [&](Process self) {
    for (std::uint64_t i = 1; i <= 20; ++i) {
      world.write(self, 3);
      world.engine.commit(self);
      // Descriptor, block of the log, record; the inode once a tick.
      EXPECT_EQ(world.storage.journal().counters().written_blocks, 3 * i + 1);
    }
  });
}

TEST(InnodbStorage, WithoutDoublewriteEveryPageIsWrittenOnce) {
  StorageParameters s = storage_of(false);
  s.doublewrite = false;
  World world(s, engine_of(64));
  world.run(4, [&](Process self) { change_pages(world, self, 1, 200); });
  auto found = world.written_blocks();
  EXPECT_EQ(found[Place::doublewrite], 0);
  EXPECT_GT(found[Place::page], 0);
}

TEST(InnodbStorage, WhatLiesElsewhereIsNotOnTheDevice) {
  StorageParameters s = storage_of(false);
  s.doublewrite_elsewhere = true;
  s.redo_elsewhere = true;
  World world(s, engine_of(64));
  world.run(4, [&](Process self) { change_pages(world, self, 1, 200); });
  auto found = world.written_blocks();
  EXPECT_EQ(found[Place::doublewrite], 0);
  EXPECT_EQ(found[Place::redo], 0);
  EXPECT_EQ(world.storage.counters().doublewrite_blocks, 0U);
  EXPECT_EQ(world.storage.counters().redo_sectors, 0U);
  EXPECT_GT(world.storage.counters().redo_syncs, 0U);
  EXPECT_GT(world.engine.counters().commit_wait, 50_us);
}

TEST(InnodbStorage, DataModeWritesToTheJournalFirstAndHasNoSecondCopy) {
  World world(storage_of(true), engine_of(64));
  world.run(4, [&](Process self) { change_pages(world, self, 1, 200); });
  const StorageCounters& counted = world.storage.counters();
  auto found = world.written_blocks();
  EXPECT_EQ(found[Place::doublewrite], 0);
  EXPECT_EQ(found[Place::page], static_cast<std::int64_t>(4 * counted.pages_home));
  EXPECT_EQ(found[Place::redo], static_cast<std::int64_t>(counted.redo_sectors / 8));
  const auto& journal = world.storage.journal().counters();
  EXPECT_EQ(found[Place::journal], static_cast<std::int64_t>(journal.written_blocks));
  EXPECT_EQ(found[Place::page] + found[Place::redo] + found[Place::inodes],
            static_cast<std::int64_t>(journal.home_blocks));
  EXPECT_GE(found[Place::journal], static_cast<std::int64_t>(4 * counted.pages_flushed));
  EXPECT_LE(counted.pages_home, counted.pages_flushed);
  EXPECT_GT(counted.pages_home, 0U);
}

TEST(InnodbStorage, AreasDoNotOverlap) {
  for (const bool journaled : {false, true}) {
    World world(storage_of(journaled), engine_of(64));
    const Storage& s = world.storage;
    EXPECT_EQ(s.journal_extent().begin, Lba{});
    EXPECT_EQ(to_bytes(s.journal_extent().length()), 4_KiB * 512);
    EXPECT_GE(s.doublewrite_extent().begin, s.journal_extent().end);
    EXPECT_EQ(to_bytes(s.doublewrite_extent().length()), 1_MiB);
    EXPECT_GE(s.redo_extent().begin, s.doublewrite_extent().end);
    EXPECT_EQ(to_bytes(s.redo_extent().length()), 1_MiB);
    EXPECT_GT(s.pages_extent().begin, s.redo_extent().end);
    EXPECT_EQ(to_bytes(s.pages_extent().begin) % kPage, Bytes{0});
    EXPECT_EQ(to_bytes(s.pages_extent().length()), kPage * kPages);
  }
}

TEST(InnodbStorage, RefusesWhatDoesNotFit) {
  const auto refuse = [](const std::function<void(StorageParameters&)>& change) {
    StorageParameters s = storage_of(false);
    change(s);
    const auto machine = machine_over(kFast, 12_MiB);
    EXPECT_THROW(Storage(*machine, s, kPages), OperatingError);
  };
  refuse([](StorageParameters& s) { s.redo = 8_MiB; });
  refuse([](StorageParameters& s) { s.page = 10_KiB; });
  refuse([](StorageParameters& s) { s.doublewrite_area = 8_KiB; });
  refuse([](StorageParameters& s) { s.tick = Nanos{0}; });
  refuse([](StorageParameters& s) { s.journal.blocks = 32; });
  const auto machine = machine_over(kFast, 12_MiB);
  EXPECT_NO_THROW(Storage(*machine, storage_of(false), kPages));
}

TEST(InnodbEngine, RefusesWhatDoesNotWork) {
  const auto refuse = [](const std::function<void(EngineParameters&)>& change) {
    EngineParameters e = engine_of(64);
    change(e);
    EXPECT_THROW(World(storage_of(false), e), OperatingError);
  };
  refuse([](EngineParameters& e) { e.buffer_pool = kPage * 63; });
  refuse([](EngineParameters& e) { e.batch_pages = 0; });
  refuse([](EngineParameters& e) { e.flush_age_ratio = 0.0; });
  refuse([](EngineParameters& e) { e.flush_age_ratio = 0.9; });
  refuse([](EngineParameters& e) { e.stall_age_ratio = 1.0; });
}

TEST(PageCache, KeepsWhatIsUsed) {
  PageCache cache(4, 100);
  for (const PageId page : {1U, 2U, 3U, 4U}) EXPECT_FALSE(cache.use(page));
  for (const PageId page : {1U, 2U, 3U, 4U}) EXPECT_TRUE(cache.use(page));
  for (PageId page = 10; page < 13; ++page) {
    EXPECT_FALSE(cache.use(page));
    EXPECT_TRUE(cache.use(page));
  }
  PageCache none(0, 100);
  EXPECT_FALSE(none.use(1));
  EXPECT_FALSE(none.use(1));
}

// At most so many pages are there at a time, and the last one that was used is. To ask is to use,
// so each question goes to a cache of its own with the same past.
TEST(PageCache, NeverHasMoreThanItsPages) {
  Prng random(3);
  std::vector<PageId> used;
  const auto has = [&used](PageId page) {
    PageCache cache(10, 60);
    for (const PageId before : used) cache.use(before);
    return cache.use(page);
  };
  for (int i = 0; i < 300; ++i) {
    used.push_back(static_cast<PageId>(random.below(60)));
    EXPECT_TRUE(has(used.back()));
    int there = 0;
    for (PageId page = 0; page < 60; ++page) there += has(page) ? 1 : 0;
    EXPECT_LE(there, 10);
  }
}

// --- whole runs

TpccSpec spec_of(bool journaled, std::uint64_t seed, std::uint32_t connections) {
  TpccSpec spec;
  spec.connections = connections;
  spec.workload.warehouses = 1;
  spec.workload.users = connections;
  spec.workload.rows = {150, 140, 26, 400, 231, 450, 377, 878, 220, 171, 46, 232, 204};
  spec.workload.redo = {100, 150, 200, 50};
  spec.workload.undo_pages = 4 * connections;
  spec.workload.most_pages = 12'000;
  spec.workload.seed = seed;
  spec.engine = engine_of(64);
  spec.storage = storage_of(journaled, 256_KiB);
  spec.storage.journal.blocks = 256;
  spec.cpu = {100_us, 1_us};
  spec.warm_up = 10_ms;
  spec.measured = 300_ms;
  spec.sample = 50_ms;
  spec.aged = 1_MiB;
  spec.aged_block = kPage;
  spec.seed = seed;
  return spec;
}

TpccResult run(const TpccSpec& spec, host::Machine& machine) {
  return run_tpcc(machine, spec, [](const Storage&) {}, [] {}, Cancel());
}

// Whoever is left at the end must not wait for somebody who has gone: page cleaner, journal.
TEST(TpccRun, EndsWhateverTheSizes) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(12 * repeats()); ++seed) {
    for (const bool journaled : {false, true}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", journaled " << journaled);
      Prng random(seed);
      TpccSpec spec = spec_of(journaled, seed, 1 + static_cast<std::uint32_t>(random.below(16)));
      spec.storage.journal.blocks = 64 + static_cast<std::int64_t>(random.below(200));
      spec.storage.redo = 4_KiB * (16 + static_cast<std::int64_t>(random.below(48)));
      spec.engine.batch_pages = 1 + static_cast<std::uint32_t>(random.below(120));
      const auto machine = machine_over(kFast);
      const TpccResult result = run(spec, *machine);
      EXPECT_EQ(result.samples.size(), 7U);
      EXPECT_GT(result.samples.back().transactions, 0U);
    }
  }
}

TEST(TpccRun, ManyConnectionsOnFewPages) {
  for (const bool journaled : {false, true}) {
    const auto machine = machine_over(kFast);
    const TpccResult result = run(spec_of(journaled, 3, 32), *machine);
    EXPECT_GT(result.samples.back().transactions, result.samples.front().transactions);
  }
}

TEST(TpccRun, MoreConnectionsThanPages) {
  const auto machine = machine_over(kFast);
  const TpccResult result = run(spec_of(false, 3, 100), *machine);
  EXPECT_GT(result.samples.back().transactions, result.samples.front().transactions);
}

TEST(TpccRun, SamplesGrowAndPagesHaveTables) {
  const auto machine = machine_over(kFast);
  const TpccSpec spec = spec_of(false, 1, 4);
  const TpccResult result = run(spec, *machine);
  for (std::size_t i = 0; i < result.samples.size(); ++i) {
    const Nanos since = result.samples[i].when - result.samples[0].when;
    EXPECT_EQ(since, spec.sample * static_cast<std::int64_t>(i));
  }
  const TpccSample& first = result.samples.front();
  const TpccSample& last = result.samples.back();
  EXPECT_GT(last.new_orders, first.new_orders);
  EXPECT_GT(last.transactions - first.transactions, last.new_orders - first.new_orders);
  std::size_t responses = 0;
  for (const auto& kind : result.response_us) responses += kind.size();
  EXPECT_NEAR(static_cast<double>(responses),
              static_cast<double>(last.transactions - first.transactions), 4.0);
  ASSERT_EQ(result.writes_of_page.size(), result.table_of_page.size());
  std::uint64_t home = 0;
  for (const std::uint32_t writes : result.writes_of_page) home += writes;
  EXPECT_GE(home, last.storage.pages_home - first.storage.pages_home);
  for (const std::uint8_t table : result.table_of_page) EXPECT_LT(table, tpcc::kTables);
}

TEST(TpccRun, TheSeedDecides) {
  const auto served = [](std::uint64_t seed) {
    const auto machine = machine_over(kFast);
    (void)run(spec_of(true, seed, 4), *machine);
    return device_of(*machine).served;
  };
  const auto once = served(1);
  EXPECT_EQ(once, served(1));
  EXPECT_NE(once, served(2));
}

TEST(TpccRun, RefusesWhatMakesNoRun) {
  const std::vector<std::function<void(TpccSpec&)>> changes{
      [](TpccSpec& s) { s.connections = 0; },     [](TpccSpec& s) { s.workload.users = 3; },
      [](TpccSpec& s) { s.measured = Nanos{0}; }, [](TpccSpec& s) { s.sample = Nanos{0}; },
      [](TpccSpec& s) { s.warm_up = Nanos{-1}; }, [](TpccSpec& s) { s.aged_block = Bytes{0}; },
  };
  for (const auto& change : changes) {
    TpccSpec spec = spec_of(false, 1, 4);
    change(spec);
    const auto machine = machine_over(kFast);
    EXPECT_THROW(run(spec, *machine), OperatingError);
  }
}

TEST(TpccRun, ADatabaseThatOutgrowsItsPagesIsFull) {
  TpccSpec spec = spec_of(false, 1, 4);
  spec.workload.most_pages =
      tpcc::Tables(1, spec.workload.rows, 16, 1'000'000, 0).loaded_pages() + 2;
  spec.measured = 60'000_ms;
  const auto machine = machine_over(kFast);
  try {
    (void)run(spec, *machine);
    FAIL();
  } catch (const OperatingError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::disk_full);
  }
}

TEST(TpccRun, CanBeCancelled) {
  const auto machine = machine_over(kFast);
  Cancel cancel;
  cancel.raise();
  const TpccSpec spec = spec_of(false, 1, 4);
  EXPECT_THROW(run_tpcc(*machine, spec, [](const Storage&) {}, [] {}, cancel), OperatingError);
}

}  // namespace test_innodb
}  // namespace flashlab::dbms::innodb
