#include "kernel/page_cache.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.hpp"
#include "base/prefetch.hpp"
#include "kernel/in_turn.hpp"

namespace flashlab::kernel {
using host::Machine;
using host::Process;

namespace {

using namespace literals;

constexpr std::uint8_t kCached = 1;   // can be read
constexpr std::uint8_t kDirty = 2;    // must be written
constexpr std::uint8_t kReading = 4;  // under way; `stamp` is the I/O
constexpr std::uint8_t kWriting = 8;  // being written back
constexpr std::uint8_t kMarker = 16;  // reading it starts the next window
constexpr std::uint8_t kState = 31;
constexpr std::uint8_t kUsed = 32;    // once since it is on its list
constexpr std::uint8_t kActive = 64;  // on that list, or will be when it has been read
constexpr std::uint8_t kGone = 128;   // evicted; `stamp` is the age at which
constexpr std::uint8_t kGoes = 128;   // one that is cached: as soon as it has been written
constexpr FileId kElsewhere = UINT32_MAX;
constexpr Process kFlusher = UINT32_MAX;  // on whose behalf the kernel writes back
constexpr std::int64_t kNowhere = -1;

constexpr Bytes kLeastTurn = 4_MiB;  // of a file in write-back (MIN_WRITEBACK_PAGES)
constexpr std::int64_t kDirtyScope = 8;
constexpr Bytes kReclaimed{32 * 4096};  // by one reclaim, and looked at at a time

std::size_t at(std::int64_t n) { return static_cast<std::size_t>(n); }

// Most of what is asked for at once is in one state: looked at, and changed, in vectors.
using Flags = std::span<std::uint8_t>;

// Flags that some of these blocks have.
std::uint8_t any_of(Flags row) {
  std::uint8_t any = 0;
  for (const std::uint8_t flags : row) any |= flags;
  return any;
}

// How many of these blocks have that flag, one bit.
std::int64_t with(Flags row, std::uint8_t flag) {
  std::int64_t count = 0;
  for (const std::uint8_t flags : row) count += (flags & flag) != 0 ? 1 : 0;
  return count;
}

void change(Flags row, std::uint8_t cleared, std::uint8_t set) {
  for (std::uint8_t& flags : row) flags = static_cast<std::uint8_t>((flags & ~cleared) | set);
}

// How many from the first one on have `wanted` of the flags that are looked at, and no others.
std::int64_t leading(Flags row, std::uint8_t looked_at, std::uint8_t wanted) {
  constexpr std::uint64_t kEach = 0x0101010101010101;
  std::size_t n = 0;
  for (std::uint64_t word = 0; n + sizeof(word) <= row.size(); n += sizeof(word)) {
    std::memcpy(&word, row.data() + n, sizeof(word));
    if ((word & looked_at * kEach) != wanted * kEach) break;
  }
  while (n < row.size() && (row[n] & looked_at) == wanted) ++n;
  return static_cast<std::int64_t>(n);
}

}  // namespace

struct PageCache::File {
  FileId id = 0;
  bool removed = false;
  std::vector<std::uint8_t> flags;    // by block
  std::vector<std::uint32_t> stamps;  // by block: of its entry in a list
  std::vector<std::uint64_t> dirty;   // one bit per block
  std::vector<ReadAhead> read_ahead;  // by segment
  std::int64_t dirty_blocks = 0;
  std::int64_t write_back_at = 0;
  std::int64_t run_end = 0;  // of the dirty blocks that write-back found last in this turn
  bool run_is_last = false;  // there were none behind them
  std::int64_t ios = 0;      // under way

  [[nodiscard]] std::int64_t blocks() const { return static_cast<std::int64_t>(flags.size()); }
  [[nodiscard]] Flags row(std::int64_t begin, std::int64_t blocks) {
    return std::span(flags).subspan(at(begin), at(blocks));
  }

  // Sets or clears the bits of `dirty`.
  void mark(std::int64_t begin, std::int64_t blocks, bool is_dirty) {
    for (std::int64_t block = begin; block < begin + blocks;) {
      const std::int64_t length = std::min(64 - block % 64, begin + blocks - block);
      const std::uint64_t bits = ~std::uint64_t{0} >> (64 - length) << (block % 64);
      std::uint64_t& word = dirty[at(block / 64)];
      word = is_dirty ? word | bits : word & ~bits;
      block += length;
    }
  }

  void grow(std::int64_t blocks) {
    if (blocks <= this->blocks()) return;
    flags.resize(at(blocks));
    stamps.resize(at(blocks));
    dirty.resize(at(ceil_div(blocks, 64)));
  }

  // The first dirty block at or after `from`, or kNowhere.
  [[nodiscard]] std::int64_t next_dirty(std::int64_t from) const {
    std::size_t word = at(from / 64);
    if (word >= dirty.size()) return kNowhere;
    std::uint64_t bits = dirty[word] & (~std::uint64_t{0} << (from % 64));
    while (bits == 0) {
      if (++word == dirty.size()) return kNowhere;
      bits = dirty[word];
    }
    return static_cast<std::int64_t>(word) * 64 + std::countr_zero(bits);
  }
};

namespace {

const PageCacheParameters& checked(const PageCacheParameters& p) {
  require(p.block.count() >= kSectorBytes && p.block.count() % kSectorBytes == 0,
          "page cache, block: must be a multiple of 512 B");
  require(p.memory >= 64 * p.block, "page cache, memory: must hold at least 64 blocks");
  require(p.segment >= p.block && p.segment.count() % p.block.count() == 0,
          "page cache, segment: must be a multiple of the block");
  require(p.dirty_background_ratio > 0.0 && p.dirty_ratio >= p.dirty_background_ratio &&
              p.dirty_ratio <= 1.0,
          "page cache, dirty ratios: 0 < background <= limit <= 1");
  require(p.queue_limit >= 1, "page cache, queue_limit: must be at least 1");
  require(p.copy_cpu >= Nanos{0}, "page cache, copy_cpu: must not be negative");
  return p;
}

// Of memory, in blocks.
std::int64_t share_of(const PageCacheParameters& p, double ratio) {
  const double bytes = ratio * static_cast<double>(p.memory.count());
  return std::max<std::int64_t>(static_cast<std::int64_t>(bytes) / p.block.count(), 1);
}

std::unique_ptr<FileSystem> in_turn(const Machine& machine, const PageCacheParameters& p) {
  require(p.block.count() >= kSectorBytes && p.block.count() % kSectorBytes == 0,
          "page cache, block: must be a multiple of 512 B");
  require(p.allocation >= p.block && p.allocation.count() % p.block.count() == 0,
          "page cache, allocation: must be a multiple of the block");
  require(p.segment.count() % p.allocation.count() == 0,
          "page cache, segment: must be a multiple of the allocation");
  require(p.begin >= Bytes{0} && p.begin.count() % kSectorBytes == 0,
          "page cache, begin: must be a multiple of 512 B");
  return std::make_unique<InTurn>(
      InTurn::Parameters{p.block, p.allocation, p.begin, machine.device().capacity()});
}

}  // namespace

PageCache::PageCache(Machine& machine, const PageCacheParameters& p)
    : PageCache(machine, p, in_turn(machine, p), nullptr) {}

PageCache::PageCache(Machine& machine, const PageCacheParameters& p, FileSystem& places)
    : PageCache(machine, p, nullptr, &places) {}

PageCache::PageCache(Machine& machine, const PageCacheParameters& p,
                     std::unique_ptr<FileSystem> own, FileSystem* places)
    : machine_(machine),
      parameters_(checked(p)),
      own_(std::move(own)),
      places_(places ? *places : *own_),
      background_(share_of(p, p.dirty_background_ratio)),
      limit_(share_of(p, p.dirty_ratio)),
      pace_({.background = background_,
             .limit = limit_,
             .is_strict = p.strict_limit,
             .block = p.block,
             .second = p.second}) {
  capacity_ = p.memory / p.block;
  read_ahead_ = std::max<std::int64_t>(p.read_ahead / p.block, 1);
  per_segment_ = p.segment / p.block;
  per_request_ = std::max<std::int64_t>(machine.parameters().max_request / p.block, 1);
  per_reclaim_ = std::max<std::int64_t>(kReclaimed / p.block, 1);
  places_.tell_of_room([this] {
    waits_for_room_ = false;
    write_back();
  });
}

PageCache::~PageCache() = default;

FileId PageCache::create() {
  if (free_files_.empty()) {
    free_files_.push_back(static_cast<FileId>(files_.size()));
    files_.push_back(std::make_unique<File>());
    dirty_files_.resize(files_.size() / 64 + 1);
  }
  const FileId id = free_files_.back();
  free_files_.pop_back();
  files_[id]->id = id;
  files_[id]->removed = false;
  places_.create(id);
  return id;
}

void PageCache::remove(FileId id) {
  File& file = *files_[id];
  if (file.ios == 0) {
    resident_ -= with(file.flags, kCached);
    active_blocks_ -= with(file.flags, kActive);
  } else {
    for (std::uint8_t& flags : file.flags) {
      // What the device is busy with is forgotten when it has ended.
      if (flags & (kReading | kWriting)) continue;
      if (flags & kCached) --resident_;
      if (flags & kActive) --active_blocks_;
      flags = 0;
    }
  }
  dirty_ -= file.dirty_blocks;
  file.dirty_blocks = 0;
  std::fill(file.dirty.begin(), file.dirty.end(), 0);
  file.removed = true;
  note_dirty(file);
  places_.remove(id);
  settle(id);
}

// Of a removed file nothing is left once the device has ended with it. Stamps are never used twice,
// so what the lists still say of it means no block of another file of the same name.
void PageCache::settle(FileId id) {
  File& file = *files_[id];
  if (!file.removed || file.ios > 0) return;
  file = File{};
  file.id = id;
  file.removed = true;
  free_files_.push_back(id);
}

void PageCache::note_dirty(const File& file) {
  const std::uint64_t bit = std::uint64_t{1} << (file.id % 64);
  std::uint64_t& word = dirty_files_[file.id / 64];
  word = file.dirty_blocks > 0 ? word | bit : word & ~bit;
}

bool PageCache::cached(FileId id, std::int64_t block) const {
  const File& file = *files_[id];
  return block < file.blocks() && (file.flags[at(block)] & kCached) != 0;
}

std::int64_t PageCache::dirty_blocks(FileId id) const { return files_[id]->dirty_blocks; }

void PageCache::expect(FileId id, std::int64_t block) const {
  const File& file = *files_[id];
  prefetch(file.flags.data() + block);
  prefetch(file.stamps.data() + block);
}

Nanos PageCache::take_cpu(Process self) {
  if (cpu_.size() <= self) return Nanos{0};
  return std::exchange(cpu_[self], Nanos{0});
}

void PageCache::read(Process self, FileId id, std::int64_t begin, std::int64_t blocks) {
  File& file = *files_[id];
  FLASHLAB_CHECK(begin + blocks <= file.blocks());  // reads what was written
  if (cpu_.size() <= self) cpu_.resize(self + 1);
  cpu_[self] += parameters_.copy_cpu * blocks;
  counters_.read_blocks += static_cast<std::uint64_t>(blocks);
  if (file.read_ahead.size() <= at((begin + blocks - 1) / per_segment_)) {
    file.read_ahead.resize(at((begin + blocks - 1) / per_segment_ + 1),
                           ReadAhead(parameters_.misses_open_windows));
  }
  for (std::int64_t block = begin; block < begin + blocks;) {
    const std::int64_t segment = block / per_segment_;
    const std::int64_t end = std::min(begin + blocks, (segment + 1) * per_segment_);
    // These are there, and none starts a window.
    constexpr std::uint8_t kOfReaders = kCached | kReading | kMarker;
    std::int64_t now = leading(file.row(block, end - block), kOfReaders, kCached);
    if (now == 0) {
      bring(self, file, block);
      now = 1;
    }
    block += now;
    file.read_ahead[at(segment)].read(block - 1 - segment * per_segment_);
  }
  use(file, begin, blocks);
  if (flush_is_asked_ && !writing_back_) begin_write_back();
}

// Until the block is there: starts reading it, or the window behind it, or waits.
void PageCache::bring(Process self, File& file, std::int64_t block) {
  const std::int64_t segment = block / per_segment_ * per_segment_;
  ReadAhead& ahead = file.read_ahead[at(block / per_segment_)];
  const auto start = [&](ReadWindow window) {
    window.blocks = std::min(window.blocks, per_segment_ - window.begin);
    window.begin += segment;
    if (window.marked >= 0) window.marked += segment;
    start_reads(self, file.id, window);
  };
  if (!(file.flags[at(block)] & (kCached | kReading))) {
    const auto history = [&] {
      std::int64_t n = 0;
      while (n < read_ahead_ && block - n > segment &&
             (file.flags[at(block - n - 1)] & (kCached | kReading))) {
        ++n;
      }
      return n;
    };
    ++counters_.missed_blocks;
    start(ahead.missed(block - segment, read_ahead_, history));
    // A block that carried a marker, evicted: the window goes on behind it, and it comes alone.
    if (!(file.flags[at(block)] & kReading)) start({block - segment, 1, -1});
  }
  if (file.flags[at(block)] & kMarker) {
    file.flags[at(block)] &= static_cast<std::uint8_t>(~kMarker);
    const std::uint32_t congested = parameters_.queue_limit * 7 / 8;
    if (machine_.block_layer().outstanding(Op::read) < congested) {
      std::int64_t hole = block + 1;
      while (hole - block <= read_ahead_ && hole < file.blocks() &&
             (file.flags[at(hole)] & (kCached | kReading))) {
        ++hole;
      }
      start(ahead.met_marker(block - segment, hole - segment, read_ahead_));
    }
  }
  wait_for(self, file, block);
}

void PageCache::wait_for(Process self, File& file, std::int64_t block) {
  if (!(file.flags[at(block)] & kReading)) return;
  const Nanos begin = machine_.now();
  Io& io = ios_[file.stamps[at(block)]];
  FLASHLAB_CHECK(!io.awaited);  // a file is one process's
  io.waiting = self;
  io.awaited = true;
  machine_.wait(self, [&] { return !(file.flags[at(block)] & kReading); });
  counters_.read_wait += machine_.now() - begin;
}

// What of the window is neither cached nor on its way, in requests that lie together on the device.
void PageCache::start_reads(Process self, FileId id, const ReadWindow& window) {
  File& file = *files_[id];
  const std::int64_t end = std::min(window.begin + window.blocks, file.blocks());
  std::int64_t block = window.begin;
  while (block < end) {
    if (file.flags[at(block)] & (kCached | kReading)) {
      ++block;
      continue;
    }
    std::int64_t length = 1;
    while (block + length < end && length < per_request_ &&
           !(file.flags[at(block + length)] & (kCached | kReading))) {
      ++length;
    }
    const Place place = places_.find(id, block, length);
    length = place.blocks;
    start_io(self, id, Op::read, block, place);
    if (window.marked >= block && window.marked < block + length) {
      file.flags[at(window.marked)] |= kMarker;
    }
    block += length;
  }
}

void PageCache::will_need(Process self, FileId id, std::int64_t begin, std::int64_t blocks) {
  if (cpu_.size() <= self) cpu_.resize(self + 1);
  start_reads(self, id, {begin, blocks, -1});
}

void PageCache::start_io(Process self, FileId id, Op op, std::int64_t begin, const Place& place) {
  const std::int64_t blocks = place.blocks;
  File& file = *files_[id];
  if (free_ios_.empty()) {
    free_ios_.push_back(static_cast<std::uint32_t>(ios_.size()));
    ios_.emplace_back();
  }
  const std::uint32_t io = free_ios_.back();
  free_ios_.pop_back();
  ios_[io] = {id, op, begin, blocks, 0, false};
  ++file.ios;
  if (op == Op::read) {
    make_room(blocks);
    counters_.device_read_blocks += static_cast<std::uint64_t>(blocks);
    cpu_[self] += machine_.parameters().submit_cpu + machine_.parameters().complete_cpu;
  } else {
    counters_.device_write_blocks += static_cast<std::uint64_t>(blocks);
  }
  if (op == Op::read) {
    arrive(file, begin, blocks, true);
    change(file.row(begin, blocks), 0, kReading);
    std::fill_n(file.stamps.begin() + begin, blocks, io);
  } else {
    change(file.row(begin, blocks), kDirty, kWriting);
    file.mark(begin, blocks, false);
    file.dirty_blocks -= blocks;
    dirty_ -= blocks;
    writing_ += blocks;
    note_dirty(file);
  }
  const Request request{op, place.lba, to_sectors(parameters_.block * blocks)};
  machine_.submit(self, request, *this, io);
}

void PageCache::io_done(std::uint32_t index) {
  const Io io = ios_[index];
  free_ios_.push_back(index);
  io.op == Op::read ? read_done(io) : write_done(io);
}

void PageCache::read_done(const Io& io) {
  File& file = *files_[io.file];
  const Flags row = file.row(io.begin, io.blocks);
  if (file.removed) {
    forget(row);
  } else {
    change(row, kReading, kCached);
    enlist(file, io.begin, io.blocks);
  }
  --file.ios;
  settle(io.file);
  if (io.awaited) machine_.wake(io.waiting);
}

void PageCache::write_done(const Io& io) {
  File& file = *files_[io.file];
  const Flags row = file.row(io.begin, io.blocks);
  if (file.removed) {
    forget(row);
  } else {
    change(row, kWriting, 0);
    if (any_of(row) & kGoes) rotate(file, io.begin, io.blocks);
    if (any_of(row) & kDirty) {
      for (std::int64_t block = io.begin; block < io.begin + io.blocks; ++block) {
        if (file.flags[at(block)] & kDirty) mark_dirty(file, block, 1);
      }
    }
  }
  writing_ -= io.blocks;
  --file.ios;
  settle(io.file);
  pace_.written_back(io.blocks);
  writing_back_ ? write_back() : begin_write_back();
}

void PageCache::forget(std::span<std::uint8_t> row) {
  resident_ -= static_cast<std::int64_t>(row.size());
  active_blocks_ -= with(row, kActive);
  std::ranges::fill(row, std::uint8_t{0});
}

// To the young end of a list.
void PageCache::push(Ring<Entry>& list, File& file, std::int64_t begin, std::int64_t blocks) {
  ++stamp_;
  std::fill_n(file.stamps.begin() + begin, blocks, stamp_);
  list.push_back({file.id, stamp_, begin, blocks});
}

// Blocks that come into memory, where none of them is: those that come back soon are active. They
// were gone for as long as it takes to evict or activate as many as are active
// (mm/workingset.c).
void PageCache::arrive(File& file, std::int64_t begin, std::int64_t blocks, bool is_read) {
  const Flags row = file.row(begin, blocks);
  if (any_of(row) & kGone) {
    const bool may_be_active = parameters_.refaults && (is_read || parameters_.writes_are_uses);
    for (std::int64_t block = begin; block < begin + blocks; ++block) {
      std::uint8_t& flags = file.flags[at(block)];
      const bool is_soon = may_be_active && (flags & kGone) != 0 &&
                           std::int64_t{age_ - file.stamps[at(block)]} <= active_blocks_;
      flags = is_soon ? kActive : 0;
      if (is_soon) {
        ++active_blocks_;
        ++age_;
      }
    }
  }
  resident_ += blocks;
}

// Blocks that have arrived, to the young ends of the lists that they are to be on.
void PageCache::enlist(File& file, std::int64_t begin, std::int64_t blocks) {
  for (std::int64_t block = begin; block < begin + blocks;) {
    const std::uint8_t active = file.flags[at(block)] & kActive;
    const std::int64_t n = leading(file.row(block, begin + blocks - block), kActive, active);
    push(active ? active_ : inactive_, file, block, n);
    block += n;
  }
}

// The first use is noted, the second one makes a block active (mark_page_accessed() of mm/swap.c).
void PageCache::use(File& file, std::int64_t begin, std::int64_t blocks) {
  for (std::int64_t block = begin; block < begin + blocks;) {
    constexpr std::uint8_t kLookedAt = kCached | kUsed | kActive;
    const std::uint8_t is = file.flags[at(block)] & kLookedAt;
    const Flags rest = file.row(block, begin + blocks - block);
    const std::int64_t n = leading(rest, kLookedAt, is);
    const Flags row = rest.first(at(n));
    if (is == (kCached | kUsed)) {
      change(row, kUsed, kActive);
      active_blocks_ += n;
      age_ += static_cast<std::uint32_t>(n);
      push(active_, file, block, n);
    } else if (is & kCached) {  // and not evicted meanwhile
      change(row, 0, kUsed);
    }
    block += n;
  }
}

void PageCache::read_elsewhere(std::int64_t blocks) {
  make_room(blocks);
  resident_ += blocks;
  inactive_.push_back({kElsewhere, ++stamp_, 0, blocks});
}

void PageCache::make_room(std::int64_t blocks) {
  // Dirty blocks go round once: the limits keep them to a part of memory.
  for (std::size_t left = written_.size() + inactive_.size() + active_.size();
       left > 0 && resident_ + blocks > capacity_; --left) {
    while (active_blocks_ > resident_ - active_blocks_ && !active_.empty()) deactivate();
    Ring<Entry>& list = written_.empty() ? inactive_ : written_;
    if (list.empty()) return;
    const Entry oldest = list.front();
    list.pop_front();
    evict(oldest);
  }
}

// Blocks from the old end, in the order in which they are met.
void PageCache::look_at(std::int64_t blocks, bool is_unqueued_dirty) {
  if (!parameters_.dirty_tail_is_flushed) return;
  Reclaim& r = reclaim_;
  while (blocks > 0) {
    if (r.batch_left == 0) begin_batch();
    const std::int64_t now = std::min(blocks, r.batch_left);
    blocks -= now;
    r.batch_left -= now;
    r.is_dirty = r.is_dirty && is_unqueued_dirty;
    if (!is_unqueued_dirty) r.found += now;
    if (r.batch_left > 0) continue;
    if (r.is_dirty) flush_is_asked_ = true;
    if (r.found >= per_reclaim_) r = Reclaim{};
  }
}

void PageCache::begin_batch() {
  Reclaim& r = reclaim_;
  const std::int64_t inactive = resident_ - active_blocks_;
  while (r.share_left == 0) {
    r.share_left = r.priority > 0 ? inactive >> r.priority : std::max<std::int64_t>(inactive, 1);
    r.priority = std::max(r.priority - 1, 0);
  }
  r.batch_left = std::min(r.share_left, per_reclaim_);
  r.share_left -= r.batch_left;
  r.is_dirty = true;
}

// The oldest active ones become the youngest of the others, used or not: nobody has them mapped
// (shrink_active_list() of mm/vmscan.c).
void PageCache::deactivate() {
  const Entry oldest = active_.front();
  active_.pop_front();
  File& file = *files_[oldest.file];
  // The file may be gone, and another have its name.
  const std::int64_t end = std::min(oldest.begin + oldest.blocks, file.blocks());
  const auto is_of_it = [&](std::int64_t block) {
    const std::uint8_t flags = file.flags[at(block)];
    return file.stamps[at(block)] == oldest.stamp && (flags & kCached) && (flags & kActive);
  };
  for (std::int64_t block = oldest.begin; block < end;) {
    std::int64_t n = 0;
    while (block + n < end && is_of_it(block + n)) ++n;
    if (n > 0) {
      change(file.row(block, n), kActive, 0);
      active_blocks_ -= n;
      push(inactive_, file, block, n);
    }
    block += n + 1;
  }
}

void PageCache::evict(const Entry& oldest) {
  if (oldest.file == kElsewhere) {
    look_at(oldest.blocks, false);
    resident_ -= oldest.blocks;
    return;
  }
  File& file = *files_[oldest.file];
  std::int64_t kept = kNowhere;  // where a row of blocks that stay begins
  const std::int64_t end = std::min(oldest.begin + oldest.blocks, file.blocks());
  const std::uint32_t* const stamps = file.stamps.data();
  std::int64_t on_it = 0;
  for (std::int64_t block = oldest.begin; block < end; ++block) {
    on_it += stamps[block] == oldest.stamp ? 1 : 0;
  }
  if (on_it == 0) return;
  const auto goes = [&](std::int64_t begin, std::int64_t blocks) {
    std::ranges::fill(file.row(begin, blocks), kGone);
    std::fill_n(file.stamps.begin() + begin, blocks, age_);
    age_ += static_cast<std::uint32_t>(blocks);
    resident_ -= blocks;
  };
  // None of it was moved since, and all of it is clean.
  const Flags row = file.row(oldest.begin, end - oldest.begin);
  if (on_it == end - oldest.begin && leading(row, kState, kCached) == on_it) {
    look_at(on_it, false);
    goes(oldest.begin, on_it);
    return;
  }
  for (std::int64_t block = oldest.begin; block < end; ++block) {
    if (stamps[block] != oldest.stamp && kept == kNowhere) continue;  // moved by now: most are
    const std::uint8_t flags = file.flags[at(block)];
    const bool mine = stamps[block] == oldest.stamp && !(flags & kReading);
    const bool stays = mine && (flags & (kDirty | kWriting));
    if (mine) look_at(1, (flags & kDirty) && !(flags & kWriting));
    if (stays && kept == kNowhere) kept = block;
    if (!stays && kept != kNowhere) {
      keep(file, kept, block - kept);
      kept = kNowhere;
    }
    if (mine && !stays && (flags & kCached)) goes(block, 1);
  }
  if (kept != kNowhere) keep(file, kept, end - kept);
}

// What would go, but for the device having to get it before: out of the way.
void PageCache::keep(File& file, std::int64_t begin, std::int64_t blocks) {
  const Flags row = file.row(begin, blocks);
  if (parameters_.dirty_go_active) {
    change(row, 0, kGoes | kActive);
    active_blocks_ += blocks;
    push(active_, file, begin, blocks);
  } else {
    change(row, 0, kGoes);
    push(inactive_, file, begin, blocks);
  }
}

// It has got it: before all others.
void PageCache::rotate(File& file, std::int64_t begin, std::int64_t blocks) {
  for (std::int64_t block = begin; block < begin + blocks;) {
    constexpr std::uint8_t kLookedAt = kGoes | kDirty;
    const std::uint8_t is = file.flags[at(block)] & kLookedAt;
    const std::int64_t n = leading(file.row(block, begin + blocks - block), kLookedAt, is);
    if (is == kGoes) {
      const Flags row = file.row(block, n);
      active_blocks_ -= with(row, kActive);
      change(row, kGoes | kActive, 0);
      push(written_, file, block, n);
    }
    block += n;
  }
}

void PageCache::write(Process self, FileId id, std::int64_t begin, std::int64_t blocks) {
  File& file = *files_[id];
  if (cpu_.size() <= self) cpu_.resize(self + 1);
  cpu_[self] += parameters_.copy_cpu * blocks;
  counters_.written_blocks += static_cast<std::uint64_t>(blocks);
  file.grow(begin + blocks);
  const Flags row = file.row(begin, blocks);
  if (any_of(row) & kReading) {
    for (std::int64_t block = begin; block < begin + blocks; ++block) {
      if (file.flags[at(block)] & kReading) wait_for(self, file, block);
    }
  }
  make_room(blocks);  // now, since others may have taken it meanwhile
  for (std::int64_t block = begin; block < begin + blocks;) {
    const std::uint8_t is = file.flags[at(block)] & kCached;
    const std::int64_t n = leading(file.row(block, begin + blocks - block), kCached, is);
    if (!is) {
      arrive(file, block, n, false);
      enlist(file, block, n);
    }
    block += n;
  }
  const std::int64_t newly_dirty = blocks - with(row, kDirty);
  // The device does not get a block that it is busy with: write_done() sees to it.
  if (any_of(row) & (kDirty | kWriting)) {
    for (std::int64_t block = begin; block < begin + blocks; ++block) {
      if (!(file.flags[at(block)] & (kDirty | kWriting))) mark_dirty(file, block, 1);
    }
  } else {
    mark_dirty(file, begin, blocks);
  }
  change(row, kMarker | kGoes, kCached | kDirty);
  if (parameters_.writes_are_uses) use(file, begin, blocks);
  places_.written(id);
  if (!writing_back_) begin_write_back();
  keep_pace(self, newly_dirty);
}

void PageCache::mark_dirty(File& file, std::int64_t begin, std::int64_t blocks) {
  dirty_ += blocks;
  const bool is_first = file.dirty_blocks == 0;
  file.dirty_blocks += blocks;
  if (is_first) note_dirty(file);
  file.mark(begin, blocks, true);
}

void PageCache::begin_write_back() {
  if (!goes_on()) return;
  pace_.begin(machine_.now());
  writing_back_ = true;
  begin_round();
  write_back();
}

// What was asked for meanwhile comes when the ratio has been reached (wb_do_writeback() of
// fs/fs-writeback.c), and is all that is dirty then.
bool PageCache::goes_on() {
  if (flush_left_ > 0 && dirty_ > 0) return true;
  flush_left_ = 0;
  if (dirty_ > background_) return true;
  if (!std::exchange(flush_is_asked_, false) || dirty_ == 0) return false;
  ++counters_.tail_flushes;
  flush_left_ = dirty_;
  return true;
}

void PageCache::begin_round() {
  round_begin_ = machine_.now();
  round_last_ = flushed_;
  round_has_begun_ = false;
}

// writeback_sb_inodes() comes back after that time, or with an empty list; wb_writeback() then
// looks at the ratio.
bool PageCache::round_is_over() const {
  if (dirty_ == 0 || machine_.now() - round_begin_ >= parameters_.round) return true;
  if (!round_has_begun_) return false;
  const FileId next = next_dirty_file();
  const bool wraps = next <= flushed_;
  if (flushed_ < round_last_) return wraps || next > round_last_;
  return flushed_ == round_last_ || (wraps && next > round_last_);
}

void PageCache::keep_pace(Process self, std::int64_t blocks) {
  const Nanos begin = machine_.now();
  while (true) {
    const auto [until, again] = pace_.after(self, blocks, dirty_ + writing_, machine_.now());
    if (until > machine_.now()) machine_.sleep_until(self, until);
    if (!again) break;
    blocks = 0;
  }
  counters_.write_wait += machine_.now() - begin;
}

// Goes on with write-back as far as the queue lets it.
void PageCache::write_back() {
  while (writing_back_ && !waits_for_room_ &&
         machine_.block_layer().outstanding(Op::write) < parameters_.queue_limit) {
    const bool turn_is_over = turn_left_ <= 0 || files_[flushed_]->dirty_blocks == 0;
    if (turn_is_over && round_is_over()) {
      if (!goes_on()) {
        writing_back_ = false;
        return;
      }
      begin_round();
    }
    if (turn_is_over) {
      pace_.look(machine_.now());
      flushed_ = next_dirty_file();
      turn_left_ = turn();
      files_[flushed_]->run_end = 0;
      files_[flushed_]->run_is_last = false;
      round_has_begun_ = true;
    }
    if (!write_some(flushed_) && !waits_for_room_) turn_left_ = 0;
  }
}

// The next one behind the one whose turn it was; that one again if it is the only one.
FileId PageCache::next_dirty_file() const {
  const std::size_t from = flushed_ + std::size_t{1};
  const std::size_t words = dirty_files_.size();
  for (std::size_t i = 0; i <= words; ++i) {
    const std::size_t word = (from / 64 + i) % words;
    std::uint64_t bits = dirty_files_[word];
    if (i == 0) bits &= ~std::uint64_t{0} << (from % 64);
    if (bits != 0) return static_cast<FileId>(word * 64 + at(std::countr_zero(bits)));
  }
  FLASHLAB_CHECK(false);
  return 0;
}

// writeback_chunk_size() of fs/fs-writeback.c. The limit is the machine's: where the one that is
// known here is the device's own, it is far above.
std::int64_t PageCache::turn() const {
  const std::int64_t least = kLeastTurn / parameters_.block;
  const double second = static_cast<double>(parameters_.second.count()) / 1e9;
  auto wanted = static_cast<std::int64_t>(pace_.bandwidth() * second / 2.0);
  if (!parameters_.strict_limit) wanted = std::min(wanted, limit_ / kDirtyScope);
  if (flush_left_ > 0) wanted = std::min(wanted, flush_left_);
  return (wanted + least) / least * least;
}

// One request of the file whose turn it is; false: the file's end was reached, or the file system
// has no room yet, for which the flusher waits (ext4_writepages). The file is looked through for
// one row of dirty blocks after the other (mpage_prepare_extent_to_map).
bool PageCache::write_some(FileId id) {
  File& file = *files_[id];
  const std::int64_t begin = file.next_dirty(file.write_back_at);
  if (begin == kNowhere) {
    file.write_back_at = 0;
    return false;
  }
  if (begin >= file.run_end) {
    if (file.run_is_last) return false;
    file.run_end =
        begin + leading(file.row(begin, file.blocks() - begin), kDirty | kWriting, kDirty);
    file.run_is_last = parameters_.turns_end_with_scan && file.next_dirty(file.run_end) == kNowhere;
  }
  const std::int64_t most = std::min(per_request_, file.run_end - begin);
  const std::int64_t length = leading(file.row(begin, most), kDirty | kWriting, kDirty);
  FLASHLAB_CHECK(length > 0);
  if (!places_.allocate(id, begin, length, file.blocks())) {
    waits_for_room_ = true;
    return false;
  }
  const Place place = places_.find(id, begin, length);
  file.write_back_at = begin + place.blocks;
  turn_left_ -= place.blocks;
  flush_left_ = std::max<std::int64_t>(flush_left_ - place.blocks, 0);
  start_io(kFlusher, id, Op::write, begin, place);
  return true;
}

}  // namespace flashlab::kernel
