#include "disk/read_cache.hpp"

#include <algorithm>

namespace flashlab::disk {

bool ReadCache::contains(const Extent& wanted) const {
  return std::any_of(segments_.begin(), segments_.end(),
                     [&](const Extent& s) { return s.contains(wanted); });
}

void ReadCache::keep(const Extent& segment) {
  if (limit_ == 0 || segment.begin >= segment.end) return;
  if (segments_.size() == limit_) segments_.erase(segments_.begin());
  segments_.push_back(segment);
}

void ReadCache::invalidate(const Extent& written) {
  std::erase_if(segments_, [&](const Extent& s) { return s.overlaps(written); });
}

}  // namespace flashlab::disk
