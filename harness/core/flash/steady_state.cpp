#include "flash/steady_state.hpp"

#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "base/check.hpp"
#include "flash/timeless.hpp"

namespace flashlab::flash {

namespace {

// Steady: a whole overwrite changed the write amplification of the one before by less than this.
constexpr double kSteady = 0.003;
constexpr int kOverwritesLeast = 4;
constexpr int kOverwritesMost = 24;
// Between two copies of the group, this part of it is overwritten.
constexpr std::uint64_t kApart = 8;

double amplification(const Ftl& ftl) {
  const FtlCounters& c = ftl.counters();
  return static_cast<double>(c.host_units + c.copied_units) / static_cast<double>(c.host_units);
}

void overwrite_until_steady(Ftl& ftl, Lpn count, Prng& random) {
  double before = 0.0;
  for (int i = 0; i < kOverwritesMost; ++i) {
    ftl.reset_counters();
    write_at_random(ftl, count, count, random);
    const double now = amplification(ftl);
    if (i + 1 >= kOverwritesLeast && std::abs(now - before) < kSteady * now) return;
    before = now;
  }
}

// A bijection on [0, count): a Feistel network on the next power of four, walked until it falls
// inside. Needs no memory, where a shuffled array would need as much as the map.
class Permutation {
 public:
  Permutation(std::uint64_t count, std::uint64_t seed)
      : count_(count),
        half_(static_cast<std::uint64_t>(std::bit_width(count) + 1) / 2),
        seed_(seed) {}

  // Of first + each of `numbers`, in their place. All take a step before one takes the next: no
  // branch depends on where a walk ends.
  void operator()(std::uint64_t first, std::span<Lpn> numbers) {
    walking_.clear();
    for (std::size_t i = 0; i < numbers.size(); ++i) walking_.push_back({first + numbers[i], i});
    while (!walking_.empty()) {
      std::size_t outside = 0;
      for (const Walk& walk : walking_) {
        const Walk next{once(walk.at), walk.of};
        numbers[next.of] = static_cast<Lpn>(next.at);
        walking_[outside] = next;
        outside += next.at >= count_ ? 1 : 0;
      }
      walking_.resize(outside);
    }
  }

 private:
  struct Walk {
    std::uint64_t at;
    std::size_t of;
  };

  [[nodiscard]] std::uint64_t once(std::uint64_t i) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = i >> half_;
    std::uint64_t right = i & mask;
    for (std::uint64_t round = 0; round < 3; ++round) {
      const std::uint64_t mixed = left ^ (mix64(right + (seed_ ^ round << 56)) & mask);
      left = right;
      right = mixed;
    }
    return left << half_ | right;
  }

  std::uint64_t count_;
  std::uint64_t half_;
  std::uint64_t seed_;
  std::vector<Walk> walking_;
};

GeometryParameters one_group(const GeometryParameters& p, const Geometry& whole, Lpn lpns) {
  GeometryParameters one = p;
  one.channels = one.dies_per_channel = 1;
  one.capacity = p.map_unit * lpns;
  const double slots = static_cast<double>(whole.blocks_per_group()) * whole.slots_per_block();
  // Rounded up to whole blocks: aim at the middle of the last one.
  one.overprovision_ratio = (slots - 0.5 * whole.slots_per_block()) / lpns - 1.0;
  return one;
}

}  // namespace

void reach_steady_state(Ftl& ftl, const GeometryParameters& geometry,
                        const FtlParameters& parameters, std::uint64_t seed) {
  const Geometry& whole = ftl.geometry();
  require(ftl.is_new(), "to_steady_state: the drive must be new");
  Prng random(seed);
  if (whole.groups() == 1) {
    write_in_order(ftl, whole.lpns());
    overwrite_until_steady(ftl, whole.lpns(), random);
    return;
  }
  const Lpn each = whole.lpns() / whole.groups();
  Ftl one(Geometry(one_group(geometry, whole, each)), parameters, {});
  FLASHLAB_CHECK(one.geometry().blocks() == whole.blocks_per_group());
  write_in_order(one, each);
  overwrite_until_steady(one, each, random);
  Permutation deal(std::uint64_t{each} * whole.groups(), random.next());
  for (Group group = 0; group < whole.groups(); ++group) {
    write_at_random(one, each, each / kApart, random);
    while (one.has_open_host_page()) write_at_random(one, each, 1, random);
    ftl.adopt(one, group, [&](std::span<Lpn> pages) { deal(std::uint64_t{each} * group, pages); });
  }
  Timeless timeless;
  for (Lpn lpn = each * whole.groups(); lpn < whole.lpns(); ++lpn) {
    ftl.write(timeless, lpn, 0, 0);
  }
}

}  // namespace flashlab::flash
