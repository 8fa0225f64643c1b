// Where a sector lies on the platters: zone, track, angle.
//
// Zoned recording (Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer
// 27(3), 1994): a track of an outer zone holds more sectors than one of an inner zone. LBAs run
// along a track, then over the heads of a cylinder, then to the next cylinder inwards. Tracks are
// skewed so that a sequential transfer loses exactly the switching time at each track's end.
//
// Times are whole nanoseconds: the angle of a sector, and the time of a sweep over part of a track,
// are rounded down.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"

namespace flashlab::disk {

// What each one is: disk/describe.hpp.
struct GeometryParameters {
  Bytes capacity;
  RevolutionsPerMinute rpm;
  std::int64_t heads = 0;
  std::int64_t zones = 0;
  BytesPerSecond outer_rate;
  BytesPerSecond inner_rate;
  Nanos head_skew;      // next head of the same cylinder
  Nanos cylinder_skew;  // first head of the next cylinder
};

// A position under the heads. Angles are times of a revolution: [0, revolution).
struct Place {
  std::int64_t track = 0;   // counted over all surfaces from the outside
  std::int64_t sector = 0;  // within the track
  std::int64_t sectors_per_track = 0;
};

class Geometry {
 public:
  // Throws OperatingError for a geometry that no drive can have.
  explicit Geometry(const GeometryParameters& parameters);

  [[nodiscard]] Bytes capacity() const { return to_bytes(Sectors{sectors_}); }
  [[nodiscard]] Nanos revolution() const { return revolution_; }
  [[nodiscard]] std::int64_t cylinders() const { return tracks_ / parameters_.heads; }
  [[nodiscard]] std::int64_t cylinder_of(std::int64_t track) const {
    return track / parameters_.heads;
  }

  [[nodiscard]] Place locate(Lba lba) const;
  [[nodiscard]] Lba first_lba(std::int64_t track) const;
  // The angle at which the given sector's leading edge passes the head.
  [[nodiscard]] Nanos angle(const Place& place) const;
  // Time for n sectors to pass under the head on a track of the given density.
  [[nodiscard]] Nanos sweep(std::int64_t n, std::int64_t sectors_per_track) const;
  // What the skew allows for between the end of `track` and the start of the next.
  [[nodiscard]] Nanos switch_after(std::int64_t track) const;

 private:
  struct Zone {
    std::int64_t first_sector;
    std::int64_t first_track;
    std::int64_t sectors_per_track;
  };
  [[nodiscard]] const Zone& zone_of_sector(std::int64_t sector) const;

  GeometryParameters parameters_;
  Nanos revolution_;
  std::int64_t sectors_ = 0;
  std::int64_t tracks_ = 0;
  std::vector<Zone> zones_;
  std::vector<std::uint16_t> zone_at_;  // of every 2^zone_shift_-th sector
  int zone_shift_ = 0;
};

}  // namespace flashlab::disk
