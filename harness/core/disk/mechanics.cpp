#include "disk/mechanics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/check.hpp"

namespace flashlab::disk {

Mechanics::Mechanics(const GeometryParameters& geometry, const SeekParameters& seek, Nanos phase)
    : geometry_(geometry),
      seek_(seek),
      phase_(phase),
      full_(std::max<std::int64_t>(geometry_.cylinders() - 1, 1)),
      third_(std::max<std::int64_t>(full_ / 3, 2)) {
  require(seek.track_to_track > Nanos{0} && seek.track_to_track <= seek.average &&
              seek.average <= seek.full_stroke,
          "seeks: track_to_track <= average <= full_stroke must hold, all above zero");
  require(seek.head_switch >= Nanos{0} && seek.write_settle >= Nanos{0},
          "head_switch and write_settle: must not be negative");
  require(phase >= Nanos{0} && phase < geometry_.revolution(),
          "start_angle: must lie within one revolution");
}

Nanos Mechanics::seek_time(std::int64_t cylinders) const {
  if (cylinders == 0) return Nanos{0};
  if (cylinders <= third_) {
    // Only + - * / and sqrt, which IEEE 754 rounds alike everywhere.
    const double part =
        std::sqrt(static_cast<double>(cylinders - 1) / static_cast<double>(third_ - 1));
    const double rise = static_cast<double>((seek_.average - seek_.track_to_track).count());
    return seek_.track_to_track + Nanos{static_cast<std::int64_t>(part * rise)};
  }
  const std::int64_t beyond = std::min(cylinders, full_) - third_;
  const Nanos rise = seek_.full_stroke - seek_.average;
  return seek_.average + rise * beyond / std::max<std::int64_t>(full_ - third_, 1);
}

Target Mechanics::target(Lba lba) const {
  const Place place = geometry_.locate(lba);
  return {place.track, geometry_.cylinder_of(place.track), geometry_.angle(place)};
}

Nanos Mechanics::arm_time(bool same_track, std::int64_t cylinders, bool write) const {
  if (same_track) return Nanos{0};
  const Nanos moved = cylinders == 0 ? seek_.head_switch : seek_time(cylinders);
  return write ? moved + seek_.write_settle : moved;
}

Nanos Mechanics::passes(const Target& target, Nanos arrived) const {
  const Nanos revolution = geometry_.revolution();
  const Nanos under_head = (arrived + phase_) % revolution;
  const Nanos wait = target.angle - under_head;
  return arrived + (wait < Nanos{0} ? wait + revolution : wait);
}

Nanos Mechanics::positioned(const HeadState& head, Nanos start, Lba lba, bool write) const {
  const Target there = target(lba);
  const std::int64_t distance = std::abs(there.cylinder - geometry_.cylinder_of(head.track));
  return passes(there, start + arm_time(there.track == head.track, distance, write));
}

MediaAccess Mechanics::access(const HeadState& head, Nanos start, Lba lba, Sectors n,
                              bool write) const {
  const Nanos begin = positioned(head, start, lba, write);
  return {begin, stream_end(begin, lba, n)};
}

// A stream that has swept `track` to its end at `swept` meets the next track's first sector after
// the skew: the skews are made for just this.
Nanos Mechanics::track_start_after(std::int64_t track, Nanos swept) const {
  return swept + geometry_.switch_after(track);
}

Nanos Mechanics::stream_end(Nanos begin, Lba lba, Sectors n) const {
  Place place = geometry_.locate(lba);
  std::int64_t left = n.count();
  Nanos now = begin;
  while (true) {
    const std::int64_t here = std::min(left, place.sectors_per_track - place.sector);
    now += geometry_.sweep(here, place.sectors_per_track);
    left -= here;
    if (left == 0) return now;
    now = track_start_after(place.track, now);
    place = geometry_.locate(geometry_.first_lba(place.track + 1));
  }
}

Lba Mechanics::stream_reached(Nanos begin, Lba lba, Nanos when, Lba limit) const {
  Nanos now = begin;
  while (lba < limit) {
    const Place place = geometry_.locate(lba);
    const std::int64_t here =
        std::min(place.sectors_per_track - place.sector, (limit - lba).count());
    const Nanos swept = now + geometry_.sweep(here, place.sectors_per_track);
    if (when < swept) {
      const std::int64_t passed = std::max<std::int64_t>(
          (when - now).count() * place.sectors_per_track / geometry_.revolution().count(), 0);
      return lba + Sectors{std::min(passed, here)};
    }
    now = track_start_after(place.track, swept);
    lba = lba + Sectors{here};
  }
  return limit;
}

}  // namespace flashlab::disk
