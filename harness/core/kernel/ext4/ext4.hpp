// ext4 as temporary files see it: where their blocks go, and what becomes of them when a file is
// deleted: the journal's next commit frees them, and with discard tells the drive.
//
//  - A transaction takes what happens within `commit` of time from its first change on, and a
//  little
//    more: it ends with the first operation that is over later than that (jbd2_journal_stop()), or
//    when the timer goes off, which is at whole seconds (round_jiffies_up()). A file that is
//    deleted then leaves the directory in the one transaction, and its blocks are freed in the
//    next.
//  - A commit writes the metadata blocks that were changed to the journal, flushes, and writes its
//    record: with FUA, or where the kernel does not use that of the drive, followed by one more
//    flush (fs/jbd2/commit.c, journal_submit_commit_record(); block/blk-flush.c).
//  - Freed extents that touch each other in one group and one transaction become one discard.
//  - discard `synchronous` (before Linux 4.13): the commit itself waits for one discard after the
//    other, and blocks are free only then. `asynchronous` (since 5.14): blocks are free with the
//    commit, a worker discards what of them is still free, one after the other; since 6.8 each
//    discard goes on to the end of the free run that it lies in, in its group, whether that was
//    discarded before or not (rules.recent).
//  - `preallocation` is fallocate(KEEP_SIZE) for each new file, with `preallocate_again` whenever
//    it has none left, too; what a file has beyond its end goes with it, or by give_back().
//  - mke2fs's layout: a flexible group's bitmaps and inode tables in its first group, the journal
//  in
//    the middle, and copies of the superblock and the group descriptors, with room for a thousand
//    times as many, in group 1 and those whose number is a power of 3, 5 or 7 (sparse_super).
//  - Whoever writes back and finds no room takes what other files keep for themselves
//    (ext4_mb_discard_preallocations()); then has the transaction that frees some committed at
//    once, and waits for it (ext4_writepages()). fallocate() does neither here.
//  - A file of more than four extents has them in blocks of their own (340 each), which are freed
//    with it.
// Not modelled: metadata's way home (checkpoints), that a commit waits for data on its way to
// blocks that it has allocated, directories, a journal that is full, the second level of extent
// trees, and that a tree's block comes and goes while a file is being written back.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/machine.hpp"
#include "kernel/ext4/allocator.hpp"
#include "kernel/ext4/groups.hpp"
#include "kernel/file_system.hpp"

namespace flashlab::kernel::ext4 {

inline constexpr Bytes kBlock{4096};

// What each one is: kernel/describe.hpp.
struct Parameters {
  Bytes cache_block{8192};
  std::string discard = "none";
  Nanos commit{5'000'000'000};
  Nanos second{1'000'000'000};
  Bytes preallocation;
  bool preallocate_again = false;
  Bytes journal{128 * 1024 * 1024};
  Bytes size;
  Bytes inode_table{2 << 20};
  bool backups = true;
  Bytes occupied;
  bool times = false;
  bool fua = false;
  Bytes occupied_piece;
  AllocatorRules rules;
};

// By length: [2^i, 2^(i+1)) blocks of 4 KiB.
using Lengths = std::array<std::uint64_t, 24>;

struct Counters {
  std::uint64_t files = 0;    // removed
  std::uint64_t extents = 0;  // of removed files
  std::uint64_t given_back_blocks = 0;
  std::uint64_t commits = 0;
  std::uint64_t room_waits = 0;  // for a commit, without which there was no room
  std::uint64_t journal_blocks = 0;
  std::uint64_t discards = 0;
  std::uint64_t discarded_blocks = 0;
  std::uint64_t reused_blocks = 0;  // taken again before the worker came to discard them
  Nanos discard_wait;               // of the commit or the worker
  Lengths extent_lengths{};
  Lengths discard_lengths{};
};

class Ext4 final : public FileSystem, private host::IoOwner {
 public:
  // Throws OperatingError for parameters that make none.
  Ext4(host::Machine& machine, const Parameters& parameters);

  void create(FileId file) override;
  void remove(FileId file) override;
  void close(FileId file, bool clean) override;
  void open(FileId file) override { files_[file].open = true; }
  void written(FileId file) override;
  // Frees what the file has beyond its first `length` blocks of the page cache: ftruncate() to the
  // size that it has.
  void give_back(FileId file, std::int64_t length);
  [[nodiscard]] bool allocate(FileId file, std::int64_t begin, std::int64_t blocks,
                              std::int64_t length) override;
  void tell_of_room(std::function<void()> told) override { tell_of_room_ = std::move(told); }
  [[nodiscard]] Place find(FileId file, std::int64_t begin, std::int64_t blocks) const override;

  // The bodies of kThreads threads of the kernel. They end some time after stop().
  static constexpr std::uint32_t kThreads = 3;
  void run(host::Process self, std::uint32_t thread);
  void stop();
  // The running process has all that was freed so far committed, and discarded if it is to be.
  void sync(host::Process self);
  // Discards all free space of groups in which something was freed since the last time (FITRIM).
  void trim_free_space(host::Process self);

  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] const Allocator& allocator() const { return allocator_; }
  [[nodiscard]] const Groups& groups() const { return groups_; }
  // What a file has, ascending; extents that touch are one.
  [[nodiscard]] std::vector<Run> runs(FileId file) const;

 private:
  struct Extent {
    std::int64_t logical = 0;
    Run run;
  };
  struct File {
    std::vector<Extent> extents;
    std::vector<Run> leaves;  // of the extent tree: a block each
    std::optional<Preallocation> kept;
    std::uint64_t changed = 0;  // the transaction in which it last was
    std::uint64_t number = 0;
    bool open = true;
  };

  struct Transaction {
    std::int64_t blocks = 0;  // of metadata, that were changed
    std::int64_t files = 0;   // that were
    std::vector<Run> freed;
    Nanos begun;  // when it was first changed
    [[nodiscard]] bool is_changed() const { return files > 0 || blocks > 0; }
  };

  void run_timer(host::Process self);
  void run_journal(host::Process self);
  void run_discards(host::Process self);
  void io_done(std::uint32_t cookie) override;
  void transfer(host::Process self, const Request& request);
  void lay_out(const Parameters& parameters);
  [[nodiscard]] GroupNumber journal_group(const Parameters& parameters) const;
  void occupy(const Parameters& parameters);
  void preallocate(File& file);
  void append(File& file, const Run& run);
  [[nodiscard]] bool add_leaf(File& file);
  [[nodiscard]] bool room_comes();
  void drop_kept(File& file);
  [[nodiscard]] bool drop_all_kept();
  void free(const Run& run);
  void change(File& file);
  void change(GroupNumber group);
  void change_block();
  void begin_if_first();
  [[nodiscard]] bool is_due() const;
  void operation_is_over();
  Transaction take_running();
  void commit(host::Process self, const Transaction& transaction);
  void write_journal(host::Process self, std::int64_t blocks, bool fua);
  void flush(host::Process self);
  void discard(host::Process self, const Run& run);
  void discard_free(host::Process self, const Run& run);
  [[nodiscard]] std::vector<Run> merged(const std::vector<Run>& runs) const;
  [[nodiscard]] Lba lba_of(BlockNumber block) const;

  host::Machine& machine_;
  Parameters parameters_;
  std::int64_t per_cache_block_;
  Groups groups_;
  Allocator allocator_;
  std::vector<File> files_;
  std::uint64_t created_ = 0;
  Run journal_;
  std::int64_t journal_at_ = 0;
  std::uint64_t transaction_ = 1;  // the running one's number
  Transaction running_;
  std::optional<Transaction> ended_;          // that the journal's thread is to commit
  std::vector<std::uint64_t> group_changed_;  // by group: the last transaction that did
  std::vector<char> group_freed_;             // by group: since it was trimmed
  std::deque<Run> to_discard_;                // by the worker
  std::vector<host::Process> waiting_;        // by cookie
  std::vector<char> io_ended_;                // by cookie
  std::vector<std::uint32_t> free_cookies_;
  std::optional<host::Process> journal_thread_;
  std::optional<host::Process> idle_worker_;
  bool committing_ = false;
  bool discarding_ = false;
  bool stopped_ = false;
  bool journal_runs_ = false;
  bool is_waited_for_room_ = false;
  std::function<void()> tell_of_room_;
  Counters counters_;
};

}  // namespace flashlab::kernel::ext4
