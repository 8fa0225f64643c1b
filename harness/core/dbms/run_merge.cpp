#include "dbms/run_merge.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace flashlab::dbms {

namespace {

// About normal, mean 0, variance 1 (Irwin and Hall: twelve uniform ones): no libm, the same bits
// everywhere.
double scatter(Prng& random) {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.next() >> 11) * 0x1p-53;
  return sum;
}

}  // namespace

RunMerge::RunMerge(std::vector<Tape*> inputs, std::int64_t tuple, const MergeMemory& memory,
                   Prng& random)
    : tuple_(tuple), memory_(memory), random_(random) {
  require(tuple > 0 && memory.per_tape > 0, "merge: a tape's memory must hold a tuple");
  for (Tape* tape : inputs) {
    const std::int64_t bytes = tape->front_run();
    FLASHLAB_CHECK(bytes > 0);
    tape->drop_front_run();
    runs_.push_back({tape, bytes});
    total_ += bytes;
  }
}

void RunMerge::fill() {
  for (Run& run : runs_) load(run);
}

// Until the tape's memory is full or its run has ended.
void RunMerge::load(Run& run) {
  const double left = run.to > run.from ? (run.to - at_) / (run.to - run.from) : 0.0;
  const auto held = static_cast<std::int64_t>(static_cast<double>(run.held) * std::max(left, 0.0));
  const std::int64_t unread = run.bytes - run.read;
  const std::int64_t more = std::min(std::max(memory_.per_tape - held, tuple_), unread);
  if (more <= 0) return;
  run.tape->read(more);
  const double end = std::max(run.to, at_);
  run.from = at_;
  run.held = held + more;
  run.read += more;
  if (run.read == run.bytes) {
    run.to = 1.0;
  } else {
    const double tuples = static_cast<double>(more) / static_cast<double>(tuple_);
    const double share = static_cast<double>(more) / static_cast<double>(unread);
    const double moved = share * std::max(1.0 + scatter(random_) / std::sqrt(tuples), 0.05);
    run.to = end + (1.0 - end) * std::min(moved, 0.999999);
  }
  if (memory_.ahead) run.tape->will_need(std::min(memory_.per_tape, run.bytes - run.read));
}

double RunMerge::stop() const {
  double first = 1.0;
  for (const Run& run : runs_) {
    if (run.read < run.bytes) first = std::min(first, run.to);
  }
  return std::max(first, at_);
}

std::int64_t RunMerge::advance(double to) {
  at_ = to;
  const std::int64_t before = passed_;
  passed_ = to >= 1.0 ? total_ : static_cast<std::int64_t>(static_cast<double>(total_) * to);
  return passed_ - before;
}

void RunMerge::refill() {
  for (Run& run : runs_) {
    if (run.read == run.bytes) continue;
    if (memory_.refill == Refill::all || run.to <= at_) load(run);
  }
}

}  // namespace flashlab::dbms
