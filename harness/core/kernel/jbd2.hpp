// ext4's journal (jbd2) as the I/O that it does: transactions, commits, checkpoints, the ring.
//
//  - What is dirtied joins the running transaction; a block that is in it already costs nothing.
//    A commit writes descriptors and blocks to the ring, flushes, and writes the commit record with
//    FUA. One commit at a time; a new transaction runs meanwhile. It is due when somebody syncs,
//    after the commit interval, or when it is as large as one may be: a quarter of the ring, since
//    Linux 6.11 a third (jbd2_journal_get_max_txn_bufs()).
//  - A transaction needs its place in the ring until each of its blocks has been written home or is
//    part of a later transaction that has been committed. Each commit looks which need it no more;
//    when these have so much of the ring it moves the tail: after its record, by a superblock.
//    Whoever dirties something while less than that is free moves the tail first, after a flush; if
//    nothing is to be had, he writes the oldest transaction's blocks home before that, and waits.
//  - Blocks that were dirty for long are written home in the background, in the order of their
//    addresses, as the kernel's flusher does by age (dirty_expire_centisecs).
//  - Who syncs a file whose data is journaled writes its pages back first. What is in no
//    transaction that is still to be committed goes home then: what the file's last sync has
//    committed. Since Linux 6.4 the transaction is committed before the pages are written back, so
//    that what this sync commits goes home with it.
//
// In data mode the blocks are those of files, in ordered mode only those of metadata.
// Source: Linux 3.19, 6.1 and 6.12, fs/jbd2/{commit,checkpoint,journal,transaction}.c,
// include/linux/jbd2.h; fs/ext4/fsync.c (ext4_sync_file), fs/ext4/inode.c (ext4_writepages,
// ext4_do_writepages). Left out: revocation, fast commits, write-back by the amount of dirty
// memory; that a commit waits with the tail until a checkpoint has moved it (here it leaves it to
// that).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "host/machine.hpp"
#include "host/waiting.hpp"

namespace flashlab::kernel {

inline constexpr Bytes kFsBlock{4096};

struct JournalParameters {
  Lba begin;
  std::int64_t blocks = 0;  // of the ring, with its superblock
  StreamId stream = 0;
  Nanos commit_interval;
  Nanos expire;                           // how long a block may be dirty
  Nanos flusher_interval{1'000'000'000};  // how often somebody looks for such
  std::int64_t tags_per_block = 254;      // what a descriptor block has room for
  bool home_in_same_sync = false;         // of a file whose data is journaled: since Linux 6.4
  std::int64_t ring_per_transaction = 4;  // at least; since Linux 6.11 3
};

// Blocks of the file system that belong together: each buffer is dirtied and written as a whole.
struct BufferRegion {
  Lba begin;
  std::int64_t blocks_each = 1;  // of 4 KiB
  std::uint32_t count = 0;
  bool is_file = false;  // that is synced by itself
};

// By number, through all regions in their order.
using Buffer = std::uint32_t;

struct JournalCounters {
  std::uint64_t commits = 0;
  std::uint64_t checkpoints = 0;     // transactions whose blocks somebody had to write home first
  std::uint64_t requests = 0;        // to the ring, as the block layer splits them
  std::uint64_t written_blocks = 0;  // to the ring
  std::uint64_t home_blocks = 0;     // written home
  std::uint64_t expired_blocks = 0;  // of these, in the background
  std::uint64_t synced_blocks = 0;   // of these, by who synced their file
  Nanos space_wait;                  // processes together
};

inline constexpr std::int64_t kFsBlockSectors = 8;

class Jbd2 {
 public:
  // Throws OperatingError for a ring that is too small. `written_home`: hears of buffers.
  Jbd2(host::Machine& machine, const JournalParameters& parameters,
       std::vector<BufferRegion> regions, std::function<void(Buffer)> written_home);

  // Joins the running transaction; may wait for room in the ring.
  void dirty(host::Process self, Buffer buffer);
  // Returns when everything that was dirtied before is committed; at least, flushes the device.
  void sync(host::Process self);
  // The same, of one buffer, as who syncs a file waits for its inode's transaction alone; what he
  // has written elsewhere before is durable, too.
  void sync(host::Process self, Buffer buffer);
  // Of everything, by who syncs a region that is a file; its blocks go home on the way.
  void sync_file(host::Process self, std::size_t region);

  // Bodies of two processes; they return after stop().
  void commit_until_stopped(host::Process self);
  void write_back_until_stopped(host::Process self);
  void stop();

  [[nodiscard]] const JournalCounters& counters() const { return counters_; }

 private:
  using Tid = std::uint32_t;
  struct Transaction {
    Tid tid = 0;
    Nanos begun;
    Nanos committed;
    std::int64_t blocks = 0;      // of its buffers
    std::int64_t in_ring = 0;     // with descriptors and commit record
    std::int64_t going_home = 0;  // buffers whose write has begun and not ended
    bool written_back = false;
    std::vector<Buffer> buffers;
  };

  [[nodiscard]] std::int64_t room() const;
  void make_room(host::Process self, std::int64_t blocks);
  void checkpoint(host::Process self);
  void commit(host::Process self);
  bool commit_all(host::Process self);
  bool commit_until(host::Process self, Tid last);
  void request_commit(Tid tid);
  void wait_for(host::Process self, Tid tid);
  void write_ring(host::Process self, std::int64_t blocks);
  void write_oldest_home(host::Process self);
  [[nodiscard]] bool is_clean(const Transaction& transaction) const;
  void drop_clean();
  void drop_until(Tid tid);
  void move_tail(host::Process self, Tid tail);
  [[nodiscard]] Transaction& kept(Tid tid);
  [[nodiscard]] host::Transfers homeward(host::Process self);
  void write_home(host::Transfers& transfers, Buffer buffer);
  [[nodiscard]] bool holds(const Transaction& transaction, Buffer buffer) const {
    return tid_[buffer] == transaction.tid;
  }
  // Neither at home, or on its way there, nor committed again.
  [[nodiscard]] bool needs(const Transaction& transaction, Buffer buffer) const {
    return committed_in_[buffer] == transaction.tid && tid_[buffer] != 0;
  }
  void write_back(host::Process self, Nanos before);
  void write_file_home(host::Process self, std::size_t region);
  std::uint64_t write_dirty_home(host::Process self, std::vector<std::pair<Buffer, Tid>>& dirty);
  [[nodiscard]] Request home_of(Buffer buffer) const;
  [[nodiscard]] std::int64_t blocks_of(Buffer buffer) const;
  [[nodiscard]] std::size_t region_of(Buffer buffer) const;

  host::Machine& machine_;
  JournalParameters parameters_;
  std::vector<BufferRegion> regions_;
  std::vector<Buffer> first_;  // of each region
  // By region: what was committed since the file was last written back, and may have gone since.
  std::vector<std::vector<std::pair<Buffer, Tid>>> committed_of_;
  std::function<void(Buffer)> written_home_;
  // By buffer: of the last transaction that has it; 0: home is up to date, or will be when a write
  // that is under way has ended.
  std::vector<Tid> tid_;
  std::vector<Tid> committed_in_;  // by buffer: the last transaction
  Transaction running_;
  std::int64_t committing_blocks_ = 0;
  std::deque<Transaction> kept_;  // committed, oldest first
  std::int64_t kept_blocks_ = 0;
  std::int64_t largest_;  // of a transaction (j_max_transaction_buffers)
  std::int64_t head_ = 1;
  Tid committed_ = 0;
  Tid requested_ = 0;
  bool will_flush_ = false;          // the commit that is under way
  Tid dropped_ = 0;                  // those before it need the ring no more, as of the last look
  std::int64_t dropped_blocks_ = 0;  // theirs of the ring, while they are kept
  bool tail_moves_ = false;          // one at a time
  bool stopped_ = false;
  host::WaitList committed_list_;
  host::WaitList requested_list_;
  host::WaitList room_list_;
  host::WaitList home_list_;
  JournalCounters counters_;
};

}  // namespace flashlab::kernel
