#include "delayed_trim.h"

#include <stddef.h>

/* <string.h> is not part of a freestanding implementation. */
void* memcpy(void* to, const void* from, size_t bytes);
void* memset(void* to, int value, size_t bytes);

/* Consecutive little-endian fields are the layout of the log page. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the statistics block is little-endian"
#endif
_Static_assert(sizeof(dtrim_statistics) == 512, "the log page's size is part of its format");
_Static_assert(sizeof(dtrim_pending_range) == DTRIM_RANGE_BYTES, "DTRIM_MEMORY_BYTES counts on it");
_Static_assert(sizeof(dtrim_noted_write) == DTRIM_WRITE_BYTES, "DTRIM_MEMORY_BYTES counts on it");
_Static_assert(DTRIM_DEFAULT_MEMORY_BYTES < 64 * 1024, "what a board can spare");

/* A compiler may turn a copying loop into memmove, which firmware need not have. */
#if defined(__GNUC__)
#define STAYS_A_LOOP() __asm__ volatile("" ::: "memory")
#else
#define STAYS_A_LOOP() ((void)0)
#endif

#define NO_RANGE UINT16_MAX
#define NO_WRITE UINT32_MAX
#define LAST_TURN (UINT32_MAX - 1) /* notes carry the next one */
#define MAX_BLOCKS (UINT32_MAX - 63u)
#define MAX_LIST (UINT32_C(1) << 24)

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t sum_up_to_max(uint32_t a, uint32_t b) { return a + least(b, UINT32_MAX - a); }
static int is_power_of_two(uint32_t n) { return n != 0 && (n & (n - 1)) == 0; }

static void raise_to(uint32_t* high, uint32_t value) { *high = most(*high, value); }

/* --- blocks and slices */

static uint32_t slice_of(const dtrim* d, uint32_t block) { return block >> d->state.slice_shift; }

/* Slices that a range of blocks touches. */
static uint32_t slices_of(const dtrim* d, uint32_t begin, uint32_t end) {
  return begin < end ? slice_of(d, end - 1) - slice_of(d, begin) + 1 : 0;
}

/* The lowest n bits, n <= 32. */
static uint32_t low_bits(uint32_t n) { return n >= 32 ? UINT32_MAX : (UINT32_C(1) << n) - 1; }

/* The part of a slice that lies in a range of blocks. */
static uint32_t blocks_within(const dtrim* d, uint32_t slice, uint32_t begin, uint32_t end) {
  const uint32_t first = slice << d->state.slice_shift;
  const uint32_t from = most(begin, first);
  const uint32_t to = least(end, first + d->state.config.blocks_per_slice);
  return from < to ? low_bits(to - first) & ~low_bits(from - first) : 0;
}

static uint32_t count_blocks(uint32_t blocks) {
  uint32_t count = 0;
  for (; blocks != 0; blocks &= blocks - 1) ++count;
  return count;
}

/* --- the Check Write List */

static uint32_t* bucket_of(const dtrim* d, uint32_t slice) {
  return &d->buckets[slice & (d->state.config.buckets - 1)];
}

static void empty_list(dtrim* d) {
  const uint32_t writes = d->state.config.writes;
  for (uint32_t i = 0; i < writes; ++i) d->writes[i].next = i + 1 < writes ? i + 1 : NO_WRITE;
  memset(d->buckets, 0xff, (size_t)d->state.config.buckets * sizeof *d->buckets);
  d->state.free_write = writes > 0 ? 0 : NO_WRITE;
  d->state.noted = 0;
}

static void free_write(dtrim* d, uint32_t* link) {
  const uint32_t entry = *link;
  *link = d->writes[entry].next;
  d->writes[entry].next = d->state.free_write;
  d->state.free_write = entry;
  --d->state.noted;
}

static void count_probes(dtrim* d, uint32_t probes, dtrim_work* work) {
  dtrim_statistics* count = &d->state.statistics;
  ++count->slice_lookups;
  count->entries_probed += probes;
  raise_to(&count->longest_chain, probes);
  work->probes += probes;
}

/* The blocks of a slice that were written after TRIMs of that turn. */
static uint32_t written_after(const dtrim* d, uint32_t slice, uint32_t turn, uint32_t* probes) {
  uint32_t blocks = 0;
  for (uint32_t at = *bucket_of(d, slice); at != NO_WRITE; at = d->writes[at].next) {
    const dtrim_noted_write* write = &d->writes[at];
    ++*probes;
    if (write->slice == slice && write->turn > turn) blocks |= write->blocks;
  }
  return blocks;
}

/* No pending range covers these blocks any more, or it is about to be noted anew that they were
 * written. Returns which of them were written after TRIMs of that turn. */
static uint32_t strike(dtrim* d, uint32_t slice, uint32_t blocks, uint32_t turn, dtrim_work* work) {
  uint32_t later = 0;
  uint32_t probes = 0;
  if (d->state.noted == 0) return 0;
  for (uint32_t* link = bucket_of(d, slice); *link != NO_WRITE;) {
    dtrim_noted_write* write = &d->writes[*link];
    ++probes;
    if (write->slice == slice) {
      if (write->turn > turn) later |= write->blocks & blocks;
      write->blocks &= ~blocks;
    }
    if (write->blocks == 0) {
      free_write(d, link);
    } else {
      link = &write->next;
    }
  }
  count_probes(d, probes, work);
  return later;
}

static void strike_range(dtrim* d, uint32_t begin, uint32_t end, dtrim_work* work) {
  if (d->state.noted == 0 || begin >= end) return;
  for (uint32_t slice = slice_of(d, begin); slice <= slice_of(d, end - 1); ++slice) {
    strike(d, slice, blocks_within(d, slice, begin, end), 0, work);
  }
}

/* The same for a range that may be much longer than the list. */
static void strike_everywhere(dtrim* d, uint32_t begin, uint32_t end) {
  if (d->state.noted == 0) return;
  for (uint32_t i = 0; i < d->state.config.buckets; ++i) {
    for (uint32_t* link = &d->buckets[i]; *link != NO_WRITE;) {
      dtrim_noted_write* write = &d->writes[*link];
      write->blocks &= ~blocks_within(d, write->slice, begin, end);
      if (write->blocks == 0) {
        free_write(d, link);
      } else {
        link = &write->next;
      }
    }
  }
}

/* What is noted now protects from all TRIMs up to now. There is an entry left if it needs one. */
static void note(dtrim* d, uint32_t slice, uint32_t blocks, dtrim_work* work) {
  const uint32_t turn = d->state.turn + 1;
  uint32_t* const bucket = bucket_of(d, slice);
  dtrim_noted_write* write;
  strike(d, slice, blocks, 0, work);
  for (uint32_t at = *bucket; at != NO_WRITE; at = d->writes[at].next) {
    write = &d->writes[at];
    if (write->slice == slice && write->turn == turn) {
      write->blocks |= blocks;
      return;
    }
  }
  const uint32_t entry = d->state.free_write;
  write = &d->writes[entry];
  d->state.free_write = write->next;
  *write = (dtrim_noted_write){slice, blocks, turn, *bucket};
  *bucket = entry;
  ++d->state.noted;
  raise_to(&d->state.statistics.write_entries_high, d->state.noted);
}

/* Whether noting the blocks takes a new entry: not if one of this turn is there, nor if one goes.
 */
static int needs_entry(const dtrim* d, uint32_t slice, uint32_t blocks) {
  for (uint32_t at = *bucket_of(d, slice); at != NO_WRITE; at = d->writes[at].next) {
    const dtrim_noted_write* write = &d->writes[at];
    if (write->slice != slice) continue;
    if (write->turn == d->state.turn + 1 || (write->blocks & ~blocks) == 0) return 0;
  }
  return 1;
}

static int has_entries_for(const dtrim* d, uint32_t begin, uint32_t end) {
  const uint32_t left = d->state.config.writes - d->state.noted;
  uint32_t needed = 0;
  if (slices_of(d, begin, end) <= left) return 1;
  for (uint32_t slice = slice_of(d, begin); slice <= slice_of(d, end - 1); ++slice) {
    needed += (uint32_t)needs_entry(d, slice, blocks_within(d, slice, begin, end));
    if (needed > left) return 0;
  }
  return 1;
}

/* --- the pending ranges */

static dtrim_pending_range* range_at(const dtrim* d, uint32_t place) {
  return &d->ranges[d->order[place]];
}

static void empty_ranges(dtrim* d) {
  const uint32_t ranges = d->state.config.ranges;
  for (uint32_t i = 0; i < ranges; ++i) {
    d->ranges[i].newer = (uint16_t)(i + 1 < ranges ? i + 1 : NO_RANGE);
  }
  d->state.free_range = 0;
  d->state.oldest = d->state.newest = NO_RANGE;
  d->state.pending = 0;
  d->state.yielded = 0;
  d->state.statistics.pending_blocks = 0;
}

/* The first place, in the order of addresses, of a range that ends after the block. */
static uint32_t first_ending_after(const dtrim* d, uint32_t block) {
  uint32_t low = 0;
  uint32_t high = d->state.pending;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (range_at(d, middle)->end > block) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/* The places from `from` on become those from `to` on. */
static void move_places(dtrim* d, uint32_t from, uint32_t to) {
  const uint32_t count = d->state.pending - from;
  uint16_t* const order = d->order;
  if (to < from) {
    for (uint32_t i = 0; i < count; ++i) {
      order[to + i] = order[from + i];
      STAYS_A_LOOP();
    }
  } else if (to > from) {
    for (uint32_t i = count; i > 0; --i) {
      order[to + i - 1] = order[from + i - 1];
      STAYS_A_LOOP();
    }
  }
  d->state.pending = to + count;
  raise_to(&d->state.statistics.pending_ranges_high, d->state.pending);
}

/* Puts a range behind another one in the order of arrival; behind none: before all. */
static void enqueue_behind(dtrim* d, uint16_t id, uint16_t older) {
  dtrim_state* s = &d->state;
  const uint16_t newer = older == NO_RANGE ? s->oldest : d->ranges[older].newer;
  d->ranges[id].older = older;
  d->ranges[id].newer = newer;
  *(older == NO_RANGE ? &s->oldest : &d->ranges[older].newer) = id;
  *(newer == NO_RANGE ? &s->newest : &d->ranges[newer].older) = id;
}

/* Takes a free range. There is one. */
static uint16_t take_range(dtrim* d, uint32_t begin, uint32_t end, uint32_t turn, uint16_t older) {
  const uint16_t id = d->state.free_range;
  d->state.free_range = d->ranges[id].newer;
  d->ranges[id] = (dtrim_pending_range){begin, end, turn, NO_RANGE, NO_RANGE};
  enqueue_behind(d, id, older);
  return id;
}

/* Frees a range; its place in the order of addresses is the caller's. */
static void free_range(dtrim* d, uint16_t id) {
  dtrim_state* s = &d->state;
  const uint16_t older = d->ranges[id].older;
  const uint16_t newer = d->ranges[id].newer;
  if (id == s->oldest) s->yielded = 0;
  *(older == NO_RANGE ? &s->oldest : &d->ranges[older].newer) = newer;
  *(newer == NO_RANGE ? &s->newest : &d->ranges[newer].older) = older;
  d->ranges[id].newer = s->free_range;
  s->free_range = id;
}

static void remove_range(dtrim* d, uint32_t place) {
  free_range(d, d->order[place]);
  move_places(d, place + 1, place);
}

static void count_pending(dtrim* d, uint64_t more, uint64_t fewer) {
  dtrim_statistics* count = &d->state.statistics;
  count->pending_blocks += more - fewer;
  if (count->pending_blocks > count->pending_blocks_high) {
    count->pending_blocks_high = count->pending_blocks;
  }
}

static void forget_all(dtrim* d) {
  empty_ranges(d);
  empty_list(d);
  d->state.turn = 0;
  d->state.turn_is_old = 0;
}

/* --- applying */

static void invalidate(dtrim* d, uint32_t slice, uint32_t slices, uint32_t blocks,
                       dtrim_work* work) {
  dtrim_statistics* count = &d->state.statistics;
  if (slices == 0 || blocks == 0) return;
  d->callbacks.invalidate(d->callbacks.context, slice, slices, blocks);
  work->slices += slices;
  ++work->batches;
  count->slices_applied += slices;
  ++count->batches_applied;
  count->blocks_invalidated += (uint64_t)slices * count_blocks(blocks);
}

/* How many slices from `begin` on may go in one batch; at least 1, which may be a part. */
static uint32_t batch_length(const dtrim* d, uint32_t begin, uint32_t end, uint32_t max_slices) {
  const uint32_t batch = d->state.config.batch_slices;
  const uint32_t slice = slice_of(d, begin);
  if (slice << d->state.slice_shift != begin) return 1;
  const uint32_t whole = slice_of(d, end) - slice;
  return most(1, least(least(whole, max_slices), batch - (slice & (batch - 1))));
}

/* Applies a slice, or a batch, of a range. A batch ends with a slice that later writes kept in
 * part. Returns how far it came. */
static uint32_t apply_some(dtrim* d, uint32_t begin, uint32_t end, uint32_t turn,
                           uint32_t max_slices, dtrim_work* work) {
  const uint32_t slice = slice_of(d, begin);
  const uint32_t length = batch_length(d, begin, end, max_slices);
  const uint32_t blocks = blocks_within(d, slice, begin, end);
  uint32_t done = 0;
  uint32_t later = 0;
  while (done < length && later == 0) {
    later = strike(d, slice + done, blocks, turn, work);
    ++done;
  }
  if (later == 0) {
    invalidate(d, slice, done, blocks, work);
  } else {
    invalidate(d, slice, done - 1, blocks, work);
    invalidate(d, slice + done - 1, 1, blocks & ~later, work);
    if ((blocks & ~later) == 0) ++d->state.statistics.slices_kept;
    d->state.statistics.blocks_kept += count_blocks(later);
  }
  work->checked += done;
  return least(end, (slice + done) << d->state.slice_shift);
}

/* Applies a part of a range within a call: at most `max_slices`. Returns how far it came. */
static uint32_t apply_now(dtrim* d, uint32_t begin, uint32_t end, uint32_t turn,
                          uint32_t max_slices, dtrim_work* work) {
  const uint32_t before = work->slices;
  const uint32_t limit = sum_up_to_max(work->checked, max_slices);
  while (begin < end && work->checked < limit) {
    begin = apply_some(d, begin, end, turn, limit - work->checked, work);
  }
  d->state.statistics.slices_applied_forced += work->slices - before;
  return begin;
}

/* Goes on with the oldest range. Returns whether it is done with. */
static int apply_oldest(dtrim* d, uint32_t max_slices, dtrim_work* work) {
  const uint16_t id = d->state.oldest;
  dtrim_pending_range* range = &d->ranges[id];
  const uint32_t begin = range->begin;
  range->begin = apply_some(d, begin, range->end, range->turn, max_slices, work);
  count_pending(d, 0, range->begin - begin);
  if (range->begin < range->end) return 0;
  /* Its place is found by its end: it is empty, and those before it end earlier. */
  remove_range(d, first_ending_after(d, range->end - 1));
  ++d->state.statistics.ranges_applied;
  return 1;
}

/* --- TRIM */

/* A new range among the pending ones, as addresses lie: those at the places [first, last) overlap
 * it, or touch it and can be merged with it. */
typedef struct arrival {
  uint32_t begin;
  uint32_t end;
  uint32_t first;
  uint32_t last;
} arrival;

static int merges(const dtrim* d, const dtrim_pending_range* range) {
  return (d->state.config.flags & DTRIM_MERGE) != 0 && range->turn == d->state.turn;
}

static arrival arrival_of(const dtrim* d, uint32_t begin, uint32_t end) {
  arrival a = {begin, end, first_ending_after(d, begin), 0};
  if (a.first > 0) {
    const dtrim_pending_range* before = range_at(d, a.first - 1);
    if (before->end == begin && merges(d, before)) --a.first;
  }
  for (a.last = a.first; a.last < d->state.pending; ++a.last) {
    const dtrim_pending_range* range = range_at(d, a.last);
    if (range->begin < end) continue;
    if (range->begin == end && merges(d, range)) ++a.last;
    break;
  }
  return a;
}

/* Whether there are entries for what the arrival makes of the ranges that it meets. */
static int has_ranges_for(const dtrim* d, const arrival* a) {
  uint32_t left = d->state.config.ranges - d->state.pending;
  uint32_t needed = 1;
  for (uint32_t i = a->first; i < a->last; ++i) {
    const dtrim_pending_range* range = range_at(d, i);
    if (merges(d, range) || (range->begin >= a->begin && range->end <= a->end)) {
      ++left;
    } else if (range->begin < a->begin && range->end > a->end) {
      ++needed;
    }
  }
  return needed <= left;
}

/* The arrival takes its blocks from all earlier ranges: what was written between the two TRIMs goes
 * with the later one. */
static void insert(dtrim* d, const arrival* a) {
  dtrim_statistics* count = &d->state.statistics;
  uint16_t left = NO_RANGE; /* what remains before and behind it */
  uint16_t right = NO_RANGE;
  uint16_t merged = NO_RANGE;
  uint32_t begin = a->begin;
  uint32_t end = a->end;
  uint64_t taken = 0;
  uint32_t place = a->first;
  for (uint32_t i = a->first; i < a->last; ++i) {
    const uint16_t id = d->order[i];
    dtrim_pending_range* range = &d->ranges[id];
    if (merges(d, range)) {
      begin = least(begin, range->begin);
      end = most(end, range->end);
      taken += range->end - range->begin;
      ++count->merged_ranges;
      if (merged == NO_RANGE) {
        merged = id;
      } else {
        free_range(d, id);
      }
      continue;
    }
    const uint32_t overlap = least(range->end, a->end) - most(range->begin, a->begin);
    taken += overlap;
    count->superseded_blocks += overlap;
    if (range->begin < a->begin) {
      left = id;
      if (range->end > a->end) right = take_range(d, a->end, range->end, range->turn, id);
      range->end = a->begin;
    } else if (range->end > a->end) {
      right = id;
      range->begin = a->end;
    } else {
      free_range(d, id);
    }
  }
  if (merged == NO_RANGE) {
    merged = take_range(d, begin, end, d->state.turn, d->state.newest);
  } else {
    d->ranges[merged].begin = begin;
    d->ranges[merged].end = end;
  }
  move_places(d, a->last, place + 1 + (uint32_t)(left != NO_RANGE) + (uint32_t)(right != NO_RANGE));
  if (left != NO_RANGE) d->order[place++] = left;
  d->order[place++] = merged;
  if (right != NO_RANGE) d->order[place] = right;
  count_pending(d, end - begin, taken);
}

/* The range table is full: makes room at the price of the oldest range if that is no dearer than
 * the new one. Returns whether there is room now. */
static int make_room(dtrim* d, arrival* a, uint32_t max_slices, dtrim_work* work) {
  const uint32_t limit = sum_up_to_max(work->checked, max_slices);
  while (!has_ranges_for(d, a)) {
    const dtrim_pending_range* oldest = &d->ranges[d->state.oldest];
    if (d->state.pending == 0 || slices_of(d, oldest->begin, oldest->end) > limit - work->checked) {
      return 0;
    }
    const uint32_t before = work->slices;
    while (!apply_oldest(d, UINT32_MAX, work)) {
    }
    d->state.statistics.slices_applied_forced += work->slices - before;
    ++d->state.statistics.ranges_full_oldest;
    *a = arrival_of(d, a->begin, a->end);
  }
  return 1;
}

static void trim_range(dtrim* d, uint32_t begin, uint32_t end, dtrim_work* work) {
  const uint32_t before = work->checked;
  const uint32_t allowed = d->state.config.trim_forced_slices;
  arrival a = arrival_of(d, begin, end);
  if (has_ranges_for(d, &a) || make_room(d, &a, least(allowed, slices_of(d, begin, end)), work)) {
    insert(d, &a);
    return;
  }
  /* Nothing was written after this TRIM. That notes of earlier writes are struck is no harm: their
   * blocks are trimmed now. */
  const uint32_t reached =
      apply_now(d, begin, end, UINT32_MAX, allowed - (work->checked - before), work);
  ++d->state.statistics.ranges_full_forced;
  d->state.statistics.blocks_forgotten += end - reached;
}

/* Writes noted from now on are later than this TRIM, those before are not. */
static void begin_turn(dtrim* d) {
  if (d->state.pending == 0) {
    d->state.turn = 0;
  } else if (d->state.turn_is_old && d->state.turn < LAST_TURN) {
    ++d->state.turn;
  } else if (d->state.turn_is_old) {
    ++d->state.statistics.turns_exhausted;
    d->state.statistics.blocks_forgotten += d->state.statistics.pending_blocks;
    forget_all(d);
  }
  d->state.turn_is_old = 0;
}

static void trim_one(dtrim* d, uint64_t block, uint32_t blocks, dtrim_work* work) {
  dtrim_statistics* count = &d->state.statistics;
  const uint32_t capacity = d->state.config.blocks;
  uint32_t begin = block < capacity ? (uint32_t)block : capacity;
  uint32_t end = begin + least(blocks, capacity - begin);
  ++count->trim_ranges;
  count->trim_blocks += end - begin;
  if ((d->state.config.flags & DTRIM_WHOLE_SLICES) != 0) {
    const uint32_t asked = end - begin;
    const uint32_t rest = d->state.config.blocks_per_slice - 1;
    begin = (begin + rest) & ~rest;
    end &= ~rest;
    count->partial_blocks += begin < end ? asked - (end - begin) : asked;
  }
  if (begin < end) trim_range(d, begin, end, work);
}

dtrim_work dtrim_trim(dtrim* d, const dtrim_range* ranges, uint32_t count) {
  dtrim_work work = {0, 0, 0, 0};
  ++d->state.statistics.trim_commands;
  begin_turn(d);
  for (uint32_t i = 0; i < count; ++i) trim_one(d, ranges[i].block, ranges[i].blocks, &work);
  return work;
}

static uint32_t little_endian(const uint8_t* at) {
  return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

int dtrim_trim_list(dtrim* d, const uint8_t* list, uint32_t count, dtrim_work* work) {
  *work = (dtrim_work){0, 0, 0, 0};
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t* entry = list + (size_t)16 * i;
    const uint32_t block = little_endian(entry + 8);
    const uint32_t capacity = d->state.config.blocks;
    if (little_endian(entry + 12) != 0 || block > capacity ||
        little_endian(entry + 4) > capacity - block) {
      return -1;
    }
  }
  ++d->state.statistics.trim_commands;
  begin_turn(d);
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t* entry = list + (size_t)16 * i;
    trim_one(d, little_endian(entry + 8), little_endian(entry + 4), work);
  }
  return 0;
}

/* --- writes */

/* A write at the edge of a range, or over all of it, shortens it. */
static void shorten(dtrim* d, uint32_t place, uint32_t begin, uint32_t end, dtrim_work* work) {
  while (place < d->state.pending && range_at(d, place)->begin < end) {
    dtrim_pending_range* range = range_at(d, place);
    const uint32_t from = most(begin, range->begin);
    const uint32_t to = least(end, range->end);
    strike_range(d, from, to, work);
    count_pending(d, 0, to - from);
    if (from == range->begin && to == range->end) {
      remove_range(d, place);
      continue;
    }
    if (from == range->begin) {
      range->begin = to;
    } else {
      range->end = from;
    }
    ++place;
  }
}

static void split(dtrim* d, uint32_t place, uint32_t begin, uint32_t end) {
  const uint16_t id = d->order[place];
  dtrim_pending_range* range = &d->ranges[id];
  const uint16_t rest = take_range(d, end, range->end, range->turn, id);
  range->end = begin;
  move_places(d, place + 1, place + 2);
  d->order[place + 1] = rest;
  count_pending(d, 0, end - begin);
}

/* Both tables are full: the shorter side of the range is applied at once, as far as allowed. */
static void give_up_side(dtrim* d, uint32_t place, uint32_t begin, uint32_t end, dtrim_work* work) {
  dtrim_pending_range* range = range_at(d, place);
  const int is_left = slices_of(d, range->begin, begin) <= slices_of(d, end, range->end);
  const uint32_t from = is_left ? range->begin : end;
  const uint32_t to = is_left ? begin : range->end;
  const uint32_t reached =
      apply_now(d, from, to, range->turn, d->state.config.write_forced_slices, work);
  if (reached < to) strike_everywhere(d, reached, to);
  d->state.statistics.blocks_forgotten += to - reached;
  count_pending(d, 0, (uint64_t)(to - from) + (end - begin));
  if (is_left) {
    range->begin = end;
  } else {
    range->end = begin;
  }
}

/* A write that leaves pending blocks of one range on both of its sides. */
static void write_inside(dtrim* d, uint32_t place, uint32_t begin, uint32_t end, dtrim_work* work) {
  dtrim_statistics* count = &d->state.statistics;
  if (has_entries_for(d, begin, end)) {
    for (uint32_t slice = slice_of(d, begin); slice <= slice_of(d, end - 1); ++slice) {
      note(d, slice, blocks_within(d, slice, begin, end), work);
    }
    d->state.turn_is_old = 1;
    ++count->writes_noted;
    return;
  }
  strike_range(d, begin, end, work);
  ++count->writes_shortening;
  if (d->state.pending < d->state.config.ranges) {
    split(d, place, begin, end);
    ++count->list_full_splits;
  } else {
    give_up_side(d, place, begin, end, work);
    ++count->list_full_forced;
  }
}

dtrim_work dtrim_write(dtrim* d, uint32_t block, uint32_t blocks) {
  dtrim_work work = {0, 0, 0, 0};
  if (d->state.pending == 0) return work;
  uint32_t begin = least(block, d->state.config.blocks);
  uint32_t end = begin + least(blocks, d->state.config.blocks - begin);
  if ((d->state.config.flags & DTRIM_WHOLE_SLICES) != 0) {
    const uint32_t rest = d->state.config.blocks_per_slice - 1;
    end = begin < end ? (end + rest) & ~rest : end;
    begin &= ~rest;
  }
  ++d->state.statistics.writes_while_pending;
  const uint32_t place = first_ending_after(d, begin);
  if (begin >= end || place == d->state.pending) return work;
  const dtrim_pending_range* range = range_at(d, place);
  if (range->begin >= end) return work;
  if (range->begin < begin && end < range->end) {
    write_inside(d, place, begin, end, &work);
  } else {
    shorten(d, place, begin, end, &work);
    ++d->state.statistics.writes_shortening;
  }
  return work;
}

/* --- reads */

static uint32_t pending_blocks(const dtrim* d, uint32_t slice, uint32_t* probes) {
  const uint32_t first = slice << d->state.slice_shift;
  const uint32_t end = first + d->state.config.blocks_per_slice;
  uint32_t pending = 0;
  for (uint32_t place = first_ending_after(d, first);
       place < d->state.pending && range_at(d, place)->begin < end; ++place) {
    const dtrim_pending_range* range = range_at(d, place);
    const uint32_t blocks = blocks_within(d, slice, range->begin, range->end);
    pending |= blocks & ~written_after(d, slice, range->turn, probes);
  }
  return pending;
}

uint32_t dtrim_pending_blocks(const dtrim* d, uint32_t slice) {
  uint32_t probes = 0;
  if (d->state.pending == 0 || slice > slice_of(d, d->state.config.blocks - 1)) return 0;
  return pending_blocks(d, slice, &probes);
}

uint32_t dtrim_read(dtrim* d, uint32_t slice, uint32_t blocks) {
  dtrim_work work = {0, 0, 0, 0};
  uint32_t probes = 0;
  if (d->state.pending == 0 || slice > slice_of(d, d->state.config.blocks - 1)) return 0;
  const uint32_t pending = pending_blocks(d, slice, &probes);
  count_probes(d, probes, &work);
  if ((pending & blocks) == 0) return 0;
  /* It stays pending: to invalidate it once more later is no harm. */
  invalidate(d, slice, 1, pending, &work);
  ++d->state.statistics.reads_of_pending;
  return pending & blocks;
}

/* --- the work when idle and before GC */

dtrim_work dtrim_step(dtrim* d, uint32_t max_slices) {
  dtrim_work work = {0, 0, 0, 0};
  dtrim_statistics* count = &d->state.statistics;
  int within_range = 0;
  if (d->state.pending == 0 || max_slices == 0) return work;
  count->resumes += d->state.yielded;
  d->state.yielded = 0;
  while (d->state.pending > 0 && work.checked < max_slices) {
    within_range = !apply_oldest(d, max_slices - work.checked, &work);
    if (d->callbacks.request_waiting != NULL &&
        d->callbacks.request_waiting(d->callbacks.context)) {
      break;
    }
  }
  d->state.yielded = (uint16_t)within_range;
  count->yields += d->state.yielded;
  count->slices_applied_idle += work.slices;
  return work;
}

dtrim_work dtrim_drain(dtrim* d, uint32_t max_slices) {
  dtrim_work work = {0, 0, 0, 0};
  if (d->state.pending == 0) return work;
  ++d->state.statistics.drains;
  while (d->state.pending > 0 && work.checked < max_slices) {
    apply_oldest(d, max_slices - work.checked, &work);
  }
  d->state.statistics.slices_applied_drain += work.slices;
  return work;
}

/* --- set-up */

static int is_valid(const dtrim_config* c) {
  return c->blocks >= 1 && c->blocks <= MAX_BLOCKS && is_power_of_two(c->blocks_per_slice) &&
         c->blocks_per_slice <= 32 && c->ranges >= 1 && c->ranges < NO_RANGE &&
         c->writes <= MAX_LIST && is_power_of_two(c->buckets) && c->buckets <= MAX_LIST &&
         is_power_of_two(c->batch_slices) &&
         (c->flags & ~(uint32_t)(DTRIM_MERGE | DTRIM_WHOLE_SLICES)) == 0;
}

uint32_t dtrim_memory_bytes(const dtrim_config* config) {
  if (!is_valid(config)) return 0;
  return DTRIM_MEMORY_BYTES(config->ranges, config->writes, config->buckets);
}

dtrim_config dtrim_default_config(uint32_t blocks, uint32_t blocks_per_slice) {
  const dtrim_config config = {blocks,
                               blocks_per_slice,
                               DTRIM_DEFAULT_RANGES,
                               DTRIM_DEFAULT_WRITES,
                               DTRIM_DEFAULT_BUCKETS,
                               1,
                               DTRIM_DEFAULT_WRITE_FORCED_SLICES,
                               DTRIM_DEFAULT_TRIM_FORCED_SLICES,
                               DTRIM_MERGE};
  return config;
}

static uint32_t shift_of(uint32_t power_of_two) {
  uint32_t shift = 0;
  while (power_of_two >> shift != 1) ++shift;
  return shift;
}

int dtrim_init(dtrim* d, const dtrim_config* config, const dtrim_callbacks* callbacks, void* memory,
               uint32_t bytes) {
  const uint32_t needed = dtrim_memory_bytes(config);
  if (needed == 0 || bytes < needed || callbacks->invalidate == NULL) return -1;
  memset(d, 0, sizeof *d);
  d->state.config = *config;
  d->state.slice_shift = shift_of(config->blocks_per_slice);
  d->callbacks = *callbacks;
  d->ranges = memory;
  d->writes = (dtrim_noted_write*)(d->ranges + config->ranges);
  d->buckets = (uint32_t*)(d->writes + config->writes);
  d->order = (uint16_t*)(d->buckets + config->buckets);
  memset(memory, 0, needed); /* a snapshot is the same for the same history */
  forget_all(d);
  return 0;
}

void dtrim_reset(dtrim* d) {
  ++d->state.statistics.resets;
  forget_all(d);
}

dtrim_range dtrim_pending_at(const dtrim* d, uint32_t i) {
  const dtrim_pending_range* range = range_at(d, i);
  const dtrim_range found = {range->begin, range->end - range->begin};
  return found;
}

void dtrim_get_statistics(const dtrim* d, dtrim_statistics* out) {
  memcpy(out, &d->state.statistics, sizeof *out);
  out->magic = DTRIM_STATISTICS_MAGIC;
  out->version = DTRIM_STATISTICS_VERSION;
  out->bytes = sizeof *out;
  out->pending_ranges = d->state.pending;
  out->write_entries = d->state.noted;
  out->range_capacity = d->state.config.ranges;
  out->write_capacity = d->state.config.writes;
  out->blocks_per_slice = d->state.config.blocks_per_slice;
}

void dtrim_reset_statistics(dtrim* d) {
  dtrim_statistics* count = &d->state.statistics;
  const uint64_t pending = count->pending_blocks;
  memset(count, 0, sizeof *count);
  count->pending_blocks = count->pending_blocks_high = pending;
  count->pending_ranges_high = d->state.pending;
  count->write_entries_high = d->state.noted;
}

/* --- for tests */

static int ranges_are_sound(const dtrim* d) {
  const uint32_t pending = d->state.pending;
  uint64_t blocks = 0;
  uint32_t free = 0;
  uint32_t queued = 0;
  if (pending > d->state.config.ranges) return 0;
  for (uint32_t i = 0; i < pending; ++i) {
    const dtrim_pending_range* range = range_at(d, i);
    if (range->begin >= range->end || range->end > d->state.config.blocks) return 0;
    if (i > 0 && range_at(d, i - 1)->end > range->begin) return 0;
    if (range->turn > d->state.turn) return 0;
    blocks += range->end - range->begin;
  }
  for (uint16_t id = d->state.free_range; id != NO_RANGE; id = d->ranges[id].newer) {
    if (++free > d->state.config.ranges) return 0;
  }
  uint16_t older = NO_RANGE;
  for (uint16_t id = d->state.oldest; id != NO_RANGE; id = d->ranges[id].newer) {
    if (++queued > pending || d->ranges[id].older != older) return 0;
    older = id;
  }
  return d->state.newest == older && queued == pending &&
         free + pending == d->state.config.ranges && d->state.statistics.pending_blocks == blocks;
}

/* All its blocks lie in pending ranges, and no other entry of its slice has one of them. */
static int write_is_sound(const dtrim* d, const dtrim_noted_write* write) {
  uint32_t covered = 0;
  const uint32_t first = write->slice << d->state.slice_shift;
  for (uint32_t place = first_ending_after(d, first); place < d->state.pending; ++place) {
    const dtrim_pending_range* range = range_at(d, place);
    if (slice_of(d, range->begin) > write->slice) break;
    covered |= blocks_within(d, write->slice, range->begin, range->end);
  }
  for (uint32_t at = write->next; at != NO_WRITE; at = d->writes[at].next) {
    const dtrim_noted_write* other = &d->writes[at];
    if (other->slice != write->slice) continue;
    if ((other->blocks & write->blocks) != 0 || other->turn == write->turn) return 0;
  }
  return write->blocks != 0 && (write->blocks & ~covered) == 0 &&
         write->turn <= d->state.turn + d->state.turn_is_old;
}

static int list_is_sound(const dtrim* d) {
  uint32_t noted = 0;
  uint32_t free = 0;
  for (uint32_t i = 0; i < d->state.config.buckets; ++i) {
    for (uint32_t at = d->buckets[i]; at != NO_WRITE; at = d->writes[at].next) {
      if (++noted > d->state.noted || bucket_of(d, d->writes[at].slice) != &d->buckets[i] ||
          !write_is_sound(d, &d->writes[at])) {
        return 0;
      }
    }
  }
  for (uint32_t at = d->state.free_write; at != NO_WRITE; at = d->writes[at].next) {
    if (++free > d->state.config.writes) return 0;
  }
  return noted == d->state.noted && noted + free == d->state.config.writes;
}

int dtrim_is_sound(const dtrim* d) { return ranges_are_sound(d) && list_is_sound(d); }
