// Whose writes cost how much: host, copied and padded units, by stream and by named address range.
// Every unit that is programmed, and every one that the host writes, is counted once in each of the
// two tables, so that the parts of either sum exactly to the whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/archive.hpp"
#include "base/check.hpp"
#include "base/device.hpp"
#include "base/huge_array.hpp"
#include "flash/geometry.hpp"

namespace flashlab::flash {

struct Share {
  std::uint64_t host_units = 0;
  std::uint64_t copied_units = 0;
  std::uint64_t padded_units = 0;
  std::uint64_t coalesced_units = 0;  // written by the host, and never programmed

  Share& operator+=(const Share& other) {
    host_units += other.host_units;
    copied_units += other.copied_units;
    padded_units += other.padded_units;
    coalesced_units += other.coalesced_units;
    return *this;
  }
};

class Attribution {
 public:
  // Ranges in logical pages: [begin, end) of each, ascending and disjoint.
  struct Range {
    Lpn begin;
    Lpn end;
  };

  Attribution(std::uint32_t lpns, StreamId streams, std::vector<Range> ranges)
      : stream_of_(streams > 1 ? lpns : 0),
        by_stream_(streams),
        ranges_(std::move(ranges)),
        by_range_(ranges_.size() + 1) {}

  void host(Lpn lpn, StreamId stream) {
    if (stream_of_.size() != 0) stream_of_[lpn] = static_cast<std::uint8_t>(stream);
    ++by_stream_[stream].host_units;
    ++by_range_[range_of(lpn)].host_units;
  }
  void coalesced(Lpn lpn, StreamId stream) {
    ++by_stream_[stream].coalesced_units;
    ++by_range_[range_of(lpn)].coalesced_units;
  }
  // A prefetch for a page that will be copied soon.
  void expect(Lpn lpn) const {
    if (stream_of_.size() != 0) stream_of_.prefetch(lpn);
  }
  void copied(Lpn lpn) {
    ++by_stream_[stream_of(lpn)].copied_units;
    ++by_range_[range_of(lpn)].copied_units;
  }
  // Padding is charged to whom the last page before it belongs to.
  void padded(Lpn last, std::uint32_t units) {
    by_stream_[stream_of(last)].padded_units += units;
    by_range_[range_of(last)].padded_units += units;
  }
  [[nodiscard]] StreamId stream_of(Lpn lpn) const {
    return stream_of_.size() == 0 ? StreamId{0} : stream_of_[lpn];
  }

  [[nodiscard]] std::span<const Share> by_stream() const { return by_stream_; }
  // One more than there are ranges: the last one is everything else.
  [[nodiscard]] std::span<const Share> by_range() const { return by_range_; }
  // From here on; what was counted so far is everything else's.
  void set_ranges(std::vector<Range> ranges);
  void reset();
  // The ranges are parameters: they must be set to what they were before this restores.
  void archive(Archive& a);

 private:
  [[nodiscard]] std::size_t range_of(Lpn lpn) const;

  HugeArray<std::uint8_t> stream_of_;  // by logical page: who wrote it last
  std::vector<Share> by_stream_;
  std::vector<Range> ranges_;
  std::vector<Share> by_range_;
};

inline std::size_t Attribution::range_of(Lpn lpn) const {
  const auto at = std::ranges::upper_bound(ranges_, lpn, {}, &Range::end);
  const bool inside = at != ranges_.end() && at->begin <= lpn;
  return inside ? static_cast<std::size_t>(at - ranges_.begin()) : ranges_.size();
}

inline void Attribution::set_ranges(std::vector<Range> ranges) {
  Share before;
  for (const Share& share : by_range_) before += share;
  ranges_ = std::move(ranges);
  by_range_.assign(ranges_.size() + 1, Share{});
  by_range_.back() = before;
}

inline void Attribution::archive(Archive& a) {
  const std::size_t streams = by_stream_.size();
  stream_of_.archive(a);
  a.all(by_stream_, by_range_);
  require(by_stream_.size() == streams && by_range_.size() == ranges_.size() + 1,
          "the saved state is of a device with other parameters");
}

inline void Attribution::reset() {
  by_stream_.assign(by_stream_.size(), Share{});
  by_range_.assign(by_range_.size(), Share{});
}

}  // namespace flashlab::flash
