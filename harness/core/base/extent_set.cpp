#include "base/extent_set.hpp"

#include <algorithm>

namespace flashlab {

// The first extent that ends at or after `lba` (touching counts).
ExtentSet::Map::const_iterator ExtentSet::first_reaching(Lba lba) const {
  auto it = extents_.upper_bound(lba);
  if (it != extents_.begin() && std::prev(it)->second >= lba) --it;
  return it;
}

Sectors ExtentSet::missing(const Extent& extent) const {
  Sectors covered;
  for (auto it = first_reaching(extent.begin); it != extents_.end() && it->first < extent.end;
       ++it) {
    const Lba begin = std::max(it->first, extent.begin);
    const Lba end = std::min(it->second, extent.end);
    if (begin < end) covered += end - begin;
  }
  return extent.length() - covered;
}

bool ExtentSet::contains(const Extent& extent) const { return missing(extent) == Sectors{0}; }

std::vector<Extent> ExtentSet::extents() const {
  std::vector<Extent> all;
  all.reserve(extents_.size());
  for (const auto& [begin, end] : extents_) all.push_back({begin, end});
  return all;
}

std::vector<Extent> ExtentSet::overlapping(const Extent& extent) const {
  std::vector<Extent> common;
  for (auto it = first_reaching(extent.begin); it != extents_.end() && it->first < extent.end;
       ++it) {
    const Extent part{std::max(it->first, extent.begin), std::min(it->second, extent.end)};
    if (part.begin < part.end) common.push_back(part);
  }
  return common;
}

void ExtentSet::insert(const Extent& extent) {
  if (extent.begin >= extent.end) return;
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

void ExtentSet::erase(const Extent& extent) {
  for (const Extent& part : overlapping(extent)) {
    const auto it = std::prev(extents_.upper_bound(part.begin));
    const Extent whole{it->first, it->second};
    extents_.erase(it);
    if (whole.begin < part.begin) extents_.emplace(whole.begin, part.begin);
    if (part.end < whole.end) extents_.emplace(part.end, whole.end);
    sectors_ -= part.length();
  }
}

std::optional<Extent> ExtentSet::take(Lba from, Sectors limit) {
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

void ExtentSet::clear() {
  extents_.clear();
  sectors_ = Sectors{0};
}

void ExtentSet::archive(Archive& a) {
  std::vector<Extent> all = extents();
  a.one(all);
  if (!a.is_restoring()) return;
  clear();
  for (const Extent& extent : all) insert(extent);
}

}  // namespace flashlab
