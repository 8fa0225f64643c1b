// Where ext4 puts a file's next blocks: the multiblock allocator (fs/ext4/mballoc.c), for data.
//
// After the kernel's source (3.10 to 6.18; what differs is in AllocatorRules):
//  - a request is made longer before it is looked for: to a power of two of 16 KiB to 1 MiB by the
//    file's size, then to windows of 2, 4 and 8 MiB; what is too much is kept for the file (inode
//    preallocation) until it is used, the file removed, or nobody has it open and nothing of it
//    waits to be written;
//  - the end of a file that nobody has open any more gets just what it needs, anywhere near;
//  - files of at most 16 blocks (s_mb_stream_request) share preallocated pieces of 512 blocks;
//  - a file that goes on tries the place behind its last block; else the search begins in the group
//    in which the last large request was met (stream goal), a small file's in its directory's;
//  - the search goes through all groups with ever lower standards: an aligned chunk of exactly that
//    power of two; groups whose free runs are long enough on average; groups with that many free
//    blocks; anything. Within a group it takes the best fit of the first few runs it finds;
//  - recent kernels keep groups sorted, from 16 of them on (mb_optimize_scan): for the first two
//    standards the group is taken that has the least to lose, and before a request is cut to
//    whatever there is, groups are looked for whose free runs are as long as a half to an eighth.
// Not modelled: stripes, the first four groups in turn on a disk, big allocation clusters, reserved
// blocks, running out of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernel/ext4/groups.hpp"

namespace flashlab::kernel::ext4 {

struct AllocatorRules {
  // As of 6.18 on a drive that does not rotate, in place of 3.10: sorted groups (lists since 5.13,
  // in the groups' order since 6.17); runs that are too short are not counted among the first few
  // (6.4); small files share pieces when closed, too (6.5).
  bool recent = false;
  std::uint32_t stream_goals = 1;
  // Where the search for small files and for extent trees begins: the second group of the flexible
  // group that has their directory. -1: of the one in the middle; the kernel spreads directories.
  GroupNumber small_files = -1;
  std::int64_t flex_groups = 16;  // of these the first is left to metadata
};

struct AllocatorCounters {
  std::uint64_t requests = 0;   // that the free space was searched for
  std::uint64_t at_goal = 0;    // met right behind the file's last block
  std::uint64_t shortened = 0;  // met with less than was looked for
};

// What a file keeps for itself beyond its last block.
struct Preallocation {
  std::int64_t logical = 0;
  Run run;
};

// The end of what a file has, logical and on the device.
struct Tail {
  std::int64_t logical = 0;
  BlockNumber block = 0;
};

class Allocator {
 public:
  Allocator(Groups& groups, const AllocatorRules& rules);

  // Blocks for `blocks` of a file from `logical` on, which is the end of what it has (`tail`, if it
  // has anything). `size`: of the file, with all that waits to be written. `kept`: the file's
  // preallocation. `file` chooses the stream goal. Returns at least one block, maybe fewer than
  // asked for; nothing if there is no free block.
  std::optional<Run> allocate(std::uint64_t file, std::int64_t logical, std::int64_t blocks,
                              std::int64_t size, const std::optional<Tail>& tail,
                              std::optional<Preallocation>& kept);
  // The same for the end of a file that is closed.
  std::optional<Run> allocate_closed(std::int64_t blocks, std::int64_t size,
                                     const std::optional<Tail>& tail,
                                     std::optional<Preallocation>& kept);
  // Exactly what is asked for, as fallocate() does; maybe fewer, if no run is that long.
  std::optional<Run> allocate_plain(std::uint64_t file, std::int64_t blocks,
                                    const std::optional<Tail>& tail);
  // For a file's extent tree.
  std::optional<Run> allocate_metadata(std::int64_t blocks) {
    return search(blocks, blocks, rules_.small_files);
  }
  // Gives back what is kept for small files.
  void drop_shared();

  [[nodiscard]] const AllocatorCounters& counters() const { return counters_; }
  // Blocks that are kept for small files.
  [[nodiscard]] std::int64_t shared_blocks() const;

 private:
  struct Search {
    std::int64_t wanted = 0;
    GroupNumber from = 0;
    std::uint32_t found = 0;
    std::optional<Run> best;  // maybe longer than wanted
    bool done = false;
  };

  static Run use(std::optional<Preallocation>& kept, std::int64_t blocks);
  std::optional<Run> small(std::int64_t blocks);
  std::optional<Run> find(std::uint64_t file, std::int64_t blocks, std::int64_t asked,
                          const std::optional<BlockNumber>& goal, bool stream);
  std::optional<Run> search(std::int64_t blocks, std::int64_t asked, GroupNumber from);
  template <class WillDo, class Class>
  std::optional<GroupNumber> first(GroupNumber begin, GroupNumber end, int lowest,
                                   const WillDo& will_do, const Class& class_of) const;
  void search_aligned(Search& search) const;
  [[nodiscard]] Run lowest_chunk(GroupNumber group, int order) const;
  void search_long(Search& search) const;
  void search_shorter(Search& search, std::int64_t asked) const;
  [[nodiscard]] std::int64_t mean_run(GroupNumber group) const;
  void search_runs(Search& search, GroupNumber group, bool long_enough) const;
  void measure(Search& search, const Run& run) const;
  void check_limits(Search& search, bool whole_group) const;
  [[nodiscard]] GroupNumber& goal_of(std::uint64_t file) {
    return stream_goal_[file % stream_goal_.size()];
  }

  Groups& groups_;
  AllocatorRules rules_;
  bool sorted_;  // groups are not looked through in turn
  std::vector<GroupNumber> stream_goal_;
  std::vector<Run> shared_;  // pieces for small files
  AllocatorCounters counters_;
};

}  // namespace flashlab::kernel::ext4
