/* A board beside a plain map, driven by numbers: each 64-bit word is one operation. A random test,
 * a fuzzer and a replay on another machine differ only in where the words come from. */
#ifndef FLASHLAB_TEST_TRIM_WORLD_H
#define FLASHLAB_TEST_TRIM_WORLD_H

#include "board.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WORLD_BLOCKS = 256, WORLD_OPS = 10 };

/* What the host may find in a block. */
typedef struct world_block {
  uint32_t last;   /* written last; 0 never */
  uint8_t may_old; /* it may find that */
  uint8_t may_zero;
  uint8_t sure; /* trimmed, and nothing since then allows to forget it: only zeroes */
} world_block;

typedef struct world {
  board board;
  dtrim_config config;
  int capacitors;     /* the map and the buffer survive a power cut */
  int drain_on_flush; /* trimmed blocks have to stay zeroes after flush and cut */
  uint32_t blocks;
  uint32_t value;
  world_block now[WORLD_BLOCKS];
  world_block durable[WORLD_BLOCKS];
  uint64_t done[WORLD_OPS]; /* operations by kind */
  uint64_t operations;
  uint64_t forgotten;   /* as the statistics said last */
  dtrim_statistics sum; /* of the counts, once settled */
  const char* fault;    /* NULL, or the first difference found */
  uint32_t fault_block;
} world;

extern const char* const world_op_names[WORLD_OPS];

/* A world of this number: slice sizes, table sizes, flags, kind of drive. */
void world_init(world* w, uint64_t number);
/* Does one operation and compares. Returns 0 once there is a fault. */
int world_do(world* w, uint64_t word);
/* Reads everything, goes idle, and looks whether what was trimmed is really gone. */
int world_settle(world* w);
/* A pseudo-random sequence. */
uint64_t world_random(uint64_t* state);

#ifdef __cplusplus
}
#endif

#endif
