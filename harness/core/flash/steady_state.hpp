// A full drive in the steady state of uniform random writes, without writing it several times over.
#pragma once

#include <cstdint>

#include "flash/ftl.hpp"

namespace flashlab::flash {

// Under uniform random writes all logical pages are alike: a group's state is the pattern of valid
// slots in its blocks, and which page is in which slot is a random permutation. So one group is
// run to its steady state by itself; the others get its state at later moments (their collections
// must not be in step), and then all pages are dealt out at random. With a single group (allocation
// `global`) there is nothing to copy, and the drive is overwritten until it is steady.
//
// `ftl` must be new. Throws OperatingError otherwise.
void reach_steady_state(Ftl& ftl, const GeometryParameters& geometry,
                        const FtlParameters& parameters, std::uint64_t seed);

}  // namespace flashlab::flash
