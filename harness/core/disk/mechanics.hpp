// The time that an arm and a spinning platter need: seek, head switch, rotation, transfer.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "disk/geometry.hpp"

namespace flashlab::disk {

// Three published points and the square-root law for short seeks, in which the arm still
// accelerates, then a straight line (Ruemmler and Wilkes 1994, section "Seeking").
struct SeekParameters {
  Nanos track_to_track;
  Nanos average;
  Nanos full_stroke;
  Nanos head_switch;
  Nanos write_settle;
};

// The head is over `track` since `since`; the angle follows from the clock.
struct HeadState {
  std::int64_t track = 0;
  Nanos since;
};

// Where a sector is: for who asks about the same one again and again.
struct Target {
  std::int64_t track = 0;
  std::int64_t cylinder = 0;
  Nanos angle;
};

struct MediaAccess {
  Nanos begin;  // the first sector is under the head
  Nanos end;    // the last sector has passed
};

class Mechanics {
 public:
  // `phase` turns the platters: the angle under the heads at time 0.
  Mechanics(const GeometryParameters& geometry, const SeekParameters& seek, Nanos phase);

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] Nanos seek_time(std::int64_t cylinders) const;
  [[nodiscard]] Target target(Lba lba) const;
  // Seek or head switch, and settling: until the head is on a track at that distance.
  [[nodiscard]] Nanos arm_time(bool same_track, std::int64_t cylinders, bool write) const;
  // When the target passes, for a head that is on its track since `arrived`.
  [[nodiscard]] Nanos passes(const Target& target, Nanos arrived) const;
  // Seek or head switch, settling and rotation from `start` until `lba` is under the head.
  [[nodiscard]] Nanos positioned(const HeadState& head, Nanos start, Lba lba, bool write) const;
  // Positioning, then the transfer of [lba, lba + n), across as many tracks as it takes.
  [[nodiscard]] MediaAccess access(const HeadState& head, Nanos start, Lba lba, Sectors n,
                                   bool write) const;
  // A transfer that is already at `lba` at `begin`: when has [lba, lba + n) passed?
  [[nodiscard]] Nanos stream_end(Nanos begin, Lba lba, Sectors n) const;
  // The same, asked the other way: which LBA has a stream reached at `when`, at most `limit`?
  [[nodiscard]] Lba stream_reached(Nanos begin, Lba lba, Nanos when, Lba limit) const;

 private:
  [[nodiscard]] Nanos track_start_after(std::int64_t track, Nanos swept) const;

  Geometry geometry_;
  SeekParameters seek_;
  Nanos phase_;
  std::int64_t full_;   // cylinders of a full stroke
  std::int64_t third_;  // ... of an average seek
};

}  // namespace flashlab::disk
