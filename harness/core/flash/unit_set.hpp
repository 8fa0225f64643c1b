// A set of map units, as bits: what was trimmed since the last flush, of which every write may take
// something back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/archive.hpp"
#include "base/extent.hpp"
#include "base/huge_array.hpp"
#include "flash/geometry.hpp"

namespace flashlab::flash {

class UnitSet {
 public:
  // Of the units of a drive, none of which it has.
  explicit UnitSet(const Geometry& geometry);

  [[nodiscard]] bool empty() const { return units_ == 0; }
  // What it has, as extents that do not touch, ascending.
  [[nodiscard]] std::vector<Extent> extents() const;

  // Whole units of the drive, whether it has them or not.
  void insert(const Extent& extent);
  void erase(const Extent& extent);
  void clear();
  // As `extents`.
  void archive(Archive& a);

 private:
  static constexpr std::size_t kBits = 64;
  [[nodiscard]] std::size_t unit_at(Lba lba) const;
  [[nodiscard]] Lba begin_of(std::size_t unit) const;
  template <class F>
  static void for_each_word(std::size_t begin, std::size_t end, const F& f);
  template <class F>
  void for_each_used_word(const F& f) const;

  std::int64_t unit_sectors_;
  std::size_t capacity_;             // in units
  HugeArray<std::uint64_t> bits_;    // by unit
  std::vector<std::uint64_t> used_;  // by word of bits_: it may have one
  bool is_used_ = false;             // some word may
  std::size_t units_ = 0;
};

}  // namespace flashlab::flash
