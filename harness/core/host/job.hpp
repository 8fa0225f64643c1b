// A stream of requests as fio would make it: pattern, mix, size, depth.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/device.hpp"
#include "base/prng.hpp"

namespace flashlab::host {

struct JobParameters {
  std::string pattern = "random";  // sequential, random, hot_cold, zipf
  double read_ratio = 0.0;
  double trim_ratio = 0.0;  // the rest are writes
  Bytes block;
  Extent span;                  // requests stay inside
  std::uint32_t depth = 1;      // requests outstanding (closed loop)
  std::uint64_t requests = 0;   // 0: until `duration`
  Nanos duration;               // 0: until `requests`
  Nanos interval;               // above 0: open loop, one request every so often, whatever `depth`
  bool poisson = false;         // ... with exponentially distributed gaps of that mean
  double hot_data_ratio = 0.1;  // hot_cold: the first part of the span ...
  double hot_access_ratio = 0.9;  // ... gets this share of the requests
  double zipf_theta = 0.99;       // zipf: skew, below 1 (Gray et al., SIGMOD 1994)
  StreamId stream = 0;
  bool fua = false;
  std::uint64_t flush_every = 0;  // a flush after so many requests; 0: never
  std::uint64_t seed = 0;
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
  int pattern_;
  std::int64_t blocks_;
  std::int64_t hot_blocks_;
  Sectors sectors_;
  std::int64_t position_ = 0;
  std::uint64_t drawn_ = 0;
  double zipf_zeta_ = 0.0;
  double zipf_eta_ = 0.0;
};

}  // namespace flashlab::host
