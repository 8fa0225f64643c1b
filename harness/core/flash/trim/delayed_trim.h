/* Delayed TRIM: a TRIM is acknowledged when it is noted, and applied when the drive is idle.
 *
 * One C11 module for the simulator and for firmware. It is freestanding: no allocation, nothing but
 * memset and memcpy, tables in memory that the caller gives, no division, one thread. It knows
 * logical addresses only; what is invalidated in write buffer and map is the caller's.
 *
 * THE MODEL. A logical block is either pending (trimmed, not yet applied) or not:
 *
 *     TRIM of R         pending := pending + R
 *     write of W        pending := pending - W        a pending TRIM never erases what came later
 *     apply a slice     the slice's pending blocks are invalidated; pending := pending - slice
 *
 * All else is how this set is kept in small tables at little cost. Ranges of pending TRIMs are
 * disjoint (a later TRIM takes the overlap from the earlier one) and are applied in the order of
 * their arrival. A write into a pending range is noted in the Check Write List: hashed by slice
 * (LPN mod table length), chained, with the blocks written and after which TRIM. A write that no
 * pending range overlaps is not noted; one that covers the begin or the end of a range shortens the
 * range instead. An entry is freed when its slice has been applied, so the list is empty when
 * nothing is pending.
 *
 * WORDS. A block is what the host addresses. A slice is 2^n consecutive blocks that one map entry
 * and one place in the write buffer hold (GreedyFTL: 4 blocks of 4 KiB). Ranges are half-open.
 * `blocks` in a call about one slice is a mask: bit i is the slice's block i.
 *
 * COST. dtrim_trim: per range one binary search, a look at each pending range that it overlaps, and
 * at worst moving 2 bytes per pending range. dtrim_write and dtrim_read: nothing if nothing is
 * pending, else one binary search, and expected O(1) per slice in the Check Write List
 * (entries/buckets; at worst as many as one chain holds, for addresses that all agree modulo the
 * table length). dtrim_step: expected O(1) per slice.
 *
 * FULL TABLES. No write is ever lost, and no call waits for more than it says:
 *
 *   Check Write List full    The range is split at the write. No slice of work.
 *   and range table full     The shorter side of the range that was written into is applied within
 *                            the call: at most write_forced_slices. What is left of that side after
 *                            that is forgotten. One write has at most one such side.
 *   TRIM, range table full   The oldest range is applied if it is no longer than the new one, and
 *                            gives its entry; else the new one is applied within the call, as
 *                            without delay. Per range of the command at most twice its own slices,
 *                            and at most trim_forced_slices; what is left is forgotten.
 *   2^32 turns between TRIM and write without ever running empty: all that is pending is forgotten.
 *
 * Forgotten means: as if the host had not trimmed those blocks (TRIM is advice: NVM Command Set,
 * Dataset Management, Deallocate); they are counted. With both limits at UINT32_MAX nothing is
 * forgotten for lack of room. Work done within a call is returned, so that a simulator can charge
 * for it. A firmware that would rather keep the TRIM command unanswered and serve others asks
 * dtrim_free_ranges before (a range takes at most two entries) and calls dtrim_step until there is
 * room.
 *
 * READS. The specification lets a deallocated block read as zeroes, ones or its last data, but the
 * value must not change without a write. Here a block reads as zeroes from the acknowledgement on
 * (unless its TRIM is forgotten before anybody reads it; so this is not SATA's RZAT): before a
 * slice is read (from buffer or flash) the firmware calls dtrim_read, which applies the slice's
 * pending blocks at once (one slice of work, and only if it is pending) and says which blocks are
 * zeroes. So whatever was read is in the map, and no longer hangs on these tables. To report:
 * DLFEAT 001b (zeroes). A slice that the map does not know needs no call. The rest of a slice that
 * is written in part is read, too (read-modify-write): call dtrim_read for it before it is read and
 * before dtrim_write, or old data comes back with it.
 *
 * FLUSH needs no call where a change of the map is durable at once, or where TRIMs may be lost by a
 * power cut up to the next application. Where the map is made durable by a flush, and trimmed
 * blocks have to stay zeroes after flush and power cut, call dtrim_drain before the flush.
 *
 * POWER CUT. Pending TRIMs are gone: call dtrim_init or dtrim_reset, never bring back saved tables
 * (writes that came after the saving would be erased). Each block then holds what the map says:
 * old data if its TRIM was not applied, never half a block. A block that was read as zeroes was
 * applied by that read; it is as durable as any change of the map at that time: without a flush
 * after it, on a drive with a volatile map, it may come back, like a cached write may go. Before an
 * orderly shutdown call dtrim_drain.
 *
 * ORDER. Calls come in the order in which the commands take effect. dtrim_write comes before the
 * write's data enters the buffer; data written before a TRIM must be in buffer and map, where
 * `invalidate` finds it, before that TRIM is applied. A write of zeroes is a write. After a format
 * call dtrim_reset.
 */
#ifndef FLASHLAB_DELAYED_TRIM_H
#define FLASHLAB_DELAYED_TRIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- set-up */

enum {
  /* Joins touching ranges that no write stands between: fewer entries for consecutive TRIMs. */
  DTRIM_MERGE = 1,
  /* For a map that cannot hold part of a slice: parts of slices are not trimmed (ranges shrink to
   * whole slices), and a write of a part is one of the slice. Masks are then always whole. */
  DTRIM_WHOLE_SLICES = 2,
};

typedef struct dtrim_config {
  uint32_t blocks;              /* of the namespace: 1 to 2^32 - 64 */
  uint32_t blocks_per_slice;    /* a power of two, 1 to 32 */
  uint32_t ranges;              /* entries of the range table, 1 to 65534 */
  uint32_t writes;              /* entries of the Check Write List, 0 to 2^24 */
  uint32_t buckets;             /* of the Check Write List, a power of two, 1 to 2^24 */
  uint32_t batch_slices;        /* at most so many whole slices per call of `invalidate`, within an
                                 * aligned run of so many: a power of two; 1 as in the paper */
  uint32_t write_forced_slices; /* limits of the work within a call when the tables are full */
  uint32_t trim_forced_slices;
  uint32_t flags;
} dtrim_config;

/* What the caller gives. They must not call the module. */
typedef struct dtrim_callbacks {
  void* context;
  /* Invalidates the blocks in write buffer and map: they read as zeroes from now on, all other
   * blocks of the slice keep their data. `slices` is 1, or, with batch_slices, a run of whole
   * slices. Blocks may be unmapped already. */
  void (*invalidate)(void* context, uint32_t slice, uint32_t slices, uint32_t blocks);
  /* Asked by dtrim_step after each slice or batch: does a request wait? May be NULL: never. */
  int (*request_waiting)(void* context);
} dtrim_callbacks;

#define DTRIM_RANGE_BYTES 16u /* and 2 for its place in the order of addresses */
#define DTRIM_WRITE_BYTES 16u
#define DTRIM_BUCKET_BYTES 4u
/* The size of all tables; multiple of 4. */
#define DTRIM_MEMORY_BYTES(ranges, writes, buckets)                                               \
  (DTRIM_RANGE_BYTES * (ranges) + DTRIM_WRITE_BYTES * (writes) + DTRIM_BUCKET_BYTES * (buckets) + \
   ((2u * (ranges) + 3u) & ~(uint32_t)3u))

/* Sizes for the paper's boards and workloads: 58 KiB of tables. Two commands of 256 ranges whose
 * every range gets split, and 2048 slices (32 MiB of 16 KiB) rewritten inside of pending ranges. */
#define DTRIM_DEFAULT_RANGES 1024u
#define DTRIM_DEFAULT_WRITES 2048u
#define DTRIM_DEFAULT_BUCKETS 2048u
#define DTRIM_DEFAULT_WRITE_FORCED_SLICES 256u
#define DTRIM_DEFAULT_TRIM_FORCED_SLICES UINT32_MAX
#define DTRIM_DEFAULT_MEMORY_BYTES \
  DTRIM_MEMORY_BYTES(DTRIM_DEFAULT_RANGES, DTRIM_DEFAULT_WRITES, DTRIM_DEFAULT_BUCKETS)

/* --- statistics, as in the vendor log page */

#define DTRIM_STATISTICS_MAGIC 0x4d525444u /* the bytes "DTRM" */
#define DTRIM_STATISTICS_VERSION 1u

/* 512 bytes, little-endian, counts since the last reset of statistics. A later version only gives
 * meaning to reserved fields. */
typedef struct dtrim_statistics {
  uint32_t magic;
  uint16_t version;
  uint16_t bytes; /* of the whole block: 512 */
  /* present state */
  uint32_t pending_ranges;
  uint32_t pending_ranges_high; /* high-water mark */
  uint32_t write_entries;
  uint32_t write_entries_high;
  uint32_t longest_chain; /* entries looked at in one bucket, at most */
  uint32_t range_capacity;
  uint32_t write_capacity;
  uint32_t blocks_per_slice;
  uint64_t pending_blocks; /* of the ranges, including blocks kept because of later writes */
  uint64_t pending_blocks_high;
  /* the host's side */
  uint64_t trim_commands;
  uint64_t trim_ranges;
  uint64_t trim_blocks;
  uint64_t partial_blocks;    /* not trimmed since their slice was not whole (DTRIM_WHOLE_SLICES) */
  uint64_t merged_ranges;     /* became part of another pending range */
  uint64_t superseded_blocks; /* taken from an earlier pending range by a later one */
  uint64_t writes_while_pending; /* write commands */
  uint64_t writes_noted;         /* write commands that got an entry */
  uint64_t writes_shortening;    /* write commands that shortened, split or removed a range */
  uint64_t reads_of_pending;     /* slices applied since they were read */
  /* the work */
  uint64_t slices_applied;        /* looked up in write buffer and map, at any time */
  uint64_t slices_applied_idle;   /* of these: by dtrim_step */
  uint64_t slices_applied_drain;  /* by dtrim_drain */
  uint64_t slices_applied_forced; /* within a TRIM or write, since a table was full */
  uint64_t batches_applied;       /* calls of `invalidate` */
  uint64_t slices_kept;           /* of pending ranges, whole, because of later writes */
  uint64_t blocks_invalidated;
  uint64_t blocks_kept;   /* not invalidated because of later writes */
  uint64_t slice_lookups; /* in the Check Write List, by writes, reads and applications */
  uint64_t entries_probed;
  uint64_t ranges_applied;
  uint64_t yields;  /* dtrim_step ended within a range: budget used up or a request waited */
  uint64_t resumes; /* and went on with it later */
  uint64_t drains;  /* before GC, with something pending */
  /* full tables */
  uint64_t list_full_splits;
  uint64_t list_full_forced;   /* and no room to split */
  uint64_t ranges_full_oldest; /* the oldest range was applied to make room */
  uint64_t ranges_full_forced; /* a TRIM was applied at once */
  uint64_t blocks_forgotten;
  uint64_t turns_exhausted; /* everything forgotten after 2^32 turns */
  uint64_t resets;
  uint64_t reserved[26];
} dtrim_statistics;

/* --- the state; its fields are the module's own */

typedef struct dtrim_pending_range {
  uint32_t begin; /* blocks; grows while the range is applied: the saved context */
  uint32_t end;
  uint32_t turn;
  uint16_t older; /* neighbours in the order of arrival */
  uint16_t newer;
} dtrim_pending_range;

typedef struct dtrim_noted_write {
  uint32_t slice;
  uint32_t blocks;
  uint32_t turn; /* protects from ranges of an earlier turn */
  uint32_t next;
} dtrim_noted_write;

/* All that changes, without pointers: for a snapshot, save this and the tables' memory. */
typedef struct dtrim_state {
  dtrim_config config;
  uint32_t slice_shift;
  uint32_t turn;        /* of the next TRIM; it rises when a write was noted since the last one */
  uint32_t turn_is_old; /* a write was noted in this turn */
  uint32_t pending;     /* ranges */
  uint32_t noted;       /* entries of the Check Write List */
  uint32_t free_write;  /* the first free entry */
  uint16_t free_range;
  uint16_t oldest;
  uint16_t newest;
  uint16_t yielded; /* whether dtrim_step left the oldest range half applied */
  dtrim_statistics statistics;
} dtrim_state;

typedef struct dtrim {
  dtrim_state state;
  dtrim_callbacks callbacks;
  dtrim_pending_range* ranges;
  uint16_t* order; /* of the pending ranges, by address */
  dtrim_noted_write* writes;
  uint32_t* buckets;
} dtrim;

/* What a call did beyond noting: for the caller's accounting. */
typedef struct dtrim_work {
  uint32_t slices;  /* given to `invalidate`: looked up in write buffer and map */
  uint32_t batches; /* calls of `invalidate` for them */
  uint32_t checked; /* slices of pending ranges done with, including those that later writes kept
                     * whole: these limits and budgets count */
  uint32_t probes;  /* entries of the Check Write List looked at */
} dtrim_work;

typedef struct dtrim_range {
  uint32_t block;
  uint32_t blocks;
} dtrim_range;

/* The size of the tables in bytes, or 0 if the configuration is not valid. */
uint32_t dtrim_memory_bytes(const dtrim_config* config);

/* The defaults above, for a namespace. */
dtrim_config dtrim_default_config(uint32_t blocks, uint32_t blocks_per_slice);

/* `memory`: aligned to 4 bytes, dtrim_memory_bytes long, the module's until the end. Returns 0, or
 * -1 if the configuration is not valid or `bytes` too few. */
int dtrim_init(dtrim* d, const dtrim_config* config, const dtrim_callbacks* callbacks, void* memory,
               uint32_t bytes);

/* Forgets what is pending (power cut, format), keeps the statistics. */
void dtrim_reset(dtrim* d);

/* --- the hooks */

/* A Dataset Management command with Deallocate: notes it; the caller then acknowledges it. Ranges
 * may overlap, be empty, or number more than fit. They must lie in the namespace (LBA Out of Range
 * is the caller's to report); what does not is cut off. */
dtrim_work dtrim_trim(dtrim* d, const dtrim_range* ranges, uint32_t count);

/* The same from the command's data: `count` entries of 16 bytes (context attributes, number of
 * blocks, first block; little-endian; NVM Command Set, figure of the range definition). Returns -1,
 * and does nothing, if one reaches beyond the namespace (answer LBA Out of Range), else 0. */
int dtrim_trim_list(dtrim* d, const uint8_t* list, uint32_t count, dtrim_work* work);

/* A write command, whole or slice by slice, before its data enters the buffer. */
dtrim_work dtrim_write(dtrim* d, uint32_t block, uint32_t blocks);

/* Before the wanted blocks of a slice are read. Returns which of them are zeroes; the map no longer
 * knows them then. Nonzero means one slice of work. */
uint32_t dtrim_read(dtrim* d, uint32_t slice, uint32_t blocks);

/* The drive is idle: applies at most `max_slices` in the order of arrival, fewer if a request waits
 * or nothing is left. Call it until dtrim_pending says 0. */
dtrim_work dtrim_step(dtrim* d, uint32_t max_slices);

/* Before garbage is collected: applies all without asking for requests, at most `max_slices`
 * (UINT32_MAX as in the paper). The rest stays pending: correct, but GC may copy dead slices. */
dtrim_work dtrim_drain(dtrim* d, uint32_t max_slices);

/* --- questions, without effect */

/* Pending ranges. */
static inline uint32_t dtrim_pending(const dtrim* d) { return d->state.pending; }

/* Entries left for ranges: a TRIM's range needs two at most. */
static inline uint32_t dtrim_free_ranges(const dtrim* d) {
  return d->state.config.ranges - d->state.pending;
}

/* The pending blocks of a slice. */
uint32_t dtrim_pending_blocks(const dtrim* d, uint32_t slice);

/* Pending range `i` in the order of addresses, i < dtrim_pending; later writes not taken out. */
dtrim_range dtrim_pending_at(const dtrim* d, uint32_t i);

/* Copies the block for the vendor log page. */
void dtrim_get_statistics(const dtrim* d, dtrim_statistics* out);
void dtrim_reset_statistics(dtrim* d);

/* For tests: whether all tables agree with each other. O(tables * log). */
int dtrim_is_sound(const dtrim* d);

#ifdef __cplusplus
}
#endif

#endif
