// For conditioning a drive: the FTL works, and nothing takes time.
#pragma once

#include "flash/ftl.hpp"

namespace flashlab::flash {

struct Timeless {
  void program(Page /*page*/, Die /*die*/, Work /*work*/) {}
  void copies(Die /*die*/, Page /*to*/, std::uint32_t /*pages*/) {}
  void read(Die /*die*/, std::uint32_t /*units*/) {}
  void erase(Block /*block*/) {}
  void settle(Block /*block*/, const PageMap& /*map*/) {}
  void before_choice() {}
};

// Writes pages [0, count) in order.
void write_in_order(Ftl& ftl, Lpn count);
// Writes `writes` times a page of [0, count), drawn uniformly.
void write_at_random(Ftl& ftl, Lpn count, std::uint64_t writes, Prng& random);

}  // namespace flashlab::flash
