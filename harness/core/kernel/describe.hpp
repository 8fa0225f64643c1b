// Parameters and counters of the kernel's parts; see base/describe.hpp.
#pragma once

#include "base/describe.hpp"
#include "kernel/ext4/allocator.hpp"
#include "kernel/ext4/ext4.hpp"
#include "kernel/jbd2.hpp"
#include "kernel/page_cache.hpp"

namespace flashlab::kernel {

template <class V>
void describe(V& v, PageCacheParameters& p) {
  v.required("memory_bytes", p.memory, "what the cache may hold");
  v.optional("block_bytes", p.block, "what everything is counted in: what the reader reads");
  v.optional("read_ahead_bytes", p.read_ahead, "the largest window; one block: none");
  v.optional("dirty_background_ratio", p.dirty_background_ratio, "of memory: write-back begins");
  v.optional("dirty_ratio", p.dirty_ratio, "of memory: as much is dirty at most");
  v.optional("strict_limit", p.strict_limit, "the device's own: steered to the middle of both");
  v.optional("round_ns", p.round, "of write-back, before it looks at the ratio again");
  v.optional("second_ns", p.second, "of the kernel's clock, by which writers keep their pace");
  v.optional("queue_limit", p.queue_limit, "nr_requests");
  v.optional("allocation_bytes", p.allocation, "of space on the device, at a time");
  v.optional("segment_bytes", p.segment, "a file is split into files of this size");
  v.optional("begin_bytes", p.begin, "where the file system begins on the device");
  v.optional("copy_cpu_ns", p.copy_cpu, "system call and copy, per block");
  v.optional("refaults", p.refaults, "a block that comes back soon is active, since Linux 3.15");
  v.optional("writes_are_uses", p.writes_are_uses, "as reads are, until Linux 4.7");
  v.optional("dirty_go_active", p.dirty_go_active,
             "where the oldest block is dirty, since Linux 4.11; to the young end before");
  v.optional("dirty_tail_is_flushed", p.dirty_tail_is_flushed,
             "all that is dirty is, where only such blocks are found, since Linux 4.11");
  v.optional("misses_open_windows", p.misses_open_windows,
             "of read-ahead, and continue none, since Linux 6.11");
  v.optional("turns_end_with_scan", p.turns_end_with_scan,
             "a file's turn in write-back, not where nothing new is found, since Linux 5.8");
}

template <class V>
void count(V& v, const PageCacheCounters& c) {
  v("read_blocks", c.read_blocks);
  v("missed_blocks", c.missed_blocks);
  v("written_blocks", c.written_blocks);
  v("device_read_blocks", c.device_read_blocks);
  v("device_write_blocks", c.device_write_blocks);
  v("read_wait_ns", c.read_wait);
  v("write_wait_ns", c.write_wait);
  v("tail_flushes", c.tail_flushes);
}

// But for where it begins.
template <class V>
void describe(V& v, JournalParameters& p) {
  Bytes size = kFsBlock * p.blocks;
  v.required("journal_bytes", size, "of the ring, with its superblock");
  p.blocks = size / kFsBlock;
  v.required("journal_stream", p.stream, "of what goes to the ring");
  v.required("commit_ns", p.commit_interval, "a transaction takes what happens within it");
  v.required("dirty_expire_ns", p.expire, "how long a block may be dirty");
  v.optional("flusher_interval_ns", p.flusher_interval,
             "the kernel looks for such blocks so often");
  v.optional("home_in_same_sync", p.home_in_same_sync,
             "who syncs a file whose data is journaled writes home what that commits; before Linux "
             "6.4 what the file's sync before has committed");
  v.optional("ring_per_transaction", p.ring_per_transaction,
             "over which a transaction is as large as it may be: 4, since Linux 6.11 3");
}

template <class V>
void count(V& v, const JournalCounters& c) {
  const auto bytes = [](std::uint64_t blocks) {
    return kFsBlock * static_cast<std::int64_t>(blocks);
  };
  v("journal_commits", c.commits);
  v("journal_checkpoints", c.checkpoints);
  v("journal_requests", c.requests);
  v("journal_written_bytes", bytes(c.written_blocks));
  v("journal_home_bytes", bytes(c.home_blocks));
  v("journal_expired_bytes", bytes(c.expired_blocks));
  v("journal_synced_bytes", bytes(c.synced_blocks));
  v("journal_space_wait_ns", c.space_wait);
}

namespace ext4 {

template <class V>
void describe(V& v, AllocatorRules& p) {
  v.optional("recent", p.recent, "as of Linux 6.18");
  v.optional("stream_goals", p.stream_goals,
             "since 6.17 files share so many: the lower of CPUs and a quarter of the groups");
}

template <class V>
void count(V& v, const AllocatorCounters& c) {
  v("allocator_requests", c.requests);
  v("allocator_at_goal", c.at_goal);
  v("allocator_shortened", c.shortened);
}

template <class V>
void describe(V& v, Parameters& p) {
  v.optional("cache_block_bytes", p.cache_block, "the page cache's: a multiple of 4 KiB");
  v.optional("discard", p.discard, "none, synchronous, asynchronous");
  v.optional("commit_ns", p.commit, "the mount option");
  v.optional("second_ns", p.second, "of the kernel's clock: timers go off at whole ones");
  v.optional("preallocation_bytes", p.preallocation, "of each new file; 0: none");
  v.optional("preallocate_again", p.preallocate_again,
             "a file that has used up what it was given is given as much again");
  v.optional("journal_bytes", p.journal, "in the middle of the device");
  v.optional("size_bytes", p.size, "from the device's beginning on; 0: as large as that");
  v.optional("inode_table_bytes", p.inode_table, "of a group; mke2fs: an inode for each 16 KiB");
  v.optional("backups", p.backups, "of the superblock, in some groups (sparse_super)");
  v.optional("occupied_bytes", p.occupied, "other files, from the beginning on, which stay");
  v.optional("fua", p.fua, "the kernel has the commit record durable by itself, without a flush");
  v.optional("times", p.times, "a write changes its file's times: the next commit has its inode");
  v.optional("occupied_piece_bytes", p.occupied_piece,
             "these lie everywhere instead, in pieces of this size; 0: in one");
  describe(v, p.rules);
}

template <class V>
void count(V& v, const Counters& c) {
  v("files", c.files);
  v("extents", c.extents);
  v("given_back_blocks", c.given_back_blocks);
  v("commits", c.commits);
  v("room_waits", c.room_waits);
  v("journal_blocks", c.journal_blocks);
  v("discards", c.discards);
  v("discarded_blocks", c.discarded_blocks);
  v("reused_blocks", c.reused_blocks);
  v("discard_wait_ns", c.discard_wait);
  v("extent_lengths", c.extent_lengths);
  v("discard_lengths", c.discard_lengths);
}

}  // namespace ext4

}  // namespace flashlab::kernel
