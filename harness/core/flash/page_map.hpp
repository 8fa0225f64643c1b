// Where every logical page is, and what every slot holds.
//
// Three views of one relation, kept in step here and nowhere else: logical page -> slot, slot ->
// logical page, and the number of valid slots of each block. A slot is valid while the map points
// to it. The count of a block carries a mark while the block may not be a victim, so that a policy
// can search one dense array.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/archive.hpp"
#include "base/huge_array.hpp"
#include "base/prefetch.hpp"
#include "flash/geometry.hpp"

namespace flashlab::flash {

inline constexpr Slot kNoSlot = UINT32_MAX;

class PageMap {
 public:
  explicit PageMap(const Geometry& geometry);

  // A prefetch for a page that will be written or read soon.
  void expect(Lpn lpn) const { slot_of_.prefetch(lpn); }
  // And for the slot that it will leave: bits of slots beside each other come together.
  [[nodiscard]] static bool are_beside(Slot a, Slot b) { return a >> 6 == b >> 6; }
  void expect_release(Slot slot, Block block) const {
    valid_bits_.prefetch(slot >> 6);
    prefetch_early(&valid_[block]);
  }

  [[nodiscard]] Slot find(Lpn lpn) const { return slot_of_[lpn] - 1; }  // 0 is stored for none
  [[nodiscard]] bool is_valid(Slot slot) const {
    return (valid_bits_[slot >> 6] >> (slot & 63) & 1) != 0;
  }
  // What a valid slot holds.
  [[nodiscard]] Lpn lpn_at(Slot slot) const { return lpn_of_[slot]; }

  // Puts an unmapped page into a slot that holds nothing.
  void bind(Lpn lpn, Slot slot, Block block) {
    slot_of_[lpn] = slot + 1;
    lpn_of_[slot] = lpn;
    valid_bits_[slot >> 6] |= std::uint64_t{1} << (slot & 63);
    ++valid_[block];
  }
  // Takes a mapped page out of its slot.
  void unbind(Lpn lpn, Slot slot, Block block) {
    slot_of_[lpn] = 0;
    valid_bits_[slot >> 6] &= ~(std::uint64_t{1} << (slot & 63));
    --valid_[block];
  }
  // Moves a page from its slot to one that holds nothing. The slots that pages were moved from are
  // vacated together.
  void move(Lpn lpn, Slot to) {
    slot_of_[lpn] = to + 1;
    lpn_of_[to] = lpn;
    valid_bits_[to >> 6] |= std::uint64_t{1} << (to & 63);
  }
  void gained(Block block, std::uint32_t units) {
    valid_[block] += static_cast<std::int32_t>(units);
  }
  void vacate(Block block, Slot begin, Slot end, std::uint32_t units);
  // Appends the valid slots of [begin, end), ascending.
  void valid_slots(Slot begin, Slot end, std::vector<Slot>& out) const;

  [[nodiscard]] std::uint32_t valid(Block block) const {
    return static_cast<std::uint32_t>(valid_[block] & ~kWithheld);
  }
  void offer(Block block) { valid_[block] &= ~kWithheld; }
  void withhold(Block block) { valid_[block] |= kWithheld; }
  [[nodiscard]] bool is_offered(Block block) const { return (valid_[block] & kWithheld) == 0; }
  // Valid slots of each block of a group; kWithheld is added to those that may not be chosen.
  [[nodiscard]] std::span<const std::int32_t> valid_counts(Group group) const;

  static constexpr std::int32_t kWithheld = 1 << 30;

  void archive(Archive& a) {
    slot_of_.archive(a);
    lpn_of_.archive(a);
    valid_bits_.archive(a);
    a.all(valid_);
  }

 private:
  HugeArray<Slot> slot_of_;  // plus one
  HugeArray<Lpn> lpn_of_;
  HugeArray<std::uint64_t> valid_bits_;  // by slot
  std::vector<std::int32_t> valid_;
  std::uint32_t blocks_per_group_;
};

}  // namespace flashlab::flash
