// How fast writers may make blocks dirty: balance_dirty_pages() of mm/page-writeback.c since Linux
// 3.2 (W. Fengguang, "IO-less dirty throttling").
//
// Nobody is held at a bound. A writer sleeps now and then, so as to keep to a rate: what the device
// was measured to write back, shared among those who write, times a ratio that is 1 where the
// kernel steers to, up to 2 below, and 0 at the limit. That ratio is a cubic, hardly different from
// 1 for half of the way, and the rate follows what is measured the less the nearer it is. So what
// is dirty wanders: while the device pauses it grows towards the limit, and is brought back slowly.
//
// A bound that a device has of its own (`is_strict`: /sys/class/bdi/*/strict_limit) is steered to
// half of the way from where writing in the background begins. Below that nobody sleeps, or looks:
// the rate begins at 100 MiB/s and only falls. The machine's bound is steered to three quarters of
// that way, the closer the less the device writes in eight seconds, and nobody sleeps below half.
//
// Not modelled: memory groups, several devices under one bound, ticks of the kernel's clock.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "host/machine.hpp"

namespace flashlab::kernel {

struct DirtyPaceParameters {
  std::int64_t background = 0;  // blocks
  std::int64_t limit = 0;       // blocks
  bool is_strict = false;
  Bytes block;
  Nanos second;  // of the kernel's clock, in the device's time
};

class DirtyPace {
 public:
  explicit DirtyPace(const DirtyPaceParameters& parameters);

  // Write-back begins: what was measured before it stood still says nothing.
  void begin(Nanos now);
  void written_back(std::int64_t blocks) { written_ += blocks; }
  // It turns to the next file: a moment to see how fast it was. Of two who look soon after each
  // other only the first one measures, and only a writer draws conclusions.
  void look(Nanos now);

  struct Pause {
    Nanos until;         // in the past: none
    bool again = false;  // then it asks again, with nothing new
  };
  // The writer has made so many blocks more dirty; `dirty` blocks are, or are being written.
  Pause after(host::Process writer, std::int64_t blocks, std::int64_t dirty, Nanos now);

  // Of write-back, in blocks per second of the device.
  [[nodiscard]] double bandwidth() const { return mean_bandwidth_; }
  // What writers' rate is multiplied by.
  [[nodiscard]] double ratio(std::int64_t dirty) const;
  [[nodiscard]] std::int64_t free_run() const { return free_run_; }
  [[nodiscard]] std::int64_t setpoint() const { return setpoint_; }

 private:
  struct Writer {
    std::int64_t dirtied = 0;  // since it looked
    std::int64_t allowed = 0;  // before it looks again
    Nanos slept_until;
  };
  struct Plan {
    double shortest_s;
    std::int64_t allowed;
  };

  [[nodiscard]] std::int64_t until_next_look(std::int64_t dirty) const;
  [[nodiscard]] double longest_pause_s(std::int64_t dirty) const;
  [[nodiscard]] Plan plan(double rate, double longest_s) const;
  [[nodiscard]] bool is_time(Nanos now) const;
  void follow(std::int64_t dirty, Nanos now);
  void estimate(Nanos now);

  std::int64_t free_run_;
  std::int64_t setpoint_;
  std::int64_t limit_;
  bool is_strict_;
  double page_;       // blocks
  double second_s_;   // of the kernel's clock
  double one_;        // page per second of the kernel's clock
  double bandwidth_;  // blocks per second of the device, as all that follow
  double mean_bandwidth_;
  double rate_;
  double balanced_;
  std::int64_t written_ = 0;
  std::int64_t dirtied_ = 0;
  bool is_exceeded_ = false;  // the limit, when somebody looked
  Nanos since_;
  std::vector<Writer> writers_;
};

}  // namespace flashlab::kernel
