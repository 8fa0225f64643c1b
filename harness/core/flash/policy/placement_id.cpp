// By the request's stream id; an unknown one counts as 0.
#include "flash/policy/placement.hpp"

namespace flashlab::flash {

StreamId stream_by_id(const Request& request, std::span<const RangeStream> /*ranges*/,
                      StreamId streams) {
  return request.stream < streams ? request.stream : StreamId{0};
}

}  // namespace flashlab::flash
