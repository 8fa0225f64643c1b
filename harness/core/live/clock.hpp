// Real time and the model's time: the second runs `slowdown` times slower than the first.
//
// Integers only, and the same moment maps to the same moment whenever it is asked.
#pragma once

#include <ctime>

#include "base/units.hpp"

namespace flashlab::live {

// CLOCK_MONOTONIC.
inline Nanos real_now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return Nanos{std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec};
}

class ModelClock {
 public:
  ModelClock(Nanos model_start, Nanos real_start, std::int64_t slowdown)
      : model_start_(model_start), real_start_(real_start), slowdown_(slowdown) {}

  [[nodiscard]] Nanos to_model(Nanos real) const {
    return model_start_ + (real - real_start_) / slowdown_;
  }
  [[nodiscard]] Nanos to_real(Nanos model) const {
    return real_start_ + (model - model_start_) * slowdown_;
  }
  [[nodiscard]] std::int64_t slowdown() const { return slowdown_; }

 private:
  Nanos model_start_;
  Nanos real_start_;
  std::int64_t slowdown_;
};

}  // namespace flashlab::live
