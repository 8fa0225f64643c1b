#include "host/job.hpp"

#include <algorithm>
#include <cmath>

#include "base/policy_table.hpp"

namespace flashlab::host {

namespace {

bool is_ratio(double x) { return x >= 0.0 && x <= 1.0; }

void validate(const JobParameters& p, Bytes capacity) {
  require(p.block.count() >= 512 && p.block.count() % 512 == 0,
          "job: block must be a multiple of 512 B");
  require(p.span.begin >= Lba{0} && to_bytes(p.span.end) <= capacity &&
              to_bytes(p.span.length()) >= p.block,
          "job: its span must lie on the device and hold at least one block");
  require(p.depth >= 1 && p.depth <= 1 << 16, "job: depth must lie between 1 and 65536");
  require(p.requests > 0 || p.duration > Nanos{0}, "job: give requests or a duration");
  require(p.duration >= Nanos{0} && p.interval >= Nanos{0},
          "job: duration and interval must not be negative");
  require(is_ratio(p.read_ratio) && is_ratio(p.trim_ratio) && p.read_ratio + p.trim_ratio <= 1.0,
          "job: read_ratio and trim_ratio must lie between 0 and 1, and their sum, too");
  require(is_ratio(p.hot_data_ratio) && is_ratio(p.hot_access_ratio),
          "job: hot_data_ratio and hot_access_ratio must lie between 0 and 1");
  require(p.zipf_theta > 0.0 && p.zipf_theta < 1.0, "job: zipf_theta must lie between 0 and 1");
}

double zeta(std::int64_t n, double theta) {
  double sum = 0.0;
  for (std::int64_t i = 1; i <= n; ++i) sum += 1.0 / std::pow(static_cast<double>(i), theta);
  return sum;
}

}  // namespace

JobStream::JobStream(const JobParameters& p, Bytes capacity)
    : parameters_((validate(p, capacity), p)),
      random_(p.seed),
      times_(mix64(p.seed + 1)),
      pattern_(find_policy(kPatterns, "pattern", p.pattern).pattern),
      blocks_(to_bytes(p.span.length()) / p.block),
      hot_blocks_(std::clamp<std::int64_t>(
          static_cast<std::int64_t>(p.hot_data_ratio * static_cast<double>(blocks_)), 1,
          std::max<std::int64_t>(blocks_ - 1, 1))),
      sectors_(to_sectors(p.block)) {
  if (pattern_ == Pattern::zipf) {
    zipf_zeta_ = zeta(blocks_, p.zipf_theta);
    zipf_eta_ = (1.0 - std::pow(2.0 / static_cast<double>(blocks_), 1.0 - p.zipf_theta)) /
                (1.0 - zeta(2, p.zipf_theta) / zipf_zeta_);
  }
}

Request JobStream::next() {
  ++drawn_;
  if (parameters_.flush_every > 0 && drawn_ % (parameters_.flush_every + 1) == 0) {
    return {Op::flush, Lba{0}, Sectors{0}};
  }
  Op op = Op::write;
  if (parameters_.read_ratio > 0.0 || parameters_.trim_ratio > 0.0) {
    const double drawn = uniform();
    if (drawn < parameters_.read_ratio) {
      op = Op::read;
    } else if (drawn < parameters_.read_ratio + parameters_.trim_ratio) {
      op = Op::trim;
    }
  }
  const Lba lba = parameters_.span.begin + sectors_ * draw_block();
  return {op, lba, sectors_, parameters_.fua && op == Op::write, parameters_.stream};
}

Nanos JobStream::gap() {
  if (!parameters_.poisson) return parameters_.interval;
  const double u = static_cast<double>((times_.next() >> 11) + 1) * 0x1p-53;
  return Nanos{
      static_cast<std::int64_t>(-std::log(u) * static_cast<double>(parameters_.interval.count()))};
}

std::int64_t JobStream::draw_block() {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(n)));
  };
  switch (pattern_) {
    case Pattern::sequential: {
      const std::int64_t block = position_;
      position_ = position_ + 1 == blocks_ ? 0 : position_ + 1;
      return block;
    }
    case Pattern::hot_cold:
      if (blocks_ == 1) return 0;
      if (uniform() < parameters_.hot_access_ratio) return below(hot_blocks_);
      return hot_blocks_ + below(blocks_ - hot_blocks_);
    case Pattern::zipf:
      return draw_zipf();
    default:
      return below(blocks_);
  }
}

// Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994. Ranks are
// scattered over the span, or the hottest blocks would be neighbours.
std::int64_t JobStream::draw_zipf() {
  const double theta = parameters_.zipf_theta;
  const double u = uniform();
  const double uz = u * zipf_zeta_;
  std::int64_t rank = 0;
  if (uz >= 1.0 + std::pow(0.5, theta)) {
    const double share = std::pow(zipf_eta_ * u - zipf_eta_ + 1.0, 1.0 / (1.0 - theta));
    rank = std::min(static_cast<std::int64_t>(static_cast<double>(blocks_) * share), blocks_ - 1);
  } else if (uz >= 1.0) {
    rank = std::min<std::int64_t>(1, blocks_ - 1);
  }
  return static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(rank)) %
                                   static_cast<std::uint64_t>(blocks_));
}

}  // namespace flashlab::host
