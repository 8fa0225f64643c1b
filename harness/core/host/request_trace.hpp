// A bounded record of a run's requests: every n-th of them, and twice as many are passed over each
// time when there would be more rows than wanted. What is kept depends on nothing but the requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.hpp"
#include "base/device.hpp"

namespace flashlab::host {

struct TracedRequest {
  Nanos when;
  std::int64_t number = 0;  // among all that were seen
  Request request;          // without a TRIM's ranges, which are gone
};

class RequestTrace {
 public:
  // `most` rows, an even number; 0: none. Throws OperatingError for another one.
  explicit RequestTrace(std::int64_t most) : most_(static_cast<std::size_t>(most)) {
    require(most >= 0 && most % 2 == 0, "trace_rows: must be an even number, or 0");
  }

  void see(const Request& request, Nanos when) {
    if (most_ == 0) return;
    const std::int64_t number = seen_++;
    if (number % every_ != 0) return;
    if (rows_.size() == most_) thin();  // this one's number is a multiple of the new step, too
    rows_.push_back({when, number, request});
    rows_.back().request.ranges = {};
  }
  [[nodiscard]] std::vector<TracedRequest> take() { return std::move(rows_); }

 private:
  void thin() {
    for (std::size_t i = 0; 2 * i < rows_.size(); ++i) rows_[i] = rows_[2 * i];
    rows_.resize(rows_.size() / 2);
    every_ *= 2;
  }

  std::size_t most_;
  std::int64_t seen_ = 0;
  std::int64_t every_ = 1;
  std::vector<TracedRequest> rows_;
};

}  // namespace flashlab::host
