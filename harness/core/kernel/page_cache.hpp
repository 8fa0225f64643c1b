// The kernel's page cache over one device: buffered reads with read-ahead, buffered writes,
// write-back in the background, writers held back, least recently used out first.
//
// Modelled, after the documentation of Linux (Documentation/sysctl/vm.txt, F. Wu's papers):
//  - memory is shared by all files; blocks come onto the inactive list, of which the oldest clean
//    one goes first; one that is used a second time is moved to the active list, which never is
//    the longer one: its oldest go back;
//  - a dirty block whose turn it is to go is put to that list's young end, since Linux 4.11
//    (`dirty_go_active`) out of the way to the active list's, and goes next once it is written;
//  - since Linux 3.15 (`refaults`) a block that comes back soon after it was evicted is active at
//    once: soon, if no more were evicted and activated since than are active; until Linux 4.7
//    (`writes_are_uses`) a write uses a block as a read does;
//  - who needs room looks at the old end a batch at a time, of one page or a few where memory is
//    small; since Linux 4.11 (`dirty_tail_is_flushed`) a batch of none but dirty blocks that nobody
//    writes back has all that is dirty written;
//  - read-ahead per open file (read_ahead.hpp); it is not begun on a marker while the queue for
//    reads is congested;
//  - write-back starts when dirty blocks exceed the background ratio of memory, takes file after
//    file, of each half a second's worth of the device's bandwidth, or an eighth of the limit if
//    that is less, and up to 4 MiB more, in the order of addresses (what is written behind the last
//    of them meanwhile waits for the next turn since Linux 5.8, `turns_end_with_scan`), and keeps
//    at most `queue_limit` requests waiting; whether it has brought them below that ratio it asks
//    itself between two files, when `round` has passed or all have had a turn;
//  - a writer keeps to a pace, by dirty blocks and those being written (dirty_pace.hpp);
//  - a file's blocks get their place on the device when they are first written back, from the file
//    system that the cache was given: ext4 (ext4.hpp), or `allocation` bytes at a time, one file's
//    after the other's.
// Not modelled: the age at which dirty blocks expire (30 s; they are written sooner here), what
// kernels before 4.11 write when memory is short, that who needs room in a group of version 1 may
// have to wait for write-back, folios of many pages, metadata of the file system.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ring.hpp"
#include "host/machine.hpp"
#include "kernel/dirty_pace.hpp"
#include "kernel/file_system.hpp"
#include "kernel/read_ahead.hpp"

namespace flashlab::kernel {

// What each one is: kernel/describe.hpp.
struct PageCacheParameters {
  Bytes memory;
  Bytes block{8192};
  Bytes read_ahead{128 * 1024};
  double dirty_background_ratio = 0.1;
  double dirty_ratio = 0.2;
  bool strict_limit = false;
  Nanos round;
  Nanos second{1'000'000'000};
  std::uint32_t queue_limit = 128;
  Bytes allocation{8 << 20};
  Bytes segment{1 << 30};
  Bytes begin;
  Nanos copy_cpu;
  bool refaults = false;
  bool writes_are_uses = false;
  bool dirty_go_active = false;
  bool dirty_tail_is_flushed = false;
  bool misses_open_windows = false;
  bool turns_end_with_scan = false;
};

struct PageCacheCounters {
  std::uint64_t read_blocks = 0;     // asked for by readers
  std::uint64_t missed_blocks = 0;   // that were neither cached nor on their way
  std::uint64_t written_blocks = 0;  // by writers
  std::uint64_t device_read_blocks = 0;
  std::uint64_t device_write_blocks = 0;
  Nanos read_wait;                 // of all processes
  Nanos write_wait;                // held back
  std::uint64_t tail_flushes = 0;  // of all that was dirty, for what was found at the old end
};

// A file is read and written by one process. The cache must live until its machine has stopped for
// good: the device may be busy with a file that is gone.
class PageCache final : private host::IoOwner {
 public:
  PageCache(host::Machine& machine, const PageCacheParameters& parameters);
  // `places` says where blocks lie; `allocation` and `begin` of the parameters mean nothing then.
  PageCache(host::Machine& machine, const PageCacheParameters& parameters, FileSystem& places);
  ~PageCache();

  FileId create();
  // Nobody, or somebody again, has it open for writing: the file system may want to know.
  void close(FileId file) { places_.close(file, dirty_blocks(file) == 0); }
  void open(FileId file) { places_.open(file); }
  // Its blocks are forgotten, whether they were written or not.
  void remove(FileId file);

  // The running process reads or writes blocks, through the cache. CPU time adds up until taken.
  void read(host::Process self, FileId file, std::int64_t begin, std::int64_t blocks);
  void write(host::Process self, FileId file, std::int64_t begin, std::int64_t blocks);
  // Begins to read what is not cached, and does not wait (posix_fadvise, WILLNEED).
  void will_need(host::Process self, FileId file, std::int64_t begin, std::int64_t blocks);
  // The process has read so much of a file on another device: memory is memory.
  void read_elsewhere(std::int64_t blocks);
  // A hint that the process will soon read there. Changes nothing but the speed of the simulation.
  void expect(FileId file, std::int64_t block) const;
  [[nodiscard]] Nanos take_cpu(host::Process self);

  [[nodiscard]] const PageCacheCounters& counters() const { return counters_; }
  [[nodiscard]] std::int64_t resident_blocks() const { return resident_; }
  // Of these, on the active list.
  [[nodiscard]] std::int64_t active_blocks() const { return active_blocks_; }
  [[nodiscard]] std::int64_t dirty_blocks() const { return dirty_; }
  [[nodiscard]] std::int64_t dirty_blocks(FileId file) const;
  // Files whose name is taken: that exist, or that the device is still busy with.
  [[nodiscard]] std::size_t files() const { return files_.size() - free_files_.size(); }
  [[nodiscard]] bool cached(FileId file, std::int64_t block) const;

 private:
  struct File;
  PageCache(host::Machine& machine, const PageCacheParameters& parameters,
            std::unique_ptr<FileSystem> own, FileSystem* places);
  // So many blocks of a list, as long as they have this stamp.
  struct Entry {
    FileId file;
    std::uint32_t stamp;
    std::int64_t begin;
    std::int64_t blocks;
  };
  // How far who needs room has looked at the inactive list: a share of it that doubles until 32
  // pages have been found, at most 32 at a time (shrink_lruvec() of mm/vmscan.c).
  struct Reclaim {
    int priority = kFirstPriority;
    std::int64_t share_left = 0;  // blocks
    std::int64_t batch_left = 0;
    bool is_dirty = true;  // all of this batch so far
    std::int64_t found = 0;
    static constexpr int kFirstPriority = 12;
  };
  struct Io {
    FileId file = 0;
    Op op = Op::read;
    std::int64_t begin = 0;
    std::int64_t blocks = 0;
    host::Process waiting = 0;
    bool awaited = false;
  };

  void io_done(std::uint32_t io) override;
  void read_done(const Io& io);
  void write_done(const Io& io);

  void bring(host::Process self, File& file, std::int64_t block);
  void wait_for(host::Process self, File& file, std::int64_t block);
  void start_reads(host::Process self, FileId id, const ReadWindow& window);
  void start_io(host::Process self, FileId id, Op op, std::int64_t begin, const Place& place);

  void arrive(File& file, std::int64_t begin, std::int64_t blocks, bool is_read);
  void enlist(File& file, std::int64_t begin, std::int64_t blocks);
  void push(Ring<Entry>& list, File& file, std::int64_t begin, std::int64_t blocks);
  void use(File& file, std::int64_t begin, std::int64_t blocks);
  void make_room(std::int64_t blocks);
  void look_at(std::int64_t blocks, bool is_unqueued_dirty);
  void begin_batch();
  void deactivate();
  void evict(const Entry& oldest);
  void keep(File& file, std::int64_t begin, std::int64_t blocks);
  void rotate(File& file, std::int64_t begin, std::int64_t blocks);
  void forget(std::span<std::uint8_t> row);

  void keep_pace(host::Process self, std::int64_t blocks);
  void mark_dirty(File& file, std::int64_t begin, std::int64_t blocks);
  void begin_write_back();
  void write_back();
  [[nodiscard]] bool goes_on();
  void begin_round();
  [[nodiscard]] bool round_is_over() const;
  bool write_some(FileId id);
  [[nodiscard]] FileId next_dirty_file() const;
  [[nodiscard]] std::int64_t turn() const;
  void settle(FileId id);
  void note_dirty(const File& file);

  host::Machine& machine_;
  PageCacheParameters parameters_;
  std::unique_ptr<FileSystem> own_;
  FileSystem& places_;
  std::int64_t capacity_;
  std::int64_t background_;
  std::int64_t limit_;
  DirtyPace pace_;
  std::int64_t read_ahead_;
  std::int64_t per_segment_;
  std::int64_t per_request_;
  std::int64_t per_reclaim_;
  std::vector<std::unique_ptr<File>> files_;
  std::vector<FileId> free_files_;          // removed, and nothing of them under way
  std::vector<std::uint64_t> dirty_files_;  // one bit per file: it has dirty blocks
  Ring<Entry> written_;                     // the inactive list's old end, before it
  Ring<Entry> inactive_;                    // oldest first, as the next one
  Ring<Entry> active_;
  std::uint32_t stamp_ = 0;
  std::uint32_t age_ = 0;  // blocks that were evicted or activated
  std::int64_t resident_ = 0;
  std::int64_t active_blocks_ = 0;  // of these
  std::int64_t dirty_ = 0;          // and not being written
  std::int64_t writing_ = 0;        // under write-back, whether written to again meanwhile or not
  std::vector<Io> ios_;
  std::vector<std::uint32_t> free_ios_;
  std::vector<Nanos> cpu_;  // by process
  bool writing_back_ = false;
  bool waits_for_room_ = false;  // the flusher, which the file system will tell
  Reclaim reclaim_;
  bool flush_is_asked_ = false;
  std::int64_t flush_left_ = 0;  // blocks, of those that were dirty when it began
  FileId flushed_ = 0;           // the file whose turn it is
  std::int64_t turn_left_ = 0;
  Nanos round_begin_;
  FileId round_last_ = 0;  // behind which the list ends
  bool round_has_begun_ = false;
  PageCacheCounters counters_;
};

}  // namespace flashlab::kernel
