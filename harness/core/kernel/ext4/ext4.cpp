#include "kernel/ext4/ext4.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.hpp"

namespace flashlab::kernel::ext4 {
using host::Machine;
using host::Process;

namespace {

using namespace literals;

constexpr std::int64_t kPerGroup = 32'768;  // blocks: one bitmap block
constexpr std::int64_t kBitmaps = 2;        // of a group
constexpr std::int64_t kDescriptorsInBlock = 64;
constexpr std::int64_t kMayGrow = 1024;  // so many times: descriptors are kept for that,
constexpr std::int64_t kMostKeptDescriptors = 1024;  // in at most so many blocks
constexpr std::int64_t kInodesPerBlock = 16;
constexpr std::size_t kExtentsInInode = 4;
constexpr std::size_t kExtentsInLeaf = 340;
constexpr Nanos kLook = 1_ms;  // whether somebody else's commit has ended

std::size_t at(std::int64_t n) { return static_cast<std::size_t>(n); }

void count_length(Lengths& lengths, std::int64_t blocks) {
  const int i = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(blocks))) - 1;
  ++lengths[std::min(static_cast<std::size_t>(i), lengths.size() - 1)];
}

// In whole blocks of the page cache.
std::int64_t blocks_of(const Machine& machine, const Parameters& p) {
  const Bytes whole = p.size > Bytes{0} ? p.size : machine.device().capacity();
  require(whole <= machine.device().capacity(), "ext4, size: larger than the device");
  return whole / p.cache_block * (p.cache_block / kBlock);
}

// Superblock, group descriptors, and what is kept for more of these.
std::int64_t superblock_and_descriptors(GroupNumber groups) {
  const std::int64_t used = ceil_div(groups, kDescriptorsInBlock);
  const std::int64_t grown = ceil_div(kMayGrow * groups, kDescriptorsInBlock);
  return 1 + std::min(grown, used + kMostKeptDescriptors);
}

bool has_backup(GroupNumber group) {
  if (group == 1) return true;
  for (const GroupNumber base : {3, 5, 7}) {
    GroupNumber power = base;
    while (power < group) power *= base;
    if (power == group) return true;
  }
  return false;
}

const Parameters& checked(const Parameters& p) {
  const std::int64_t per_cache_block = p.cache_block / kBlock;
  require(per_cache_block >= 1 && std::has_single_bit(at(per_cache_block)) &&
              p.cache_block == kBlock * per_cache_block,
          "ext4: the page cache's block must be a power of two of 4 KiB");
  require(p.second > Nanos{0}, "ext4, second: must be positive");
  require(p.discard == "none" || p.discard == "synchronous" || p.discard == "asynchronous",
          "unknown discard '" + p.discard + "' (known: asynchronous, none, synchronous)");
  require(p.commit > Nanos{0}, "ext4, commit: must be positive");
  require(p.preallocation >= Bytes{0} && p.preallocation.count() % p.cache_block.count() == 0,
          "ext4, preallocation: must be a multiple of the page cache's block");
  require(p.inode_table >= kBlock && p.inode_table.count() % kBlock.count() == 0,
          "ext4, inode_table: must be a multiple of 4 KiB");
  require(p.rules.flex_groups >= 1, "ext4, flex_groups: at least 1");
  return p;
}

}  // namespace

Ext4::Ext4(Machine& machine, const Parameters& p)
    : machine_(machine),
      parameters_(checked(p)),
      per_cache_block_(p.cache_block / kBlock),
      groups_(blocks_of(machine, p), kPerGroup),
      allocator_(groups_, p.rules),
      group_changed_(at(groups_.count())),
      group_freed_(at(groups_.count())) {
  lay_out(p);
}

void Ext4::lay_out(const Parameters& p) {
  const std::int64_t journal_blocks = p.journal / kBlock;
  require(journal_blocks >= 16 && groups_.free_blocks() >= 4 * journal_blocks,
          "ext4: the device is too small for the journal");
  // In whole blocks of the page cache, as all that is ever taken: so a free run never ends inside
  // one.
  const auto take = [&](GroupNumber group, std::int64_t blocks) {
    const std::int64_t whole = ceil_div(blocks, per_cache_block_) * per_cache_block_;
    groups_.take({group * kPerGroup, std::min(whole, groups_.free_in(group))});
  };
  const std::int64_t copied = p.backups ? superblock_and_descriptors(groups_.count()) : 0;
  const std::int64_t tables = p.rules.flex_groups * (p.inode_table / kBlock + kBitmaps);
  for (GroupNumber group = 0; group < groups_.count(); ++group) {
    if (group % p.rules.flex_groups == 0) {
      take(group, tables + (group == 0 ? copied : 0));
    } else if (p.backups && has_backup(group)) {
      take(group, copied);
    }
  }
  BlockNumber begin = journal_group(p) * kPerGroup;
  while (groups_.free_from(begin, 1) == 0) ++begin;  // behind metadata
  journal_ = {begin, journal_blocks};
  for (std::int64_t left = journal_blocks; left > 0;) {
    const std::int64_t blocks = groups_.free_from(begin, left);
    if (blocks > 0) {
      groups_.take({begin, blocks});
      left -= blocks;
      begin += blocks;
    } else {
      ++begin;  // metadata of a group in between
    }
  }
  occupy(p);
}

// Of the groups in the middle, or at the beginning of the flexible group in the middle, the one
// with the most room (get_midpoint_journal_block() of e2fsprogs).
GroupNumber Ext4::journal_group(const Parameters& p) const {
  const GroupNumber middle = groups_.group_of(blocks_of(machine_, p) / 2);
  const bool is_flexible = middle > p.rules.flex_groups;
  const GroupNumber aimed = is_flexible ? middle - middle % p.rules.flex_groups : middle;
  GroupNumber best = is_flexible ? aimed : std::max<GroupNumber>(aimed - 1, 0);
  const GroupNumber last = std::min<GroupNumber>(aimed + 1, groups_.count() - 1);
  for (GroupNumber group = best + 1; group <= last; ++group) {
    if (groups_.free_in(group) > groups_.free_in(best)) best = group;
  }
  return best;
}

// Other files, which nobody touches: from the beginning on, or a piece here and there, with as much
// left free between them as makes them even.
void Ext4::occupy(const Parameters& p) {
  // In whole blocks of the page cache, too.
  std::int64_t occupied = p.occupied / p.cache_block * per_cache_block_;
  const std::int64_t whole = occupied;
  const std::int64_t all = groups_.free_blocks();
  require(occupied < all, "ext4: the device is too small for the other files");
  const std::int64_t piece =
      ceil_div(p.occupied_piece.count(), p.cache_block.count()) * per_cache_block_;
  std::int64_t passed = 0;  // free blocks, left or taken
  std::int64_t taken = 0;
  for (GroupNumber group = 0; group < groups_.count() && occupied > 0; ++group) {
    const std::vector<Run> runs = groups_.runs(group);
    for (Run rest : runs) {
      while (rest.blocks > 0 && occupied > 0) {
        const std::int64_t now = std::min({rest.blocks, occupied, piece > 0 ? piece : rest.blocks});
        const Run run{rest.begin, now};
        rest = {run.end(), rest.blocks - now};
        passed += now;
        const bool even = static_cast<double>(taken) * static_cast<double>(all) <=
                          static_cast<double>(passed - now) * static_cast<double>(whole);
        if (piece > 0 && !even) continue;
        groups_.take(run);
        machine_.device().assume_written(
            {lba_of(run.begin), lba_of(run.begin) + to_sectors(kBlock * run.blocks)});
        occupied -= now;
        taken += now;
      }
    }
  }
}

Lba Ext4::lba_of(BlockNumber block) const { return to_lba(kBlock * block); }

void Ext4::create(FileId id) {
  if (files_.size() <= id) files_.resize(id + 1);
  files_[id] = File{};
  files_[id].number = ++created_;
  change(files_[id]);
  if (parameters_.preallocation > Bytes{0}) preallocate(files_[id]);
  operation_is_over();
}

void Ext4::preallocate(File& file) {
  for (std::int64_t left = parameters_.preallocation / kBlock; left > 0;) {
    std::optional<Tail> tail;
    if (!file.extents.empty()) {
      const Extent& last = file.extents.back();
      tail = Tail{last.logical + last.run.blocks, last.run.end()};
    }
    const std::optional<Run> run = allocator_.allocate_plain(file.number, left, tail);
    if (run) append(file, *run);
    if (!run || !add_leaf(file)) {
      throw OperatingError(ErrorKind::disk_full,
                           "the modelled device is too small for the files' preallocation");
    }
    left -= run->blocks;
  }
}

void Ext4::give_back(FileId id, std::int64_t length) {
  File& file = files_[id];
  const std::int64_t end = length * per_cache_block_;
  while (!file.extents.empty()) {
    Extent& last = file.extents.back();
    const std::int64_t kept = std::max(end - last.logical, std::int64_t{0});
    if (kept >= last.run.blocks) return;
    change(file);
    operation_is_over();  // its length is known
    change(file);
    counters_.given_back_blocks += static_cast<std::uint64_t>(last.run.blocks - kept);
    free({last.run.begin + kept, last.run.blocks - kept});
    last.run.blocks = kept;
    if (kept > 0) return;
    file.extents.pop_back();
  }
}

void Ext4::append(File& file, const Run& run) {
  change(groups_.group_of(run.begin));
  change(file);
  if (!file.extents.empty() && file.extents.back().run.end() == run.begin) {
    file.extents.back().run.blocks += run.blocks;
    return;
  }
  const std::int64_t logical =
      file.extents.empty() ? 0 : file.extents.back().logical + file.extents.back().run.blocks;
  file.extents.push_back({logical, run});
}

// For the extents that the file has, if it needs one; false: there is no room. In whole blocks of
// the page cache: see lay_out().
bool Ext4::add_leaf(File& file) {
  const std::size_t extents = file.extents.size();
  if (extents <= kExtentsInInode || extents <= file.leaves.size() * kExtentsInLeaf) return true;
  const std::optional<Run> run = allocator_.allocate_metadata(per_cache_block_);
  if (!run) return false;
  change(groups_.group_of(run->begin));
  change_block();
  file.leaves.push_back(*run);
  return true;
}

// Where there is no room: what has been freed is, with the next commit, and whoever writes back is
// told. False, as what he asked for has to be asked for again. Throws where nothing was freed.
bool Ext4::room_comes() {
  const bool is_committed = committing_ || ended_;
  if (!journal_runs_ || stopped_ || (!is_committed && running_.freed.empty())) {
    throw OperatingError(ErrorKind::disk_full, "the modelled device is too small for the files");
  }
  ++counters_.room_waits;
  is_waited_for_room_ = true;
  if (!is_committed) {
    ended_ = take_running();
    if (journal_thread_) machine_.wake(*journal_thread_);
  }
  return false;
}

void Ext4::change(File& file) {
  if (std::exchange(file.changed, transaction_) == transaction_) return;
  begin_if_first();
  ++running_.files;
  if (file.extents.size() > kExtentsInInode) change_block();
}

void Ext4::change(GroupNumber group) {
  if (std::exchange(group_changed_[at(group)], transaction_) != transaction_) change_block();
}

void Ext4::change_block() {
  begin_if_first();
  ++running_.blocks;
}

void Ext4::begin_if_first() {
  if (!running_.is_changed()) running_.begun = machine_.now();
}

bool Ext4::allocate(FileId id, std::int64_t begin, std::int64_t blocks, std::int64_t length) {
  File& file = files_[id];
  const std::int64_t end = (begin + blocks) * per_cache_block_;
  if (!add_leaf(file)) return room_comes();  // it had no room for one the last time
  while (true) {
    std::optional<Tail> tail;
    std::int64_t have = 0;
    if (!file.extents.empty()) {
      const Extent& last = file.extents.back();
      have = last.logical + last.run.blocks;
      tail = Tail{have, last.run.end()};
    }
    if (have >= end) {
      // ext4_da_update_reserve_space: nothing waits for its blocks any more, and nobody may write.
      if (!file.open && end == length * per_cache_block_) drop_kept(file);
      return true;
    }
    if (parameters_.preallocate_again && parameters_.preallocation > Bytes{0}) {
      preallocate(file);
      continue;
    }
    FLASHLAB_CHECK(begin * per_cache_block_ <= have);  // files are written from begin to end
    const std::int64_t size = length * per_cache_block_;
    const bool closed = !file.open && end == size;
    const std::optional<Run> run =
        closed ? allocator_.allocate_closed(end - have, size, tail, file.kept)
               : allocator_.allocate(file.number, have, end - have, size, tail, file.kept);
    if (!run && drop_all_kept()) continue;
    if (!run) return room_comes();
    append(file, *run);
    if (!add_leaf(file)) return room_comes();
    operation_is_over();
  }
}

void Ext4::written(FileId id) {
  if (!parameters_.times) return;
  change(files_[id]);
  operation_is_over();
}

// ext4_release_file: what is kept goes with the last writer, unless more is about to be written.
void Ext4::close(FileId id, bool clean) {
  File& file = files_[id];
  file.open = false;
  if (clean) drop_kept(file);
}

void Ext4::drop_kept(File& file) {
  if (file.kept) groups_.give_back(file.kept->run);
  file.kept.reset();
}

bool Ext4::drop_all_kept() {
  bool any = false;
  for (File& file : files_) {
    any = any || (file.kept && file.kept->run.blocks > 0);
    drop_kept(file);
  }
  return any;
}

Place Ext4::find(FileId id, std::int64_t begin, std::int64_t blocks) const {
  const std::vector<Extent>& extents = files_[id].extents;
  const std::int64_t logical = begin * per_cache_block_;
  const auto after = std::upper_bound(
      extents.begin(), extents.end(), logical,
      [](std::int64_t wanted, const Extent& extent) { return wanted < extent.logical; });
  FLASHLAB_CHECK(after != extents.begin());
  const Extent& extent = *std::prev(after);
  const std::int64_t offset = logical - extent.logical;
  const std::int64_t together = (extent.run.blocks - offset) / per_cache_block_;
  FLASHLAB_CHECK(together > 0);  // all lengths are whole blocks of the page cache
  return {lba_of(extent.run.begin + offset), std::min(blocks, together)};
}

std::vector<Run> Ext4::runs(FileId id) const {
  std::vector<Run> runs;
  for (const Extent& extent : files_[id].extents) runs.push_back(extent.run);
  return runs;
}

void Ext4::remove(FileId id) {
  File& file = files_[id];
  change(file);
  operation_is_over();  // its name is gone
  change(file);
  drop_kept(file);
  ++counters_.files;
  counters_.extents += file.extents.size();
  // From the file's end to its beginning (ext4_ext_remove_space).
  for (auto extent = file.extents.rbegin(); extent != file.extents.rend(); ++extent) {
    count_length(counters_.extent_lengths, extent->run.blocks);
    free(extent->run);
  }
  for (const Run& leaf : file.leaves) free(leaf);
  file = File{};
  operation_is_over();
}

// With the next commit. A run may go on from one group to the next.
void Ext4::free(const Run& run) {
  for (Run rest = run; rest.blocks > 0;) {
    const BlockNumber border = (groups_.group_of(rest.begin) + 1) * kPerGroup;
    const Run part{rest.begin, std::min(rest.blocks, border - rest.begin)};
    change(groups_.group_of(part.begin));
    running_.freed.push_back(part);
    rest = {part.end(), rest.blocks - part.blocks};
  }
}

void Ext4::io_done(std::uint32_t cookie) {
  io_ended_[cookie] = true;
  machine_.wake(waiting_[cookie]);
}

void Ext4::transfer(Process self, const Request& request) {
  if (free_cookies_.empty()) {
    free_cookies_.push_back(static_cast<std::uint32_t>(waiting_.size()));
    waiting_.emplace_back();
    io_ended_.push_back(false);
  }
  const std::uint32_t cookie = free_cookies_.back();
  free_cookies_.pop_back();
  waiting_[cookie] = self;
  io_ended_[cookie] = false;
  machine_.submit(self, request, *this, cookie);
  machine_.wait(self, [&] { return io_ended_[cookie] != 0; });
  free_cookies_.push_back(cookie);
}

void Ext4::run(Process self, std::uint32_t thread) {
  constexpr std::array<void (Ext4::*)(Process), kThreads> kBodies{
      &Ext4::run_timer, &Ext4::run_journal, &Ext4::run_discards};
  (this->*kBodies[thread])(self);
}

bool Ext4::is_due() const {
  return running_.is_changed() && machine_.now() >= running_.begun + parameters_.commit;
}

// While a commit is under way the running transaction goes on.
void Ext4::operation_is_over() {
  if (!is_due() || ended_ || committing_ || stopped_) return;
  ended_ = take_running();
  if (journal_thread_) machine_.wake(*journal_thread_);
}

void Ext4::run_timer(Process self) {
  while (!stopped_) {
    const Nanos second = parameters_.second;
    machine_.sleep_until(self, (machine_.now() / second + 1) * second);
    operation_is_over();
  }
}

void Ext4::run_journal(Process self) {
  journal_runs_ = true;
  while (true) {
    journal_thread_ = self;
    machine_.wait(self, [&] { return stopped_ || ended_; });
    journal_thread_.reset();
    if (!ended_) return;
    commit(self, *std::exchange(ended_, std::nullopt));
    operation_is_over();  // the next one may be due by now
  }
}

void Ext4::stop() {
  stopped_ = true;
  if (journal_thread_) machine_.wake(*journal_thread_);
  if (idle_worker_) machine_.wake(*idle_worker_);
}

void Ext4::sync(Process self) {
  // Whoever commits wakes nobody: look again after a while, as long as that takes.
  const auto pause = [&] { machine_.sleep_until(self, machine_.now() + kLook); };
  while (committing_ || ended_) pause();
  if (running_.is_changed()) commit(self, take_running());
  while (!to_discard_.empty() || discarding_) pause();
}

Ext4::Transaction Ext4::take_running() {
  ++transaction_;
  return std::exchange(running_, {});
}

void Ext4::commit(Process self, const Transaction& transaction) {
  committing_ = true;
  const std::int64_t blocks =
      transaction.blocks + ceil_div(transaction.files, kInodesPerBlock) + 2;  // descriptor, commit
  const std::vector<Run> freed = merged(transaction.freed);
  ++counters_.commits;
  // The record comes after all that it is about, and is itself durable before anything is free.
  write_journal(self, blocks - 1, false);
  flush(self);
  write_journal(self, 1, parameters_.fua);
  if (!parameters_.fua) flush(self);
  for (const Run& run : freed) {
    if (parameters_.discard == "synchronous") discard(self, run);
    groups_.give_back(run);
    group_freed_[at(groups_.group_of(run.begin))] = true;
    if (parameters_.discard == "asynchronous") to_discard_.push_back(run);
  }
  committing_ = false;
  if (std::exchange(is_waited_for_room_, false) && tell_of_room_) tell_of_room_();
  if (idle_worker_ && !to_discard_.empty()) machine_.wake(*idle_worker_);
}

void Ext4::write_journal(Process self, std::int64_t blocks, bool fua) {
  counters_.journal_blocks += static_cast<std::uint64_t>(blocks);
  for (std::int64_t left = std::min(blocks, journal_.blocks); left > 0;) {
    const std::int64_t now = std::min(left, journal_.blocks - journal_at_);
    const Lba begin = lba_of(journal_.begin + journal_at_);
    transfer(self, {Op::write, begin, to_sectors(kBlock * now), fua});
    journal_at_ = (journal_at_ + now) % journal_.blocks;
    left -= now;
  }
}

void Ext4::flush(Process self) { transfer(self, {Op::flush, Lba{0}, Sectors{0}}); }

void Ext4::discard(Process self, const Run& run) {
  const Nanos begin = machine_.now();
  ++counters_.discards;
  counters_.discarded_blocks += static_cast<std::uint64_t>(run.blocks);
  count_length(counters_.discard_lengths, run.blocks);
  transfer(self, {Op::trim, lba_of(run.begin), to_sectors(kBlock * run.blocks)});
  counters_.discard_wait += machine_.now() - begin;
}

// What of the run is free, and nobody's until it is discarded; in recent kernels what is free right
// behind the run, too (ext4_try_to_trim_range), discarded or not.
void Ext4::discard_free(Process self, const Run& run) {
  std::int64_t free = 0;
  const std::int64_t most = parameters_.rules.recent ? kPerGroup : 0;
  for (BlockNumber block = run.begin; block < run.end();) {
    const std::int64_t length = groups_.free_from(block, std::max(run.end() - block, most));
    if (length == 0) {
      ++block;
      continue;
    }
    const Run part{block, length};
    groups_.take(part);
    discard(self, part);
    groups_.give_back(part);
    free += std::min(part.end(), run.end()) - part.begin;
    block = part.end();
  }
  counters_.reused_blocks += static_cast<std::uint64_t>(run.blocks - free);
}

void Ext4::run_discards(Process self) {
  while (true) {
    idle_worker_ = self;
    machine_.wait(self, [&] { return stopped_ || !to_discard_.empty(); });
    idle_worker_.reset();
    if (to_discard_.empty()) return;
    discarding_ = true;
    while (!to_discard_.empty()) {
      const Run run = to_discard_.front();
      to_discard_.pop_front();
      discard_free(self, run);
    }
    discarding_ = false;
  }
}

void Ext4::trim_free_space(Process self) {
  for (GroupNumber group = 0; group < groups_.count(); ++group) {
    if (!std::exchange(group_freed_[at(group)], false)) continue;
    const std::vector<Run> free = groups_.runs(group);
    for (const Run& run : free) discard_free(self, run);
  }
}

// Extents that touch become one, which takes the place of the one that was freed last; in recent
// kernels, first (seen in the order of 6.18's discards).
std::vector<Run> Ext4::merged(const std::vector<Run>& runs) const {
  struct Freed {
    Run run;
    std::size_t order;
  };
  std::vector<Freed> freed;
  for (const Run& run : runs) freed.push_back({run, freed.size()});
  const auto by_place = [](const Freed& a, const Freed& b) { return a.run.begin < b.run.begin; };
  std::sort(freed.begin(), freed.end(), by_place);
  std::vector<Freed> out;
  for (const Freed& f : freed) {
    const bool joins = !out.empty() && out.back().run.end() == f.run.begin &&
                       out.back().run.begin / kPerGroup == f.run.begin / kPerGroup;
    if (joins) {
      out.back().run.blocks += f.run.blocks;
      const std::size_t before = out.back().order;
      out.back().order =
          parameters_.rules.recent ? std::min(before, f.order) : std::max(before, f.order);
    } else {
      out.push_back(f);
    }
  }
  const auto by_time = [](const Freed& a, const Freed& b) { return a.order < b.order; };
  std::sort(out.begin(), out.end(), by_time);
  std::vector<Run> merged;
  for (const Freed& f : out) merged.push_back(f.run);
  return merged;
}

}  // namespace flashlab::kernel::ext4
