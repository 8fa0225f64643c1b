// One stream for everything: a drive that does not know streams.
#include "flash/policy/placement.hpp"

namespace flashlab::flash {

StreamId one_stream(const Request& /*request*/, std::span<const RangeStream> /*ranges*/,
                    StreamId /*streams*/) {
  return 0;
}

}  // namespace flashlab::flash
