#include "disk/read_cache.hpp"

#include <algorithm>

namespace flashlab::disk {

bool ReadCache::use(const Extent& wanted) {
  const auto found = std::find_if(segments_.begin(), segments_.end(),
                                  [&](const Extent& s) { return s.contains(wanted); });
  if (found == segments_.end()) return false;
  std::rotate(found, found + 1, segments_.end());
  return true;
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
