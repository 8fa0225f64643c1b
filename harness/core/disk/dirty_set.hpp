// What the write cache holds and the platters do not: disjoint extents, never touching, by address.
#pragma once

#include <map>
#include <optional>

#include "base/units.hpp"
#include "disk/read_cache.hpp"

namespace flashlab::disk {

class DirtySet {
 public:
  [[nodiscard]] bool empty() const { return extents_.empty(); }
  [[nodiscard]] Bytes bytes() const { return to_bytes(sectors_); }
  // Sectors of `extent` that are not dirty yet: the space that inserting it takes.
  [[nodiscard]] Sectors missing(const Extent& extent) const;
  [[nodiscard]] bool contains(const Extent& extent) const;

  void insert(const Extent& extent);
  // Removes and returns the first dirty extent at or after `from`, or else from the start of the
  // disk (one-way elevator), cut to at most `limit`. Nothing when the set is empty.
  std::optional<Extent> take(Lba from, Sectors limit);

 private:
  using Map = std::map<Lba, Lba>;  // begin -> end
  [[nodiscard]] Map::const_iterator first_reaching(Lba lba) const;

  Map extents_;
  Sectors sectors_;
};

}  // namespace flashlab::disk
