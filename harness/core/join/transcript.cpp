#include "join/transcript.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "join/arena.hpp"
#include "join/io_window.hpp"

namespace flashlab::join {

namespace {

struct Nobody final : IoListener {
  void io_done(std::uint32_t /*slot*/) override {}
};

Bytes largest(std::span<const Step> steps) {
  Bytes found;
  for (const Step& step : steps) found = std::max(found, step.bytes);
  return found;
}

void repeat(std::span<const Step> steps, IoWindow& window) {
  Arena memory(largest(steps));  // that nobody looks at
  Nobody nobody;
  for (const Step& step : steps) {
    window.compute(step.work);
    switch (step.kind) {
      case Step::Kind::read:
      case Step::Kind::write: {
        const Op op = step.kind == Step::Kind::write ? Op::write : Op::read;
        memory.reset();
        window.start(op, step.offset, memory.take(step.bytes), nobody, 0);
        break;
      }
      case Step::Kind::enter:
        window.enter(step.phase);
        break;
      case Step::Kind::finish:
        window.finish();
        break;
    }
  }
}

}  // namespace

void Transcript::begin(const JoinSpec& spec, std::span<const UserJob> jobs, Bytes block) {
  require(spec.queue_depth == 1, "queue_depth: only synchronous joins (1) have a transcript");
  spec_ = spec;
  jobs_.assign(jobs.begin(), jobs.end());
  block_ = block;
  users_.assign(jobs.size(), {});
  ended_ = false;
}

void Transcript::end(std::span<const UserResult> results) {
  FLASHLAB_CHECK(results.size() == users_.size());
  for (std::size_t user = 0; user < users_.size(); ++user) users_[user].outcome = results[user];
  ended_ = true;
}

std::vector<UserResult> repeat_joins(io::Storage& storage, const JoinSpec& spec,
                                     std::span<const UserJob> jobs, const Cancel& cancel,
                                     const Transcript& transcript) {
  require(transcript.ended_, "transcript: of no join, or of one that has failed");
  require(!storage.has_contents(), "a transcript has no data that could be stored");
  JoinSpec same = spec;
  same.cpu = transcript.spec_.cpu;
  same.trace = transcript.spec_.trace;
  require(same == transcript.spec_ && std::ranges::equal(jobs, transcript.jobs_) &&
              storage.block() == transcript.block_,
          "the transcript is of other joins");
  for (const UserJob& job : jobs) {
    require(job.scratch.end <= storage.capacity(),
            "the inputs and the space for partitions do not fit the device");
  }
  std::vector<UserResult> results(jobs.size());
  storage.run(
      static_cast<std::uint32_t>(results.size()), spec.queue_depth,
      [&](std::uint32_t user, io::Channel& channel) {
        UserResult& result = results[user];
        static_cast<Outcome&>(result) = transcript.users_[user].outcome;
        IoWindow window(channel, spec, user, result, nullptr);
        repeat(transcript.users_[user].steps, window);
      },
      cancel);
  return results;
}

}  // namespace flashlab::join
