// Into blocks of their own, one for each stream of the victims.
#include "flash/policy/gc_placement.hpp"

namespace flashlab::flash {

CopyLog copies_by_stream(StreamId stream) { return {stream, false}; }

}  // namespace flashlab::flash
