/* What a write and a page check cost in the Check Write List, by how many entries it has.
 *
 *   trim_curve [OPERATIONS]     default: 100000 per point and round
 *
 * One pending TRIM covers the drive; random blocks are written until so many slices are noted, in a
 * table of the next power of two of buckets. Then so many slices are written again, and as many
 * checked, at random (warm and cold ones alike). Prints one JSON list: entries looked at per
 * operation, and its nanoseconds in the fastest of some rounds. The longest lists do not fit in a
 * processor's cache: entries looked at are the same, each costs more. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "flash/trim/delayed_trim.h"
#include "world.h"

enum { SLICE_BLOCKS = 4, ROUNDS = 7, MOST_ENTRIES = 100000, MOST_BUCKETS = 1 << 17 };
static const uint32_t kBlocks = UINT32_C(1) << 30;

static uint32_t memory[DTRIM_MEMORY_BYTES(4, MOST_ENTRIES, MOST_BUCKETS) / 4];
static uint32_t noted[MOST_ENTRIES]; /* the slices */

static void invalidate(void* context, uint32_t slice, uint32_t slices, uint32_t blocks) {
  *(volatile uint32_t*)context = slice + slices + blocks;
}

static double seconds(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint32_t random_slice(uint64_t* random) {
  return 1 + (uint32_t)(world_random(random) % (kBlocks / SLICE_BLOCKS - 2));
}

static void fill(dtrim* d, uint32_t entries, uint64_t* random) {
  const dtrim_range all = {0, kBlocks};
  dtrim_trim(d, &all, 1);
  while (d->state.noted < entries) {
    const uint32_t slice = random_slice(random);
    noted[d->state.noted] = slice;
    dtrim_write(d, slice * SLICE_BLOCKS, SLICE_BLOCKS);
  }
}

/* Half of the checks find their slice. */
static uint32_t any_slice(uint32_t entries, uint64_t* random) {
  const uint64_t word = world_random(random);
  return (word & 1) != 0 ? noted[(word >> 1) % entries] : random_slice(random);
}

static void measure(uint32_t entries, uint32_t operations) {
  static volatile uint32_t sink;
  const dtrim_callbacks callbacks = {(void*)&sink, invalidate, NULL};
  dtrim_config c = dtrim_default_config(kBlocks, SLICE_BLOCKS);
  uint64_t random = entries;
  uint64_t probes = 0;
  dtrim d;
  c.ranges = 4;
  c.writes = entries;
  for (c.buckets = 1; c.buckets < entries; c.buckets *= 2) {
  }
  if (dtrim_init(&d, &c, &callbacks, memory, sizeof memory) != 0) exit(2);
  fill(&d, entries, &random);
  double write_s = 1e9;
  double check_s = 1e9;
  for (int round = 0; round < ROUNDS; ++round) {
    const double begin = seconds();
    for (uint32_t i = 0; i < operations; ++i) {
      const uint32_t slice = noted[world_random(&random) % entries];
      probes += dtrim_write(&d, slice * SLICE_BLOCKS, SLICE_BLOCKS).probes;
    }
    const double written = seconds();
    for (uint32_t i = 0; i < operations; ++i) {
      sink = dtrim_pending_blocks(&d, any_slice(entries, &random));
    }
    const double checked = seconds();
    if (written - begin < write_s) write_s = written - begin;
    if (checked - written < check_s) check_s = checked - written;
  }
  printf("{\"entries\": %" PRIu32 ", \"buckets\": %" PRIu32, entries, c.buckets);
  printf(", \"write_ns\": %.1f, \"check_ns\": %.1f", write_s * 1e9 / operations,
         check_s * 1e9 / operations);
  printf(", \"write_probes\": %.3f, \"longest_chain\": %" PRIu32 "}",
         (double)probes / operations / ROUNDS, d.state.statistics.longest_chain);
}

int main(int argc, char** argv) {
  static const uint32_t kEntries[] = {1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000};
  const uint32_t operations = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100000;
  for (size_t i = 0; i < sizeof kEntries / sizeof *kEntries; ++i) {
    printf(i == 0 ? "[" : ",\n ");
    measure(kEntries[i], operations);
  }
  printf("]\n");
  return 0;
}
