// Which runs are merged with which, and in what order: the plan of an external sort.
//
// A plan deals the initial runs onto tapes and then hands out merges until one is left to be done
// on the fly. It knows runs and tapes, neither bytes nor time. One file per plan, found by name.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace flashlab::dbms {

using TapeId = std::uint32_t;

// One run of each of `inputs` becomes one run on `output`, or the sort's result if `last`.
struct Merge {
  std::vector<TapeId> inputs;  // ascending
  TapeId output = 0;
  bool last = false;
  // What shares the memory for reading and writing meanwhile.
  std::int64_t reading_tapes = 0;
  std::int64_t writing_tapes = 0;
};

class MergePlan {
 public:
  virtual ~MergePlan() = default;
  // The tape of the next initial run.
  virtual TapeId deal() = 0;
  // After the last deal, of at least one run: the next merge; nothing after the last one.
  virtual std::optional<Merge> next() = 0;
};

// `order`: runs that are merged at once.
std::unique_ptr<MergePlan> make_polyphase(std::int64_t order);
std::unique_ptr<MergePlan> make_balanced(std::int64_t order);

struct MergePlanEntry {
  std::string_view name;
  std::unique_ptr<MergePlan> (*make)(std::int64_t order);
};
inline constexpr std::array kMergePlans{
    MergePlanEntry{"polyphase", make_polyphase},
    MergePlanEntry{"balanced", make_balanced},
};

// Throws OperatingError for a name that is not in the table, or an order below 2 or above 100,000.
std::unique_ptr<MergePlan> make_merge_plan(std::string_view name, std::int64_t order);

}  // namespace flashlab::dbms
