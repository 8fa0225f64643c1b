/* A drive in small, with the delayed TRIM hooked in as hardware/openssd/README.md says: write
 * buffer, map and reverse map by slice, which blocks of a slice are live, counts of invalid pages,
 * greedy garbage collection. It keeps data, so that what is erased wrongly is seen. */
#ifndef FLASHLAB_TEST_TRIM_BOARD_H
#define FLASHLAB_TEST_TRIM_BOARD_H

#include "flash/trim/delayed_trim.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BOARD_SLICES = 128,
  BOARD_SLICE_BLOCKS = 32,
  BOARD_PAGES_PER_BLOCK = 4,
  BOARD_SPARE_BLOCKS = 12,
  BOARD_FLASH_BLOCKS = BOARD_SLICES / BOARD_PAGES_PER_BLOCK + BOARD_SPARE_BLOCKS,
  BOARD_PAGES = BOARD_FLASH_BLOCKS * BOARD_PAGES_PER_BLOCK,
  BOARD_BUFFER = 4,
  BOARD_RANGES = 64,
  BOARD_WRITES = 64,
  BOARD_BUCKETS = 64,
};
#define BOARD_NONE UINT32_MAX

/* Each block's data is one number; 0 where it is not live. */
typedef struct board_slice {
  uint32_t slice;
  uint32_t live;
  uint32_t data[BOARD_SLICE_BLOCKS];
} board_slice;

typedef struct board {
  dtrim trim;
  uint32_t memory[DTRIM_MEMORY_BYTES(BOARD_RANGES, BOARD_WRITES, BOARD_BUCKETS) / 4];
  uint32_t slices;
  uint32_t slice_blocks;
  uint32_t flash_blocks;
  uint32_t page_of[BOARD_SLICES];
  uint32_t slice_at[BOARD_PAGES]; /* the reverse map; BOARD_NONE: the page is invalid or free */
  board_slice pages[BOARD_PAGES];
  uint32_t programmed[BOARD_FLASH_BLOCKS];
  uint32_t invalid[BOARD_FLASH_BLOCKS];
  uint32_t open;                    /* block */
  board_slice buffer[BOARD_BUFFER]; /* oldest first */
  uint32_t buffered;
  uint32_t arrives_after; /* slices until a request waits; 0: none comes */
  uint32_t drain_limit;   /* before GC */
  uint32_t invalidations; /* slices */
  uint32_t collections;
  uint32_t copied_pages;
  uint32_t saved[BOARD_SLICES][BOARD_SLICE_BLOCKS]; /* what the last flush made durable */
} board;

/* `config`: at most as much as the enum holds. Returns 0, or -1 where dtrim_init does. */
int board_init(board* b, const dtrim_config* config);

dtrim_work board_write(board* b, uint32_t block, uint32_t blocks, uint32_t value);
void board_read(board* b, uint32_t block, uint32_t blocks, uint32_t* values);
dtrim_work board_trim(board* b, const dtrim_range* ranges, uint32_t count);
dtrim_work board_idle(board* b, uint32_t max_slices, uint32_t arrives_after);
/* One collection, as if no block were free. */
void board_collect(board* b);
/* All that was written is in flash and durable. */
void board_flush(board* b);

/* Data that was never lost: a write buffer and a map on capacitors. */
void board_cut_with_capacitors(board* b);
/* Each slice has its data of the last flush, or, where the bit of `newer` is set, today's. */
void board_cut(board* b, const uint8_t* newer);

/* What block i of a slice holds physically; no hook is called. */
uint32_t board_peek(const board* b, uint32_t slice, uint32_t i);
/* Maps and counts agree, and so do the module's tables. */
int board_is_sound(const board* b);

#ifdef __cplusplus
}
#endif

#endif
