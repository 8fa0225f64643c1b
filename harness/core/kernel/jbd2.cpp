#include "kernel/jbd2.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace flashlab::kernel {
using host::Machine;
using host::Process;
using host::Transfers;

namespace {

constexpr std::int64_t kLeastBlocks = 64;
constexpr std::size_t kWriteBackAtOnce = 1024;

}  // namespace

Jbd2::Jbd2(Machine& machine, const JournalParameters& parameters, std::vector<BufferRegion> regions,
           std::function<void(Buffer)> written_home)
    : machine_(machine),
      parameters_(parameters),
      regions_(std::move(regions)),
      written_home_(std::move(written_home)),
      largest_(parameters.blocks / std::max<std::int64_t>(parameters.ring_per_transaction, 1)),
      committed_list_(machine),
      requested_list_(machine),
      room_list_(machine),
      home_list_(machine) {
  require(parameters.blocks >= kLeastBlocks, "journal: at least 64 blocks");
  require(parameters.ring_per_transaction >= 3, "ring_per_transaction must be at least 3");
  require(parameters.flusher_interval > Nanos{0}, "flusher_interval must be more than 0");
  Buffer buffers = 0;
  for (const BufferRegion& region : regions_) {
    first_.push_back(buffers);
    buffers += region.count;
  }
  committed_of_.resize(regions_.size());
  tid_.assign(buffers, 0);
  committed_in_.assign(buffers, 0);
  running_.tid = 1;
}

std::size_t Jbd2::region_of(Buffer buffer) const {
  std::size_t region = 0;
  while (region + 1 < first_.size() && buffer >= first_[region + 1]) ++region;
  return region;
}

std::int64_t Jbd2::blocks_of(Buffer buffer) const {
  return regions_[region_of(buffer)].blocks_each;
}

Request Jbd2::home_of(Buffer buffer) const {
  const std::size_t at = region_of(buffer);
  const std::int64_t sectors = regions_[at].blocks_each * kFsBlockSectors;
  return {Op::write, regions_[at].begin + Sectors{sectors * (buffer - first_[at])},
          Sectors{sectors}};
}

std::int64_t Jbd2::room() const {
  return parameters_.blocks - 1 - kept_blocks_ - committing_blocks_;
}

void Jbd2::dirty(Process self, Buffer buffer) {
  if (holds(running_, buffer)) return;
  const std::int64_t blocks = blocks_of(buffer);
  make_room(self, blocks);
  if (holds(running_, buffer)) return;  // somebody else has, meanwhile
  if (running_.buffers.empty()) running_.begun = machine_.now();
  tid_[buffer] = running_.tid;
  running_.buffers.push_back(buffer);
  running_.blocks += blocks;
}

// The running transaction can always be committed: its size is bounded, and so much is free.
void Jbd2::make_room(Process self, std::int64_t blocks) {
  const Nanos begin = machine_.now();
  while (true) {
    if (running_.blocks + blocks > largest_ - largest_ / 64 - 4) {
      const Tid full = running_.tid;
      request_commit(full);
      committed_list_.wait(self, [&] { return running_.tid != full; });
    } else if (room() < largest_) {
      checkpoint(self);
    } else {
      break;
    }
  }
  counters_.space_wait += machine_.now() - begin;
}

void Jbd2::checkpoint(Process self) {
  if (tail_moves_) return room_list_.wait(self, [&] { return !tail_moves_; });
  if (kept_.empty()) return wait_for(self, running_.tid - 1);
  tail_moves_ = true;
  if (dropped_ <= kept_.front().tid) write_oldest_home(self);
  // What was written home must be there before the ring forgets it. Of what ends meanwhile the
  // flush says nothing (jbd2_cleanup_journal_tail()).
  const Tid tail = dropped_;
  Transfers(machine_, self).run({Op::flush, Lba{}, Sectors{}});
  move_tail(self, tail);
}

void Jbd2::write_oldest_home(Process self) {
  Transaction& oldest = kept_.front();
  ++counters_.checkpoints;
  Transfers home = homeward(self);
  Tid superseding = 0;  // the last transaction that has some of its buffers
  for (const Buffer buffer : oldest.buffers) {
    if (holds(oldest, buffer)) {
      write_home(home, buffer);
    } else if (needs(oldest, buffer)) {
      superseding = std::max(superseding, tid_[buffer]);
    }
  }
  home.wait();
  home_list_.wait(self, [&] { return oldest.going_home == 0; });  // on others' behalf
  request_commit(superseding);
  wait_for(self, superseding);
  drop_until(oldest.tid + 1);
}

// A buffer under I/O is locked, and keeps its place (jbd2_journal_try_remove_checkpoint()).
bool Jbd2::is_clean(const Transaction& transaction) const {
  return transaction.going_home == 0 &&
         std::ranges::none_of(transaction.buffers,
                              [&](Buffer buffer) { return needs(transaction, buffer); });
}

// Those that need the ring no more (__jbd2_journal_clean_checkpoint_list()).
void Jbd2::drop_clean() {
  if (kept_.empty()) return;
  const Tid end = kept_.back().tid + 1;
  for (Tid tid = std::max(dropped_, kept_.front().tid); tid < end && is_clean(kept(tid)); ++tid) {
    drop_until(tid + 1);
  }
}

void Jbd2::drop_until(Tid tid) {
  for (Tid next = std::max(dropped_, kept_.front().tid); next < tid; ++next) {
    dropped_blocks_ += kept(next).in_ring;
  }
  dropped_ = std::max(dropped_, tid);
}

// The superblock says so before anybody writes there. `tail_moves_` until then, and no longer.
void Jbd2::move_tail(Process self, Tid tail) {
  Transfers(machine_, self)
      .run({Op::write, parameters_.begin, Sectors{kFsBlockSectors}, true, parameters_.stream});
  ++counters_.requests;
  ++counters_.written_blocks;
  while (!kept_.empty() && kept_.front().tid < tail) {
    kept_blocks_ -= kept_.front().in_ring;
    dropped_blocks_ -= kept_.front().in_ring;
    kept_.pop_front();
  }
  tail_moves_ = false;
  room_list_.wake_all();
}

Jbd2::Transaction& Jbd2::kept(Tid tid) {
  const std::size_t at = tid - kept_.front().tid;  // none was left out
  FLASHLAB_CHECK(at < kept_.size());
  return kept_[at];
}

// Transfers for write_home().
Transfers Jbd2::homeward(Process self) {
  return {machine_, self, [this](Tid tid) {
            if (--kept(tid).going_home == 0) home_list_.wake_all();
          }};
}

void Jbd2::write_home(Transfers& transfers, Buffer buffer) {
  const Tid tid = std::exchange(tid_[buffer], 0);
  ++kept(tid).going_home;
  const Request request = home_of(buffer);
  counters_.home_blocks += static_cast<std::uint64_t>(request.sectors.count() / kFsBlockSectors);
  transfers.start(request, tid);
  written_home_(buffer);
}

void Jbd2::request_commit(Tid tid) {
  if (requested_ >= tid) return;
  requested_ = tid;
  requested_list_.wake_all();
}

void Jbd2::wait_for(Process self, Tid tid) {
  committed_list_.wait(self, [&] { return committed_ >= tid; });
}

void Jbd2::sync(Process self) {
  if (!commit_all(self)) Transfers(machine_, self).run({Op::flush, Lba{}, Sectors{}});
}

// A commit that has flushed already says nothing of what was written meanwhile
// (jbd2_trans_will_send_data_barrier()).
void Jbd2::sync(Process self, Buffer buffer) {
  const Tid last = tid_[buffer];
  const bool flushes = last == running_.tid || (committed_ < last && will_flush_);
  commit_until(self, last);
  if (!flushes) Transfers(machine_, self).run({Op::flush, Lba{}, Sectors{}});
}

bool Jbd2::commit_all(Process self) {
  return commit_until(self, running_.buffers.empty() ? running_.tid - 1 : running_.tid);
}

// Whether something was left to commit.
bool Jbd2::commit_until(Process self, Tid last) {
  if (committed_ >= last) return false;
  request_commit(last);
  wait_for(self, last);
  return true;
}

void Jbd2::sync_file(Process self, std::size_t region) {
  FLASHLAB_CHECK(regions_[region].is_file);
  if (parameters_.home_in_same_sync) {
    commit_all(self);
    write_file_home(self, region);
    Transfers(machine_, self).run({Op::flush, Lba{}, Sectors{}});
  } else {
    write_file_home(self, region);
    sync(self);
  }
}

void Jbd2::write_file_home(Process self, std::size_t region) {
  auto dirty = std::exchange(committed_of_[region], {});
  counters_.synced_blocks += write_dirty_home(self, dirty);
}

void Jbd2::commit_until_stopped(Process self) {
  while (true) {
    requested_list_.wait(self, [&] { return stopped_ || requested_ >= running_.tid; });
    if (stopped_ && requested_ < running_.tid) return;
    commit(self);
  }
}

void Jbd2::commit(Process self) {
  Transaction transaction = std::exchange(running_, {});
  running_.tid = transaction.tid + 1;
  const std::int64_t descriptors =
      std::max<std::int64_t>(ceil_div(transaction.blocks, parameters_.tags_per_block), 1);
  transaction.in_ring = transaction.blocks + descriptors + 1;
  committing_blocks_ = transaction.in_ring;
  will_flush_ = true;
  drop_clean();
  const Tid tail = dropped_blocks_ < largest_ ? 0 : dropped_;
  committed_list_.wake_all();  // who waited for a new transaction to run
  write_ring(self, transaction.in_ring - 1);
  will_flush_ = false;
  Transfers(machine_, self).run({Op::flush, Lba{}, Sectors{}});
  write_ring(self, 1);
  if (!tail_moves_ && !kept_.empty() && kept_.front().tid < tail) {
    tail_moves_ = true;
    move_tail(self, tail);
  }
  ++counters_.commits;
  committed_ = transaction.tid;
  transaction.committed = machine_.now();
  committing_blocks_ = 0;
  kept_blocks_ += transaction.in_ring;
  for (const Buffer buffer : transaction.buffers) {
    committed_in_[buffer] = transaction.tid;
    const std::size_t region = region_of(buffer);
    if (regions_[region].is_file) committed_of_[region].emplace_back(buffer, transaction.tid);
  }
  kept_.push_back(std::move(transaction));
  committed_list_.wake_all();
}

// The record itself carries FUA; what goes before it was flushed.
void Jbd2::write_ring(Process self, std::int64_t blocks) {
  Transfers transfers(machine_, self);
  const bool is_record = blocks == 1;
  counters_.written_blocks += static_cast<std::uint64_t>(blocks);
  while (blocks > 0) {
    const std::int64_t piece = std::min(blocks, parameters_.blocks - head_);
    const Lba begin = parameters_.begin + Sectors{head_ * kFsBlockSectors};
    const Sectors length{piece * kFsBlockSectors};
    transfers.start({Op::write, begin, length, is_record, parameters_.stream});
    counters_.requests += static_cast<std::uint64_t>(
        ceil_div(length.count(), to_sectors(machine_.parameters().max_request).count()));
    blocks -= piece;
    head_ += piece;
    if (head_ == parameters_.blocks) head_ = 1;
  }
  transfers.wait();
}

void Jbd2::write_back_until_stopped(Process self) {
  while (!stopped_) {
    machine_.sleep_until(self, machine_.now() + parameters_.flusher_interval);
    if (!running_.buffers.empty() &&
        running_.begun + parameters_.commit_interval <= machine_.now()) {
      request_commit(running_.tid);
    }
    write_back(self, machine_.now() - parameters_.expire);
  }
}

// What is dirty since before `before`. Transactions may go while this waits: it keeps none.
void Jbd2::write_back(Process self, Nanos before) {
  std::vector<std::pair<Buffer, Tid>> dirty;
  for (Transaction& transaction : kept_) {
    if (transaction.begun > before) break;
    if (std::exchange(transaction.written_back, true)) continue;
    for (const Buffer buffer : transaction.buffers) {
      if (holds(transaction, buffer)) dirty.emplace_back(buffer, transaction.tid);
    }
  }
  counters_.expired_blocks += write_dirty_home(self, dirty);
}

// In the order of addresses, what has not gone another way meanwhile. Returns blocks.
std::uint64_t Jbd2::write_dirty_home(Process self, std::vector<std::pair<Buffer, Tid>>& dirty) {
  std::ranges::sort(dirty);
  Transfers transfers = homeward(self);
  std::uint64_t blocks = 0;
  std::size_t started = 0;
  for (const auto& [buffer, tid] : dirty) {
    if (tid_[buffer] != tid) continue;
    write_home(transfers, buffer);
    blocks += static_cast<std::uint64_t>(blocks_of(buffer));
    if (++started % kWriteBackAtOnce == 0) transfers.wait();
  }
  transfers.wait();
  return blocks;
}

void Jbd2::stop() {
  stopped_ = true;
  requested_list_.wake_all();
}

}  // namespace flashlab::kernel
