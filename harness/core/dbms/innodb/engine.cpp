#include "dbms/innodb/engine.hpp"

#include <utility>

#include "base/check.hpp"

namespace flashlab::dbms::innodb {

using host::Process;
using tpcc::Access;
using tpcc::Touch;

namespace {

constexpr std::uint32_t kLookedAtToEvict = 100;  // BUF_LRU_SEARCH_SCAN_THRESHOLD
constexpr std::uint32_t kDirtyEnough = 16;       // of these, that call the cleaner ahead of need

Lsn part(Bytes redo, double ratio) {
  return static_cast<Lsn>(static_cast<double>(redo.count()) * ratio);
}

}  // namespace

Engine::Engine(host::Machine& machine, const EngineParameters& parameters, Storage& storage,
               Bytes page, Bytes redo, PageId most_pages)
    : machine_(machine),
      parameters_(parameters),
      storage_(storage),
      pool_(static_cast<std::uint32_t>(parameters.buffer_pool / page), most_pages,
            parameters.old_blocks_time),
      flush_age_(part(redo, parameters.flush_age_ratio)),
      stall_age_(part(redo, parameters.stall_age_ratio)),
      most_dirty_(static_cast<std::uint32_t>(pool_.size() * parameters.most_dirty_ratio)),
      read_list_(machine),
      flushed_list_(machine),
      durable_list_(machine),
      cleaner_list_(machine) {
  require(parameters.batch_pages >= 1, "a batch has at least one page");
  require(parameters.old_blocks_time >= Nanos{0}, "old_blocks_time must not be negative");
  require(0 < parameters.flush_age_ratio &&
              parameters.flush_age_ratio < parameters.stall_age_ratio &&
              parameters.stall_age_ratio < 1,
          "redo log: 0 < flush_age_ratio < stall_age_ratio < 1");
}

void Engine::expect(std::span<const Touch> touches) const {
  for (const Touch& touch : touches) pool_.expect_place(touch.page);
  for (const Touch& touch : touches) {
    const FrameId frame = pool_.find(touch.page);
    if (frame != kNone) {
      pool_.expect(frame);
    } else if (touch.access != Access::create) {
      storage_.expect_read(touch.page);
    }
  }
}

void Engine::touch(Process self, const Touch& touch) {
  ++counters_.touches;
  const FrameId frame = fetch(self, touch);
  if (touch.access != Access::file || !parameters_.file_pages_age) {
    pool_.use(frame, machine_.now());
  }
  if (touch.access != Access::read) change(self, touch.page, touch.redo_bytes);
}

FrameId Engine::fetch(Process self, const Touch& touch) {
  const FrameId frame = pool_.find(touch.page);
  if (frame != kNone && !pool_.at(frame).reading) return frame;
  const Nanos begin = machine_.now();
  const FrameId mine = frame == kNone ? frame_for(self, touch) : kNone;
  if (mine != kNone) {
    if (touch.access == Access::create) return mine;
    ++counters_.misses;
    pool_.at(mine).reading = true;
    storage_.read(self, touch.page);
    pool_.at(mine).reading = false;
    ++reads_ended_;
    read_list_.wake_all();
    counters_.read_wait += machine_.now() - begin;
    return mine;
  }
  // Somebody else reads it, and might lose it again before this one runs.
  read_list_.wait(self, [&] {
    const FrameId there = pool_.find(touch.page);
    return there == kNone || !pool_.at(there).reading;
  });
  counters_.read_wait += machine_.now() - begin;
  return fetch(self, touch);
}

// A frame with this page in it, not read yet; kNone if another process has got one meanwhile.
FrameId Engine::frame_for(Process self, const Touch& touch) {
  while (pool_.free_frames() == 0 && !evict_one()) {
    const Nanos begin = machine_.now();
    if (cleaner_would_help()) {
      call_cleaner();
      const std::uint64_t batches = counters_.batches;
      flushed_list_.wait(self, [&] { return counters_.batches != batches; });
    } else {
      const std::uint64_t reads = reads_ended_;
      read_list_.wait(self, [&] { return reads_ended_ != reads; });
    }
    counters_.frame_wait += machine_.now() - begin;
    if (pool_.find(touch.page) != kNone) return kNone;
  }
  return pool_.add(touch.page, touch.access == Access::create);
}

void Engine::call_cleaner() {
  frames_wanted_ = true;
  cleaner_list_.wake_all();
}

bool Engine::evict_one() {
  FrameId frame = pool_.oldest();
  for (std::uint32_t looked = 0; frame != kNone && looked < kLookedAtToEvict; ++looked) {
    const Frame& f = pool_.at(frame);
    if (!f.dirty() && !f.busy()) {
      pool_.evict(frame);
      if (looked > kDirtyEnough) call_cleaner();
      return true;
    }
    frame = f.newer;
  }
  return false;
}

// Not if all that could be evicted is still being read.
bool Engine::cleaner_would_help() {
  FrameId frame = pool_.oldest();
  for (std::uint32_t looked = 0; frame != kNone && looked < kLookedAtToEvict; ++looked) {
    if (!pool_.at(frame).reading) return true;
    frame = pool_.at(frame).newer;
  }
  return false;
}

void Engine::change(Process self, PageId page, std::uint16_t redo_bytes) {
  FrameId frame = pool_.find(page);
  if (frame != kNone && pool_.at(frame).writing) {
    const Nanos begin = machine_.now();
    flushed_list_.wait(self, [&] {
      frame = pool_.find(page);
      return frame == kNone || !pool_.at(frame).writing;
    });
    counters_.write_wait += machine_.now() - begin;
  }
  if (age() > stall_age_) {
    const Nanos begin = machine_.now();
    cleaner_list_.wake_all();
    flushed_list_.wait(self, [&] { return age() <= stall_age_; });
    counters_.age_wait += machine_.now() - begin;
  }
  frame = pool_.find(page);
  if (frame == kNone || pool_.at(frame).busy()) {  // it went, or is written, while this waited
    touch(self, {page, Access::write, redo_bytes});
    return;
  }
  pool_.dirty(frame, lsn_);
  lsn_ += redo_bytes;
  counters_.redo_bytes += redo_bytes;
  if (wants_flush()) cleaner_list_.wake_all();
}

Lsn Engine::age() {
  const FrameId first = pool_.first_dirtied();
  return first == kNone ? 0 : lsn_ - pool_.at(first).oldest;
}

bool Engine::wants_flush() {
  return frames_wanted_ || age() > flush_age_ || pool_.dirty_frames() > most_dirty_;
}

void Engine::commit(Process self) {
  const Nanos begin = machine_.now();
  make_durable(self, lsn_);
  counters_.commit_wait += machine_.now() - begin;
}

void Engine::make_durable(Process self, Lsn upto) {
  while (durable_ < upto) {
    if (log_writing_) {
      durable_list_.wait(self, [&] { return !log_writing_ || durable_ >= upto; });
      continue;
    }
    log_writing_ = true;
    const Lsn end = lsn_;
    storage_.write_redo(self, durable_, end);
    durable_ = end;
    log_writing_ = false;
    durable_list_.wake_all();
  }
}

void Engine::clean_until_stopped(Process self) {
  while (true) {
    cleaner_list_.wait(self, [&] { return stopped_ || wants_flush(); });
    if (stopped_) return;
    flush(self);
  }
}

void Engine::stop() {
  stopped_ = true;
  cleaner_list_.wake_all();
}

void Engine::flush(Process self) {
  batch_.clear();
  const bool for_frames = std::exchange(frames_wanted_, false);
  collect_from_lru();
  counters_.lru_flushed += batch_.size();
  const std::size_t from_lru = batch_.size();
  collect_by_age();
  counters_.list_flushed += batch_.size() - from_lru;
  if (!batch_.empty()) {
    make_durable(self, lsn_);  // the log goes before the pages
    batch_pages_.clear();
    for (const FrameId frame : batch_) batch_pages_.push_back(pool_.at(frame).page);
    storage_.write(self, batch_pages_);
    for (const FrameId frame : batch_) {
      pool_.at(frame).writing = false;
      pool_.clean(frame);  // not before: until now a crash would need the log for it
    }
  }
  FLASHLAB_CHECK(!batch_.empty() || for_frames);
  ++counters_.batches;
  flushed_list_.wake_all();
}

void Engine::collect(FrameId frame) {
  pool_.at(frame).writing = true;
  batch_.push_back(frame);
}

void Engine::collect_from_lru() {
  FrameId frame = pool_.oldest();
  for (std::uint32_t looked = 0; frame != kNone && looked < parameters_.lru_scan_depth; ++looked) {
    if (batch_.size() == parameters_.batch_pages) return;
    const Frame& f = pool_.at(frame);
    if (f.dirty() && !f.busy()) collect(frame);
    frame = f.newer;
  }
}

// Once there is a reason, a whole batch: syncing costs as much for one page.
void Engine::collect_by_age() {
  if (age() <= flush_age_ && pool_.dirty_frames() <= most_dirty_) return;
  FrameId frame = pool_.first_dirtied();
  while (frame != kNone && batch_.size() < parameters_.batch_pages) {
    const Frame& f = pool_.at(frame);
    if (!f.busy()) collect(frame);
    frame = f.dirtied_later;
  }
}

}  // namespace flashlab::dbms::innodb
