/* Random operations on random boards against a plain map.
 *
 *   trim_random OPERATIONS [SEED]
 *
 * Prints one JSON object. Exit code 1 at the first difference, with what replays it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "world.h"

enum { OPERATIONS_PER_WORLD = 5000 };

/* What says that the rare paths were taken. */
static world w;
static const struct {
  const char* name;
  const uint64_t* of;
} counts[] = {{"writes_noted", &w.sum.writes_noted},
              {"blocks_kept", &w.sum.blocks_kept},
              {"yields", &w.sum.yields},
              {"resumes", &w.sum.resumes},
              {"drains", &w.sum.drains},
              {"reads_of_pending", &w.sum.reads_of_pending},
              {"list_full_splits", &w.sum.list_full_splits},
              {"list_full_forced", &w.sum.list_full_forced},
              {"ranges_full_oldest", &w.sum.ranges_full_oldest},
              {"ranges_full_forced", &w.sum.ranges_full_forced},
              {"blocks_forgotten", &w.sum.blocks_forgotten},
              {"turns_exhausted", &w.sum.turns_exhausted}};
#define COUNTS ((int)(sizeof counts / sizeof *counts))

static double seconds(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int replay(uint64_t number, uint64_t operations) {
  uint64_t random = number;
  world_init(&w, number);
  while (w.fault == NULL && w.operations < operations) world_do(&w, world_random(&random));
  if (w.fault == NULL) world_settle(&w);
  if (w.fault == NULL) return 1;
  fprintf(stderr, "world %" PRIu64 ", operation %" PRIu64 ", block %" PRIu32 ": %s\n", number,
          w.operations, w.fault_block, w.fault);
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: trim_random OPERATIONS [SEED]\n");
    return 2;
  }
  const uint64_t wanted = strtoull(argv[1], NULL, 10);
  const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  uint64_t done[WORLD_OPS] = {0};
  uint64_t operations = 0;
  uint64_t worlds = 0;
  uint64_t sums[COUNTS] = {0};
  const double begin = seconds();
  for (; operations < wanted; ++worlds) {
    const uint64_t left = wanted - operations;
    if (!replay((seed << 32) + worlds, left < OPERATIONS_PER_WORLD ? left : OPERATIONS_PER_WORLD)) {
      return 1;
    }
    operations += w.operations;
    for (int i = 0; i < WORLD_OPS; ++i) done[i] += w.done[i];
    for (int i = 0; i < COUNTS; ++i) sums[i] += *counts[i].of;
  }
  const double taken = seconds() - begin;
  printf("{\"operations\": %" PRIu64 ", \"worlds\": %" PRIu64 ", \"seconds\": %.3f", operations,
         worlds, taken);
  printf(", \"operations_per_second\": %.0f", (double)operations / taken);
  for (int i = 0; i < WORLD_OPS; ++i) printf(", \"%s\": %" PRIu64, world_op_names[i], done[i]);
  for (int i = 0; i < COUNTS; ++i) printf(", \"%s\": %" PRIu64, counts[i].name, sums[i]);
  printf(", \"table_bytes\": %u", DTRIM_DEFAULT_MEMORY_BYTES);
  printf("}\n");
  return 0;
}
