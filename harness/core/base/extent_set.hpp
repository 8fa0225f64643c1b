// A set of sectors as extents: disjoint, never touching, by address.
//
// A hard disk's write cache (what it holds and the platters do not), and whatever else knows about
// sectors by runs.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/archive.hpp"
#include "base/extent.hpp"

namespace flashlab {

class ExtentSet {
 public:
  [[nodiscard]] bool empty() const { return extents_.empty(); }
  [[nodiscard]] Bytes bytes() const { return to_bytes(sectors_); }
  // Sectors of `extent` that are not in the set yet: what inserting it would add.
  [[nodiscard]] Sectors missing(const Extent& extent) const;
  [[nodiscard]] bool contains(const Extent& extent) const;
  // All of it, ascending.
  [[nodiscard]] std::vector<Extent> extents() const;
  // What the set and `extent` have in common, ascending.
  [[nodiscard]] std::vector<Extent> overlapping(const Extent& extent) const;

  void insert(const Extent& extent);
  // Removes what lies in `extent`, if anything does.
  void erase(const Extent& extent);
  // Removes and returns the first extent at or after `from`, or else from the start of the disk
  // (one-way elevator), cut to at most `limit`. Nothing when the set is empty.
  std::optional<Extent> take(Lba from, Sectors limit);
  void clear();
  void archive(Archive& a);

 private:
  using Map = std::map<Lba, Lba>;  // begin -> end
  [[nodiscard]] Map::const_iterator first_reaching(Lba lba) const;

  Map extents_;
  Sectors sectors_;
};

}  // namespace flashlab
