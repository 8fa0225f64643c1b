// How a flash drive is laid out, and what every index means.
//
// Sizes, from small to large:
//   unit    what the map maps: one logical page (4 KiB in most drives, a whole page in some)
//   page    what one program operation writes on one die: all its planes at once
//   block   what garbage collection erases as one: `pages_per_block` pages on every die of its
//           group, across all planes
//   group   the dies that blocks are striped over: one die (allocation `per_die`), or all
//   (`global`)
//
// Indices, all dense from 0: a Slot is the place of one unit; slots of a page, pages of a block and
// blocks of a group follow one another. Page p of a block lies on die group * width + p % width;
// die d hangs on channel d % channels, so that neighbours share no channel.
#pragma once

#include <cstdint>
#include <string>

#include "base/divider.hpp"
#include "base/units.hpp"

namespace flashlab::flash {

using Lpn = std::uint32_t;    // logical page number: address / unit
using Slot = std::uint32_t;   // physical place of a unit
using Page = std::uint32_t;   // slot / slots per page
using Block = std::uint32_t;  // slot / slots per block
using Group = std::uint32_t;
using Die = std::uint32_t;

// What each one is: flash/describe.hpp.
struct GeometryParameters {
  Bytes capacity;
  double overprovision_ratio = 0.0;
  Bytes page;
  Bytes map_unit;
  std::int64_t planes = 1;
  std::int64_t pages_per_block = 0;
  std::int64_t channels = 0;
  std::int64_t dies_per_channel = 0;
  std::string allocation = "per_die";
};

class Geometry {
 public:
  // Throws OperatingError for a layout that no drive can have.
  explicit Geometry(const GeometryParameters& parameters);

  [[nodiscard]] Bytes capacity() const { return Bytes{unit_.count() * lpns_}; }
  [[nodiscard]] Bytes unit() const { return unit_; }
  [[nodiscard]] Bytes page() const { return unit_ * slots_per_page(); }
  [[nodiscard]] std::uint32_t lpns() const { return lpns_; }
  [[nodiscard]] std::uint32_t slots() const { return blocks() * slots_per_block(); }
  [[nodiscard]] std::uint32_t slots_per_page() const { return by_page_.divisor(); }
  [[nodiscard]] std::uint32_t slots_per_block() const { return by_block_.divisor(); }
  [[nodiscard]] std::uint32_t pages_per_block() const {
    return slots_per_block() / slots_per_page();
  }
  [[nodiscard]] std::uint32_t planes() const { return planes_; }
  [[nodiscard]] std::uint32_t blocks() const { return groups_ * blocks_per_group_; }
  [[nodiscard]] std::uint32_t blocks_per_group() const { return blocks_per_group_; }
  [[nodiscard]] std::uint32_t groups() const { return groups_; }
  [[nodiscard]] std::uint32_t width() const { return by_width_.divisor(); }
  [[nodiscard]] std::uint32_t dies() const { return groups_ * width(); }
  [[nodiscard]] std::uint32_t channels() const { return by_channel_.divisor(); }
  // 1 - logical / physical: what theory calls the spare factor.
  [[nodiscard]] double spare_factor() const;

  [[nodiscard]] Page page_of(Slot slot) const { return by_page_.quotient(slot); }
  // The first slot of the page of `slot`, and of the page behind it.
  [[nodiscard]] Slot first_of_page(Slot slot) const { return page_of(slot) * slots_per_page(); }
  [[nodiscard]] Slot next_page(Slot slot) const { return (page_of(slot) + 1) * slots_per_page(); }
  [[nodiscard]] Block block_of(Slot slot) const { return by_block_.quotient(slot); }
  [[nodiscard]] Slot first_slot(Block block) const { return block * slots_per_block(); }
  [[nodiscard]] Group group_of(Block block) const { return by_group_.quotient(block); }
  [[nodiscard]] std::uint32_t channel_of(Die die) const {
    return die - by_channel_.quotient(die) * channels();
  }
  [[nodiscard]] Die die_of(Slot slot) const { return die_of(slot, block_of(slot)); }
  // The same, for who knows the slot's block.
  [[nodiscard]] Die die_of(Slot slot, Block block) const {
    if (width() == 1) return group_of(block);
    const Page page = page_of(slot - first_slot(block));
    return group_of(block) * width() + (page - by_width_.quotient(page) * width());
  }
  [[nodiscard]] Lpn lpn_of(Bytes address) const {
    if (unit_shift_ >= 0) return static_cast<Lpn>(address.count() >> unit_shift_);
    return static_cast<Lpn>(address / unit_);
  }

 private:
  Bytes unit_;
  int unit_shift_ = -1;  // units are so many times a doubling; -1: no power of two
  std::uint32_t lpns_ = 0;
  std::uint32_t planes_ = 1;
  std::uint32_t groups_ = 0;
  std::uint32_t blocks_per_group_ = 0;
  Divider by_page_;
  Divider by_block_;
  Divider by_group_;
  Divider by_channel_;
  Divider by_width_;
};

}  // namespace flashlab::flash
