// The translation layer: log-structured placement, garbage collection, TRIM. Mechanism only; which
// block is collected and which stream a write belongs to is decided by policies.
//
// It knows no time. Whatever costs time on the dies is told to a `Nand`, which has
// - void program(Page page, Die die, Work work): a complete page goes to its die
// - void copies(Die die, Page to, uint32_t pages): each of so many pages of a die is read and then
//   programmed, the first one to `to`, the others behind it
// - void read(Die die, uint32_t units): units that share a physical page, to be copied
// - void erase(Block block)
// - void before_choice(): a block is about to be chosen
// - void settle(Block block, const PageMap& map): it has been, and will be collected
// so that the same mechanism runs with timing, and bare for preconditioning.
//
// Invariants (tests/test_flash_model.py, tests/core/test_ftl.cpp):
//  - a mapped page is in exactly one slot; a slot holds at most one page;
//  - between two calls, every group has at least `reserve_blocks` free blocks, one less while a
//    paced collection is under way;
//  - host + copied + padded units = slots of all programmed pages + slots filled of open pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.hpp"
#include "flash/attribution.hpp"
#include "flash/block_table.hpp"
#include "flash/geometry.hpp"
#include "flash/page_map.hpp"
#include "flash/policy/gc_pace.hpp"
#include "flash/policy/gc_placement.hpp"
#include "flash/policy/victim.hpp"

namespace flashlab::flash {

// Why a page is programmed.
enum class Work : std::uint8_t { host, gc };

// What each one is: flash/describe.hpp.
struct FtlParameters {
  VictimParameters victim;
  std::string gc_placement = "separate";
  std::string gc_pace = "whole";
  std::uint32_t reserve_blocks = 1;
  StreamId streams = 1;
  std::uint64_t seed = 0;
};

struct FtlCounters {
  std::uint64_t host_units = 0;
  std::uint64_t copied_units = 0;
  std::uint64_t padded_units = 0;
  std::uint64_t trimmed_units = 0;
  std::uint64_t host_pages = 0;
  std::uint64_t gc_pages = 0;
  std::uint64_t gc_page_reads = 0;
  std::uint64_t erases = 0;
  std::uint64_t idle_collections = 0;
};

class Ftl {
 public:
  // Throws OperatingError where the spare blocks do not suffice for open blocks and reserve.
  Ftl(const Geometry& geometry, const FtlParameters& parameters,
      std::vector<Attribution::Range> ranges);

  // Writes one logical page to the log. `label` is whom it is attributed to.
  template <class Nand>
  Slot write(Nand& nand, Lpn lpn, StreamId stream, StreamId label);
  // The same for `units` pages, one behind the other; at most as many as `open_units` says.
  template <class Nand>
  void write_more(Nand& nand, Lpn lpn, std::uint32_t units, StreamId stream, StreamId label);
  // So many units go to the stream's open page yet.
  [[nodiscard]] std::uint32_t open_units(StreamId stream) const { return host_pages_[stream].left; }
  // The page's content is no longer needed. True if it was mapped.
  bool trim(Lpn lpn);
  // Completes a stream's partly filled page with padding, or all of them: nothing of the host's
  // stays in them.
  template <class Nand>
  void pad_host_page(Nand& nand, StreamId stream);
  template <class Nand>
  void pad_host_pages(Nand& nand);
  // Collects one block where that gains anything: of the groups that have at most `target` free
  // blocks, and of which `may` says so, the one that has the fewest. False if there is none.
  template <class Nand, class May>
  bool collect_ahead(Nand& nand, std::uint32_t target, const May& may);

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] const PageMap& map() const { return map_; }
  [[nodiscard]] const BlockTable& blocks() const { return blocks_; }
  [[nodiscard]] const FtlCounters& counters() const { return counters_; }
  [[nodiscard]] const Attribution& attribution() const { return attribution_; }
  [[nodiscard]] std::uint32_t reserve_blocks() const { return parameters_.reserve_blocks; }
  [[nodiscard]] std::uint32_t live_units(Group group) const { return live_[group]; }
  // Nothing has been written yet.
  [[nodiscard]] bool is_new() const;
  [[nodiscard]] bool has_open_host_page() const;
  // A group of a new drive becomes what the only group of `one` is, with its pages renamed, by a
  // call with many of them (std::span<Lpn>): for conditioning. `one` has no open host page.
  template <class Rename>
  void adopt(const Ftl& one, Group group, Rename rename);
  // Whether the slot is in a host page that still takes units: its content is in the drive's RAM.
  [[nodiscard]] bool in_open_host_page(Slot slot) const;
  // Slots of partly filled host pages.
  void open_host_slots(std::vector<Slot>& out) const;
  // The host has written a page again that is in RAM still.
  void coalesced(Lpn lpn, StreamId label) { attribution_.coalesced(lpn, label); }
  void set_ranges(std::vector<Attribution::Range> ranges) {
    attribution_.set_ranges(std::move(ranges));
  }
  void reset_counters();
  void expect(Lpn lpn) const { map_.expect(lpn); }

  void archive(Archive& a);

 private:
  // An open block: pages are handed out in order.
  struct OpenBlock {
    Block block = 0;
    std::uint32_t next_page = 0;
    std::uint32_t pages_left = 0;
  };
  // A block that is being collected: [next, end) is still to be looked at.
  struct Collection {
    Block victim = 0;
    Slot next = 0;
    Slot end = 0;
    [[nodiscard]] bool active() const { return next < end; }
  };
  // An open page: slots are handed out in order.
  struct OpenPage {
    Slot next = 0;
    std::uint32_t left = 0;
    Lpn last = 0;     // the page that was written to it last
    Block block = 0;  // not always the open one: with mixed placement that moves on without it
  };

  void release(Lpn lpn);
  template <class Nand>
  void complete_host_page(Nand& nand, StreamId stream);
  template <class Nand>
  void open_host_page(Nand& nand, StreamId stream);
  template <class Nand>
  void collect_in_step(Nand& nand, Group group, const OpenBlock& host);
  template <class Nand>
  void collect(Nand& nand, Group group);
  template <class Nand>
  void choose(Nand& nand, Group group);
  template <class Nand>
  void copy_some(Nand& nand, Group group, std::uint32_t units);
  template <class Nand>
  void copy_moving(Nand& nand, Block victim);
  template <class Nand>
  void copy_run(Nand& nand, Block victim);
  template <class Nand>
  void append_copy(Nand& nand, StreamId stream, OpenBlock& block, OpenPage& page, Slot from);
  template <class Nand>
  void complete_page(Nand& nand, const OpenPage& page, Work work);
  void open_page(OpenBlock& block, OpenPage& page);
  [[nodiscard]] bool gains(Group group) const;
  void find_open_streams();
  [[nodiscard]] Group next_group(StreamId stream);
  [[nodiscard]] std::size_t choose_victim(Group group);
  [[nodiscard]] OpenBlock& gc_block(Group group, StreamId stream);
  [[nodiscard]] OpenPage& gc_page(Group group, StreamId stream) {
    return gc_pages_[std::size_t{group} * gc_logs_ + copy_log_of_(stream).log];
  }
  [[nodiscard]] OpenBlock& host_block(Group group, StreamId stream) {
    return host_blocks_[std::size_t{group} * parameters_.streams + stream];
  }

  const Geometry geometry_;
  FtlParameters parameters_;
  std::unique_ptr<VictimPolicy> victim_policy_;
  CopyLogOf copy_log_of_;
  GcPace pace_;
  Prng random_;
  PageMap map_;
  BlockTable blocks_;
  Attribution attribution_;
  FtlCounters counters_;
  std::uint32_t gc_logs_;                // that copies are kept apart in
  std::uint32_t live_limit_ = 0;         // live units that a group may hold at most
  std::vector<std::uint32_t> live_;      // by group
  std::vector<OpenBlock> host_blocks_;   // by group and stream
  std::vector<OpenPage> host_pages_;     // by stream
  std::vector<Group> host_group_;        // by stream: where its open page is
  std::vector<OpenBlock> gc_blocks_;     // by group and log, unless that is with the host's
  std::vector<OpenPage> gc_pages_;       // by group and log
  std::vector<Collection> collections_;  // by group
  std::vector<Slot> moving_;
  std::uint64_t open_streams_ = 0;  // that have an open host page; derived, not saved
};

template <class Nand>
Slot Ftl::write(Nand& nand, Lpn lpn, StreamId stream, StreamId label) {
  release(lpn);
  OpenPage& page = host_pages_[stream];
  if (page.left == 0) open_host_page(nand, stream);
  const Slot slot = page.next++;
  const Group group = host_group_[stream];
  map_.bind(lpn, slot, page.block);
  ++live_[group];
  ++counters_.host_units;
  attribution_.host(lpn, label);
  page.last = lpn;
  if (--page.left == 0) complete_host_page(nand, stream);
  return slot;
}

template <class Nand>
void Ftl::write_more(Nand& nand, Lpn lpn, std::uint32_t units, StreamId stream, StreamId label) {
  OpenPage& page = host_pages_[stream];
  FLASHLAB_CHECK(units >= 1 && units <= page.left);
  for (const Lpn end = lpn + units; lpn < end; ++lpn) {
    release(lpn);
    map_.bind(lpn, page.next++, page.block);
    attribution_.host(lpn, label);
  }
  live_[host_group_[stream]] += units;
  counters_.host_units += units;
  page.last = lpn - 1;
  page.left -= units;
  if (page.left == 0) complete_host_page(nand, stream);
}

template <class Nand>
void Ftl::complete_host_page(Nand& nand, StreamId stream) {
  open_streams_ &= ~(std::uint64_t{1} << stream);
  ++counters_.host_pages;
  complete_page(nand, host_pages_[stream], Work::host);
}

// Before a page is written again.
inline void Ftl::release(Lpn lpn) {
  const Slot old = map_.find(lpn);
  if (old == kNoSlot) return;
  const Block block = geometry_.block_of(old);
  map_.unbind(lpn, old, block);
  --live_[geometry_.group_of(block)];
}

template <class Nand>
void Ftl::open_host_page(Nand& nand, StreamId stream) {
  const Group group = next_group(stream);
  OpenBlock& block = host_block(group, stream);
  if (pace_.blocks_ahead > 0) collect_in_step(nand, group, block);
  // With mixed placement a collection may itself have opened the next block.
  while (block.pages_left == 0) {
    if (blocks_.free_blocks(group) > parameters_.reserve_blocks) {
      block = {blocks_.open(group, stream), 0, geometry_.pages_per_block()};
    } else {
      collect(nand, group);
    }
  }
  open_page(block, host_pages_[stream]);
  open_streams_ |= std::uint64_t{1} << stream;
}

// As much as the pace asks for before the host goes on.
template <class Nand>
void Ftl::collect_in_step(Nand& nand, Group group, const OpenBlock& host) {
  const std::uint32_t free = blocks_.free_blocks(group);
  if (free > parameters_.reserve_blocks + pace_.blocks_ahead) return;
  if (!collections_[group].active()) choose(nand, group);
  const Collection& collection = collections_[group];
  const std::uint32_t spare = free - std::min(free, parameters_.reserve_blocks);
  const PaceView view{map_.valid(collection.victim), collection.end - collection.next,
                      host.pages_left + spare * geometry_.pages_per_block(),
                      geometry_.slots_per_page()};
  copy_some(nand, group, pace_.units(view));
}

template <class Nand>
void Ftl::collect(Nand& nand, Group group) {
  if (!collections_[group].active()) choose(nand, group);
  copy_some(nand, group, geometry_.slots_per_block());
}

template <class Nand>
void Ftl::choose(Nand& nand, Group group) {
  nand.before_choice();
  const Block victim =
      group * geometry_.blocks_per_group() + static_cast<Block>(choose_victim(group));
  nand.settle(victim, map_);
  map_.withhold(victim);
  const Slot first = geometry_.first_slot(victim);
  collections_[group] = {victim, first, first + geometry_.slots_per_block()};
}

// Copies at least so many valid units, or all that are left; erases the block when none is.
template <class Nand>
void Ftl::copy_some(Nand& nand, Group group, std::uint32_t units) {
  // Looked through in whole pages: no more of them than could hold the units.
  const std::uint32_t per_page = geometry_.slots_per_page();
  Collection& collection = collections_[group];
  const Slot begin = collection.next;
  moving_.clear();
  while (collection.active() && moving_.size() < units) {
    const auto missing = units - static_cast<std::uint32_t>(moving_.size());
    const std::uint32_t pages = (missing + per_page - 1) / per_page;
    const Slot to = std::min(collection.end, collection.next + pages * per_page);
    map_.valid_slots(collection.next, to, moving_);
    collection.next = to;
  }
  copy_moving(nand, collection.victim);
  map_.vacate(collection.victim, begin, collection.next,
              static_cast<std::uint32_t>(moving_.size()));
  if (collection.active()) return;
  FLASHLAB_CHECK(map_.valid(collection.victim) == 0);
  blocks_.erase(collection.victim);
  ++counters_.erases;
  nand.erase(collection.victim);
}

template <class Nand>
void Ftl::copy_moving(Nand& nand, Block victim) {
  const StreamId stream = blocks_.stream(victim);
  for (const Slot slot : moving_) {
    const Lpn lpn = map_.lpn_at(slot);
    map_.expect(lpn);
    attribution_.expect(lpn);
  }
  counters_.copied_units += moving_.size();
  if (geometry_.slots_per_page() == 1 && geometry_.width() == 1) return copy_run(nand, victim);
  const Group group = geometry_.group_of(victim);
  OpenPage& page = gc_page(group, stream);
  OpenBlock& block = gc_block(group, stream);
  // All valid slots of a physical page are one read.
  for (std::size_t i = 0; i < moving_.size();) {
    const std::size_t first = i;
    const Slot page_end = geometry_.next_page(moving_[i]);
    while (i < moving_.size() && moving_[i] < page_end) ++i;
    ++counters_.gc_page_reads;
    nand.read(geometry_.die_of(moving_[first], victim), static_cast<std::uint32_t>(i - first));
    for (std::size_t k = first; k < i; ++k) append_copy(nand, stream, block, page, moving_[k]);
  }
}

// The same where a page is one unit and a block lies on one die: nothing has to be asked per page.
template <class Nand>
void Ftl::copy_run(Nand& nand, Block victim) {
  const StreamId stream = blocks_.stream(victim);
  const Group group = geometry_.group_of(victim);
  OpenBlock& open = gc_block(group, stream);
  for (std::size_t i = 0; i < moving_.size();) {
    if (open.pages_left == 0) {
      open = {blocks_.open(group, stream), 0, geometry_.pages_per_block()};
    }
    const std::size_t end = std::min(moving_.size(), i + static_cast<std::size_t>(open.pages_left));
    const auto pages = static_cast<std::uint32_t>(end - i);
    Slot to = geometry_.first_slot(open.block) + open.next_page;
    nand.copies(group, geometry_.page_of(to), pages);
    for (; i < end; ++i) {
      const Lpn lpn = map_.lpn_at(moving_[i]);
      map_.move(lpn, to++);
      attribution_.copied(lpn);
    }
    map_.gained(open.block, pages);
    open.next_page += pages;
    open.pages_left -= pages;
    counters_.gc_page_reads += pages;
    counters_.gc_pages += pages;
    if (blocks_.pages_complete(open.block, pages)) map_.offer(open.block);
  }
}

template <class Nand>
void Ftl::append_copy(Nand& nand, StreamId stream, OpenBlock& block, OpenPage& page, Slot from) {
  if (page.left == 0) {
    if (block.pages_left == 0) {
      const Group group = geometry_.group_of(geometry_.block_of(from));
      block = {blocks_.open(group, stream), 0, geometry_.pages_per_block()};
    }
    open_page(block, page);
  }
  const Lpn lpn = map_.lpn_at(from);
  map_.move(lpn, page.next);
  map_.gained(page.block, 1);
  ++page.next;
  attribution_.copied(lpn);
  page.last = lpn;
  if (--page.left == 0) {
    ++counters_.gc_pages;
    complete_page(nand, page, Work::gc);
  }
}

// The last slot of the page has been handed out.
template <class Nand>
void Ftl::complete_page(Nand& nand, const OpenPage& page, Work work) {
  const Page number = geometry_.page_of(page.next - 1);
  const Block block = geometry_.block_of(page.next - 1);
  nand.program(number, geometry_.die_of(page.next - 1, block), work);
  if (blocks_.pages_complete(block, 1)) map_.offer(block);
}

template <class Nand>
void Ftl::pad_host_page(Nand& nand, StreamId stream) {
  OpenPage& page = host_pages_[stream];
  if (page.left == 0) return;
  counters_.padded_units += page.left;
  attribution_.padded(page.last, page.left);
  page.next += page.left;
  page.left = 0;
  complete_host_page(nand, stream);
}

template <class Nand>
void Ftl::pad_host_pages(Nand& nand) {
  for (StreamId stream = 0; stream < parameters_.streams; ++stream) pad_host_page(nand, stream);
}

template <class Nand, class May>
bool Ftl::collect_ahead(Nand& nand, std::uint32_t target, const May& may) {
  Group poorest = 0;
  std::uint32_t fewest = target + 1;
  for (Group group = 0; group < geometry_.groups(); ++group) {
    const std::uint32_t free = blocks_.free_blocks(group);
    if (free >= fewest || !may(group) || !gains(group)) continue;
    poorest = group;
    fewest = free;
  }
  if (fewest > target) return false;
  if (!collections_[poorest].active()) ++counters_.idle_collections;
  collect(nand, poorest);
  return true;
}

template <class Rename>
void Ftl::adopt(const Ftl& one, Group group, Rename rename) {
  FLASHLAB_CHECK(one.geometry_.groups() == 1 && live_[group] == 0 &&
                 one.geometry_.blocks() == geometry_.blocks_per_group());
  const Block first_block = group * geometry_.blocks_per_group();
  const Slot first_slot = geometry_.first_slot(first_block);
  blocks_.adopt(one.blocks_, group);
  for (Block block = 0; block < one.geometry_.blocks(); ++block) {
    moving_.clear();
    const Slot begin = one.geometry_.first_slot(block);
    one.map_.valid_slots(begin, begin + one.geometry_.slots_per_block(), moving_);
    std::vector<Lpn> pages;
    pages.reserve(moving_.size());
    for (const Slot slot : moving_) pages.push_back(one.map_.lpn_at(slot));
    rename(std::span(pages));
    for (const Lpn page : pages) map_.expect(page);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      map_.bind(pages[i], first_slot + moving_[i], first_block + block);
    }
    if (one.map_.is_offered(block)) map_.offer(first_block + block);
  }
  live_[group] = one.live_[0];
  for (StreamId stream = 0; stream < parameters_.streams; ++stream) {
    OpenBlock open = one.host_blocks_[stream];
    open.block += first_block;
    host_block(group, stream) = open;
  }
  for (std::uint32_t log = 0; log < gc_logs_; ++log) {
    const std::size_t at = std::size_t{group} * gc_logs_ + log;
    gc_blocks_[at] = one.gc_blocks_[log];
    gc_blocks_[at].block += first_block;
    gc_pages_[at] = one.gc_pages_[log];
    gc_pages_[at].next += first_slot;
    rename(std::span(&gc_pages_[at].last, 1));
    gc_pages_[at].block += first_block;
  }
  collections_[group] = one.collections_[0];
  collections_[group].victim += first_block;
  collections_[group].next += first_slot;
  collections_[group].end += first_slot;
}

}  // namespace flashlab::flash
