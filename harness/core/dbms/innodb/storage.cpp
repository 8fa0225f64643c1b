#include "dbms/innodb/storage.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.hpp"

namespace flashlab::dbms::innodb {

namespace {

using host::Process;
using host::Transfers;
using kernel::Buffer;
using kernel::kFsBlockSectors;

constexpr std::uint32_t kInodes = 3;  // blocks of the inode table: one for each file
constexpr Bytes kFsBlock{kFsBlockSectors * kSectorBytes};

std::int64_t blocks_of(Bytes bytes) { return ceil_div(bytes.count(), kFsBlock.count()); }

Extent after(Lba begin, std::int64_t blocks) {
  return {begin, begin + Sectors{blocks * kFsBlockSectors}};
}

// ext4 begins a large extent at a multiple of its size.
Lba aligned(Lba at, Sectors unit) {
  return Lba{} + unit * ceil_div((at - Lba{}).count(), std::max<std::int64_t>(unit.count(), 1));
}

// Buffers of the journal, by number: pages, the redo log's blocks, inodes.
std::vector<kernel::BufferRegion> regions_of(const StorageParameters& p, PageId pages,
                                             Lba pages_begin, const Extent& redo,
                                             const Extent& inodes) {
  return {{pages_begin, blocks_of(p.page), p.journaled ? pages : 0, true},
          {redo.begin, 1, p.journaled ? static_cast<std::uint32_t>(blocks_of(p.redo)) : 0, true},
          {inodes.begin, 1, kInodes}};
}

}  // namespace

PageCache::PageCache(std::uint32_t pages, PageId most_pages)
    : slots_(pages), where_(pages == 0 ? 0 : most_pages), used_(pages) {}

bool PageCache::use(PageId page) {
  if (slots_.empty()) return false;
  if (where_[page] != 0) {
    used_[where_[page] - 1] = 1;
    return true;
  }
  while (std::exchange(used_[hand_], 0) != 0) {
    hand_ = hand_ + 1 == slots_.size() ? 0 : hand_ + 1;
  }
  const PageId out = slots_[hand_];
  if (where_[out] == hand_ + 1) where_[out] = 0;
  slots_[hand_] = page;
  where_[page] = hand_ + 1;
  hand_ = hand_ + 1 == slots_.size() ? 0 : hand_ + 1;
  where_.prefetch(slots_[hand_]);  // most likely the next to go
  return false;
}

Storage::Storage(host::Machine& machine, const StorageParameters& p, PageId most_pages)
    : machine_(machine),
      parameters_(p),
      doublewrite_(after(p.journal.begin + Sectors{p.journal.blocks * kFsBlockSectors},
                         blocks_of(p.doublewrite_area))),
      redo_(after(doublewrite_.end, blocks_of(p.redo))),
      inodes_(after(redo_.end, kInodes)),
      pages_begin_(aligned(inodes_.end, to_sectors(p.page))),
      most_pages_(most_pages),
      page_sectors_(to_sectors(p.page)),
      journal_(machine, p.journal, regions_of(p, most_pages, pages_begin_, redo_, inodes_),
               [this](Buffer buffer) { written_home(buffer); }),
      page_cache_(p.journaled ? static_cast<std::uint32_t>(p.page_cache / p.page) : 0,
                  most_pages + static_cast<PageId>(ceil_div(p.redo.count(), p.page.count()))),
      writes_(most_pages) {
  times_.fill(-1);
  require(p.page.count() > 0 && p.page % kFsBlock == Bytes{0}, "a page is whole blocks of 4 KiB");
  require(p.redo_block.count() > 0 && p.redo_block.count() % kSectorBytes == 0 &&
              kFsBlock % p.redo_block == Bytes{0} && p.redo % p.redo_block == Bytes{0},
          "the redo log's block: sectors, of which 4 KiB and the log are multiples");
  require(p.doublewrite_area >= p.page, "the doublewrite buffer must hold a page");
  require(p.tick > Nanos{0}, "a tick of the kernel's clock must be more than 0");
  require(to_bytes(pages_extent().end) <= machine.device().capacity(),
          "the database's files do not fit on the device: " +
              std::to_string(to_bytes(pages_extent().end).count()) + " B of " +
              std::to_string(machine.device().capacity().count()));
}

Extent Storage::pages_extent() const {
  return {pages_begin_, pages_begin_ + page_sectors_ * most_pages_};
}

Extent Storage::journal_extent() const {
  return after(parameters_.journal.begin, parameters_.journal.blocks);
}

Request Storage::at(Op op, PageId page) const {
  return {op, pages_begin_ + page_sectors_ * page, page_sectors_};
}

void Storage::read(Process self, PageId page) {
  if (page_cache_.use(page)) {
    ++counters_.cached_reads;
    return machine_.compute(self, parameters_.copy_cpu);
  }
  ++counters_.page_reads;
  Transfers(machine_, self).run(at(Op::read, page));
}

void Storage::write(Process self, std::span<const PageId> pages) {
  counters_.pages_flushed += pages.size();
  if (parameters_.journaled) {
    write_journaled(self, pages);
  } else {
    write_ordered(self, pages);
  }
}

void Storage::write_ordered(Process self, std::span<const PageId> pages) {
  if (parameters_.doublewrite) write_doublewrite(self, static_cast<std::int64_t>(pages.size()));
  Transfers transfers(machine_, self);
  for (const PageId page : pages) {
    change_times(self, data_file);
    transfers.start(at(Op::write, page));
    ++counters_.pages_home;
    ++writes_[page];
  }
  transfers.wait();
  sync(self, data_file);
}

void Storage::write_doublewrite(Process self, std::int64_t pages) {
  if (parameters_.doublewrite_elsewhere) return elsewhere(self, parameters_.page * pages);
  Transfers transfers(machine_, self);
  const std::int64_t area = doublewrite_.length() / page_sectors_;
  while (pages > 0) {
    const std::int64_t piece = std::min(pages, area - doublewrite_at_);
    const Sectors length = page_sectors_ * piece;
    change_times(self, doublewrite_file);
    transfers.start({Op::write, doublewrite_.begin + page_sectors_ * doublewrite_at_, length});
    counters_.doublewrite_blocks += static_cast<std::uint64_t>(length.count() / kFsBlockSectors);
    doublewrite_at_ = (doublewrite_at_ + piece) % area;
    pages -= piece;
  }
  transfers.wait();
  sync(self, doublewrite_file);
}

void Storage::write_journaled(Process self, std::span<const PageId> pages) {
  for (const PageId page : pages) {
    change_times(self, data_file);
    page_cache_.use(page);
    journal_.dirty(self, page);
  }
  machine_.compute(self, parameters_.copy_cpu * static_cast<std::int64_t>(pages.size()));
  sync(self, data_file);
}

void Storage::write_redo(Process self, Lsn begin, Lsn end) {
  ++counters_.redo_syncs;
  if (parameters_.redo_elsewhere) {
    return elsewhere(self, Bytes{static_cast<std::int64_t>(end - begin)});
  }
  if (parameters_.journaled) return write_redo_journaled(self, begin, end);
  const auto block = static_cast<Lsn>(parameters_.redo_block.count());
  const auto all =
      static_cast<std::int64_t>(parameters_.redo.count() / parameters_.redo_block.count());
  const std::int64_t sectors = to_sectors(parameters_.redo_block).count();
  const auto last = static_cast<std::int64_t>((end - 1) / block);
  Transfers transfers(machine_, self);
  for (auto at = static_cast<std::int64_t>(begin / block); at <= last;) {
    const std::int64_t piece = std::min(last - at + 1, all - at % all);
    const Sectors length{piece * sectors};
    change_times(self, redo_file);
    transfers.start({Op::write, redo_.begin + Sectors{at % all * sectors}, length});
    counters_.redo_sectors += static_cast<std::uint64_t>(length.count());
    at += piece;
  }
  transfers.wait();
  sync(self, redo_file);
}

void Storage::write_redo_journaled(Process self, Lsn begin, Lsn end) {
  const auto all = static_cast<Lsn>(blocks_of(parameters_.redo));
  const auto block = static_cast<Lsn>(kFsBlock.count());
  const auto page = static_cast<Lsn>(parameters_.page.count());
  change_times(self, redo_file);
  for (Lsn at = begin / block; at <= (end - 1) / block; ++at) {
    const Lsn place = at % all;
    page_cache_.use(most_pages_ + static_cast<PageId>(place * block / page));
    journal_.dirty(self, most_pages_ + static_cast<Buffer>(place));
  }
  sync(self, redo_file);
}

// The journal has written a buffer to its place.
void Storage::written_home(Buffer buffer) {
  if (!parameters_.journaled) return;
  if (buffer < most_pages_) {
    ++counters_.pages_home;
    ++writes_[buffer];
  } else if (buffer < most_pages_ + static_cast<Buffer>(blocks_of(parameters_.redo))) {
    counters_.redo_sectors += static_cast<std::uint64_t>(kFsBlockSectors);
  }
}

// Whoever writes to a file changes its times to the tick that has begun last.
void Storage::change_times(Process self, File file) {
  const std::int64_t tick = machine_.now() / parameters_.tick;
  if (times_[file] == tick) return;
  times_[file] = tick;
  journal_.dirty(self, inode_of(file));
}

void Storage::sync(Process self, File file) {
  if (parameters_.journaled) {
    journal_.sync_file(self, file);
  } else if (parameters_.sync_commits_inode) {
    journal_.sync(self, inode_of(file));
  } else {
    Transfers(machine_, self).run({Op::flush, Lba{}, Sectors{}});
  }
}

Buffer Storage::inode_of(File file) const {
  const auto before = parameters_.journaled
                          ? most_pages_ + static_cast<Buffer>(blocks_of(parameters_.redo))
                          : Buffer{0};
  return before + file;
}

// A drive known by its rate and latency, first come, first served.
void Storage::elsewhere(Process self, Bytes bytes) {
  other_drive_free_ = std::max(other_drive_free_, machine_.now()) +
                      transfer_time(bytes, parameters_.other_drive_rate);
  machine_.sleep_until(self, other_drive_free_ + parameters_.other_drive_latency);
}

}  // namespace flashlab::dbms::innodb
