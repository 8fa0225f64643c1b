#include "disk/geometry.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace flashlab::disk {

namespace {

void validate(const GeometryParameters& p) {
  require(p.capacity.count() >= 1'000'000, "capacity: a disk holds at least 1 MB");
  require(p.rpm.count() >= 1'000 && p.rpm.count() <= 30'000,
          "rpm: must lie between 1,000 and 30,000");
  require(p.heads >= 1 && p.heads <= 64, "heads: must lie between 1 and 64");
  require(p.zones >= 1 && p.zones <= 256, "zones: must lie between 1 and 256");
  require(p.inner_rate.count() >= 1'000'000, "inner_rate: must be at least 1 MB/s");
  require(p.outer_rate >= p.inner_rate, "outer_rate: must not be below inner_rate");
  require(p.outer_rate.count() <= 2'000'000'000, "outer_rate: must not be above 2 GB/s");
}

}  // namespace

Geometry::Geometry(const GeometryParameters& p)
    : parameters_(p), revolution_(Nanos{p.rpm.count() > 0 ? 60'000'000'000 / p.rpm.count() : 0}) {
  validate(p);
  require(p.head_skew < revolution_ && p.cylinder_skew < revolution_,
          "head_switch and track_to_track_seek: must be shorter than a revolution");
  // A cylinder's worth of tracks costs `heads` revolutions and their skews; the sustained rate of
  // a data sheet contains those, so the density has to make up for them.
  const Nanos cylinder_time = p.heads * revolution_ + (p.heads - 1) * p.head_skew + p.cylinder_skew;
  const std::int64_t wanted = p.capacity.count() / kSectorBytes;
  // Zones of equally many tracks: as many as hold `wanted` sectors at the mean density.
  std::vector<std::int64_t> densities;
  std::int64_t density_sum = 0;
  for (std::int64_t z = 0; z < p.zones; ++z) {
    const std::int64_t steps = std::max<std::int64_t>(p.zones - 1, 1);
    const std::int64_t rate =
        p.outer_rate.count() - (p.outer_rate.count() - p.inner_rate.count()) * z / steps;
    __extension__ using Wide = __int128;
    const auto cylinder_bytes =
        static_cast<std::int64_t>(static_cast<Wide>(rate) * cylinder_time.count() / 1'000'000'000);
    densities.push_back(std::max<std::int64_t>(cylinder_bytes / p.heads / kSectorBytes, 1));
    density_sum += densities.back();
  }
  const std::int64_t cylinders = std::max<std::int64_t>(ceil_div(wanted, density_sum * p.heads), 1);
  for (const std::int64_t density : densities) {
    if (sectors_ >= wanted) break;
    zones_.push_back({sectors_, tracks_, density});
    tracks_ += cylinders * p.heads;
    sectors_ += cylinders * p.heads * density;
  }
  sectors_ = std::min(sectors_, wanted);
  constexpr std::int64_t kTable = 1024;
  while ((sectors_ >> zone_shift_) >= kTable) ++zone_shift_;
  std::uint16_t zone = 0;
  for (std::int64_t sector = 0; sector < sectors_; sector += std::int64_t{1} << zone_shift_) {
    while (zone + 1U < zones_.size() && zones_[zone + 1U].first_sector <= sector) ++zone;
    zone_at_.push_back(zone);
  }
}

const Geometry::Zone& Geometry::zone_of_sector(std::int64_t sector) const {
  FLASHLAB_CHECK(sector >= 0 && sector < sectors_);
  std::size_t zone = zone_at_[static_cast<std::size_t>(sector >> zone_shift_)];
  while (zone + 1 < zones_.size() && zones_[zone + 1].first_sector <= sector) ++zone;
  return zones_[zone];
}

Place Geometry::locate(Lba lba) const {
  const Zone& zone = zone_of_sector(lba.index());
  const std::int64_t into = lba.index() - zone.first_sector;
  return {zone.first_track + into / zone.sectors_per_track, into % zone.sectors_per_track,
          zone.sectors_per_track};
}

Lba Geometry::first_lba(std::int64_t track) const {
  FLASHLAB_CHECK(track >= 0 && track < tracks_);
  auto after = std::upper_bound(zones_.begin(), zones_.end(), track,
                                [](std::int64_t t, const Zone& z) { return t < z.first_track; });
  const Zone& zone = *(after - 1);
  return Lba{zone.first_sector + (track - zone.first_track) * zone.sectors_per_track};
}

Nanos Geometry::angle(const Place& place) const {
  const std::int64_t cylinder = cylinder_of(place.track);
  const std::int64_t head = place.track % parameters_.heads;
  const Nanos per_cylinder =
      (parameters_.heads - 1) * parameters_.head_skew + parameters_.cylinder_skew;
  const Nanos skew = cylinder * per_cylinder + head * parameters_.head_skew;
  return (skew + sweep(place.sector, place.sectors_per_track)) % revolution_;
}

Nanos Geometry::sweep(std::int64_t n, std::int64_t sectors_per_track) const {
  return Nanos{n * revolution_.count() / sectors_per_track};
}

Nanos Geometry::switch_after(std::int64_t track) const {
  const bool last_head = track % parameters_.heads == parameters_.heads - 1;
  return last_head ? parameters_.cylinder_skew : parameters_.head_skew;
}

}  // namespace flashlab::disk
