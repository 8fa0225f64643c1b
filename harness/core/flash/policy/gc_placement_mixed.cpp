// Into the blocks that the host fills, with the writes of the same stream.
#include "flash/policy/gc_placement.hpp"

namespace flashlab::flash {

CopyLog copies_mixed(StreamId stream) { return {stream, true}; }

}  // namespace flashlab::flash
