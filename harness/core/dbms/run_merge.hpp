// One merge of sorted runs, without their contents: how far each tape's memory reaches, and what
// has to be read when it is used up.
//
// Keys are spread evenly over each run, so all runs advance together through the space of keys,
// [0, 1): a run of twice the length is used up twice as fast. What is in memory of a run reaches to
// a place in that space that scatters as the keys do (a part m of n tuples: by sqrt(m) / n).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/prng.hpp"
#include "dbms/tape.hpp"

namespace flashlab::dbms {

enum class Refill : std::uint8_t {
  all,  // when one tape's memory is used up, every tape is read until its memory is full again
  one,  // only that tape is read
};

struct RefillEntry {
  std::string_view name;
  Refill refill;
};
inline constexpr std::array kRefills{
    RefillEntry{"all", Refill::all},
    RefillEntry{"one", Refill::one},
};
constexpr std::string_view name_of(Refill refill) {
  for (const RefillEntry& entry : kRefills) {
    if (entry.refill == refill) return entry.name;
  }
  return "";
}

struct MergeMemory {
  std::int64_t per_tape = 0;  // bytes of tape that a tape's share of memory holds
  Refill refill = Refill::one;
  bool ahead = false;  // the next share of the tape that is refilled is read ahead
};

class RunMerge {
 public:
  // Takes the run in front of each tape. `tuple`: bytes on tape.
  RunMerge(std::vector<Tape*> inputs, std::int64_t tuple, const MergeMemory& memory, Prng& random);

  // Reads what the memory holds: before the first advance().
  void fill();
  // The place in the space of keys at which some tape must be read; 1 if none needs to be again.
  [[nodiscard]] double stop() const;
  // Up to there; returns the bytes of tuples that this passes, all runs together.
  std::int64_t advance(double to);
  // Reads what stop() asked for.
  void refill();
  [[nodiscard]] bool ended() const { return at_ >= 1.0; }
  [[nodiscard]] std::size_t ways() const { return runs_.size(); }

 private:
  struct Run {
    Tape* tape;
    std::int64_t bytes;     // of the whole run
    std::int64_t read = 0;  // of it
    std::int64_t held = 0;  // bytes in memory when the segment began
    double from = 0.0;      // the segment: where in the space of keys it began ...
    double to = 0.0;        // ... and where the memory will be used up
  };
  void load(Run& run);

  std::vector<Run> runs_;
  std::int64_t tuple_;
  MergeMemory memory_;
  Prng& random_;
  double at_ = 0.0;
  std::int64_t total_ = 0;
  std::int64_t passed_ = 0;
};

}  // namespace flashlab::dbms
