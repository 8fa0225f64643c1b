// Grace and hybrid hash join (Kitsuregawa et al. 1983; DeWitt et al., SIGMOD 1984; Shapiro, TODS
// 1986) as in docs/papers/grace_hash_join.md: partition both inputs, then join each pair of
// partitions through an in-memory table, with dynamic role reversal, recursive partitioning of
// pairs that do not fit, and a block nested loop for those that no hash function can split.
#pragma once

#include <span>
#include <vector>

#include "base/cancel.hpp"
#include "io/storage.hpp"
#include "join/plan.hpp"
#include "join/spec.hpp"
#include "join/transcript.hpp"

namespace flashlab::join {

// Runs one join per job, side by side as users of the storage. Result i belongs to job i.
// `transcript`: is made of it, to be repeated on other machines; or nullptr. Throws OperatingError;
// nothing outside the jobs' scratch spaces is written.
std::vector<UserResult> run_joins(io::Storage& storage, const JoinSpec& spec,
                                  std::span<const UserJob> jobs, const Cancel& cancel,
                                  Transcript* transcript = nullptr);

// Scratch space that a job needs at most if no pair overflows: both inputs once more, and for each
// partition a last unit that is not full.
Bytes scratch_needed(const JoinSpec& spec, const Relation& build, const Relation& probe,
                     Bytes block);

}  // namespace flashlab::join
