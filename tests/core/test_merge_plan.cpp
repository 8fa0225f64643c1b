// Merge plans done with runs alone. tests/core/test_merge_plans.py compares them with a slow
// reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "base/check.hpp"
#include "base/units.hpp"
#include "dbms/policy/merge_plan.hpp"

namespace flashlab::dbms {
namespace test_merge_plan {

struct Done {
  std::vector<std::int64_t> dealt;  // runs by tape
  std::vector<Merge> merges;
  std::int64_t runs_read = 0;  // in initial runs, the last merge included
};

// Every merge finds a run on each of its tapes; the last one leaves nothing behind.
Done done(const std::string& name, std::int64_t order, std::int64_t runs) {
  const auto plan = make_merge_plan(name, order);
  Done result;
  std::map<TapeId, std::vector<std::int64_t>> tapes;  // lengths, the next one last
  for (std::int64_t run = 0; run < runs; ++run) {
    const TapeId tape = plan->deal();
    tapes[tape].push_back(1);
    result.dealt.resize(std::max<std::size_t>(result.dealt.size(), tape + 1));
    ++result.dealt[tape];
  }
  while (const auto merge = plan->next()) {
    std::int64_t length = 0;
    for (const TapeId tape : merge->inputs) {
      EXPECT_FALSE(tapes[tape].empty());
      if (tapes[tape].empty()) return result;
      length += tapes[tape].back();
      tapes[tape].pop_back();
    }
    EXPECT_TRUE(std::is_sorted(merge->inputs.begin(), merge->inputs.end()));
    EXPECT_LE(merge->inputs.size(), static_cast<std::size_t>(order));
    result.runs_read += length;
    result.merges.push_back(*merge);
    if (!merge->last) tapes[merge->output].insert(tapes[merge->output].begin(), length);
  }
  EXPECT_TRUE(result.merges.back().last);
  for (const auto& [tape, left] : tapes) EXPECT_TRUE(left.empty()) << tape;
  return result;
}

class AnyPlan : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, AnyPlan, ::testing::Values("polyphase", "balanced"));

TEST_P(AnyPlan, CanBeDoneAndLosesNoRun) {
  for (std::int64_t order = 2; order <= 16; ++order) {
    for (std::int64_t runs = 1; runs <= 300; ++runs) {
      const Done result = done(GetParam(), order, runs);
      const Merge& last = result.merges.back();
      EXPECT_EQ(std::accumulate(result.dealt.begin(), result.dealt.end(), std::int64_t{0}), runs);
      EXPECT_GE(result.runs_read, runs);
      EXPECT_LE(last.inputs.size(), static_cast<std::size_t>(order));
      ASSERT_FALSE(HasFailure()) << order << ", " << runs;
    }
  }
}

TEST_P(AnyPlan, AsManyRunsAsTapesAreMergedAtOnce) {
  for (std::int64_t order = 2; order <= 50; ++order) {
    for (std::int64_t runs = 1; runs <= order; ++runs) {
      const Done result = done(GetParam(), order, runs);
      EXPECT_EQ(result.merges.size(), 1U);
      EXPECT_EQ(result.merges[0].inputs.size(), static_cast<std::size_t>(runs));
    }
  }
}

TEST_P(AnyPlan, AnOrderThatMergesNothingIsRefused) {
  EXPECT_THROW((void)make_merge_plan(GetParam(), 1), OperatingError);
  EXPECT_THROW((void)make_merge_plan(GetParam(), 100'001), OperatingError);
}

TEST(MergePlan, AnUnknownNameListsTheKnown) {
  try {
    (void)make_merge_plan("cascade", 4);
    FAIL();
  } catch (const OperatingError& error) {
    EXPECT_NE(std::string(error.what()).find("polyphase, balanced"), std::string::npos);
  }
}

// The recurrence of the paper, which is that of the generalised Fibonacci numbers.
std::vector<std::int64_t> next_level(const std::vector<std::int64_t>& level) {
  std::vector<std::int64_t> next;
  for (std::size_t i = 1; i < level.size(); ++i) next.push_back(level[0] + level[i]);
  next.push_back(level[0]);
  return next;
}

TEST(Polyphase, APerfectNumberOfRunsLiesAsTheLevelsSayAndHasNoDummies) {
  for (std::int64_t order = 2; order <= 19; ++order) {
    std::vector<std::int64_t> level(static_cast<std::size_t>(order), 1);
    std::int64_t runs = order;
    while (runs <= 2000) {
      const Done result = done("polyphase", order, runs);
      EXPECT_EQ(result.dealt, level);
      for (const Merge& merge : result.merges) {
        EXPECT_EQ(merge.inputs.size(), static_cast<std::size_t>(order));
      }
      level = next_level(level);
      runs = std::accumulate(level.begin(), level.end(), std::int64_t{0});
    }
  }
}

// All tapes but two give a dummy: only two runs are read twice.
TEST(Polyphase, OneRunMoreThanTapesCostsAMergeOfTwo) {
  for (std::int64_t order = 2; order <= 19; ++order) {
    const Done result = done("polyphase", order, order + 1);
    EXPECT_EQ(result.merges.size(), 2U);
    EXPECT_EQ(result.runs_read, order + 1 + 2);
  }
}

TEST(Polyphase, NoMergeIsOfDummiesAloneAndEveryRunCosts) {
  for (std::int64_t order = 2; order <= 10; ++order) {
    for (std::int64_t runs = order + 1; runs <= 200; ++runs) {
      const Done result = done("polyphase", order, runs);
      for (const Merge& merge : result.merges) EXPECT_FALSE(merge.inputs.empty());
      EXPECT_GT(done("polyphase", order, runs + 1).runs_read, result.runs_read);
    }
  }
}

TEST(Polyphase, MemoryIsSharedByTheTapesThatAreReadAndOneThatIsWritten) {
  for (const std::int64_t runs : {15, 20, 100, 333}) {
    for (const Merge& merge : done("polyphase", 14, runs).merges) {
      EXPECT_EQ(merge.reading_tapes, static_cast<std::int64_t>(merge.inputs.size()));
      EXPECT_EQ(merge.writing_tapes, merge.last ? 0 : 1);
    }
  }
}

TEST(Balanced, EveryPassReadsEverything) {
  for (std::int64_t order = 2; order <= 20; ++order) {
    for (std::int64_t runs = 1; runs <= 300; ++runs) {
      std::int64_t passes = 1;
      for (std::int64_t left = runs; left > order; left = ceil_div(left, order)) ++passes;
      EXPECT_EQ(done("balanced", order, runs).runs_read, passes * runs) << order << ", " << runs;
    }
  }
}

TEST(Balanced, RunsAreDealtInTurn) {
  for (const std::int64_t runs : {3, 7, 15, 16, 100}) {
    const std::vector<std::int64_t> dealt = done("balanced", 7, runs).dealt;
    EXPECT_EQ(dealt.size(), static_cast<std::size_t>(std::min<std::int64_t>(runs, 7)));
    for (std::size_t tape = 1; tape < dealt.size(); ++tape) {
      EXPECT_LE(dealt[tape], dealt[tape - 1]);
      EXPECT_GE(dealt[tape], dealt[0] - 1);
    }
  }
}

// As many outputs as the pass will make, at most all: their buffers are set aside from the start.
TEST(Balanced, MemoryIsSharedByAllTapesOfThePass) {
  for (const std::int64_t runs : {8, 20, 49, 50, 300}) {
    std::int64_t waiting = runs;
    std::int64_t left = runs;
    for (const Merge& merge : done("balanced", 7, runs).merges) {
      const std::int64_t outputs = ceil_div(waiting, std::min<std::int64_t>(waiting, 7));
      EXPECT_EQ(merge.reading_tapes, std::min<std::int64_t>(waiting, 7));
      EXPECT_EQ(merge.writing_tapes, std::min<std::int64_t>(outputs, 7));
      left -= static_cast<std::int64_t>(merge.inputs.size());
      if (left == 0) left = waiting = outputs;
    }
  }
}

// A pass reads one half of the tapes and writes the other.
TEST(Balanced, NoTapeIsReadAndWrittenInTheSameMerge) {
  for (const Merge& merge : done("balanced", 5, 120).merges) {
    if (merge.last) continue;
    EXPECT_EQ(std::count(merge.inputs.begin(), merge.inputs.end(), merge.output), 0);
    for (const TapeId input : merge.inputs) EXPECT_NE(input / 5, merge.output / 5);
  }
}

}  // namespace test_merge_plan
}  // namespace flashlab::dbms
