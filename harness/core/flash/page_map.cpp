#include "flash/page_map.hpp"

#include <bit>

namespace flashlab::flash {

PageMap::PageMap(const Geometry& geometry)
    : slot_of_(geometry.lpns()),
      lpn_of_(geometry.slots()),
      valid_bits_((std::size_t{geometry.slots()} + 63) / 64),
      valid_(geometry.blocks(), kWithheld),
      blocks_per_group_(geometry.blocks_per_group()) {}

void PageMap::valid_slots(Slot begin, Slot end, std::vector<Slot>& out) const {
  for (Slot base = begin & ~Slot{63}; base < end; base += 64) {
    std::uint64_t bits = valid_bits_[base >> 6];
    if (base < begin) bits &= ~std::uint64_t{0} << (begin - base);
    if (end - base < 64) bits &= (std::uint64_t{1} << (end - base)) - 1;
    while (bits != 0) {
      out.push_back(base + static_cast<Slot>(std::countr_zero(bits)));
      bits &= bits - 1;
    }
  }
}

void PageMap::vacate(Block block, Slot begin, Slot end, std::uint32_t units) {
  for (Slot base = begin & ~Slot{63}; base < end; base += 64) {
    std::uint64_t gone = ~std::uint64_t{0};
    if (base < begin) gone &= ~std::uint64_t{0} << (begin - base);
    if (end - base < 64) gone &= (std::uint64_t{1} << (end - base)) - 1;
    valid_bits_[base >> 6] &= ~gone;
  }
  valid_[block] -= static_cast<std::int32_t>(units);
}

std::span<const std::int32_t> PageMap::valid_counts(Group group) const {
  return std::span(valid_).subspan(std::size_t{group} * blocks_per_group_, blocks_per_group_);
}

}  // namespace flashlab::flash
