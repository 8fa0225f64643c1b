// InnoDB as its users, its page cleaner and its log use memory and storage.
//
//  - A page that is not in the pool is read; a free frame for it comes from the end of the LRU
//    list. Where that end is dirty, the reader waits for the page cleaner.
//  - A change adds to the redo log and makes the page dirty. A commit returns when the log is
//    durable up to it; one writer at a time writes all that there is (group commit).
//  - The page cleaner flushes, a batch after the other: dirty pages among the last of the LRU list;
//    the pages that were dirtied first, if the log would otherwise run full; and if too many are
//    dirty. A page that is being written may be read, but not changed.
//  - With `file_pages_age` the pages that say which of a file's are taken keep their place in the
//    LRU list, however often they are used: MariaDB makes a page young where a B-tree's is looked
//    up (btr_block_get), and gets these another way (fsp0fsp.cc, buf_page_get_gen).
//
// Source: MySQL 5.6, buf0flu.cc (page cleaner, adaptive flushing), log0log.cc. Left out: flushing
// at a rate (innodb_io_capacity), of neighbours, row locks, the change buffer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dbms/innodb/buffer_pool.hpp"
#include "dbms/innodb/storage.hpp"
#include "dbms/tpcc/transactions.hpp"

namespace flashlab::dbms::innodb {

// What each one is: dbms/describe.hpp.
struct EngineParameters {
  Bytes buffer_pool;
  std::uint32_t batch_pages = 120;
  std::uint32_t lru_scan_depth = 1024;
  double most_dirty_ratio = 0.75;
  double flush_age_ratio = 0.75;
  double stall_age_ratio = 0.875;  // of the redo log: from there on changes wait
  Nanos old_blocks_time{1'000'000'000};
  bool file_pages_age = false;  // headers and inodes of files become old though they are used
};

struct EngineCounters {
  std::uint64_t touches = 0;
  std::uint64_t misses = 0;
  std::uint64_t lru_flushed = 0;   // pages, since the end of the LRU list was dirty
  std::uint64_t list_flushed = 0;  // pages, by age or number
  std::uint64_t batches = 0;
  std::uint64_t redo_bytes = 0;
  Nanos read_wait;   // processes together
  Nanos frame_wait;  // for a free frame
  Nanos write_wait;  // for a page that was being written
  Nanos age_wait;    // for room in the redo log
  Nanos commit_wait;
};

class Engine {
 public:
  Engine(host::Machine& machine, const EngineParameters& parameters, Storage& storage, Bytes page,
         Bytes redo, PageId most_pages);

  // A user's process.
  void touch(host::Process self, const tpcc::Touch& touch);
  void expect(std::span<const tpcc::Touch> touches) const;
  void commit(host::Process self);

  // Body of the page cleaner; returns after stop().
  void clean_until_stopped(host::Process self);
  void stop();

  [[nodiscard]] const EngineCounters& counters() const { return counters_; }
  [[nodiscard]] std::uint32_t dirty_pages() const { return pool_.dirty_frames(); }

 private:
  FrameId fetch(host::Process self, const tpcc::Touch& touch);
  FrameId frame_for(host::Process self, const tpcc::Touch& touch);
  bool evict_one();
  [[nodiscard]] bool cleaner_would_help();
  void call_cleaner();
  void change(host::Process self, PageId page, std::uint16_t redo_bytes);
  void make_durable(host::Process self, Lsn upto);
  void flush(host::Process self);
  void collect_from_lru();
  void collect_by_age();
  void collect(FrameId frame);
  [[nodiscard]] Lsn age();
  [[nodiscard]] bool wants_flush();

  host::Machine& machine_;
  EngineParameters parameters_;
  Storage& storage_;
  BufferPool pool_;
  Lsn flush_age_;
  Lsn stall_age_;
  std::uint32_t most_dirty_;
  Lsn lsn_ = 1;
  Lsn durable_ = 1;
  bool log_writing_ = false;
  bool frames_wanted_ = false;
  std::uint64_t reads_ended_ = 0;
  bool stopped_ = false;
  std::vector<FrameId> batch_;
  std::vector<PageId> batch_pages_;
  host::WaitList read_list_;
  host::WaitList flushed_list_;
  host::WaitList durable_list_;
  host::WaitList cleaner_list_;
  EngineCounters counters_;
};

}  // namespace flashlab::dbms::innodb
