// Into blocks of their own, whatever stream they are of.
#include "flash/policy/gc_placement.hpp"

namespace flashlab::flash {

CopyLog copies_separate(StreamId /*stream*/) { return {0, false}; }

}  // namespace flashlab::flash
