#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

#include "flash/trim/delayed_trim.h"
#include "repeat.hpp"
#include "trim/board.h"
#include "trim/world.h"

namespace flashlab {
namespace test_delayed_trim {

using Blocks = std::vector<std::uint32_t>;

dtrim_config config(std::uint32_t ranges = 8, std::uint32_t writes = 64) {
  return {1000, 4, ranges, writes, 16, 1, 4, UINT32_MAX, 0};
}

// The module with its tables, and what it has invalidated.
class Module {
 public:
  explicit Module(const dtrim_config& c = config()) : memory_(dtrim_memory_bytes(&c) / 4) {
    const dtrim_callbacks callbacks = {this, invalidate, request_waiting};
    EXPECT_EQ(dtrim_init(&d, &c, &callbacks, memory_.data(), dtrim_memory_bytes(&c)), 0);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module() { EXPECT_TRUE(dtrim_is_sound(&d)); }

  dtrim_work trim(std::uint32_t block, std::uint32_t blocks) {
    const dtrim_range range = {block, blocks};
    return dtrim_trim(&d, &range, 1);
  }
  dtrim_work write(std::uint32_t block, std::uint32_t blocks) {
    return dtrim_write(&d, block, blocks);
  }
  dtrim_work idle(std::uint32_t slices = UINT32_MAX) { return dtrim_step(&d, slices); }
  [[nodiscard]] const dtrim_statistics& counted() const { return d.state.statistics; }

  dtrim d;
  std::multiset<std::uint32_t> gone;  // blocks
  std::vector<std::pair<std::uint32_t, std::uint32_t>> calls;
  std::uint32_t arrives_after = UINT32_MAX;

 private:
  static void invalidate(void* context, std::uint32_t slice, std::uint32_t slices,
                         std::uint32_t blocks) {
    Module& self = *static_cast<Module*>(context);
    const std::uint32_t size = self.d.state.config.blocks_per_slice;
    self.calls.emplace_back(slice, slices);
    for (std::uint32_t i = 0; i < slices * size; ++i) {
      if ((blocks >> (i % size) & 1) != 0) self.gone.insert(slice * size + i);
    }
  }
  static int request_waiting(void* context) {
    return --static_cast<Module*>(context)->arrives_after == 0;
  }

  std::vector<std::uint32_t> memory_;
};

Blocks range(std::uint32_t begin, std::uint32_t end) {
  Blocks blocks(end - begin);
  std::iota(blocks.begin(), blocks.end(), begin);
  return blocks;
}
Blocks operator+(Blocks a, const Blocks& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  return a;
}
Blocks gone(const Module& m) { return {m.gone.begin(), m.gone.end()}; }

// --- the paper's scenarios

TEST(DelayedTrimPaper, AWriteAfterATrimOutlivesIt) {
  Module m;
  m.trim(100, 200);
  m.write(150, 50);
  m.idle();
  EXPECT_EQ(gone(m), range(100, 150) + range(200, 300));
  EXPECT_EQ(m.counted().blocks_kept, 50U);
  EXPECT_EQ(m.counted().slices_kept, 12U);
}

TEST(DelayedTrimPaper, GarbageCollectionCopiesNoTrimmedPage) {
  board b;
  dtrim_config c = config();
  c.blocks = 128;
  ASSERT_EQ(board_init(&b, &c), 0);
  board_write(&b, 0, 128, 7);
  board_flush(&b);
  board_write(&b, 0, 4, 8);  // one page of the first block is invalid
  board_flush(&b);
  const dtrim_range rest = {4, 12};
  board_trim(&b, &rest, 1);
  board_collect(&b);
  EXPECT_EQ(b.collections, 1U);
  EXPECT_EQ(b.copied_pages, 0U);
}

TEST(DelayedTrimPaper, ARequestInterruptsAndTheWorkGoesOnLater) {
  Module m;
  m.trim(0, 40);
  m.arrives_after = 3;
  EXPECT_EQ(m.idle().checked, 3U);
  EXPECT_EQ(gone(m), range(0, 12));
  m.write(8, 2);   // was applied already
  m.write(20, 2);  // is to come
  m.idle();
  EXPECT_EQ(gone(m), range(0, 20) + range(22, 40));
  EXPECT_EQ(m.counted().yields, 1U);
  EXPECT_EQ(m.counted().resumes, 1U);
}

// --- bugs seen in public firmware

TEST(DelayedTrimFirmwareBugs, InvalidCountsRise) {
  board b;
  dtrim_config c = config();
  c.blocks = 128;
  ASSERT_EQ(board_init(&b, &c), 0);
  board_write(&b, 0, 128, 7);
  board_flush(&b);
  const dtrim_range sixteen = {16, 64};
  board_trim(&b, &sixteen, 1);
  board_idle(&b, UINT32_MAX, 0);
  EXPECT_EQ(std::accumulate(std::begin(b.invalid), std::end(b.invalid), 0U), 16U);
  EXPECT_TRUE(board_is_sound(&b));
}

TEST(DelayedTrimFirmwareBugs, TrimOfPartOfASliceKeepsItsLiveBlocks) {
  board b;
  dtrim_config c = config();
  c.blocks = 128;
  ASSERT_EQ(board_init(&b, &c), 0);
  board_write(&b, 0, 128, 7);
  board_flush(&b);
  const dtrim_range parts[] = {{2, 5}, {21, 2}};
  board_trim(&b, parts, 2);
  board_idle(&b, UINT32_MAX, 0);
  std::uint32_t found[24];
  board_read(&b, 0, 24, found);
  for (std::uint32_t i = 0; i < 24; ++i) {
    const bool trimmed = (i >= 2 && i < 7) || i == 21 || i == 22;
    EXPECT_EQ(found[i], trimmed ? 0U : 7U) << i;
  }
  EXPECT_EQ(std::accumulate(std::begin(b.invalid), std::end(b.invalid), 0U), 0U);
}

TEST(DelayedTrimFirmwareBugs, PartsOfASliceAddUp) {
  board b;
  dtrim_config c = config();
  c.blocks = 128;
  ASSERT_EQ(board_init(&b, &c), 0);
  board_write(&b, 0, 128, 7);
  board_flush(&b);
  for (const dtrim_range part : {dtrim_range{4, 1}, dtrim_range{6, 2}, dtrim_range{5, 1}}) {
    board_trim(&b, &part, 1);
    board_idle(&b, UINT32_MAX, 0);
  }
  EXPECT_EQ(std::accumulate(std::begin(b.invalid), std::end(b.invalid), 0U), 1U);
}

// --- several TRIMs and writes

TEST(DelayedTrim, ALaterTrimTakesWhatWasWrittenBetween) {
  Module m;
  m.trim(0, 40);
  m.write(10, 10);
  m.trim(0, 40);
  m.idle();
  EXPECT_EQ(gone(m), range(0, 40));
}

TEST(DelayedTrim, EachWriteIsOlderThanSomeAndNewerThanOthers) {
  Module m;
  m.trim(0, 60);
  m.write(10, 10);  // outlives the first
  m.trim(15, 20);   // takes 15-19 of it
  m.write(30, 2);   // outlives both
  m.trim(100, 8);
  m.write(40, 1);
  EXPECT_EQ(m.idle(0).checked, 0U);
  m.idle();
  EXPECT_EQ(gone(m),
            range(0, 10) + range(15, 30) + range(32, 40) + range(41, 60) + range(100, 108));
}

TEST(DelayedTrim, OneSliceIsWrittenInSeveralTurns) {
  Module m;
  m.trim(0, 16);
  m.write(4, 1);
  m.trim(100, 4);  // a turn between
  m.write(5, 1);
  m.trim(100, 4);
  m.write(4, 1);  // once more: the older note gives it up
  EXPECT_EQ(m.d.state.noted, 2U);
  EXPECT_EQ(dtrim_pending_blocks(&m.d, 1), 0b1100U);
  m.trim(4, 1);
  EXPECT_EQ(dtrim_pending_blocks(&m.d, 1), 0b1101U);
  m.idle();
  EXPECT_EQ(m.gone.count(4), 1U);
  EXPECT_EQ(m.gone.count(5), 0U);
}

TEST(DelayedTrim, AWriteBetweenTwoStepsIntoAHalfAppliedRange) {
  Module m;
  m.trim(0, 40);
  m.idle(5);
  m.write(18, 6);  // the applied part ends at 20
  m.idle();
  EXPECT_EQ(gone(m), range(0, 20) + range(24, 40));
}

TEST(DelayedTrim, WritesAtTheEdgesShortenTheRange) {
  Module m;
  m.trim(100, 100);
  m.write(90, 20);
  m.write(180, 30);
  EXPECT_EQ(m.d.state.noted, 0U);
  const dtrim_range left = dtrim_pending_at(&m.d, 0);
  EXPECT_EQ(left.block, 110U);
  EXPECT_EQ(left.blocks, 70U);
  m.write(0, 1000);
  EXPECT_EQ(dtrim_pending(&m.d), 0U);
  EXPECT_EQ(m.idle().checked, 0U);
}

TEST(DelayedTrim, RangesAreAppliedInTheOrderOfArrival) {
  Module m;
  m.trim(400, 4);
  m.trim(100, 4);
  m.trim(200, 4);
  m.idle();
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> order = {{100, 1}, {25, 1}, {50, 1}};
  EXPECT_EQ(m.calls, order);
}

TEST(DelayedTrim, ACommandOf256Ranges) {
  Module m(config(256));
  std::vector<std::uint8_t> list(256 * 16);
  for (std::uint32_t i = 0; i < 256; ++i) {
    const std::uint32_t entry[4] = {0, 2, i * 3, 0};
    std::memcpy(&list[i * 16], entry, 16);
  }
  dtrim_work work;
  EXPECT_EQ(dtrim_trim_list(&m.d, list.data(), 256, &work), 0);
  EXPECT_EQ(work.checked, 0U);
  EXPECT_EQ(dtrim_pending(&m.d), 256U);
  m.idle();
  EXPECT_EQ(m.gone.size(), 512U);
  EXPECT_EQ(m.gone.count(5), 0U);
}

TEST(DelayedTrim, ACommandBeyondTheNamespaceDoesNothing) {
  Module m;
  for (const auto& [blocks, low, high] :
       {std::array<std::uint32_t, 3>{1, 1000, 0}, {1001, 0, 0}, {1, 0, 1}, {UINT32_MAX, 1, 0}}) {
    const std::uint32_t entries[8] = {0, 4, 8, 0, 0, blocks, low, high};
    std::uint8_t list[32];
    std::memcpy(list, entries, sizeof list);
    dtrim_work work;
    EXPECT_EQ(dtrim_trim_list(&m.d, list, 2, &work), -1);
  }
  EXPECT_EQ(dtrim_pending(&m.d), 0U);
  EXPECT_EQ(m.counted().trim_commands, 0U);
}

TEST(DelayedTrim, TouchingRangesMergeUnlessAWriteStandsBetween) {
  dtrim_config c = config();
  c.flags = DTRIM_MERGE;
  Module m(c);
  m.trim(0, 10);
  m.trim(20, 10);
  m.trim(10, 10);
  EXPECT_EQ(dtrim_pending(&m.d), 1U);
  m.write(12, 2);
  m.trim(30, 10);
  EXPECT_EQ(dtrim_pending(&m.d), 2U);
  m.idle();
  EXPECT_EQ(gone(m), range(0, 12) + range(14, 40));
}

TEST(DelayedTrim, WholeSlicesGoInBatches) {
  dtrim_config c = config();
  c.batch_slices = 8;
  Module m(c);
  m.trim(6, 100);  // slices 1 (in part), 2 to 25, 26 (in part)
  m.write(44, 1);  // slice 11
  const dtrim_work work = m.idle();
  EXPECT_EQ(work.slices, 26U);
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> calls = {
      {1, 1}, {2, 6}, {8, 3}, {11, 1}, {12, 4}, {16, 8}, {24, 2}, {26, 1}};
  EXPECT_EQ(m.calls, calls);
  EXPECT_EQ(work.batches, calls.size());
  EXPECT_EQ(gone(m), range(6, 44) + range(45, 106));
}

TEST(DelayedTrim, AMapOfWholeSlicesIsNeverAskedForParts) {
  dtrim_config c = config();
  c.flags = DTRIM_WHOLE_SLICES;
  Module m(c);
  m.trim(2, 20);
  m.write(9, 1);
  m.idle();
  EXPECT_EQ(gone(m), range(4, 8) + range(12, 20));
  EXPECT_EQ(m.counted().partial_blocks, 4U);
}

TEST(DelayedTrim, NothingPendingCostsNothing) {
  Module m;
  const dtrim_work work = m.write(0, 1000);
  EXPECT_EQ(work.checked + work.probes, 0U);
  EXPECT_EQ(dtrim_read(&m.d, 3, 0xf), 0U);
  EXPECT_EQ(dtrim_drain(&m.d, UINT32_MAX).checked, 0U);
  EXPECT_EQ(m.counted().drains, 0U);
}

// --- reads, power cuts

TEST(DelayedTrimReads, ABlockIsZeroesFromTheAcknowledgementOn) {
  Module m;
  m.trim(2, 8);
  m.write(5, 1);
  EXPECT_EQ(dtrim_read(&m.d, 0, 0b0011), 0U);
  EXPECT_EQ(dtrim_read(&m.d, 0, 0b0110), 0b0100U);
  EXPECT_EQ(dtrim_read(&m.d, 1, 0b1111), 0b1101U);
  EXPECT_EQ(gone(m), range(2, 5) + range(6, 8));
}

TEST(DelayedTrimReads, WhatWasReadStaysSoWithoutTheTables) {
  board b;
  dtrim_config c = config();
  c.blocks = 128;
  ASSERT_EQ(board_init(&b, &c), 0);
  board_write(&b, 0, 128, 7);
  const dtrim_range all = {0, 128};
  board_trim(&b, &all, 1);
  std::uint32_t found[8];
  board_read(&b, 10, 4, found);
  EXPECT_EQ(found[0] + found[3], 0U);
  board_cut_with_capacitors(&b);
  board_read(&b, 8, 8, found);  // the slices of those four
  for (const std::uint32_t value : found) EXPECT_EQ(value, 0U);
  board_read(&b, 0, 8, found);
  for (const std::uint32_t value : found) EXPECT_EQ(value, 7U);  // its TRIM is lost, whole
}

TEST(DelayedTrimReads, AWriteOfPartOfASliceBringsNothingBack) {
  for (const std::uint32_t flags : {0, +DTRIM_WHOLE_SLICES}) {
    board b;
    dtrim_config c = config();
    c.blocks = 128;
    c.flags = flags;
    ASSERT_EQ(board_init(&b, &c), 0);
    board_write(&b, 0, 128, 7);
    board_flush(&b);
    const dtrim_range all = {0, 128};
    board_trim(&b, &all, 1);
    board_write(&b, 41, 1, 8);
    board_idle(&b, UINT32_MAX, 0);
    std::uint32_t found[4];
    board_read(&b, 40, 4, found);
    EXPECT_EQ(Blocks(found, found + 4), (Blocks{0, 8, 0, 0}));
  }
}

// --- full tables

TEST(DelayedTrimFull, AFullListSplitsTheRange) {
  Module m(config(2, 1));
  m.trim(0, 100);
  m.write(20, 1);
  const dtrim_work work = m.write(60, 1);
  EXPECT_EQ(work.checked, 0U);
  EXPECT_EQ(dtrim_pending(&m.d), 2U);
  EXPECT_EQ(m.counted().list_full_splits, 1U);
  m.idle();
  EXPECT_EQ(gone(m), range(0, 20) + range(21, 60) + range(61, 100));
}

TEST(DelayedTrimFull, ANoteThatReplacesAnotherNeedsNoRoom) {
  Module m(config(1, 1));
  m.trim(0, 100);
  m.write(20, 1);
  m.write(21, 2);
  m.write(20, 4);
  EXPECT_EQ(m.d.state.noted, 1U);
  EXPECT_EQ(m.counted().list_full_splits + m.counted().list_full_forced, 0U);
}

TEST(DelayedTrimFull, WithBothFullTheShorterSideIsAppliedAtOnce) {
  Module m(config(1, 0));
  m.trim(0, 100);
  const dtrim_work work = m.write(86, 2);
  EXPECT_EQ(work.checked, 3U);
  EXPECT_EQ(gone(m), range(88, 100));
  m.write(6, 2);
  EXPECT_EQ(gone(m), range(0, 6) + range(88, 100));
  m.idle();
  EXPECT_EQ(gone(m), range(0, 6) + range(8, 86) + range(88, 100));
  EXPECT_EQ(m.counted().slices_applied_forced, 5U);
}

TEST(DelayedTrimFull, AWriteWaitsForNoMoreThanItsLimit) {
  Module m(config(1, 0));  // a limit of 4
  m.trim(0, 100);
  EXPECT_EQ(m.write(40, 4).checked, 4U);
  EXPECT_EQ(m.counted().blocks_forgotten, 24U);
  m.idle();
  EXPECT_EQ(gone(m), range(0, 16) + range(44, 100));
}

TEST(DelayedTrimFull, WhatIsForgottenGivesItsNotesBack) {
  Module m(config(1, 2));
  m.trim(0, 800);
  m.write(300, 4);
  m.write(360, 4);
  EXPECT_EQ(m.d.state.noted, 2U);  // full
  m.write(380, 4);
  EXPECT_EQ(m.counted().list_full_forced, 1U);
  EXPECT_EQ(m.d.state.noted, 0U);
}

TEST(DelayedTrimFull, ATrimTakesTheOldestRangesPlaceIfThatIsShorter) {
  Module m(config(2));
  m.trim(0, 8);
  m.trim(100, 400);
  EXPECT_EQ(m.trim(600, 40).checked, 2U);
  EXPECT_EQ(gone(m), range(0, 8));
  EXPECT_EQ(m.counted().ranges_full_oldest, 1U);
  EXPECT_EQ(dtrim_pending(&m.d), 2U);
}

TEST(DelayedTrimFull, ATrimIsElseAppliedAtOnce) {
  Module m(config(1));
  m.trim(100, 400);
  m.write(204, 4);
  EXPECT_EQ(m.trim(200, 10).checked, 3U);  // inside: it would take three places
  EXPECT_EQ(gone(m), range(200, 210));
  EXPECT_EQ(m.counted().ranges_full_forced, 1U);
  m.write(208, 1);
  m.idle();
  EXPECT_EQ(m.gone.count(208), 1U);
  EXPECT_EQ(m.gone.count(499), 1U);
}

TEST(DelayedTrimFull, ATrimIsForgottenBeyondItsLimit) {
  dtrim_config c = config(1);
  c.trim_forced_slices = 2;
  Module m(c);
  m.trim(100, 400);
  EXPECT_EQ(m.trim(600, 40).checked, 2U);
  EXPECT_EQ(gone(m), range(600, 608));
  EXPECT_EQ(m.counted().blocks_forgotten, 32U);
}

TEST(DelayedTrimFull, TheLastTurnForgetsEverything) {
  Module m;
  m.trim(0, 40);
  m.d.state.turn = UINT32_MAX - 1;
  m.write(10, 2);
  m.trim(100, 4);
  m.write(101, 1);
  m.idle();
  EXPECT_EQ(gone(m), range(100, 101) + range(102, 104));
  EXPECT_EQ(m.counted().turns_exhausted, 1U);
  EXPECT_EQ(m.counted().blocks_forgotten, 40U);
}

// --- configurations and sizes

TEST(DelayedTrimTables, FitTheBoardAtThePapersSizes) {
  const dtrim_config c = dtrim_default_config(64U << 20, 4);  // 256 GiB of 4 KiB
  EXPECT_EQ(dtrim_memory_bytes(&c), DTRIM_DEFAULT_MEMORY_BYTES);
  EXPECT_LT(DTRIM_DEFAULT_MEMORY_BYTES, 64U << 10);
  RecordProperty("table_bytes", static_cast<int>(DTRIM_DEFAULT_MEMORY_BYTES));
  // Figure 2: 100 MB of 256 KB that do not touch; table 2: 256 ranges of 16 blocks.
  Module m(c);
  for (std::uint32_t i = 0; i < 400; ++i) m.trim(i * 65, 64);
  std::vector<dtrim_range> command;
  for (std::uint32_t i = 0; i < 256; ++i) command.push_back({(1U << 20) + i * 17, 16});
  EXPECT_EQ(dtrim_trim(&m.d, command.data(), 256).checked, 0U);
  EXPECT_EQ(dtrim_pending(&m.d), 656U);
}

TEST(DelayedTrimTables, AConfigurationThatCannotWorkIsRefused) {
  const dtrim_config good = config();
  EXPECT_GT(dtrim_memory_bytes(&good), 0U);
  for (const auto& [field, value] : {std::pair{&dtrim_config::blocks, 0U},
                                     {&dtrim_config::blocks, UINT32_MAX},
                                     {&dtrim_config::blocks_per_slice, 3U},
                                     {&dtrim_config::blocks_per_slice, 64U},
                                     {&dtrim_config::ranges, 0U},
                                     {&dtrim_config::ranges, 65535U},
                                     {&dtrim_config::writes, 1U << 25},
                                     {&dtrim_config::buckets, 0U},
                                     {&dtrim_config::buckets, 12U},
                                     {&dtrim_config::batch_slices, 0U},
                                     {&dtrim_config::batch_slices, 6U},
                                     {&dtrim_config::flags, 4U}}) {
    dtrim_config bad = good;
    bad.*field = value;
    EXPECT_EQ(dtrim_memory_bytes(&bad), 0U) << value;
  }
  dtrim d;
  std::vector<std::uint32_t> memory(dtrim_memory_bytes(&good) / 4);
  const dtrim_callbacks callbacks = {nullptr, [](void*, auto, auto, auto) {}, nullptr};
  EXPECT_EQ(dtrim_init(&d, &good, &callbacks, memory.data(), dtrim_memory_bytes(&good) - 1), -1);
}

// A page check looks at as many entries as its bucket holds: no more with 100,000 than with 10.
TEST(DelayedTrimTables, ACheckLooksAtFewEntriesHoweverManyThereAre) {
  for (std::uint32_t entries = 10; entries <= 100'000; entries *= 10) {
    dtrim_config c = config(4, entries);
    c.blocks = 1U << 30;
    for (c.buckets = 16; c.buckets < entries; c.buckets *= 2) {
    }
    Module m(c);
    m.trim(0, c.blocks);
    std::uint64_t random = entries;
    while (m.d.state.noted < entries) {
      m.write(1 + static_cast<std::uint32_t>(world_random(&random) % (c.blocks - 2)), 1);
    }
    dtrim_reset_statistics(&m.d);
    for (int i = 0; i < 1000; ++i) {
      dtrim_read(&m.d, static_cast<std::uint32_t>(world_random(&random) % (c.blocks / 4)), 0xf);
    }
    EXPECT_EQ(m.counted().slice_lookups, 1000U);
    EXPECT_LT(m.counted().entries_probed, 1200U) << entries;
    dtrim_reset(&m.d);  // the check of the tables by ~Module would take long
  }
}

TEST(DelayedTrimTables, StatisticsAreWhatTheLogPageSays) {
  Module m;
  m.trim(0, 40);
  m.write(10, 2);
  m.idle(4);
  dtrim_statistics s;
  dtrim_get_statistics(&m.d, &s);
  EXPECT_EQ(std::memcmp(&s, "DTRM\x01\x00\x00\x02", 8), 0);
  EXPECT_EQ(s.pending_ranges, 1U);
  EXPECT_EQ(s.pending_blocks, 24U);
  EXPECT_EQ(s.pending_blocks_high, 40U);
  EXPECT_EQ(s.write_entries, 0U);
  EXPECT_EQ(s.write_entries_high, 1U);
  EXPECT_EQ(s.slices_applied_idle, 4U);
  EXPECT_EQ(s.blocks_invalidated, 14U);
  EXPECT_EQ(s.range_capacity, 8U);
  EXPECT_EQ(s.yields, 1U);
}

// --- anything at all

TEST(DelayedTrimRandom, AgreesWithAPlainMap) {
  for (int number = 0; number < 60 * repeats(); ++number) {
    std::uint64_t random = static_cast<std::uint64_t>(number);
    world w;
    world_init(&w, random);
    for (int i = 0; i < 2000 && world_do(&w, world_random(&random)); ++i) {
    }
    if (w.fault == nullptr) world_settle(&w);
    ASSERT_EQ(w.fault, nullptr) << w.fault << ": world " << number << ", operation " << w.operations
                                << ", block " << w.fault_block;
  }
}

}  // namespace test_delayed_trim
}  // namespace flashlab
