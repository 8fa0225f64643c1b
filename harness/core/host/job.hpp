// A stream of requests as fio would make it: pattern, mix, size, depth.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/device.hpp"
#include "base/prng.hpp"

namespace flashlab::host {

// What each one is: host/describe.hpp.
struct JobParameters {
  std::string pattern = "random";
  double read_ratio = 0.0;
  double trim_ratio = 0.0;
  Bytes block;
  Extent span;
  std::uint32_t depth = 1;
  std::uint64_t requests = 0;
  Nanos duration;
  Nanos interval;
  bool poisson = false;
  double hot_data_ratio = 0.1;
  double hot_access_ratio = 0.9;
  double zipf_theta = 0.99;
  StreamId stream = 0;
  bool fua = false;
  std::uint64_t flush_every = 0;
  std::uint64_t seed = 0;
};

enum class Pattern : std::uint8_t { sequential, random, hot_cold, zipf };
struct PatternEntry {
  std::string_view name;
  Pattern pattern;
};
inline constexpr std::array kPatterns{
    PatternEntry{"sequential", Pattern::sequential},
    PatternEntry{"random", Pattern::random},
    PatternEntry{"hot_cold", Pattern::hot_cold},
    PatternEntry{"zipf", Pattern::zipf},
};

// Draws the requests of a job, in order. Depends on the job's seed alone, never on time.
class JobStream {
 public:
  // Throws OperatingError for a job that no device could serve.
  JobStream(const JobParameters& parameters, Bytes capacity);
  Request next();
  // Exponential, or always the interval.
  Nanos gap();

 private:
  [[nodiscard]] std::int64_t draw_block();
  [[nodiscard]] double uniform() { return static_cast<double>(random_.next() >> 11) * 0x1p-53; }
  [[nodiscard]] std::int64_t draw_zipf();

  JobParameters parameters_;
  Prng random_;
  Prng times_;
  Pattern pattern_;
  std::int64_t blocks_;
  std::int64_t hot_blocks_;
  Sectors sectors_;
  std::int64_t position_ = 0;
  std::uint64_t drawn_ = 0;
  double zipf_zeta_ = 0.0;
  double zipf_eta_ = 0.0;
};

}  // namespace flashlab::host
