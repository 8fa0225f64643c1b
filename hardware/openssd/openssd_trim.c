#include "openssd_trim.h"

#include <stddef.h>

void* memcpy(void* to, const void* from, size_t bytes);

/* One drive, one module. */
static dtrim trim;
static uint32_t tables[DTRIM_DEFAULT_MEMORY_BYTES / 4];

static void invalidate(void* context, uint32_t slice, uint32_t slices, uint32_t blocks) {
  (void)context;
  (void)blocks; /* all of them */
  openssd_invalidate_slices(slice, slices);
}

static int request_waiting(void* context) {
  (void)context;
  return openssd_request_waiting();
}

int openssd_trim_start(uint32_t namespace_blocks) {
  const dtrim_callbacks callbacks = {NULL, invalidate, request_waiting};
  dtrim_config config = dtrim_default_config(namespace_blocks, OPENSSD_TRIM_SLICE_BLOCKS);
  config.flags |= DTRIM_WHOLE_SLICES;
  return dtrim_init(&trim, &config, &callbacks, tables, sizeof tables);
}

int openssd_trim_command(const void* list, uint32_t ranges) {
  dtrim_work work;
  return dtrim_trim_list(&trim, list, ranges, &work);
}

/* The rest of a slice that is written in part would be read for it: if it was trimmed, that must be
 * seen before the write takes the slice out of the pending ones. */
static void apply_edge(uint32_t block) {
  if (block % OPENSSD_TRIM_SLICE_BLOCKS == 0) return;
  openssd_trim_read_slice(block / OPENSSD_TRIM_SLICE_BLOCKS);
}

void openssd_trim_write(uint32_t block, uint32_t blocks) {
  if (dtrim_pending(&trim) == 0) return;
  apply_edge(block);
  apply_edge(block + blocks);
  dtrim_write(&trim, block, blocks);
}

int openssd_trim_read_slice(uint32_t slice) { return dtrim_read(&trim, slice, UINT32_MAX) != 0; }

int openssd_trim_idle(void) {
  dtrim_step(&trim, UINT32_MAX); /* until a request waits */
  return dtrim_pending(&trim) != 0;
}

void openssd_trim_before_collection(void) { dtrim_drain(&trim, UINT32_MAX); }

uint32_t openssd_trim_log(uint32_t offset, void* to, uint32_t bytes) {
  dtrim_statistics page;
  if (offset >= sizeof page) return 0;
  if (bytes > sizeof page - offset) bytes = (uint32_t)sizeof page - offset;
  dtrim_get_statistics(&trim, &page);
  memcpy(to, (const uint8_t*)&page + offset, bytes);
  return bytes;
}
