#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/check.hpp"
#include "base/prng.hpp"
#include "kernel/jbd2.hpp"
#include "repeat.hpp"
#include "serial_device.hpp"

namespace flashlab::kernel {
using host::Machine;
using host::Process;
namespace test_jbd2 {

using namespace literals;
using testing_host::device_of;
using testing_host::machine_over;

constexpr Lba kJournal{8 * 1000};
constexpr Lba kPages{8 * 10'000};
constexpr Lba kInodes{8 * 50'000};
constexpr std::uint32_t kPageBuffers = 120;
constexpr std::uint32_t kInodeBuffers = 40;
constexpr std::uint32_t kBuffers = kPageBuffers + kInodeBuffers;
constexpr std::int64_t kPageBlocks = 4;
constexpr StreamId kStream = 1;

JournalParameters ring_of(std::int64_t blocks) {
  JournalParameters p;
  p.begin = kJournal;
  p.blocks = blocks;
  p.stream = kStream;
  p.commit_interval = 5'000_ms;
  p.expire = 30'000_ms;
  return p;
}

std::int64_t blocks_of(Buffer buffer) { return buffer < kPageBuffers ? kPageBlocks : 1; }

using Version = std::uint64_t;
using Contents = std::map<Buffer, Version>;

using testing_host::SerialDevice;

// What the journal's users and the device know of each buffer's versions, request by request: the
// slow, obvious opposite of the journal's own bookkeeping. Checks what may be written when. A write
// home counts when it has ended, and survives a power cut when a flush that began later has, too.
class Reference {
 public:
  struct Written {
    Contents contents;
    std::set<std::int64_t> blocks;  // of the ring
    bool complete = false;          // the commit record is there
  };

  Reference(const Machine& machine, std::int64_t ring_blocks)
      : machine_(machine), ring_blocks_(ring_blocks) {}

  // `buffer` has joined the running transaction, and is changed.
  void change(Buffer buffer) { running_[buffer] = ++version[buffer]; }
  // What a sync that begins now will promise.
  [[nodiscard]] Contents all() const { return version; }
  void promise(const Contents& contents) {
    for (const auto& [buffer, v] : contents) promised_[buffer] = std::max(promised_[buffer], v);
  }

  void see(const Request& request) {
    settle();
    ++requests;
    if (request.op == Op::flush) flushed_ = true;
    if (request.op != Op::write) return;
    const std::int64_t at = (request.lba - kJournal).count() / 8;
    if (at < 0 || at >= ring_blocks_) return see_home(request);
    EXPECT_EQ(request.stream, kStream);
    const std::int64_t length = request.sectors.count() / 8;
    EXPECT_LE(at + length, ring_blocks_);
    if (at == 0) return;  // the superblock
    see_ring(at, length, request.fua);
  }

  // The device has got it.
  void submitted(const SerialDevice::Served& s) {
    settle();
    if (s.op == Op::flush) pending_.push_back({s.done, home_, &durable_});
    if (s.op != Op::write || s.begin < to_bytes(kPages)) return;
    const Buffer buffer = *buffer_at(to_lba(s.begin));
    pending_.push_back({s.done, {{buffer, sent_[buffer]}}, &home_});
  }

  // What a power cut now would leave, after recovery.
  [[nodiscard]] Contents recovered() {
    settle();
    Contents found = durable_;
    for (std::size_t i = whole_from_; i < ring.size(); ++i) {
      if (!ring[i].complete) continue;
      for (const auto& [buffer, v] : ring[i].contents) found[buffer] = v;
    }
    return found;
  }
  void check_promises() {
    const Contents found = recovered();
    for (const auto& [buffer, v] : promised_) {
      const auto there = found.find(buffer);
      ASSERT_TRUE(there != found.end()) << "buffer " << buffer << " is lost";
      ASSERT_GE(there->second, v) << "buffer " << buffer;
    }
  }
  Contents version;
  std::vector<Written> ring;  // transactions, the oldest first
  std::uint64_t requests = 0;
  std::uint64_t home_writes = 0;
  bool committing = false;

 private:
  struct Pending {
    Nanos done;
    Contents contents;
    Contents* goes_to;
  };

  // What has ended by now.
  void settle() {
    std::erase_if(pending_, [&](const Pending& p) {
      if (p.done > machine_.now()) return false;
      for (const auto& [buffer, v] : p.contents) {
        Version& there = (*p.goes_to)[buffer];
        there = std::max(there, v);
      }
      return true;
    });
  }
  void see_ring(std::int64_t at, std::int64_t length, bool is_record) {
    if (!committing) {
      ASSERT_FALSE(is_record) << "a record without a transaction";
      ring.push_back({std::exchange(running_, {}), {}, false});
      committing = true;
      flushed_ = false;
    }
    for (std::int64_t block = at; block < at + length; ++block) overwrite(block);
    if (!is_record) return;
    EXPECT_TRUE(flushed_) << "blocks go before the record";
    EXPECT_EQ(length, 1);
    committing = false;
    finish(ring.back());
  }
  void finish(Written& t) {
    t.complete = true;
    std::int64_t blocks = 0;
    for (const auto& [buffer, v] : t.contents) {
      blocks += blocks_of(buffer);
      committed_[buffer] = v;
    }
    const std::int64_t descriptors = std::max<std::int64_t>((blocks + 253) / 254, 1);
    EXPECT_EQ(static_cast<std::int64_t>(t.blocks.size()), blocks + descriptors + 1);
  }
  // Nobody needs what the ring has there: it is at home, or part of a later transaction.
  void overwrite(std::int64_t block) {
    const std::size_t self = ring.size() - 1;
    const auto [owner, is_first] = owner_.try_emplace(block, self);
    const std::size_t before = std::exchange(owner->second, self);
    ASSERT_TRUE(is_first || before != self) << "a transaction overwrites itself";
    ring.back().blocks.insert(block);
    if (is_first || before < whole_from_) return;
    whole_from_ = before + 1;
    for (const auto& [buffer, v] : ring[before].contents) {
      EXPECT_TRUE(durable_[buffer] >= v || committed_[buffer] > v)
          << "block " << block << " of buffer " << buffer << " is still needed";
    }
  }
  [[nodiscard]] static std::optional<Buffer> buffer_at(Lba lba) {
    const auto of = [&](Lba begin, std::int64_t blocks, std::uint32_t count) {
      const std::int64_t sectors = (lba - begin).count();
      const bool inside = sectors >= 0 && sectors < 8 * blocks * count;
      return inside ? std::optional<Buffer>(sectors / (8 * blocks)) : std::nullopt;
    };
    const std::optional<Buffer> page = of(kPages, kPageBlocks, kPageBuffers);
    if (page) return page;
    const std::optional<Buffer> inode = of(kInodes, 1, kInodeBuffers);
    return inode ? std::optional<Buffer>(*inode + kPageBuffers) : std::nullopt;
  }
  void see_home(const Request& request) {
    const std::optional<Buffer> buffer = buffer_at(request.lba);
    ASSERT_TRUE(buffer) << "it belongs to nobody";
    EXPECT_EQ(request.sectors.count(), 8 * blocks_of(*buffer)) << "a buffer is one write";
    EXPECT_EQ(request.stream, 0);
    ++home_writes;
    EXPECT_FALSE(running_.contains(*buffer)) << "a younger version is not committed yet";
    EXPECT_FALSE(committing && ring.back().contents.contains(*buffer))
        << "a younger version is being committed";
    EXPECT_GT(committed_[*buffer], sent_[*buffer]) << "it is there already, or on its way";
    sent_[*buffer] = committed_[*buffer];
  }

  const Machine& machine_;
  std::int64_t ring_blocks_;
  Contents running_;
  Contents sent_;     // home
  Contents home_;     // what of it has ended
  Contents durable_;  // what of that is flushed
  std::vector<Pending> pending_;
  Contents promised_;
  Contents committed_;
  std::map<std::int64_t, std::size_t> owner_;  // by block of the ring: who has written it last
  std::size_t whole_from_ = 0;                 // of older transactions something was overwritten
  bool flushed_ = false;
};

enum : Process { committer, flusher, services };

class World {
 public:
  explicit World(const JournalParameters& p, Bytes max_request = 512_KiB)
      : machine(machine_over({}, 64 * 1024_MiB, host_of(max_request))),
        reference(*machine, p.blocks),
        ring_bytes(4_KiB * p.blocks),
        journal(*machine, p, regions(), [this](Buffer b) { home.push_back(b); }) {
    machine->watch([this](const Request& request, Nanos) {
      reference.see(request);
      if (on_request) on_request();
    });
    device_of(*machine).on_submit = [this](const SerialDevice::Served& s) {
      reference.submitted(s);
    };
  }
  // Writes home take so much longer, and flushes so.
  void delay_home(Nanos delay, Nanos flushes) {
    device_of(*machine).delay = [delay, flushes](const SerialDevice::Served& s) {
      if (s.op == Op::flush) return flushes;
      return s.op == Op::write && s.begin >= to_bytes(kPages) ? delay : 0_ns;
    };
  }

  static host::HostParameters host_of(Bytes max_request) {
    host::HostParameters host = testing_host::plain_host();
    host.max_request = max_request;
    return host;
  }
  static std::vector<BufferRegion> regions() {
    return {{kPages, kPageBlocks, kPageBuffers, true}, {kInodes, 1, kInodeBuffers}};
  }
  // `users` bodies beside the journal's own processes, which end after them.
  void run(std::uint32_t users, const std::function<void(Process)>& body) {
    std::uint32_t left = users;
    machine->run(
        services + users,
        [&](Process self) {
          if (self == committer) return journal.commit_until_stopped(self);
          if (self == flusher) return journal.write_back_until_stopped(self);
          body(self);
          if (--left == 0) journal.stop();
        },
        Cancel());
  }
  void dirty(Process self, Buffer buffer) {
    journal.dirty(self, buffer);
    reference.change(buffer);
  }
  void sync(Process self) {
    const Contents before = reference.all();
    journal.sync(self);
    reference.promise(before);
  }
  void sync_pages(Process self) {
    const Contents before = reference.all();
    journal.sync_file(self, 0);
    reference.promise(before);
  }
  // Requests, and their bytes, behind the block layer.
  [[nodiscard]] std::pair<std::uint64_t, Bytes> device_has_seen_in_ring() const {
    std::pair<std::uint64_t, Bytes> seen;
    for (const auto& s : device_of(*machine).of(Op::write)) {
      if (s.begin < to_bytes(kJournal) || s.begin >= to_bytes(kJournal) + ring_bytes) continue;
      ++seen.first;
      seen.second += s.length;
    }
    return seen;
  }
  void sleep(Process self, Nanos length) { machine->sleep_until(self, machine->now() + length); }

  std::unique_ptr<Machine> machine;
  Reference reference;
  Bytes ring_bytes;
  std::vector<Buffer> home;  // as the journal has told
  Jbd2 journal;
  std::function<void()> on_request;
};

// --- against the reference

struct Load {
  std::int64_t ring_blocks;
  std::uint32_t users;
  std::uint32_t buffers;  // that they change, of each kind's first
  Nanos pause;
  Nanos home_delay = Nanos{0};
  bool home_in_same_sync = false;
  std::int64_t ring_per_transaction = 4;
};

void change_and_sync(World& world, Process self, Prng& random, const Load& load) {
  const auto changes = 1 + random.below(12);
  for (std::uint64_t i = 0; i < changes; ++i) {
    const auto buffer = static_cast<Buffer>(random.below(load.buffers));
    world.dirty(
        self, random.below(3) == 0 ? kPageBuffers + buffer % kInodeBuffers : buffer % kPageBuffers);
  }
  const auto way = random.below(6);
  if (way < 2) world.sync(self);
  if (way == 2 || way == 3) world.sync_pages(self);
  if (load.pause > Nanos{0}) {
    const auto longest = static_cast<std::uint64_t>(load.pause.count());
    world.sleep(self, Nanos{static_cast<std::int64_t>(random.below(longest))});
  }
}

void run_random(const Load& load, std::uint64_t seed) {
  JournalParameters p = ring_of(load.ring_blocks);
  p.commit_interval = 300_ms;
  p.expire = 2'000_ms;
  p.home_in_same_sync = load.home_in_same_sync;
  p.ring_per_transaction = load.ring_per_transaction;
  World world(p);
  world.delay_home(load.home_delay, load.home_delay / 2);
  Prng cuts(seed + 1000);
  world.on_request = [&] {
    if (cuts.below(20) == 0) world.reference.check_promises();
  };
  world.run(load.users, [&](Process self) {
    Prng random(mix64(seed) + self);
    for (int i = 0; i < 120 && !testing::Test::HasFailure(); ++i) {
      change_and_sync(world, self, random, load);
    }
    world.sync(self);
    world.reference.check_promises();
  });
  EXPECT_FALSE(world.reference.committing);
  EXPECT_EQ(world.reference.recovered(), world.reference.version) << "all was synced";
  const JournalCounters& counted = world.journal.counters();
  EXPECT_EQ(counted.commits, world.reference.ring.size());
  EXPECT_EQ(world.home.size(), world.reference.home_writes);
  std::int64_t home_blocks = 0;
  for (const Buffer buffer : world.home) home_blocks += blocks_of(buffer);
  EXPECT_EQ(counted.home_blocks, static_cast<std::uint64_t>(home_blocks));
  const auto [requests, ring] = world.device_has_seen_in_ring();
  EXPECT_EQ(4_KiB * static_cast<std::int64_t>(counted.written_blocks), ring);
  EXPECT_EQ(counted.requests, requests);
}

TEST(Jbd2Random, NothingThatWasSyncedIsEverLost) {
  const std::vector<Load> loads{
      {64, 1, 160, Nanos{0}},        {64, 6, 160, Nanos{0}},       {64, 4, 12, 20_ms},
      {256, 6, 160, 100_ms},         {1024, 4, 160, 200_ms},       {100, 8, 30, 500_ms},
      {64, 6, 160, Nanos{0}, 30_ms}, {256, 6, 160, 20_ms, 200_ms},
  };
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(4 * repeats()); ++seed) {
    for (Load load : loads) {
      load.home_in_same_sync = seed % 2 == 1;
      load.ring_per_transaction = seed % 4 < 2 ? 4 : 3;
      SCOPED_TRACE(testing::Message()
                   << "seed " << seed << ", ring " << load.ring_blocks << ", users " << load.users);
      run_random(load, seed);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// --- commits

TEST(Jbd2Commit, ABlockThatIsInTheTransactionAlreadyCostsNothing) {
  World world(ring_of(1024));
  world.run(1, [&](Process self) {
    for (int i = 0; i < 1000; ++i) world.dirty(self, 3);
    world.sync(self);
    EXPECT_EQ(world.journal.counters().written_blocks, 1U + kPageBlocks + 1U);
    EXPECT_EQ(world.journal.counters().requests, 2U);
    EXPECT_EQ(world.reference.ring.back().contents.at(3), 1000U);
  });
}

// As all other requests, which the drive counts.
TEST(Jbd2Commit, RequestsAreThoseThatTheDeviceGets) {
  for (const Bytes max_request : {512_KiB, 128_KiB, 20_KiB}) {
    World world(ring_of(2000), max_request);
    world.run(1, [&](Process self) {
      for (int round = 0; round < 20; ++round) {  // round the ring, in transactions of its quarter
        for (Buffer buffer = 0; buffer < kPageBuffers; ++buffer) world.dirty(self, buffer);
        world.sync(self);
      }
    });
    const JournalCounters& counted = world.journal.counters();
    const auto [requests, bytes] = world.device_has_seen_in_ring();
    EXPECT_EQ(counted.requests, requests);
    EXPECT_GT(counted.requests, 3 * counted.commits);
    EXPECT_EQ(4_KiB * static_cast<std::int64_t>(counted.written_blocks), bytes);
  }
}

TEST(Jbd2Commit, WithNothingToCommitSyncOnlyFlushes) {
  World world(ring_of(1024));
  world.run(1, [&](Process self) {
    world.sync(self);
    EXPECT_EQ(world.journal.counters().commits, 0U);
    EXPECT_EQ(device_of(*world.machine).of(Op::flush).size(), 1U);
    EXPECT_TRUE(device_of(*world.machine).of(Op::write).empty());
  });
}

TEST(Jbd2Commit, WhoSyncsABufferWaitsForItsTransactionAlone) {
  World world(ring_of(1024));
  world.run(1, [&](Process self) {
    for (const Buffer buffer : {1, 2}) world.dirty(self, buffer);
    world.journal.sync(self, 3);
    EXPECT_EQ(world.journal.counters().commits, 0U);
    EXPECT_EQ(device_of(*world.machine).of(Op::flush).size(), 1U);
    world.journal.sync(self, 1);
    EXPECT_EQ(world.journal.counters().commits, 1U);
    world.dirty(self, 1);
    world.journal.sync(self, 2);
    EXPECT_EQ(world.journal.counters().commits, 1U) << "committed already";
    EXPECT_EQ(device_of(*world.machine).of(Op::flush).size(), 3U);
    world.journal.sync(self, 1);
    EXPECT_EQ(world.journal.counters().commits, 2U);
  });
}

TEST(Jbd2Commit, OneThatHasFlushedIsNoFlushOfWhatCameLater) {
  World world(ring_of(1024));
  world.delay_home(Nanos{0}, 10_ms);
  world.run(2, [&](Process self) {
    if (self == services) {
      world.dirty(self, 1);
      return world.journal.sync(self, 1);
    }
    world.sleep(self, 5_ms);  // its flush is under way
    EXPECT_EQ(device_of(*world.machine).of(Op::flush).size(), 1U);
    world.journal.sync(self, 1);
    EXPECT_EQ(world.journal.counters().commits, 1U);
    EXPECT_EQ(device_of(*world.machine).of(Op::flush).size(), 2U);
  });
}

TEST(Jbd2Commit, WhoSyncsTogetherIsCommittedTogether) {
  World world(ring_of(1024));
  world.run(8, [&](Process self) {
    world.dirty(self, self);
    world.sync(self);
  });
  EXPECT_LE(world.journal.counters().commits, 2U);
  EXPECT_EQ(world.reference.recovered().size(), 8U);
}

TEST(Jbd2Commit, ComesAfterItsIntervalByItself) {
  World world(ring_of(1024));
  world.run(1, [&](Process self) {
    world.dirty(self, 1);
    world.sleep(self, 4'900_ms);
    EXPECT_EQ(world.journal.counters().commits, 0U);
    world.sleep(self, 1'400_ms);
    EXPECT_EQ(world.journal.counters().commits, 1U);
    world.sleep(self, 20'000_ms);
    EXPECT_EQ(world.journal.counters().commits, 1U) << "nothing else is dirty";
  });
}

// Blocks of a page are four; what is over is for descriptors and the record.
TEST(Jbd2Commit, ATransactionIsAtMostItsShareOfTheRing) {
  for (const std::int64_t over : {4, 3}) {
    JournalParameters p = ring_of(256);
    p.ring_per_transaction = over;
    World world(p);
    world.run(1, [&](Process self) {
      for (Buffer buffer = 0; buffer < kPageBuffers; ++buffer) world.dirty(self, buffer);
      world.sync(self);
    });
    std::size_t largest = 0;
    for (const auto& t : world.reference.ring) largest = std::max(largest, t.blocks.size());
    EXPECT_LE(largest, static_cast<std::size_t>(256 / over));
    EXPECT_GE(largest, static_cast<std::size_t>(256 / over - 8));
  }
}

// --- checkpoints

// Of the superblock's writes, what was served right before each.
std::vector<SerialDevice::Served> before_superblocks(const World& world) {
  std::vector<SerialDevice::Served> before;
  const auto& served = device_of(*world.machine).served;
  for (std::size_t i = 1; i < served.size(); ++i) {
    if (served[i].op != Op::write || served[i].begin != to_bytes(kJournal)) continue;
    EXPECT_GE(served[i].submitted, served[i - 1].done);
    before.push_back(served[i - 1]);
  }
  return before;
}

TEST(Jbd2Checkpoint, NothingGoesHomeWhileTheRingHasRoom) {
  World world(ring_of(4096));
  world.run(1, [&](Process self) {
    for (Buffer buffer = 0; buffer < kBuffers; ++buffer) {
      world.dirty(self, buffer);
      if (buffer % 10 == 0) world.sync(self);
    }
    world.sync(self);
    EXPECT_TRUE(world.home.empty());
    EXPECT_EQ(world.journal.counters().checkpoints, 0U);
  });
}

TEST(Jbd2Checkpoint, WhatIsJournaledAgainIsNotWrittenHome) {
  World world(ring_of(256));
  world.run(1, [&](Process self) {
    for (int round = 0; round < 200; ++round) {
      for (Buffer buffer = 0; buffer < 8; ++buffer) world.dirty(self, buffer);
      world.sync(self);
    }
  });
  EXPECT_TRUE(world.home.empty()) << "each transaction supersedes the one before";
  EXPECT_EQ(world.journal.counters().home_blocks, 0U);
}

TEST(Jbd2Checkpoint, WritesTheOldestTransactionHomeAndWaits) {
  World world(ring_of(256));
  world.run(1, [&](Process self) {
    for (Buffer buffer = 0; buffer < kPageBuffers; ++buffer) {
      world.dirty(self, buffer);
      world.sync(self);
    }
  });
  const JournalCounters& counted = world.journal.counters();
  EXPECT_GT(counted.checkpoints, 50U);
  EXPECT_EQ(counted.expired_blocks, 0U);
  EXPECT_GT(counted.space_wait, Nanos{0});
  for (std::size_t i = 0; i < world.home.size(); ++i) EXPECT_EQ(world.home[i], i) << "in turn";
  // What the ring still has: a quarter of it is free.
  EXPECT_NEAR(static_cast<double>(kPageBuffers - world.home.size()), 255.0 * 3 / 4 / 6, 4.0);
}

// Somebody's sync writes pages home, which takes long; others want the ring meanwhile.
TEST(Jbd2Checkpoint, ABlockOnItsWayHomeKeepsItsPlaceInTheRing) {
  for (const bool same : {false, true}) {
    JournalParameters p = ring_of(64);
    p.home_in_same_sync = same;
    World world(p);
    world.delay_home(1'000_ms, Nanos{0});
    world.run(2, [&](Process self) {
      if (self == services) {
        world.dirty(self, 0);
        world.sync(self);
        world.sync_pages(self);
        return;
      }
      world.sleep(self, 10_ms);
      for (int i = 0; i < 20; ++i) {
        world.dirty(self, kPageBuffers);
        world.sync(self);
      }
    });
    const Bytes second_block = to_bytes(kJournal) + 4_KiB;
    std::vector<Nanos> begun;
    Nanos home;
    for (const auto& s : device_of(*world.machine).of(Op::write)) {
      if (s.begin == second_block) begun.push_back(s.submitted);
      if (s.begin == to_bytes(kPages)) home = s.done;
    }
    EXPECT_GT(home, 1'000_ms);
    ASSERT_GT(begun.size(), 1U) << "the ring goes round";
    EXPECT_GE(begun[1], home);
  }
}

// What goes home while a checkpoint flushes is in the drive's cache only when that has ended.
TEST(Jbd2Checkpoint, ItsFlushSaysNothingOfWhatEndsMeanwhile) {
  World world(ring_of(64));
  const auto inode = [](Buffer n) { return kPageBuffers + n; };
  const std::vector<std::vector<Buffer>> transactions{
      {inode(0)}, {0, 1}, {2, 3}, {4, 5, inode(1), inode(2)}, {6, 7}, {8, 9, inode(0), inode(3)}};
  bool filled = false;
  world.run(2, [&](Process self) {
    if (self != services) {
      while (!filled) world.sleep(self, 1_ms);
      world.sync_pages(self);  // home, until a second later
      return;
    }
    for (const auto& buffers : transactions) {
      for (const Buffer buffer : buffers) world.dirty(self, buffer);
      world.sync(self);
    }
    world.delay_home(1'000_ms, 500_ms);
    filled = true;
    world.sleep(self, 700_ms);
    EXPECT_EQ(world.journal.counters().checkpoints, 0U);
    // More than the first transaction's place and what is free.
    for (const Buffer buffer : {Buffer{10}, Buffer{11}, inode(4)}) world.dirty(self, buffer);
    EXPECT_GT(world.journal.counters().checkpoints, 0U);
    world.sync(self);
  });
}

// Pages at home before the ring forgets them, then the superblock.
TEST(Jbd2Checkpoint, FlushesBeforeTheSuperblockIsWritten) {
  World world(ring_of(64));
  world.run(1, [&](Process self) {
    for (Buffer buffer = 0; buffer < 60; ++buffer) {
      world.dirty(self, buffer);
      world.sync(self);
    }
  });
  const auto before = before_superblocks(world);
  for (const auto& s : before) EXPECT_EQ(s.op, Op::flush);
  EXPECT_EQ(before.size(), world.journal.counters().checkpoints);
}

// --- the tail

// Eight pages, of which the next transaction's are the same: 34 blocks of the ring.
TEST(Jbd2Tail, ACommitMovesItByAQuarterOfTheRingAtLeast) {
  World world(ring_of(256));
  constexpr int kRounds = 200;
  world.run(1, [&](Process self) {
    for (int round = 0; round < kRounds; ++round) {
      for (Buffer buffer = 0; buffer < 8; ++buffer) world.dirty(self, buffer);
      world.sync(self);
    }
  });
  const auto before = before_superblocks(world);
  EXPECT_TRUE(std::ranges::all_of(before, &SerialDevice::Served::fua)) << "behind a record";
  EXPECT_LE(before.size(), static_cast<std::size_t>(kRounds / 2)) << "64 of 256 blocks: two of 34";
  EXPECT_GE(before.size(), static_cast<std::size_t>(kRounds / 3));
  EXPECT_EQ(world.journal.counters().checkpoints, 0U);
  EXPECT_EQ(world.journal.counters().space_wait, Nanos{0});
}

TEST(Jbd2Tail, WhoNeedsRoomTakesFirstWhatNeedsItNoMore) {
  World world(ring_of(64));  // 16 of its blocks must be free
  world.run(1, [&](Process self) {
    for (const Buffer buffer : {0, 0, 1, 2, 3, 4, 5, 6}) {  // six blocks each
      world.dirty(self, buffer);
      world.sync(self);
    }
    EXPECT_TRUE(before_superblocks(world).empty());
    world.dirty(self, 8);
  });
  const auto before = before_superblocks(world);
  ASSERT_EQ(before.size(), 1U);
  EXPECT_EQ(before[0].op, Op::flush);
  EXPECT_EQ(world.journal.counters().checkpoints, 0U);
  EXPECT_TRUE(world.home.empty());
}

// --- age

TEST(Jbd2Age, WhatWasDirtyForLongIsWrittenHomeInTheOrderOfItsAddress) {
  World world(ring_of(4096));
  world.run(1, [&](Process self) {
    for (const Buffer buffer : {7U, 3U, 130U, 5U}) world.dirty(self, buffer);
    world.sync(self);
    world.sleep(self, 29'000_ms);
    EXPECT_TRUE(world.home.empty());
    world.sleep(self, 3'000_ms);
    EXPECT_EQ(world.home, (std::vector<Buffer>{3, 5, 7, 130}));
    EXPECT_EQ(world.journal.counters().expired_blocks, 3U * kPageBlocks + 1U);
    world.sleep(self, 60'000_ms);
    EXPECT_EQ(world.home.size(), 4U) << "home is up to date";
  });
}

TEST(Jbd2Age, IsThatOfTheLastTransaction) {
  World world(ring_of(4096));
  world.run(1, [&](Process self) {
    for (int i = 0; i < 10; ++i) {
      world.dirty(self, 9);
      world.dirty(self, 20 + static_cast<Buffer>(i));
      world.sync(self);
      world.sleep(self, 10'000_ms);
    }
    EXPECT_EQ(std::ranges::count(world.home, 9U), 0);
    EXPECT_EQ(std::ranges::count(world.home, 20U), 1);
    world.sleep(self, 40'000_ms);
    EXPECT_EQ(std::ranges::count(world.home, 9U), 1);
  });
}

// --- with the sync of a file

JournalParameters ring_since_6_4() {
  JournalParameters p = ring_of(4096);
  p.home_in_same_sync = true;
  return p;
}

// Linux before 6.4: pages are written back, then the transaction is committed.
TEST(Jbd2File, ASyncWritesHomeWhatTheOneBeforeHasCommitted) {
  World world(ring_of(4096));
  world.run(1, [&](Process self) {
    for (const Buffer buffer : {7U, 3U}) world.dirty(self, buffer);
    world.sync_pages(self);
    EXPECT_TRUE(world.home.empty()) << "when pages are written back, the journal still needs them";
    for (const Buffer buffer : {3U, 8U}) world.dirty(self, buffer);
    world.sync_pages(self);
    EXPECT_EQ(world.home, std::vector<Buffer>{7}) << "3 is in a younger transaction";
    world.sync_pages(self);
    EXPECT_EQ(world.home, (std::vector<Buffer>{7, 3, 8}));
    world.sync_pages(self);
    EXPECT_EQ(world.home.size(), 3U) << "nothing is dirty";
    EXPECT_EQ(world.journal.counters().synced_blocks, 3U * kPageBlocks);
  });
}

TEST(Jbd2File, SinceLinux64ASyncWritesHomeWhatItHasCommitted) {
  World world(ring_since_6_4());
  world.run(1, [&](Process self) {
    for (int round = 1; round <= 20; ++round) {
      for (const Buffer buffer : {7U, 3U}) world.dirty(self, buffer);
      world.sync_pages(self);
      EXPECT_EQ(world.home.size(), 2U * static_cast<unsigned>(round));
    }
    EXPECT_EQ(world.journal.counters().commits, 20U);
  });
  // Of each: blocks, flush, record, home, flush. As a trace of Linux 6.18 shows.
  const auto& served = device_of(*world.machine).served;
  ASSERT_EQ(served.size(), 20U * 6U);
  for (std::size_t i = 0; i < served.size(); i += 6) {
    EXPECT_EQ(served[i + 1].op, Op::flush);
    EXPECT_LT(served[i + 2].begin, to_bytes(kPages));
    EXPECT_EQ(served[i + 3].begin, to_bytes(kPages) + 4_KiB * (3 * kPageBlocks));
    EXPECT_EQ(served[i + 4].begin, to_bytes(kPages) + 4_KiB * (7 * kPageBlocks));
    EXPECT_EQ(served[i + 5].op, Op::flush);
    EXPECT_GE(served[i + 3].submitted, served[i + 2].done) << "committed first";
    EXPECT_GE(served[i + 5].submitted, served[i + 4].done);
  }
}

TEST(Jbd2File, OnlyThatFilesPagesGoHome) {
  World world(ring_since_6_4());
  world.run(1, [&](Process self) {
    for (const Buffer buffer : {kPageBuffers + 1, 5U}) world.dirty(self, buffer);
    world.sync_pages(self);
    EXPECT_EQ(world.home, std::vector<Buffer>{5});
  });
}

TEST(Jbd2File, WithNothingDirtyOnlyAFlush) {
  for (const bool same : {false, true}) {
    JournalParameters p = ring_of(4096);
    p.home_in_same_sync = same;
    World world(p);
    world.run(1, [&](Process self) { world.sync_pages(self); });
    ASSERT_EQ(device_of(*world.machine).served.size(), 1U);
    EXPECT_EQ(device_of(*world.machine).served[0].op, Op::flush);
  }
}

// --- errors

TEST(Jbd2, HalfOfTheRingForATransactionIsRefused) {
  JournalParameters p = ring_of(256);
  for (const std::int64_t over : {0, 1, 2}) {
    p.ring_per_transaction = over;
    EXPECT_THROW(World{p}, OperatingError);
  }
}

TEST(Jbd2, TooSmallARingIsRefused) {
  const auto machine = machine_over();
  const auto make = [&](std::int64_t blocks) {
    Jbd2(*machine, ring_of(blocks), World::regions(), [](Buffer) {});
  };
  EXPECT_THROW(make(63), OperatingError);
  EXPECT_NO_THROW(make(64));
}

}  // namespace test_jbd2
}  // namespace flashlab::kernel
