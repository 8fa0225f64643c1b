// Units of the map that the host has written in part, in the write buffer: which sectors of each
// are there, and which unit has been open for longest.
#pragma once

#include <cstddef>
#include <list>
#include <unordered_map>
#include <vector>

#include "base/archive.hpp"
#include "base/device.hpp"
#include "base/extent.hpp"
#include "base/extent_set.hpp"
#include "flash/geometry.hpp"

namespace flashlab::flash {

class PartialUnits {
 public:
  struct Unit {
    Lpn lpn = 0;
    StreamId stream = 0;  // of the part that came last: where the unit is put
    StreamId label = 0;   // and whom it is attributed to
    Nanos arrived;        // when all of its parts are in the buffer
  };

  explicit PartialUnits(const Geometry& geometry);

  [[nodiscard]] bool empty() const { return places_.empty(); }
  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] bool holds(Lpn lpn) const { return !empty() && places_.contains(lpn); }
  [[nodiscard]] bool contains(const Extent& sectors) const { return sectors_.contains(sectors); }
  [[nodiscard]] bool is_whole(Lpn lpn) const { return sectors_.contains(extent_of(lpn)); }
  [[nodiscard]] Lpn oldest() const { return by_age_.front().lpn; }
  // All of them, the oldest first.
  [[nodiscard]] const std::list<Unit>& by_age() const { return by_age_; }
  // Those of [begin, end), ascending.
  [[nodiscard]] std::vector<Lpn> between(Lpn begin, Lpn end) const;
  [[nodiscard]] Extent extent_of(Lpn lpn) const;

  // Some sectors of a unit, which joins the others unless it is one of them. True if any of the
  // sectors were there before.
  bool add(const Unit& part, const Extent& sectors);
  // Removes a unit that is there.
  Unit take(Lpn lpn);
  void clear();
  void archive(Archive& a);

 private:
  std::int64_t unit_sectors_;
  Lpn lpns_;
  ExtentSet sectors_;
  std::list<Unit> by_age_;
  std::unordered_map<Lpn, std::list<Unit>::iterator> places_;
};

}  // namespace flashlab::flash
