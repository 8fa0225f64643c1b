#include "world.h"

#include <string.h>

/* Steele, Lea, Flood: Fast splittable pseudorandom number generators (SplitMix64). */
uint64_t world_random(uint64_t* state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* Takes some bits of a word. */
static uint32_t draw(uint64_t* word, uint32_t limit) {
  const uint32_t drawn = (uint32_t)(*word % limit);
  *word /= limit;
  return drawn;
}

static void fail(world* w, const char* fault, uint32_t block) {
  if (w->fault != NULL) return;
  w->fault = fault;
  w->fault_block = block;
}

void world_init(world* w, uint64_t number) {
  static const uint32_t kWrites[] = {0, 1, 2, 4, 8, 32, 64};
  static const uint32_t kRanges[] = {1, 2, 3, 4, 8, 32, 64};
  static const uint32_t kForced[] = {0, 1, 3, UINT32_MAX};
  memset(w, 0, sizeof *w);
  dtrim_config* c = &w->config;
  uint64_t random = number;
  uint64_t word = world_random(&random);
  c->blocks_per_slice = UINT32_C(1) << draw(&word, 6);
  const uint32_t slices = c->blocks_per_slice > 8 ? 8 : 16 + draw(&word, 16);
  c->blocks = c->blocks_per_slice * slices - draw(&word, c->blocks_per_slice);
  c->ranges = kRanges[draw(&word, 7)];
  c->writes = kWrites[draw(&word, 7)];
  c->buckets = UINT32_C(1) << draw(&word, 5);
  word = world_random(&random);
  c->batch_slices = UINT32_C(1) << draw(&word, 4);
  c->write_forced_slices = kForced[draw(&word, 4)];
  c->trim_forced_slices = kForced[draw(&word, 4)];
  c->flags = draw(&word, 4);
  w->capacitors = (int)draw(&word, 2);
  w->drain_on_flush = (int)draw(&word, 2);
  w->blocks = c->blocks;
  if (board_init(&w->board, c) != 0) fail(w, "the configuration is refused", 0);
  w->board.drain_limit = kForced[draw(&word, 4)];
  for (uint32_t i = 0; i < WORLD_BLOCKS; ++i) {
    w->now[i] = w->durable[i] = (world_block){0, 0, 1, 0};
  }
}

/* --- the plain map */

static void expect_value(world* w, uint32_t block, uint32_t value) {
  world_block* at = &w->now[block];
  if (value == 0 && (at->may_zero || (at->may_old && at->last == 0))) {
    at->may_old = at->last == 0;
    return;
  }
  if (at->sure) fail(w, "a trimmed block still has its data", block);
  if (value == at->last && at->may_old) {
    at->may_zero = 0;
    return;
  }
  fail(w, value == 0 ? "data written after a TRIM, or never trimmed, is gone" : "another's data",
       block);
}

/* TRIMs may have been forgotten: which is not said, so no block is sure. */
static void note_forgotten(world* w) {
  const uint64_t forgotten = w->board.trim.state.statistics.blocks_forgotten;
  if (forgotten == w->forgotten) return;
  w->forgotten = forgotten;
  for (uint32_t i = 0; i < w->blocks; ++i) w->now[i].sure = 0;
}

static void map_trim(world* w, const dtrim_range* range) {
  uint32_t begin = range->block < w->blocks ? range->block : w->blocks;
  uint32_t end = range->blocks > w->blocks - begin ? w->blocks : begin + range->blocks;
  if ((w->config.flags & DTRIM_WHOLE_SLICES) != 0) {
    const uint32_t size = w->config.blocks_per_slice;
    begin = (begin + size - 1) / size * size;
    end = end / size * size;
  }
  for (uint32_t i = begin; i < end; ++i) {
    w->now[i].may_zero = 1;
    w->now[i].sure = 1;
  }
}

/* --- operations */

static void read_blocks(world* w, uint32_t block, uint32_t blocks) {
  uint32_t values[WORLD_BLOCKS];
  board_read(&w->board, block, blocks, values);
  for (uint32_t i = 0; i < blocks; ++i) expect_value(w, block + i, values[i]);
}

/* One in `rarely` may be as long as the drive, the others touch a few slices. */
static uint32_t draw_length(const world* w, uint64_t* word, uint32_t block, uint32_t rarely) {
  const uint32_t longest = draw(word, rarely) == 0 ? w->blocks : 2 * w->config.blocks_per_slice + 1;
  const uint32_t length = 1 + draw(word, longest);
  return length > w->blocks - block ? w->blocks - block : length;
}

static uint32_t slices_between(const world* w, uint32_t block, uint32_t blocks) {
  const uint32_t size = w->config.blocks_per_slice;
  return blocks == 0 ? 0 : (block + blocks - 1) / size - block / size + 1;
}

static void do_write(world* w, uint64_t word) {
  const uint32_t block = draw(&word, w->blocks);
  const uint32_t blocks = draw_length(w, &word, block, 16);
  const uint32_t value = ++w->value;
  const dtrim_work work = board_write(&w->board, block, blocks, value);
  if (work.checked > w->config.write_forced_slices) fail(w, "a write waits too long", block);
  for (uint32_t i = block; i < block + blocks; ++i) w->now[i] = (world_block){value, 1, 0, 0};
}

static void do_read(world* w, uint64_t word) {
  const uint32_t block = draw(&word, w->blocks);
  read_blocks(w, block, draw_length(w, &word, block, 16));
}

/* The ranges may overlap, be empty, and reach beyond the namespace. */
static void do_trim(world* w, uint64_t word) {
  dtrim_range ranges[4];
  uint64_t limit = 0;
  const uint32_t count = draw(&word, 8) < 5 ? 1 : 1 + draw(&word, 4);
  for (uint32_t i = 0; i < count; ++i) {
    ranges[i].block = draw(&word, w->blocks);
    ranges[i].blocks = draw_length(w, &word, ranges[i].block, 3);
    if (draw(&word, 16) == 0) ranges[i].blocks = draw(&word, 2) == 0 ? 0 : UINT32_MAX;
    const uint32_t inside = ranges[i].blocks > w->blocks - ranges[i].block
                                ? w->blocks - ranges[i].block
                                : ranges[i].blocks;
    const uint64_t slices = 2 * (uint64_t)slices_between(w, ranges[i].block, inside);
    const uint32_t allowed = w->config.trim_forced_slices;
    limit += slices < allowed ? slices : allowed;
  }
  const dtrim_work work = board_trim(&w->board, ranges, count);
  if (work.checked > limit) fail(w, "a TRIM waits too long", ranges[0].block);
  for (uint32_t i = 0; i < count; ++i) map_trim(w, &ranges[i]);
}

static void do_idle(world* w, uint64_t word) {
  const uint32_t max_slices = 1 + draw(&word, 8);
  board_idle(&w->board, max_slices, draw(&word, 6));
}

static void do_long_idle(world* w, uint64_t word) {
  (void)word;
  board_idle(&w->board, UINT32_MAX, 0);
  if (dtrim_pending(&w->board.trim) != 0) fail(w, "idle work ends with TRIMs pending", 0);
  if (w->board.trim.state.noted != 0) fail(w, "the Check Write List leaks", 0);
}

static void do_collect(world* w, uint64_t word) {
  (void)word;
  board_collect(&w->board);
}

static void do_flush(world* w, uint64_t word) {
  (void)word;
  if (w->drain_on_flush) dtrim_drain(&w->board.trim, UINT32_MAX);
  board_flush(&w->board);
  memcpy(w->durable, w->now, sizeof w->now);
  for (uint32_t i = 0; i < w->blocks; ++i) {
    if (!w->drain_on_flush || !w->now[i].sure) continue;
    w->durable[i].may_old = 0;
  }
}

/* After a cut a block holds what it may hold now, or what it may hold since the last flush. All of
 * them are read then, and have to keep what was read. */
static void do_cut(world* w, uint64_t word) {
  uint32_t values[WORLD_BLOCKS];
  uint8_t newer[BOARD_SLICES / 8];
  for (uint32_t i = 0; i < sizeof newer; ++i) {
    newer[i] = (uint8_t)(world_random(&word) & world_random(&word));
  }
  if (w->capacitors) {
    board_cut_with_capacitors(&w->board);
  } else {
    board_cut(&w->board, newer);
  }
  board_read(&w->board, 0, w->blocks, values);
  for (uint32_t i = 0; i < w->blocks; ++i) {
    const world_block* was = &w->durable[i];
    w->now[i].sure = 0;
    const int is_older = !w->capacitors && ((values[i] == was->last && was->may_old) ||
                                            (values[i] == 0 && was->may_zero));
    if (!is_older) expect_value(w, i, values[i]);
    w->now[i] = (world_block){values[i], 1, 0, 0};
  }
  memcpy(w->durable, w->now, sizeof w->now);
}

/* The counts of the full paths and of the work, which a reset would lose. */
static void add_statistics(world* w, const dtrim_statistics* from) {
  const uint64_t* count = &from->trim_commands;
  uint64_t* sum = &w->sum.trim_commands;
  for (const uint64_t* end = from->reserved; count < end; ++count) *sum++ += *count;
}

/* A snapshot put back at once changes nothing; a reset of the statistics neither. */
static void do_snapshot(world* w, uint64_t word) {
  board* b = &w->board;
  const dtrim_state state = b->trim.state;
  uint32_t memory[sizeof b->memory / 4];
  const dtrim_callbacks callbacks = b->trim.callbacks;
  memcpy(memory, b->memory, sizeof memory);
  if (dtrim_init(&b->trim, &w->config, &callbacks, b->memory, sizeof b->memory) != 0) {
    fail(w, "the same configuration is refused", 0);
  }
  b->trim.state = state;
  memcpy(b->memory, memory, sizeof memory);
  if (draw(&word, 4) == 0) {
    dtrim_reset_statistics(&b->trim);
    w->forgotten = 0;
    add_statistics(w, &state.statistics);
  }
}

/* So many turns have passed that few are left. */
static void do_exhaust_turns(world* w, uint64_t word) {
  dtrim_state* state = &w->board.trim.state;
  if (state->turn == 0 || state->turn > UINT32_MAX / 2) return;
  const uint32_t shift = UINT32_MAX - 4 - draw(&word, 4) - state->turn;
  state->turn += shift;
  for (uint32_t i = 0; i < w->config.ranges; ++i) w->board.trim.ranges[i].turn += shift;
  for (uint32_t i = 0; i < w->config.writes; ++i) w->board.trim.writes[i].turn += shift;
}

const char* const world_op_names[WORLD_OPS] = {"write",   "read",  "trim", "idle",     "long_idle",
                                               "collect", "flush", "cut",  "snapshot", "turns"};

typedef void (*operation)(world*, uint64_t);
static const operation kOperations[WORLD_OPS] = {do_write,     do_read,         do_trim,  do_idle,
                                                 do_long_idle, do_collect,      do_flush, do_cut,
                                                 do_snapshot,  do_exhaust_turns};
/* In 256ths. */
static const uint32_t kWeights[WORLD_OPS] = {90, 40, 60, 46, 3, 6, 6, 1, 3, 1};

static uint32_t operation_of(uint32_t byte) {
  uint32_t op = 0;
  for (uint32_t sum = kWeights[0]; byte >= sum; sum += kWeights[op]) ++op;
  return op;
}

int world_do(world* w, uint64_t word) {
  const uint32_t op = operation_of((uint32_t)(word & 255));
  kOperations[op](w, word >> 8);
  note_forgotten(w);
  ++w->done[op];
  if (++w->operations % 16 == 0 && !board_is_sound(&w->board)) fail(w, "tables disagree", op);
  return w->fault == NULL;
}

int world_settle(world* w) {
  do_long_idle(w, 0);
  for (uint32_t i = 0; i < w->blocks; ++i) {
    const uint32_t size = w->config.blocks_per_slice;
    if (w->now[i].sure && board_peek(&w->board, i / size, i % size) != 0) {
      fail(w, "a TRIM was never applied", i);
    }
  }
  read_blocks(w, 0, w->blocks);
  if (!board_is_sound(&w->board)) fail(w, "tables disagree", 0);
  add_statistics(w, &w->board.trim.state.statistics);
  return w->fault == NULL;
}
