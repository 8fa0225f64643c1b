// Where InnoDB's pages and its redo log become durable: on ext4 with O_DIRECT and a doublewrite
// buffer, or through ext4's data journal (MS-DJ paper, section 2).
//
//  ordered    Pages go past the page cache. With the doublewrite buffer a batch is first written
//             there, one after the other, and synced; then each page goes home, all at once, and
//             the file is synced. The writes change the times of the file's inode, if the
//             kernel's coarse clock has ticked since they last were (file_update_time()). fsync
//             commits these; where there are none, it only flushes, and so does fdatasync always:
//             it leaves them to the commit interval.
//  journaled  ext4 does O_DIRECT through the page cache here. A page joins the journal's running
//             transaction; syncing commits it; home it goes when its file is synced
//             (kernel/jbd2.hpp), by checkpoint or age. Reads find what the page cache still has,
//             in which the log takes its place, too.
//
// Tables are one file here, the log another, and the doublewrite buffer a third, which is the
// system tablespace. None grows: else each change of its size would be one of its inode, too.
// Source: ext4's ext4_should_journal_data in ext4_direct_IO (Linux 3.19); of the times, fs/inode.c
// (file_update_time, current_fs_time) and fs/ext4/fsync.c, which commits up to the inode's own
// transaction (i_sync_tid; of fdatasync i_datasync_tid, which times leave alone); MySQL 5.6,
// buf0dblwr.cc; of the log's blocks, MariaDB 10.11, log0log.cc (log_t::write_size).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/huge_array.hpp"
#include "dbms/innodb/buffer_pool.hpp"
#include "host/machine.hpp"
#include "host/waiting.hpp"
#include "kernel/jbd2.hpp"

namespace flashlab::dbms::innodb {

// What each one is: dbms/describe.hpp.
struct StorageParameters {
  bool journaled = false;
  bool doublewrite = true;
  bool doublewrite_elsewhere = false;
  bool redo_elsewhere = false;
  bool sync_commits_inode = true;
  Nanos tick{4'000'000};
  Bytes page;
  Bytes redo;
  Bytes redo_block{4096};
  Bytes doublewrite_area;
  Bytes page_cache;
  Nanos copy_cpu;
  BytesPerSecond other_drive_rate;
  Nanos other_drive_latency;
  kernel::JournalParameters journal;  // its begin is the file system's
};

struct StorageCounters {
  std::uint64_t page_reads = 0;          // that the device had to serve
  std::uint64_t cached_reads = 0;        // that the page cache could
  std::uint64_t pages_flushed = 0;       // by the server
  std::uint64_t pages_home = 0;          // written to their place on the device
  std::uint64_t doublewrite_blocks = 0;  // on the device, of 4 KiB
  std::uint64_t redo_sectors = 0;        // written to their place on the device
  std::uint64_t redo_syncs = 0;
};

// Pages that the kernel keeps, by second chance.
class PageCache {
 public:
  PageCache(std::uint32_t pages, PageId most_pages);
  // Whether the page is there; it is, from now on.
  bool use(PageId page);
  // A prefetch for a page that will be used soon.
  void expect(PageId page) const {
    if (!slots_.empty()) where_.prefetch(page);
  }

 private:
  std::vector<PageId> slots_;
  HugeArray<std::uint32_t> where_;  // by page: its slot, counted from 1; 0 for none
  std::vector<std::uint8_t> used_;  // by slot
  std::uint32_t hand_ = 0;
};

class Storage {
 public:
  // Throws OperatingError for areas that do not fit on the device.
  Storage(host::Machine& machine, const StorageParameters& parameters, PageId most_pages);

  // Each returns when it is done; the writes are durable then.
  void read(host::Process self, PageId page);
  // A hint that it will soon be read, for the speed of the simulation.
  void expect_read(PageId page) const {
    page_cache_.expect(page);
    machine_.device().expect(at(Op::read, page));
  }
  void write(host::Process self, std::span<const PageId> pages);
  void write_redo(host::Process self, Lsn begin, Lsn end);

  [[nodiscard]] kernel::Jbd2& journal() { return journal_; }
  [[nodiscard]] const StorageCounters& counters() const { return counters_; }
  // How often each page was written home, since the last clear.
  [[nodiscard]] const std::vector<std::uint32_t>& writes_of_page() const { return writes_; }
  void clear_writes_of_pages() { writes_.assign(writes_.size(), 0); }
  [[nodiscard]] Extent pages_extent() const;
  [[nodiscard]] Extent journal_extent() const;
  [[nodiscard]] Extent redo_extent() const { return redo_; }
  [[nodiscard]] Extent doublewrite_extent() const { return doublewrite_; }

 private:
  // The first two as the journal's regions.
  enum File : std::uint8_t { data_file, redo_file, doublewrite_file, files };

  void write_doublewrite(host::Process self, std::int64_t pages);
  void write_ordered(host::Process self, std::span<const PageId> pages);
  void write_journaled(host::Process self, std::span<const PageId> pages);
  void write_redo_journaled(host::Process self, Lsn begin, Lsn end);
  void written_home(kernel::Buffer buffer);
  void change_times(host::Process self, File file);
  void sync(host::Process self, File file);
  [[nodiscard]] kernel::Buffer inode_of(File file) const;
  void elsewhere(host::Process self, Bytes bytes);
  [[nodiscard]] Request at(Op op, PageId page) const;

  host::Machine& machine_;
  StorageParameters parameters_;
  Extent doublewrite_;
  Extent redo_;
  Extent inodes_;
  Lba pages_begin_;
  PageId most_pages_;
  Sectors page_sectors_;
  kernel::Jbd2 journal_;
  PageCache page_cache_;
  std::array<std::int64_t, files> times_;  // by file: the tick of its last change
  std::int64_t doublewrite_at_ = 0;
  Nanos other_drive_free_;
  StorageCounters counters_;
  std::vector<std::uint32_t> writes_;
};

}  // namespace flashlab::dbms::innodb
