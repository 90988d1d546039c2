// Are the rates the weighted max-min fair ones?
#include "sim/engine/sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tests/engine/random_graph.h"
#include "tests/engine/reference.h"

namespace offsim::engine::sharing_test {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr ResourceId kA{0};
constexpr ResourceId kB{1};

// Holds what Sharing only looks at.
class Shared {
 public:
  explicit Shared(const Plan& plan) : graph_(plan.build()), members_(graph_.demand_list().size()) {}

  void set_members(std::size_t demand, std::uint32_t members) {
    for (; members_[demand] < members; ++members_[demand]) {
      sharing_.add(DemandId(demand));
    }
    for (; members_[demand] > members; --members_[demand]) {
      sharing_.remove(DemandId(demand));
    }
  }
  std::vector<double> rates() {  // 0 for demands without members
    sharing_.solve();
    std::vector<double> result(members_.size());
    for (std::size_t d = 0; d < members_.size(); ++d) {
      result[d] = members_[d] > 0 ? sharing_.rate(DemandId(d)) : 0;
    }
    return result;
  }
  std::vector<double> reference_rates() const {
    return reference::rates(graph_.resources(), graph_.demand_list(), graph_.use_list(), members_);
  }
  std::vector<double> used(const std::vector<double>& rates) const {
    std::vector<double> sum(graph_.resources().size());
    for (std::size_t d = 0; d < rates.size(); ++d) {
      for (const Use& use : graph_.uses(DemandId(d))) {
        sum[index(use.resource)] += members_[d] * rates[d] * use.per_unit;
      }
    }
    return sum;
  }
  std::size_t size() const { return members_.size(); }
  std::uint32_t members(std::size_t demand) const { return members_[demand]; }
  const ActivityGraph& graph() const { return graph_; }
  Sharing& sharing() { return sharing_; }

 private:
  ActivityGraph graph_;
  std::vector<std::uint32_t> members_;
  Sharing sharing_{graph_.resources(), graph_.demand_list(), graph_.use_list()};
};

std::vector<double> rates_of(const Plan& plan, const std::vector<std::uint32_t>& members) {
  Shared shared(plan);
  for (std::size_t d = 0; d < members.size(); ++d) {
    shared.set_members(d, members[d]);
  }
  return shared.rates();
}

TEST(Sharing, EqualMembersGetEqualParts) {
  const Plan plan{{12}, {{kUnlimitedRate, 1, {{kA, 1}}}}, {}};
  EXPECT_THAT(rates_of(plan, {3}), ElementsAre(4));
}

TEST(Sharing, TwiceTheWeightIsTwiceTheRate) {
  const Plan plan{{12}, {{kUnlimitedRate, 1, {{kA, 1}}}, {kUnlimitedRate, 2, {{kA, 1}}}}, {}};
  EXPECT_THAT(rates_of(plan, {2, 2}), ElementsAre(2, 4));
}

TEST(Sharing, FairnessIsInUnitsOfWorkWhateverAUnitUses) {
  // Per second both do 4 units: 4 * 1 + 4 * 2 = 12.
  const Plan plan{{12}, {{kUnlimitedRate, 1, {{kA, 1}}}, {kUnlimitedRate, 1, {{kA, 2}}}}, {}};
  EXPECT_THAT(rates_of(plan, {1, 1}), ElementsAre(4, 4));
}

TEST(Sharing, WhatALimitLeavesGoesToTheOthers) {
  const Plan plan{{12}, {{1, 1, {{kA, 1}}}, {kUnlimitedRate, 1, {{kA, 1}}}}, {}};
  EXPECT_THAT(rates_of(plan, {2, 2}), ElementsAre(1, 5));
}

TEST(Sharing, ALimitAboveTheFairPartDoesNothing) {
  const Plan plan{{12}, {{6.001, 1, {{kA, 1}}}, {kUnlimitedRate, 1, {{kA, 1}}}}, {}};
  EXPECT_THAT(rates_of(plan, {1, 1}), ElementsAre(6, 6));
}

TEST(Sharing, WhoIsHeldUpElsewhereLeavesRoom) {
  // a is shared by 0 and 1, half each; b has what 1 does not take.
  const Plan plan{{2, 10},
                  {{kUnlimitedRate, 1, {{kA, 1}}},
                   {kUnlimitedRate, 1, {{kA, 1}, {kB, 1}}},
                   {kUnlimitedRate, 1, {{kB, 1}}}},
                  {}};
  EXPECT_THAT(rates_of(plan, {1, 1, 1}), ElementsAre(1, 1, 9));
}

TEST(Sharing, ADuplexLimitIsAResourceOfItsOwn) {
  // Each direction alone could do 50; both together 80.
  const Plan plan{{50, 50, 80},
                  {{kUnlimitedRate, 1, {{kA, 1}, {ResourceId(2), 1}}},
                   {kUnlimitedRate, 1, {{kB, 1}, {ResourceId(2), 1}}}},
                  {}};
  EXPECT_THAT(rates_of(plan, {1, 0}), ElementsAre(50, 0));
  EXPECT_THAT(rates_of(plan, {1, 1}), ElementsAre(40, 40));
}

TEST(Sharing, ReadsAndWritesOfADriveKeepItBusyTogether) {
  // r/6 + w/2 <= 1 with equal rates: r = w = 1.5.
  const Plan plan{
      {1}, {{kUnlimitedRate, 1, {{kA, 1.0 / 6}}}, {kUnlimitedRate, 1, {{kA, 1.0 / 2}}}}, {}};
  EXPECT_THAT(rates_of(plan, {1, 1}), ElementsAre(DoubleEq(1.5), DoubleEq(1.5)));
}

TEST(Sharing, ALimitAloneNeedsNoResource) {
  const Plan plan{{1}, {{7, 1, {}}}, {}};
  EXPECT_THAT(rates_of(plan, {1000}), ElementsAre(7));
}

TEST(Sharing, RoundingLeavesNobodyWithoutARate) {
  // Demand 0 is held up at b, and that leaves less than nothing of a when it is computed in
  // doubles.
  const Plan plan{
      {0.01904761904761905, 0.2},
      {{kUnlimitedRate, 1, {{kA, 0.2}, {kB, 2.1}}}, {kUnlimitedRate, 1e-20, {{kA, 0.2}}}},
      {}};
  EXPECT_THAT(rates_of(plan, {1, 1}),
              ElementsAre(DoubleEq(0.2 / 2.1), DoubleEq(1e-20 * 0.2 / 2.1)));
}

TEST(Sharing, SolveListsWhatChangedAndNothingElse) {
  const Plan plan{{2, 10},
                  {{kUnlimitedRate, 1, {{kA, 1}}},
                   {kUnlimitedRate, 2, {{kA, 1}}},
                   {kUnlimitedRate, 1, {{kB, 1}}}},
                  {}};
  Shared shared(plan);
  shared.set_members(0, 1);
  shared.set_members(2, 1);
  EXPECT_THAT(shared.sharing().solve(), UnorderedElementsAre(DemandId{0}, DemandId{2}));
  shared.set_members(1, 1);
  EXPECT_THAT(shared.sharing().solve(), UnorderedElementsAre(DemandId{0}, DemandId{1}));
  shared.set_members(0, 0);
  EXPECT_THAT(shared.sharing().solve(), UnorderedElementsAre(DemandId{0}, DemandId{1}));
  EXPECT_THAT(shared.sharing().solve(), testing::IsEmpty());
  EXPECT_TRUE(shared.sharing().in_use(kA));
  shared.set_members(1, 0);
  shared.sharing().solve();
  EXPECT_FALSE(shared.sharing().in_use(kA));
  EXPECT_TRUE(shared.sharing().in_use(kB));
}

// Members come and go; after each change the rates are those of the reference, and those of a
// solver that starts afresh.
RC_GTEST_PROP(SharingProperty, MatchesTheReferenceThroughChanges, ()) {
  const Plan plan = random_sharing();
  Shared shared(plan);
  const auto changes = *rc::gen::inRange(1, 10);
  for (int i = 0; i < changes; ++i) {
    shared.set_members(*rc::gen::inRange<std::size_t>(0, shared.size()), *rc::gen::inRange(0U, 4U));
    const auto rates = shared.rates();
    const auto reference = shared.reference_rates();
    std::vector<std::uint32_t> members;
    for (std::size_t d = 0; d < rates.size(); ++d) {
      RC_ASSERT(std::abs(rates[d] - reference[d]) <= 1e-9 * reference[d]);
      members.push_back(shared.members(d));
    }
    RC_ASSERT(rates == rates_of(plan, members));  // to the bit: what came before leaves no trace
  }
}

// The definition itself: within capacities and limits, and everybody is at its limit or on a full
// resource where nobody that uses it has a higher rate for its weight.
RC_GTEST_PROP(SharingProperty, IsFeasibleAndNobodyCanGetMore, ()) {
  Shared shared(random_sharing());
  for (std::size_t d = 0; d < shared.size(); ++d) {
    shared.set_members(d, *rc::gen::inRange(0U, 4U));
  }
  const auto rates = shared.rates();
  const auto used = shared.used(rates);
  const auto& graph = shared.graph();
  const auto normalized = [&](std::size_t d) { return rates[d] / graph.demand_list()[d].weight; };
  for (std::size_t r = 0; r < used.size(); ++r) {
    RC_ASSERT(used[r] <= graph.resources()[r].capacity * (1 + 1e-12));
  }
  for (std::size_t d = 0; d < rates.size(); ++d) {
    if (shared.members(d) == 0) {
      continue;
    }
    RC_ASSERT(rates[d] > 0);
    RC_ASSERT(rates[d] <= graph.demand_list()[d].rate_limit);
    bool stopped = rates[d] == graph.demand_list()[d].rate_limit;
    for (const Use& use : graph.uses(DemandId(d))) {
      bool largest =
          used[index(use.resource)] >= graph.resources()[index(use.resource)].capacity * (1 - 1e-9);
      for (std::size_t other = 0; other < rates.size(); ++other) {
        for (const Use& theirs : graph.uses(DemandId(other))) {
          largest = largest && (theirs.resource != use.resource ||
                                normalized(other) <= normalized(d) * (1 + 1e-9));
        }
      }
      stopped = stopped || largest;
    }
    RC_ASSERT(stopped);
  }
}

}  // namespace
}  // namespace offsim::engine::sharing_test
