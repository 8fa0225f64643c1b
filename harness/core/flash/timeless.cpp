#include "flash/timeless.hpp"

#include <array>

namespace flashlab::flash {

void write_in_order(Ftl& ftl, Lpn count) {
  Timeless timeless;
  for (Lpn lpn = 0; lpn < count; ++lpn) ftl.write(timeless, lpn, 0, 0);
}

void write_at_random(Ftl& ftl, Lpn count, std::uint64_t writes, Prng& random) {
  // A page is drawn some writes before it is written, so that its map entry is in the cache then.
  std::array<Lpn, 16> ahead{};
  Timeless timeless;
  for (std::uint64_t i = 0; i < writes + ahead.size(); ++i) {
    Lpn& next = ahead[i % ahead.size()];
    if (i >= ahead.size()) ftl.write(timeless, next, 0, 0);
    next = static_cast<Lpn>(random.below(count));
    ftl.expect(next);
  }
}

}  // namespace flashlab::flash
