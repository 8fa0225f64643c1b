/* libFuzzer: the input chooses the drive and every request.
 *
 *   clang -fsanitize=fuzzer,address,undefined ...; trim_fuzz -max_total_time=60 CORPUS
 *
 * 4 bytes choose the world, then 6 bytes are one operation. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

enum { CHOICE_BYTES = 4, OPERATION_BYTES = 6 };

static uint64_t little_endian(const uint8_t* at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= (uint64_t)at[i] << 8 * i;
  return value;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static world w;
  if (size < CHOICE_BYTES) return 0;
  world_init(&w, little_endian(data, CHOICE_BYTES));
  for (size_t at = CHOICE_BYTES; at + OPERATION_BYTES <= size && w.fault == NULL;
       at += OPERATION_BYTES) {
    world_do(&w, little_endian(data + at, OPERATION_BYTES));
  }
  if (w.fault == NULL) world_settle(&w);
  if (w.fault != NULL) {
    fprintf(stderr, "block %u: %s\n", (unsigned)w.fault_block, w.fault);
    abort();
  }
  return 0;
}
