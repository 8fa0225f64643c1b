#include "disk/dirty_set.hpp"

#include <algorithm>

namespace flashlab::disk {

// The first extent that ends at or after `lba` (touching counts).
DirtySet::Map::const_iterator DirtySet::first_reaching(Lba lba) const {
  auto it = extents_.upper_bound(lba);
  if (it != extents_.begin() && std::prev(it)->second >= lba) --it;
  return it;
}

Sectors DirtySet::missing(const Extent& extent) const {
  Sectors covered;
  for (auto it = first_reaching(extent.begin); it != extents_.end() && it->first < extent.end;
       ++it) {
    const Lba begin = std::max(it->first, extent.begin);
    const Lba end = std::min(it->second, extent.end);
    if (begin < end) covered += end - begin;
  }
  return extent.length() - covered;
}

bool DirtySet::contains(const Extent& extent) const { return missing(extent) == Sectors{0}; }

void DirtySet::insert(const Extent& extent) {
  sectors_ += missing(extent);
  Lba begin = extent.begin;
  Lba end = extent.end;
  auto it = first_reaching(begin);
  while (it != extents_.end() && it->first <= end) {
    begin = std::min(begin, it->first);
    end = std::max(end, it->second);
    it = extents_.erase(it);
  }
  extents_.emplace(begin, end);
}

std::optional<Extent> DirtySet::take(Lba from, Sectors limit) {
  if (extents_.empty()) return std::nullopt;
  auto it = extents_.upper_bound(from);
  // An extent that `from` lies in counts from its start: its tail alone would strand its head.
  if (it != extents_.begin() && std::prev(it)->second > from) --it;
  if (it == extents_.end()) it = extents_.begin();
  const Extent all{it->first, it->second};
  const Extent taken{all.begin, std::min(all.end, all.begin + limit)};
  extents_.erase(it);
  if (taken.end < all.end) extents_.emplace(taken.end, all.end);
  sectors_ -= taken.length();
  return taken;
}

}  // namespace flashlab::disk
