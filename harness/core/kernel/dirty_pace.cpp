#include "kernel/dirty_pace.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.hpp"

namespace flashlab::kernel {

namespace {

constexpr double kPageBytes = 4096.0;
constexpr double kFirstBandwidthBytes = 100.0 * (1 << 20);  // before any was measured, per second
constexpr double kNanosPerSecond = 1e9;
constexpr double kInterval = 0.2;      // seconds of the kernel's clock between two measurements
constexpr double kLongestPause = 0.2;  // as all of these
constexpr double kShortestPause = 0.01;
constexpr double kEachHalving = 0.0098;  // longer for each, of a writer's rate
constexpr double kBandwidthPeriod = 4.0;
constexpr double kStillFor = 1.0;     // after which what was measured is forgotten
constexpr double kSpan = 8.0;         // of writing: how sharply the machine's bound is kept
constexpr double kLeastPages = 32.0;  // before a writer looks
constexpr double kPagesAbove = 8.0;   // the same, above the limit
constexpr double kLongestOfWriting = 1.0 / 8.0;  // a pause, of the time that writing all would take

double as_double(std::int64_t n) { return static_cast<double>(n); }
double seconds(Nanos t) { return as_double(t.count()) / kNanosPerSecond; }
Nanos nanos(double s) { return Nanos{static_cast<std::int64_t>(s * kNanosPerSecond)}; }

int log2_of(double n) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::clamp(n, 1.0, 1e18)))) - 1;
}

}  // namespace

DirtyPace::DirtyPace(const DirtyPaceParameters& p)
    : free_run_((p.background + p.limit) / 2),
      setpoint_(p.is_strict ? free_run_ : (free_run_ + p.limit) / 2),
      limit_(std::max(p.limit, setpoint_ + 1)),
      is_strict_(p.is_strict),
      page_(kPageBytes / as_double(p.block.count())),
      second_s_(seconds(p.second)),
      one_(page_ / second_s_),
      bandwidth_(kFirstBandwidthBytes / as_double(p.block.count()) / second_s_),
      mean_bandwidth_(bandwidth_),
      rate_(bandwidth_),
      balanced_(bandwidth_) {
  require(p.second > Nanos{0}, "page cache, second: must be positive");
}

void DirtyPace::begin(Nanos now) {
  if (seconds(now - since_) < kStillFor * second_s_) return;
  since_ = now;
  written_ = 0;
  dirtied_ = 0;
}

DirtyPace::Pause DirtyPace::after(host::Process writer, std::int64_t blocks, std::int64_t dirty,
                                  Nanos now) {
  if (writers_.size() <= writer) writers_.resize(writer + 1);
  Writer& w = writers_[writer];
  w.dirtied += blocks;
  dirtied_ += blocks;
  const double above = std::max(kPagesAbove * page_, 1.0);
  if (w.dirtied < w.allowed && !(is_exceeded_ && as_double(w.dirtied) >= above)) return {};
  is_exceeded_ = dirty > limit_;
  if (dirty <= free_run_) {
    w = {.dirtied = 0, .allowed = until_next_look(dirty), .slept_until = now};
    return {};
  }
  if (is_time(now)) {
    follow(dirty, now);
    estimate(now);
  }
  const double rate = rate_ * ratio(dirty);
  const double longest_s = longest_pause_s(dirty);
  if (rate < one_) {
    w.slept_until = now + nanos(longest_s);
    return {.until = w.slept_until, .again = true};
  }
  const auto [shortest_s, allowed] = plan(rate, longest_s);
  const double period_s = as_double(w.dirtied) / rate;
  const double pause_s = period_s - seconds(now - w.slept_until);
  if (pause_s < shortest_s) {  // later, with what it will owe then
    w.slept_until = pause_s < -second_s_ ? now : w.slept_until + nanos(period_s);
    w.dirtied = 0;
    return {};
  }
  const double slept_s = std::min(pause_s, longest_s);
  const double owed_s = std::min(pause_s - slept_s, longest_s);
  w = {.dirtied = 0, .allowed = allowed, .slept_until = now + nanos(slept_s + owed_s)};
  return {.until = now + nanos(slept_s)};
}

double DirtyPace::ratio(std::int64_t dirty) const {
  if (dirty >= limit_) return 0.0;
  const double way = as_double(setpoint_ - dirty) / as_double(limit_ - setpoint_);
  const double steered = std::clamp(1.0 + way * way * way, 0.0, 2.0);
  if (is_strict_) return steered;
  const double span = kSpan * second_s_ * mean_bandwidth_;
  const double above = as_double(dirty - setpoint_);
  return steered * std::max(1.0 - above / span, 0.25);
}

// The square root of what there is room for, in pages (dirty_poll_interval()).
std::int64_t DirtyPace::until_next_look(std::int64_t dirty) const {
  const double room = as_double(limit_ - dirty) / page_;
  const double pages = std::ldexp(1.0, log2_of(room) / 2);
  return std::max<std::int64_t>(static_cast<std::int64_t>(pages * page_), 1);
}

double DirtyPace::longest_pause_s(std::int64_t dirty) const {
  const double writing_all_s = as_double(dirty) / mean_bandwidth_;
  return std::min(kLongestOfWriting * writing_all_s, kLongestPause * second_s_);
}

// How long a pause is to be at least, and after how many blocks the next one is due
// (wb_min_pause()): the longer, the more writers share the bandwidth.
DirtyPace::Plan DirtyPace::plan(double rate, double longest_s) const {
  const int halvings = std::max(log2_of(rate_ / one_) - log2_of(rate / one_), 0);
  double aimed_s = std::min((kShortestPause + kEachHalving * halvings) * second_s_, longest_s);
  const double least = kLeastPages * page_;
  double blocks = rate_ * aimed_s;
  if (blocks < least) {
    aimed_s = longest_s;
    blocks = rate_ * aimed_s;
    if (blocks > least) {
      blocks = least;
      aimed_s = least / rate_;
    }
  }
  if (blocks / rate > longest_s) {
    aimed_s = longest_s;
    blocks = rate * aimed_s;
  }
  const auto allowed = std::max<std::int64_t>(static_cast<std::int64_t>(blocks), 1);
  return {.shortest_s = blocks >= least ? aimed_s / 2 : aimed_s, .allowed = allowed};
}

void DirtyPace::look(Nanos now) {
  if (is_time(now)) estimate(now);
}

bool DirtyPace::is_time(Nanos now) const { return seconds(now - since_) >= kInterval * second_s_; }

// Where everybody is slowed down to what the device takes, and only as far as three estimates of it
// agree (wb_update_dirty_ratelimit()).
void DirtyPace::follow(std::int64_t dirty, Nanos now) {
  const double dirtied_rate = std::max(as_double(dirtied_) / seconds(now - since_), one_);
  const double is = rate_ * ratio(dirty) + one_;
  const double balanced = std::min(is * mean_bandwidth_ / dirtied_rate, mean_bandwidth_);
  double step = 0.0;
  if (dirty < setpoint_) {
    step = std::max(std::min({balanced_, balanced, is}) - rate_, 0.0);
  } else {
    step = std::max(rate_ - std::max({balanced_, balanced, is}), 0.0);
  }
  const double near = rate_ / (2.0 * step + one_);
  step = near < 64.0 ? std::ldexp(step, -static_cast<int>(near)) / 8.0 : 0.0;
  rate_ = std::max(rate_ < balanced ? rate_ + step : rate_ - step, one_);
  balanced_ = balanced;
}

// The mean is moved only where the latest estimates are on the way to it
// (wb_update_write_bandwidth).
void DirtyPace::estimate(Nanos now) {
  const double elapsed_s = seconds(now - since_);
  const double written_rate = as_double(std::exchange(written_, 0)) / elapsed_s;
  since_ = now;
  dirtied_ = 0;
  const double period_s = kBandwidthPeriod * second_s_;
  if (elapsed_s >= period_s) {
    bandwidth_ = mean_bandwidth_ = std::max(written_rate, one_);
    return;
  }
  const double before = bandwidth_;
  bandwidth_ += (written_rate - bandwidth_) * elapsed_s / period_s;
  if (mean_bandwidth_ > before && before >= bandwidth_) {
    mean_bandwidth_ -= (mean_bandwidth_ - before) / 8.0;
  } else if (mean_bandwidth_ < before && before <= bandwidth_) {
    mean_bandwidth_ += (before - mean_bandwidth_) / 8.0;
  }
  mean_bandwidth_ = std::max(mean_bandwidth_, one_);
}

}  // namespace flashlab::kernel
