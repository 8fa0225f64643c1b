// Polyphase merge: Knuth, The Art of Computer Programming 3, 5.4.2, Algorithm D, as PostgreSQL to
// 14 used it and the paper describes it. Runs are dealt so that the tapes hold the numbers of a
// level of the generalised Fibonacci numbers, with dummy runs for what is missing; a merge takes
// one run of every tape onto the empty one, until a tape is used up and becomes the next target.
#include <algorithm>

#include "base/check.hpp"
#include "dbms/policy/merge_plan.hpp"

namespace flashlab::dbms {

namespace {

class Polyphase final : public MergePlan {
 public:
  explicit Polyphase(std::int64_t order) : order_(static_cast<std::size_t>(order)) {
    for (TapeId id = 0; id <= order_; ++id) tapes_.push_back({id, 1, 0, 1});
    target() = {static_cast<TapeId>(order_), 0, 0, 0};
  }

  TapeId deal() override {
    if (dealt_) choose_tape();
    dealt_ = true;
    Tape& tape = tapes_[place_];
    ++tape.runs;
    --tape.dummies;
    return tape.id;
  }

  std::optional<Merge> next() override {
    FLASHLAB_CHECK(dealt_);
    if (ended_) return std::nullopt;
    while (!one_run_each()) {
      if (last().runs + last().dummies == 0) {
        turn_round();
      } else if (std::all_of(tapes_.begin(), tapes_.end() - 1,
                             [](const Tape& t) { return t.dummies > 0; })) {
        for (Tape& tape : tapes_) --tape.dummies;
        target().dummies += 2;  // one for itself, one for the merge of dummies
      } else {
        ++target().runs;
        return taken(false);
      }
    }
    ended_ = true;
    return taken(true);
  }

 private:
  struct Tape {
    TapeId id = 0;
    std::int64_t wanted = 0;  // by the level's distribution
    std::int64_t runs = 0;
    std::int64_t dummies = 0;
  };
  Tape& target() { return tapes_.back(); }
  Tape& last() { return tapes_[order_ - 1]; }

  // Steps D3 and D4: dummies are spread as evenly as can be.
  void choose_tape() {
    if (tapes_[place_].dummies < tapes_[place_ + 1].dummies) {
      ++place_;
    } else {
      if (tapes_[place_].dummies == 0) raise_level();
      place_ = 0;
    }
  }

  void raise_level() {
    const std::int64_t first = tapes_[0].wanted;
    for (std::size_t i = 0; i < order_; ++i) {
      const std::int64_t wanted = first + tapes_[i + 1].wanted;
      tapes_[i].dummies = wanted - tapes_[i].wanted;
      tapes_[i].wanted = wanted;
    }
  }

  [[nodiscard]] bool one_run_each() const {
    return std::all_of(tapes_.begin(), tapes_.end() - 1,
                       [](const Tape& t) { return t.runs + t.dummies == 1; });
  }

  // Step D6: the target becomes the first input, the used-up tape the target.
  void turn_round() { std::rotate(tapes_.begin(), tapes_.end() - 1, tapes_.end()); }

  // A run of every tape, a dummy where there is one.
  Merge taken(bool is_last) {
    Merge merge;
    for (std::size_t i = 0; i < order_; ++i) {
      Tape& tape = tapes_[i];
      if (tape.dummies > 0) {
        --tape.dummies;
      } else {
        --tape.runs;
        merge.inputs.push_back(tape.id);
      }
    }
    std::sort(merge.inputs.begin(), merge.inputs.end());
    merge.output = target().id;
    merge.last = is_last;
    merge.reading_tapes = static_cast<std::int64_t>(merge.inputs.size());
    merge.writing_tapes = is_last ? 0 : 1;
    return merge;
  }

  std::size_t order_;
  std::vector<Tape> tapes_;  // by role: the inputs, then the target
  std::size_t place_ = 0;
  bool dealt_ = false;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<MergePlan> make_polyphase(std::int64_t order) {
  return std::make_unique<Polyphase>(order);
}

}  // namespace flashlab::dbms
