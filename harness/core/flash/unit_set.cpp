#include "flash/unit_set.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace flashlab::flash {

UnitSet::UnitSet(const Geometry& geometry)
    : unit_sectors_(to_sectors(geometry.unit()).count()),
      capacity_(geometry.lpns()),
      bits_((capacity_ + kBits - 1) / kBits),
      used_((bits_.size() + kBits - 1) / kBits) {}

std::size_t UnitSet::unit_at(Lba lba) const {
  return static_cast<std::size_t>(lba.index() / unit_sectors_);
}

Lba UnitSet::begin_of(std::size_t unit) const {
  return Lba{static_cast<std::int64_t>(unit) * unit_sectors_};
}

// Words of 64, and which bits of each lie in [begin, end).
template <class F>
void UnitSet::for_each_word(std::size_t begin, std::size_t end, const F& f) {
  while (begin < end) {
    const std::size_t offset = begin % kBits;
    const std::size_t length = std::min(kBits - offset, end - begin);
    f(begin / kBits, ~std::uint64_t{0} >> (kBits - length) << offset);
    begin += length;
  }
}

template <class F>
void UnitSet::for_each_used_word(const F& f) const {
  for (std::size_t at = 0; at < used_.size(); ++at) {
    for (std::uint64_t left = used_[at]; left != 0; left &= left - 1) {
      f(at * kBits + static_cast<std::size_t>(std::countr_zero(left)));
    }
  }
}

void UnitSet::insert(const Extent& extent) {
  is_used_ = true;
  for_each_word(unit_at(extent.begin), unit_at(extent.end),
                [&](std::size_t word, std::uint64_t mask) {
                  units_ += static_cast<std::size_t>(std::popcount(mask & ~bits_[word]));
                  bits_[word] |= mask;
                  used_[word / kBits] |= std::uint64_t{1} << (word % kBits);
                });
}

void UnitSet::erase(const Extent& extent) {
  for_each_word(unit_at(extent.begin), unit_at(extent.end),
                [&](std::size_t word, std::uint64_t mask) {
                  if ((used_[word / kBits] >> (word % kBits) & 1) == 0) return;
                  units_ -= static_cast<std::size_t>(std::popcount(mask & bits_[word]));
                  bits_[word] &= ~mask;
                });
}

std::vector<Extent> UnitSet::extents() const {
  std::vector<Extent> all;
  for_each_used_word([&](std::size_t word) {
    for (std::uint64_t left = bits_[word]; left != 0;) {
      const auto first = static_cast<std::size_t>(std::countr_zero(left));
      const auto length = static_cast<std::size_t>(std::countr_one(left >> first));
      const Lba begin = begin_of(word * kBits + first);
      const Lba end = begin_of(word * kBits + first + length);
      if (!all.empty() && all.back().end == begin) {
        all.back().end = end;
      } else {
        all.push_back({begin, end});
      }
      left = first + length == kBits ? 0 : left >> (first + length) << (first + length);
    }
  });
  return all;
}

void UnitSet::clear() {
  if (!is_used_) return;
  for_each_used_word([&](std::size_t word) { bits_[word] = 0; });
  std::ranges::fill(used_, 0);
  is_used_ = false;
  units_ = 0;
}

void UnitSet::archive(Archive& a) {
  std::vector<Extent> all = extents();
  a.one(all);
  if (!a.is_restoring()) return;
  clear();
  for (const Extent& extent : all) {
    require(
        extent.begin >= Lba{0} && extent.begin <= extent.end && unit_at(extent.end) <= capacity_,
        "the saved state is damaged: it has trimmed what the drive has not");
    insert(extent);
  }
}

}  // namespace flashlab::flash
