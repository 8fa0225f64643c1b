// A run of consecutive sectors.
#pragma once

#include "base/units.hpp"

namespace flashlab {

struct Extent {  // [begin, end)
  Lba begin;
  Lba end;
  [[nodiscard]] Sectors length() const { return end - begin; }
  [[nodiscard]] bool contains(const Extent& other) const {
    return begin <= other.begin && other.end <= end;
  }
  [[nodiscard]] bool overlaps(const Extent& other) const {
    return begin < other.end && other.begin < end;
  }
  friend bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace flashlab
