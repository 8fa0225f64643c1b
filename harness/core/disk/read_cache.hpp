// The drive's track buffer: a few segments of consecutive sectors, the least recently used
// replaced.
#pragma once

#include <cstdint>
#include <vector>

#include "base/archive.hpp"
#include "base/extent.hpp"

namespace flashlab::disk {

class ReadCache {
 public:
  explicit ReadCache(std::size_t segments) : limit_(segments) {}

  // Whether a segment has all of it, which is then the last to be replaced.
  bool use(const Extent& wanted);
  void keep(const Extent& segment);
  // Overlapping segments are dropped whole: a write makes them stale.
  void invalidate(const Extent& written);
  void clear() { segments_.clear(); }
  void archive(Archive& a) { a.one(segments_); }

 private:
  std::size_t limit_;
  std::vector<Extent> segments_;  // least recently used first
};

}  // namespace flashlab::disk
