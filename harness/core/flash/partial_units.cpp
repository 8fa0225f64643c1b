#include "flash/partial_units.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::flash {

PartialUnits::PartialUnits(const Geometry& geometry)
    : unit_sectors_(to_sectors(geometry.unit()).count()), lpns_(geometry.lpns()) {}

Extent PartialUnits::extent_of(Lpn lpn) const {
  const std::int64_t begin = unit_sectors_ * lpn;
  return {Lba{begin}, Lba{begin + unit_sectors_}};
}

std::vector<Lpn> PartialUnits::between(Lpn begin, Lpn end) const {
  std::vector<Lpn> found;
  if (empty() || begin >= end) return found;
  for (const Extent& part : sectors_.overlapping({extent_of(begin).begin, extent_of(end).begin})) {
    const auto last = static_cast<Lpn>((part.end.index() - 1) / unit_sectors_);
    for (auto lpn = static_cast<Lpn>(part.begin.index() / unit_sectors_); lpn <= last; ++lpn) {
      if (found.empty() || found.back() < lpn) found.push_back(lpn);
    }
  }
  return found;
}

bool PartialUnits::add(const Unit& part, const Extent& sectors) {
  const bool overlaps = sectors_.missing(sectors) < sectors.length();
  sectors_.insert(sectors);
  const auto place = places_.find(part.lpn);
  if (place == places_.end()) {
    places_.emplace(part.lpn, by_age_.insert(by_age_.end(), part));
    return overlaps;
  }
  Unit& unit = *place->second;
  const Nanos arrived = std::max(unit.arrived, part.arrived);
  unit = part;
  unit.arrived = arrived;
  return overlaps;
}

PartialUnits::Unit PartialUnits::take(Lpn lpn) {
  const auto place = places_.find(lpn);
  FLASHLAB_CHECK(place != places_.end());
  const Unit unit = *place->second;
  by_age_.erase(place->second);
  places_.erase(place);
  sectors_.erase(extent_of(lpn));
  return unit;
}

void PartialUnits::clear() {
  sectors_.clear();
  by_age_.clear();
  places_.clear();
}

void PartialUnits::archive(Archive& a) {
  std::vector<Unit> units(by_age_.begin(), by_age_.end());
  a.one(units);
  if (a.is_restoring()) {
    by_age_.assign(units.begin(), units.end());
    places_.clear();
    for (auto at = by_age_.begin(); at != by_age_.end(); ++at) {
      require(at->lpn < lpns_ && places_.emplace(at->lpn, at).second,
              "the saved state is damaged: it has parts of units that the drive has not");
    }
  }
  sectors_.archive(a);
}

}  // namespace flashlab::flash
