#include "flash/geometry.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace flashlab::flash {

namespace {

constexpr const char* kTooLarge = "capacity: more than 2^32 map units; choose a larger map_unit";

void validate(const GeometryParameters& p) {
  require(p.page.count() >= 512 && p.page.count() <= 1 << 20 && p.page.count() % 512 == 0,
          "page: must be a multiple of 512 B, at most 1 MiB");
  require(p.planes >= 1 && p.planes <= 16, "planes: must lie between 1 and 16");
  require(p.map_unit.count() >= 512 && p.map_unit.count() % 512 == 0 &&
              (p.page * p.planes) % p.map_unit == Bytes{0},
          "map_unit: must be a multiple of 512 B that divides the page times its planes");
  require(p.pages_per_block >= 2 && p.pages_per_block <= 1 << 16,
          "pages_per_block: must lie between 2 and 65536");
  require(p.channels >= 1 && p.channels <= 64, "channels: must lie between 1 and 64");
  require(p.dies_per_channel >= 1 && p.dies_per_channel <= 64,
          "dies_per_channel: must lie between 1 and 64");
  require(p.overprovision_ratio >= 0.0 && p.overprovision_ratio <= 20.0,
          "overprovision: must lie between 0 and 20");
  require(p.allocation == "per_die" || p.allocation == "global",
          "unknown allocation '" + p.allocation + "' (known: per_die, global)");
  require(p.capacity >= p.map_unit && p.capacity % p.map_unit == Bytes{0},
          "capacity: must be a multiple of map_unit");
  require(p.capacity / p.map_unit < std::numeric_limits<std::uint32_t>::max(), kTooLarge);
}

}  // namespace

Geometry::Geometry(const GeometryParameters& p) : unit_(p.map_unit) {
  validate(p);
  const std::int64_t dies = p.channels * p.dies_per_channel;
  const bool global = p.allocation == "global";
  const Bytes die_block = p.page * p.planes * p.pages_per_block;
  const double physical = static_cast<double>(p.capacity.count()) * (1.0 + p.overprovision_ratio);
  const auto blocks_per_group = static_cast<std::int64_t>(
      std::ceil(physical / static_cast<double>(die_block.count() * dies)));
  const std::int64_t slots = blocks_per_group * dies * (die_block / p.map_unit);
  require(slots < std::numeric_limits<std::uint32_t>::max(), kTooLarge);
  lpns_ = static_cast<std::uint32_t>(p.capacity / p.map_unit);
  const auto unit = static_cast<std::uint64_t>(p.map_unit.count());
  if (std::has_single_bit(unit)) unit_shift_ = std::countr_zero(unit);
  planes_ = static_cast<std::uint32_t>(p.planes);
  groups_ = global ? 1 : static_cast<std::uint32_t>(dies);
  blocks_per_group_ = static_cast<std::uint32_t>(blocks_per_group);
  const auto width = static_cast<std::uint32_t>(global ? dies : 1);
  const auto per_page = static_cast<std::uint32_t>(p.page * p.planes / p.map_unit);
  by_page_ = Divider(per_page);
  by_block_ = Divider(per_page * static_cast<std::uint32_t>(p.pages_per_block) * width);
  by_group_ = Divider(blocks_per_group_);
  by_channel_ = Divider(static_cast<std::uint32_t>(p.channels));
  by_width_ = Divider(width);
}

double Geometry::spare_factor() const {
  return 1.0 - static_cast<double>(lpns_) / static_cast<double>(slots());
}

}  // namespace flashlab::flash
