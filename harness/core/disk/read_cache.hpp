// The drive's track buffer: a few segments of consecutive sectors, the least recently used
// replaced.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"

namespace flashlab::disk {

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
};

class ReadCache {
 public:
  explicit ReadCache(std::size_t segments) : limit_(segments) {}

  [[nodiscard]] bool contains(const Extent& wanted) const;
  void keep(const Extent& segment);
  // Overlapping segments are dropped whole: a write makes them stale.
  void invalidate(const Extent& written);

 private:
  std::size_t limit_;
  std::vector<Extent> segments_;  // least recently kept first
};

}  // namespace flashlab::disk
