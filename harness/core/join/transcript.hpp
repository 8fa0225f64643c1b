// What synchronous joins did, in order and without their data, to be repeated on other machines.
//
// At queue depth 1 a transfer has ended when the next thing happens. So what a user's join does
// depends on its records and its spec alone, never on how long anything took or on what others do
// meanwhile: on every drive, under every host and on every CPU these are the same steps, and only
// the times between them differ. Deeper queues choose by what has ended first; they have no
// transcript.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/cancel.hpp"
#include "io/storage.hpp"
#include "join/spec.hpp"

namespace flashlab::join {

// One thing that a join asks of the world (IoWindow), and the CPU's work before it.
struct Step {
  enum class Kind : std::uint8_t { read, write, enter, finish };
  Kind kind = Kind::finish;
  Phase phase = Phase::partition;  // of enter
  Bytes offset = {};               // of a transfer
  Bytes bytes = {};
  Work work = {};
};

class Transcript {
 public:
  // The joins that follow, on a storage with such blocks. Throws OperatingError unless they are
  // synchronous.
  void begin(const JoinSpec& spec, std::span<const UserJob> jobs, Bytes block);
  [[nodiscard]] std::vector<Step>& steps(std::uint32_t user) { return users_[user].steps; }
  // They have ended well: before that there is nothing to repeat.
  void end(std::span<const UserResult> results);

 private:
  struct User {
    std::vector<Step> steps;
    Outcome outcome;
  };
  friend std::vector<UserResult> repeat_joins(io::Storage&, const JoinSpec&,
                                              std::span<const UserJob>, const Cancel&,
                                              const Transcript&);

  JoinSpec spec_;
  std::vector<UserJob> jobs_;
  Bytes block_;
  std::vector<User> users_;
  bool ended_ = false;
};

// What run_joins would give of the same joins on this storage, which must have no contents. Only
// CPU times and `trace` of the spec may be others than the transcript's; that the inputs are the
// same is the caller's to know. Throws OperatingError.
std::vector<UserResult> repeat_joins(io::Storage& storage, const JoinSpec& spec,
                                     std::span<const UserJob> jobs, const Cancel& cancel,
                                     const Transcript& transcript);

}  // namespace flashlab::join
