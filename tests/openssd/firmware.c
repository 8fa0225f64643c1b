/* The calls of hardware/openssd/openssd_trim.h in the order of a firmware's loop, on a drive that
 * is an array. Exit code 1 at the first difference. With an argument: writes the log page there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openssd_trim.h"

enum { SLICES = 4096, SLICE_BLOCKS = 4, BLOCKS = SLICES * SLICE_BLOCKS };

static uint8_t mapped[SLICES];
static uint32_t invalidated;
static uint32_t arrives_after;

void openssd_invalidate_slices(uint32_t slice, uint32_t slices) {
  memset(mapped + slice, 0, slices);
  invalidated += slices;
}

int openssd_request_waiting(void) { return arrives_after > 0 && --arrives_after == 0; }

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void put(uint8_t* entry, uint32_t block, uint32_t blocks) {
  memset(entry, 0, 16);
  for (int i = 0; i < 4; ++i) {
    entry[4 + i] = (uint8_t)(blocks >> 8 * i);
    entry[8 + i] = (uint8_t)(block >> 8 * i);
  }
}

static void trim(uint32_t block, uint32_t blocks) {
  uint8_t list[16];
  put(list, block, blocks);
  expect(openssd_trim_command(list, 1) == 0, "a TRIM is refused");
}

static void write(uint32_t block, uint32_t blocks) {
  openssd_trim_write(block, blocks);
  for (uint32_t i = block / SLICE_BLOCKS; i * SLICE_BLOCKS < block + blocks; ++i) mapped[i] = 1;
}

static uint32_t count_mapped(uint32_t from, uint32_t to) {
  uint32_t count = 0;
  for (; from < to; ++from) count += mapped[from];
  return count;
}

static void all_of_256_ranges(void) {
  uint8_t list[256 * 16];
  for (uint32_t i = 0; i < 256; ++i) put(list + 16 * i, i * 32, 16);
  expect(openssd_trim_command(list, 256) == 0, "256 ranges are refused");
  expect(count_mapped(0, SLICES) == SLICES, "a TRIM is not delayed");
  arrives_after = 10;
  expect(openssd_trim_idle() == 1, "a request does not interrupt");
  expect(count_mapped(0, SLICES) == SLICES - 10, "work went on while a request waited");
  openssd_trim_before_collection();
  expect(count_mapped(0, SLICES) == SLICES - 1024, "not all is applied before GC");
}

static void writes_and_reads_under_a_trim(void) {
  memset(mapped, 1, sizeof mapped);
  trim(0, BLOCKS);
  write(4001, 6); /* slices 1000 (from 1) and 1001 (up to 2) */
  expect(openssd_trim_read_slice(2000) == 1, "a trimmed slice has data");
  expect(openssd_trim_read_slice(1000) == 0, "a written slice is zeroes");
  expect(openssd_trim_idle() == 0, "work is left");
  expect(count_mapped(0, SLICES) == 2 && mapped[1000] && mapped[1001],
         "not just the write is left");
}

static void only_whole_slices(void) {
  memset(mapped, 1, sizeof mapped);
  trim(3, 6);
  openssd_trim_idle();
  expect(count_mapped(0, 4) == 3 && mapped[1] == 0, "part of a slice was trimmed");
}

static void beyond_the_end(void) {
  uint8_t list[16];
  put(list, BLOCKS - 1, 2);
  expect(openssd_trim_command(list, 1) == -1, "a range beyond the end is taken");
}

static void log_page(const char* path) {
  uint8_t page[600];
  uint8_t tail[100];
  expect(openssd_trim_log(0, page, sizeof page) == 512, "the log page has another size");
  expect(openssd_trim_log(500, tail, sizeof tail) == 12, "its end is elsewhere");
  expect(memcmp(page + 500, tail, 12) == 0 && openssd_trim_log(512, tail, 1) == 0,
         "an offset is off");
  if (path == NULL) return;
  FILE* file = fopen(path, "wb");
  expect(file != NULL && fwrite(page, 512, 1, file) == 1 && fclose(file) == 0, "cannot write");
}

int main(int argc, char** argv) {
  expect(openssd_trim_start(BLOCKS) == 0, "no start");
  memset(mapped, 1, sizeof mapped);
  all_of_256_ranges();
  writes_and_reads_under_a_trim();
  only_whole_slices();
  beyond_the_end();
  log_page(argc > 1 ? argv[1] : NULL);
  printf("%u slices invalidated\n", (unsigned)invalidated);
  return 0;
}
