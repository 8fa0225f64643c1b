// The dies behind their channels, in time, and the write buffer in front of them.
//
// Work of the drive itself (programs of buffered pages, garbage collection, erases) waits in a
// queue of its die and starts when die and channel are free, in the order in which the channel
// becomes wanted. A host read goes before all that has not begun (a drive does not let a reader
// wait for its housekeeping), so queued work is dated only when its time has come, or when somebody
// must know: a write that needs buffer space, a flush.
#pragma once

#include <cstdint>
#include <vector>

#include "base/archive.hpp"
#include "base/prefetch.hpp"
#include "base/prng.hpp"
#include "base/ring.hpp"
#include "base/units.hpp"
#include "flash/ftl.hpp"
#include "flash/geometry.hpp"
#include "flash/lane.hpp"

namespace flashlab::flash {

// What each one is: flash/describe.hpp.
struct NandParameters {
  Nanos read_page;
  Nanos program_page;
  Nanos erase_block;
  Nanos slc_program_page;
  BytesPerSecond channel_rate;
  double jitter_ratio = 0.0;
  std::uint64_t seed = 0;
};

// Time that dies were busy for each cause, transfers over the channel included.
struct NandCounters {
  std::uint64_t page_reads = 0;
  std::uint64_t page_programs = 0;
  std::uint64_t slc_programs = 0;
  std::uint64_t block_erases = 0;  // of one die each
  Nanos host_read;
  Nanos host_program;
  Nanos gc_read;
  Nanos gc_program;
  Nanos fold;
  Nanos erase;
};

class Nand {
 public:
  Nand(const Geometry& geometry, const NandParameters& parameters);

  // A command arrives at `now`: nothing before it will be asked for any more.
  void present(Nanos now);
  // All that was due before `now` gets its times, and is counted.
  void catch_up(Nanos now);
  // Work that the FTL hands over from here on is not ready before `when`.
  void set_ready(Nanos when) { ready_ = when; }
  void delay_until(Nanos when) {
    if (ready_ < when) ready_ = when;
  }
  // Host pages go to the SLC cache from here on.
  void set_slc(bool on) { slc_ = on; }
  // Whether a page of this block may still be unprogrammed.
  [[nodiscard]] bool remembers(Block block) const { return remembered_[block] != 0; }
  // A hint that a page of this block is asked for soon.
  void expect(Block block) const { prefetch_early(&remembered_[block]); }

  // What Ftl calls.
  void program(Page page, Die die, Work work);
  void copies(Die die, Page to, std::uint32_t pages);
  void read(Die die, std::uint32_t units);
  void erase(Block block);
  void settle(Block block, const PageMap& map);

  // A host read of `bytes` of one physical page: when they have left the channel.
  Nanos host_read(Die die, Bytes bytes, Nanos ready);
  // Moves one page from the SLC cache to its final place on a die.
  void fold(Die die);

  // Frees the buffer space of one host page: of the first to be programmed of those that have
  // space, whenever they came; returns when that is.
  Nanos release_first();
  // When everything in the buffer is programmed.
  Nanos drain(Nanos begin);
  // Whether a page's content is still in RAM: it has not been programmed by `now`.
  bool holds(Page page, Block block, Nanos now);
  // Whether its content can still be replaced: the program has not begun by `now`.
  bool replaceable(Page page, Block block, Nanos now);
  // Appends the logical pages that were not programmed by `now`, to which it has caught up.
  void unprogrammed(Nanos now, const PageMap& map, std::vector<Lpn>& out) const;
  // After a power cut: nothing waits, nothing is buffered.
  void restart(Nanos now);

  // From `now` on, operations on the cells of a die take so many thousandths of their time. What
  // has begun is finished as it was.
  void slow(Die die, std::int64_t thousandths, Nanos now);

  // Whether a die would begin at once with work that is handed over now.
  [[nodiscard]] bool is_idle(Die die) const {
    return queues_[seat(die)].empty() && free_[seat(die)] <= ready_;
  }
  // When the next die has finished all that it was given: after `when`, up to which all that was
  // due has its times, and before `now`, or else `now`.
  Nanos next_idle(Nanos when, Nanos now);
  [[nodiscard]] const NandCounters& counters() const { return counters_; }
  void reset_counters() { counters_ = {}; }
  void archive(Archive& a);

 private:
  enum class Kind : std::uint16_t { program, slc_program, gc_program, gc_read, copy, fold, erase };
  struct Op {
    Nanos ready;
    // Of a host page: its position in the buffer. Of copies: so many, one after another.
    std::uint32_t number = 0;
    std::uint16_t units = 0;  // to read
    Kind kind = Kind::program;
  };
  static_assert(sizeof(Op) == 16);  // thousands wait where the buffer is large
  // A host page in the buffer.
  struct Entry {
    Page page = 0;
    Die die = 0;
    Nanos end;  // kUnknown while it waits
  };
  struct Moved {
    Lpn lpn = 0;
    Nanos programmed;
  };
  struct CellTimes {
    Nanos read;
    Nanos program;
    Nanos slc_program;
    Nanos erase;
  };
  static constexpr Nanos kUnknown{INT64_MAX};
  static constexpr int kNeighbours = 6;

  // A die's place in the arrays: those of a channel are neighbours.
  [[nodiscard]] std::size_t seat(Die die) const { return seats_[die]; }
  // The seat of the channel whose next operation is due first.
  [[nodiscard]] std::size_t next_seat(std::uint32_t channel) const;
  void push(std::size_t seat, const Op& op);
  [[nodiscard]] Op* last_op(std::size_t seat);
  void step(std::uint32_t channel);
  void commit(std::uint32_t channel, std::size_t seat);
  void rekey(std::size_t seat);
  void advance(std::uint32_t channel, Nanos now);
  void catch_up(std::uint32_t channel, Nanos now);
  Nanos end_of(std::uint32_t position);
  [[nodiscard]] Nanos varied(std::uint32_t channel, Nanos nominal);
  [[nodiscard]] CellTimes cell_times(std::int64_t thousandths) const;
  [[nodiscard]] static Nanos key_of(const Op& first, Nanos free, const CellTimes& cells);
  [[nodiscard]] static bool senses_first(Kind kind) {
    return kind == Kind::gc_read || kind == Kind::copy || kind == Kind::fold;
  }
  [[nodiscard]] Entry& entry(std::uint32_t position) {
    return entries_[position & (entries_.size() - 1)];
  }
  [[nodiscard]] const Entry& entry(std::uint32_t position) const {
    return entries_[position & (entries_.size() - 1)];
  }
  [[nodiscard]] bool is_indexed() const { return !older_.empty(); }
  [[nodiscard]] std::uint32_t& newest(Page page) {
    // Pages of a block, which come one after another, are neighbours; where in the index a block's
    // begin is scattered.
    const std::uint32_t scattered = (page >> kNeighbours) * 0x9E3779B1U >> (32 - index_bits_);
    return newest_[(scattered + page) & (newest_.size() - 1)];
  }
  [[nodiscard]] Entry* find(Page page, Block block);
  void append_entry(const Entry& added);
  void forget_moved(Nanos now);
  void index(std::uint32_t position, Page page);
  void index_all();
  void unprogrammed_of(Page page, const PageMap& map, std::vector<Lpn>& out) const;

  const Geometry geometry_;
  NandParameters parameters_;
  // By channel: what happens on one is always dated in the same order, all of them together in the
  // order in which somebody asks.
  std::vector<Prng> random_;
  std::uint32_t ways_;
  TransferTime read_transfer_;
  Nanos unit_transfer_;
  Nanos page_transfer_;
  Nanos present_;
  Nanos ready_;
  bool slc_ = false;
  std::vector<std::uint16_t> seats_;  // by die
  std::vector<std::int64_t> slowed_;  // by die: thousandths of its time that an operation takes
  std::vector<CellTimes> times_;      // by seat, accordingly
  std::vector<Ring<Op>> queues_;      // by seat
  std::vector<Nanos> free_;           // by seat: when it has finished what has begun
  std::vector<Nanos> keys_;           // by seat: when what waits first wants the channel
  std::vector<Lane> channels_;
  // Host pages by position, which counts from the first one ever and wraps: those of [forgotten_,
  // next_) may still be unprogrammed.
  std::vector<Entry> entries_ = std::vector<Entry>(64);
  std::uint32_t forgotten_ = 0;
  std::uint32_t next_ = 0;
  std::vector<Nanos> ends_;  // of those with times that have buffer space: a heap, first on top
  std::vector<std::uint32_t> remembered_;  // by block: its pages among them
  std::vector<Moved> moved_;               // collected while they were in the buffer
  // What follows is derived, and not saved.
  // A large buffer's entries by page: chains, from the newest position of all pages with one hash
  // to older ones. What is forgotten stays in its chain, whose end it is.
  std::vector<std::uint32_t> newest_;  // by hash
  std::vector<std::uint32_t> older_;   // by position; empty: entries are few, and looked through
  std::uint32_t index_bits_ = 0;
  // Of the entries before `drained_` all ends are known, and this is the last one of those that
  // are not forgotten.
  std::uint32_t drained_ = 0;
  Nanos drained_end_;
  Nanos moved_first_ = kUnknown;  // no page of moved_ is programmed before
  NandCounters counters_;
};

}  // namespace flashlab::flash
