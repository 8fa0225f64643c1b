#include "board.h"

#include <string.h>

static uint32_t block_of(uint32_t page) { return page / BOARD_PAGES_PER_BLOCK; }

static board_slice* find_buffered(const board* b, uint32_t slice) {
  for (uint32_t i = 0; i < b->buffered; ++i) {
    if (b->buffer[i].slice == slice) return (board_slice*)&b->buffer[i];
  }
  return NULL;
}

static void drop_buffered(board* b, board_slice* entry) {
  const board_slice* end = b->buffer + b->buffered;
  for (; entry + 1 < end; ++entry) *entry = entry[1];
  --b->buffered;
}

static void clear_blocks(board_slice* content, uint32_t blocks) {
  content->live &= ~blocks;
  for (uint32_t i = 0; i < BOARD_SLICE_BLOCKS; ++i) {
    if ((blocks >> i & 1) != 0) content->data[i] = 0;
  }
}

/* The page is counted as invalid while the maps still say what it was. */
static void invalidate_page(board* b, uint32_t slice) {
  const uint32_t page = b->page_of[slice];
  if (page == BOARD_NONE) return;
  if (b->slice_at[page] == slice) ++b->invalid[block_of(page)];
  b->slice_at[page] = BOARD_NONE;
  b->page_of[slice] = BOARD_NONE;
}

/* Write buffer first, then the map; a slice goes when none of its blocks is live. */
static void invalidate_blocks(board* b, uint32_t slice, uint32_t blocks) {
  board_slice* entry = find_buffered(b, slice);
  if (entry != NULL) {
    clear_blocks(entry, blocks);
    if (entry->live == 0) drop_buffered(b, entry);
  }
  const uint32_t page = b->page_of[slice];
  if (page == BOARD_NONE) return;
  clear_blocks(&b->pages[page], blocks);
  if (b->pages[page].live == 0) invalidate_page(b, slice);
}

static void invalidate(void* context, uint32_t slice, uint32_t slices, uint32_t blocks) {
  board* b = context;
  b->invalidations += slices;
  for (uint32_t i = 0; i < slices; ++i) invalidate_blocks(b, slice + i, blocks);
}

static int request_waiting(void* context) {
  board* b = context;
  return b->arrives_after > 0 && --b->arrives_after == 0;
}

static void erase(board* b, uint32_t block) {
  b->programmed[block] = 0;
  b->invalid[block] = 0;
  for (uint32_t i = 0; i < BOARD_PAGES_PER_BLOCK; ++i) {
    b->slice_at[block * BOARD_PAGES_PER_BLOCK + i] = BOARD_NONE;
  }
}

static void erase_all(board* b) {
  for (uint32_t block = 0; block < b->flash_blocks; ++block) erase(b, block);
  memset(b->page_of, 0xff, sizeof b->page_of);
  b->open = 0;
  b->buffered = 0;
}

int board_init(board* b, const dtrim_config* config) {
  const dtrim_callbacks callbacks = {b, invalidate, request_waiting};
  memset(b, 0, sizeof *b);
  b->slice_blocks = config->blocks_per_slice;
  b->slices = (config->blocks + b->slice_blocks - 1) / b->slice_blocks;
  b->flash_blocks =
      (b->slices + BOARD_PAGES_PER_BLOCK - 1) / BOARD_PAGES_PER_BLOCK + BOARD_SPARE_BLOCKS;
  b->drain_limit = UINT32_MAX;
  erase_all(b);
  return dtrim_init(&b->trim, config, &callbacks, b->memory, sizeof b->memory);
}

/* --- flash */

static uint32_t free_blocks(const board* b) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < b->flash_blocks; ++i) count += i != b->open && b->programmed[i] == 0;
  return count;
}

static void open_block(board* b) {
  uint32_t block = 0;
  while (block == b->open || b->programmed[block] != 0) ++block;
  b->open = block;
}

static void program(board* b, const board_slice* content) {
  if (b->programmed[b->open] == BOARD_PAGES_PER_BLOCK) open_block(b);
  const uint32_t page = b->open * BOARD_PAGES_PER_BLOCK + b->programmed[b->open]++;
  b->pages[page] = *content;
  invalidate_page(b, content->slice);
  b->slice_at[page] = content->slice;
  b->page_of[content->slice] = page;
}

static uint32_t victim(const board* b) {
  uint32_t best = BOARD_NONE;
  for (uint32_t i = 0; i < b->flash_blocks; ++i) {
    if (i == b->open || b->invalid[i] == 0) continue;
    if (best == BOARD_NONE || b->invalid[i] > b->invalid[best]) best = i;
  }
  return best;
}

void board_collect(board* b) {
  dtrim_drain(&b->trim, b->drain_limit);
  const uint32_t block = victim(b);
  if (block == BOARD_NONE) return;
  ++b->collections;
  for (uint32_t i = 0; i < BOARD_PAGES_PER_BLOCK; ++i) {
    const uint32_t page = block * BOARD_PAGES_PER_BLOCK + i;
    if (b->slice_at[page] == BOARD_NONE) continue;
    const board_slice content = b->pages[page];
    program(b, &content);
    ++b->copied_pages;
  }
  erase(b, block);
}

/* Room is made first: a drain may take the very slice from the buffer that was to go to flash. */
static void evict(board* b) {
  while (b->programmed[b->open] == BOARD_PAGES_PER_BLOCK && free_blocks(b) < 2) board_collect(b);
  if (b->buffered == 0) return;
  program(b, &b->buffer[0]);
  drop_buffered(b, &b->buffer[0]);
}

/* --- the host's side */

/* The slice's place in the buffer, with the content that it has. */
static board_slice* buffered(board* b, uint32_t slice) {
  board_slice* entry = find_buffered(b, slice);
  if (entry != NULL) return entry;
  while (b->buffered == BOARD_BUFFER) evict(b);
  entry = &b->buffer[b->buffered++];
  if (b->page_of[slice] != BOARD_NONE) {
    *entry = b->pages[b->page_of[slice]];
  } else {
    memset(entry, 0, sizeof *entry);
    entry->slice = slice;
  }
  return entry;
}

static void write_part(board* b, uint32_t slice, uint32_t first, uint32_t end, uint32_t value) {
  board_slice* entry = buffered(b, slice);
  for (uint32_t i = first; i < end; ++i) {
    entry->data[i] = value;
    entry->live |= UINT32_C(1) << i;
  }
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* What a write leaves of its first and last slice is read: before the write is made known. */
static void read_rest(board* b, uint32_t block, uint32_t end) {
  const uint32_t size = b->slice_blocks;
  const uint32_t all = size == 32 ? UINT32_MAX : (UINT32_C(1) << size) - 1;
  if (block % size != 0) dtrim_read(&b->trim, block / size, all);
  if (end % size != 0) dtrim_read(&b->trim, end / size, all);
}

dtrim_work board_write(board* b, uint32_t block, uint32_t blocks, uint32_t value) {
  const uint32_t end = block + blocks;
  read_rest(b, block, end);
  const dtrim_work work = dtrim_write(&b->trim, block, blocks);
  while (block < end) {
    const uint32_t slice = block / b->slice_blocks;
    const uint32_t to = least(end, (slice + 1) * b->slice_blocks);
    const uint32_t first = slice * b->slice_blocks;
    write_part(b, slice, block - first, to - first, value);
    block = to;
  }
  return work;
}

uint32_t board_peek(const board* b, uint32_t slice, uint32_t i) {
  const board_slice* entry = find_buffered(b, slice);
  if (entry == NULL && b->page_of[slice] == BOARD_NONE) return 0;
  if (entry == NULL) entry = &b->pages[b->page_of[slice]];
  return (entry->live >> i & 1) != 0 ? entry->data[i] : 0;
}

void board_read(board* b, uint32_t block, uint32_t blocks, uint32_t* values) {
  for (uint32_t at = block; at < block + blocks; ++at) {
    const uint32_t slice = at / b->slice_blocks;
    const uint32_t i = at % b->slice_blocks;
    const uint32_t zeroes = dtrim_read(&b->trim, slice, UINT32_C(1) << i);
    *values++ = zeroes != 0 ? 0 : board_peek(b, slice, i);
  }
}

dtrim_work board_trim(board* b, const dtrim_range* ranges, uint32_t count) {
  return dtrim_trim(&b->trim, ranges, count);
}

dtrim_work board_idle(board* b, uint32_t max_slices, uint32_t arrives_after) {
  b->arrives_after = arrives_after;
  return dtrim_step(&b->trim, max_slices);
}

void board_flush(board* b) {
  while (b->buffered > 0) evict(b);
  for (uint32_t slice = 0; slice < b->slices; ++slice) {
    for (uint32_t i = 0; i < b->slice_blocks; ++i) b->saved[slice][i] = board_peek(b, slice, i);
  }
}

void board_cut_with_capacitors(board* b) { dtrim_reset(&b->trim); }

void board_cut(board* b, const uint8_t* newer) {
  for (uint32_t slice = 0; slice < b->slices; ++slice) {
    if ((newer[slice / 8] >> (slice % 8) & 1) == 0) continue;
    for (uint32_t i = 0; i < b->slice_blocks; ++i) b->saved[slice][i] = board_peek(b, slice, i);
  }
  dtrim_reset(&b->trim);
  erase_all(b);
  for (uint32_t slice = 0; slice < b->slices; ++slice) {
    board_slice content = {slice, 0, {0}};
    for (uint32_t i = 0; i < b->slice_blocks; ++i) {
      content.data[i] = b->saved[slice][i];
      content.live |= (uint32_t)(content.data[i] != 0) << i;
    }
    if (content.live != 0) program(b, &content);
  }
}

/* --- checks */

int board_is_sound(const board* b) {
  uint32_t valid[BOARD_FLASH_BLOCKS] = {0};
  for (uint32_t slice = 0; slice < b->slices; ++slice) {
    const uint32_t page = b->page_of[slice];
    if (page == BOARD_NONE) continue;
    if (b->slice_at[page] != slice || b->pages[page].live == 0) return 0;
    ++valid[block_of(page)];
  }
  for (uint32_t block = 0; block < b->flash_blocks; ++block) {
    if (b->programmed[block] != valid[block] + b->invalid[block]) return 0;
  }
  return dtrim_is_sound(&b->trim);
}
