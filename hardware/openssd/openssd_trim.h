/* Delayed TRIM for a firmware with GreedyFTL's structure: what it must give and what it must call.
 *
 * README.md says where each call belongs. The map holds whole slices of 4 blocks, so only whole
 * slices are trimmed (DTRIM_WHOLE_SLICES); one thread calls all of this. */
#ifndef FLASHLAB_OPENSSD_TRIM_H
#define FLASHLAB_OPENSSD_TRIM_H

#include <stdint.h>

#include "delayed_trim.h"

#ifndef OPENSSD_TRIM_SLICE_BLOCKS
#define OPENSSD_TRIM_SLICE_BLOCKS 4u
#endif
#ifndef OPENSSD_TRIM_LOG_PAGE
#define OPENSSD_TRIM_LOG_PAGE 0xc5u /* of the vendor's C0h to FFh */
#endif

/* --- the firmware gives */

/* Invalidates consecutive slices: drops each from the write buffer (a slice that is on its way to
 * flash included), then counts its flash page as invalid, then clears both maps, in this order. A
 * slice may be neither buffered nor mapped. Reads of it give zeroes from then on. */
void openssd_invalidate_slices(uint32_t slice, uint32_t slices);

/* Whether a host command, or the completion of an earlier one, waits to be handled. */
int openssd_request_waiting(void);

/* --- and calls */

/* Once, and again after a format: nothing is pending then. Returns 0, or -1 for a namespace that
 * is too large. */
int openssd_trim_start(uint32_t namespace_blocks);

/* Dataset Management with Deallocate: `list` is the command's data, `ranges` its number of ranges
 * (the command has one less). Returns 0: acknowledge it; -1: answer LBA Out of Range (80h). */
int openssd_trim_command(const void* list, uint32_t ranges);

/* A write, and a write of zeroes, before its first slice is taken to slices. */
void openssd_trim_write(uint32_t block, uint32_t blocks);

/* Before a slice is read, from buffer or flash. Nonzero: it was trimmed, answer zeroes. */
int openssd_trim_read_slice(uint32_t slice);

/* When no request waits. Returns nonzero while work is left. */
int openssd_trim_idle(void);

/* At the head of garbage collection. */
void openssd_trim_before_collection(void);

/* What a Get Log Page of OPENSSD_TRIM_LOG_PAGE transfers: up to `bytes` from `offset` on. Returns
 * how many; what lies behind the page is the caller's to clear. */
uint32_t openssd_trim_log(uint32_t offset, void* to, uint32_t bytes);

#endif
