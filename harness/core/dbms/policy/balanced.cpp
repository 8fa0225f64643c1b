// Balanced k-way merge, as PostgreSQL since 15: each pass merges all runs of the input tapes, k at
// a time, onto as many output tapes as there may be, round robin; the outputs are the next pass's
// inputs. The last pass begins when every input tape holds one run.
#include <algorithm>

#include "base/check.hpp"
#include "base/units.hpp"
#include "dbms/policy/merge_plan.hpp"

namespace flashlab::dbms {

namespace {

class Balanced final : public MergePlan {
 public:
  explicit Balanced(std::int64_t order) : order_(order) {}

  TapeId deal() override { return next_output(); }

  std::optional<Merge> next() override {
    if (ended_) return std::nullopt;
    FLASHLAB_CHECK(outputs_ + inputs_ > 0);
    if (inputs_ == 0) begin_pass();
    Merge merge;
    const std::int64_t taken = std::min(input_tapes_, inputs_);
    for (std::int64_t i = 0; i < taken; ++i) {
      merge.inputs.push_back(static_cast<TapeId>(inputs_from_ + i));
    }
    merge.last = ended_ = inputs_ <= input_tapes_ && first_of_pass_;
    merge.reading_tapes = input_tapes_;
    merge.writing_tapes = std::min(output_runs_, order_);
    inputs_ -= taken;
    first_of_pass_ = false;
    if (!merge.last) merge.output = next_output();
    return merge;
  }

 private:
  // Inputs and outputs change places: tapes [0, order) and [order, 2 * order).
  void begin_pass() {
    inputs_ = outputs_;
    input_tapes_ = std::min(outputs_, order_);
    output_runs_ = ceil_div(inputs_, input_tapes_);
    inputs_from_ = outputs_from_;
    outputs_from_ = order_ - outputs_from_;
    outputs_ = 0;
    first_of_pass_ = true;
  }

  TapeId next_output() { return static_cast<TapeId>(outputs_from_ + outputs_++ % order_); }

  std::int64_t order_;
  std::int64_t inputs_ = 0;  // runs left in this pass
  std::int64_t input_tapes_ = 0;
  std::int64_t inputs_from_ = 0;
  std::int64_t outputs_ = 0;  // runs made in this pass
  std::int64_t output_runs_ = 0;
  std::int64_t outputs_from_ = 0;
  bool first_of_pass_ = false;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<MergePlan> make_balanced(std::int64_t order) {
  return std::make_unique<Balanced>(order);
}

}  // namespace flashlab::dbms
