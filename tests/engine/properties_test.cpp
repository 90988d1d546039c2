// Does every run keep the rules, whatever the graph?
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/engine/graph_tools.h"
#include "sim/engine/simulate.h"
#include "tests/engine/random_graph.h"
#include "tests/engine/reference.h"

namespace offsim::engine::properties_test {
namespace {

// Every activity's end is rounded by half a picosecond, and what that shifts is shifted again by
// those that follow.
double slack_s(const ActivityGraph& graph) {
  return 1e-11 * (1.0 + static_cast<double>(graph.size()));
}

RC_GTEST_PROP(SimulateProperty, AgreesWithThePlainSimulation, ()) {
  const ActivityGraph graph = random_plan().build();
  const Timeline timeline = simulate(graph);
  const auto reference = reference::finish_times(graph);
  for (std::size_t i = 0; i < graph.size(); ++i) {
    RC_ASSERT(std::abs(to_seconds(timeline.finish[i]).value - reference[i]) <=
              1e-9 * reference[i] + slack_s(graph));
  }
}

RC_GTEST_PROP(SimulateProperty, EverythingStartsWhenItsLastPredecessorFinishes, ()) {
  const ActivityGraph graph = random_plan().build();
  const Timeline timeline = simulate(graph);
  std::vector<Picoseconds> ready(graph.size());
  for (std::size_t i = 0; i < graph.size(); ++i) {
    for (const ActivityId after : graph.successors(ActivityId(i))) {
      ready[index(after)] = std::max(ready[index(after)], timeline.finish[i]);
    }
    RC_ASSERT(timeline.finish[i] >= timeline.start[i] + graph.latencies()[i]);
  }
  RC_ASSERT(timeline.start == ready);
  RC_ASSERT(timeline.makespan ==
            std::accumulate(timeline.finish.begin(), timeline.finish.end(), Picoseconds{0},
                            [](Picoseconds a, Picoseconds b) { return std::max(a, b); }));
}

// Work is conserved: a resource that is the only thing in anybody's way runs at exactly its
// capacity while it is busy.
RC_GTEST_PROP(SimulateProperty, ASaturatedResourceWorksAtExactlyItsCapacity, ()) {
  Plan plan = random_plan();
  plan.needs.assign(1, {kUnlimitedRate, 1, {{ResourceId{0}, 2.0}}});
  for (Plan::Step& step : plan.steps) {
    step.need = 0;
  }
  const ActivityGraph graph = plan.build();
  const Timeline timeline = simulate(graph);
  const double used = resource_use(graph, timeline)[0];
  const double could = plan.capacities[0] * to_seconds(timeline.busy[0]).value;
  RC_ASSERT(std::abs(used - could) <= plan.capacities[0] * slack_s(graph));
}

RC_GTEST_PROP(SimulateProperty, NoResourceDoesMoreThanItsCapacity, ()) {
  const Plan plan = random_plan();
  const ActivityGraph graph = plan.build();
  const Timeline timeline = simulate(graph);
  const auto used = resource_use(graph, timeline);
  for (std::size_t r = 0; r < used.size(); ++r) {
    const double capacity = plan.capacities[r];
    RC_ASSERT(used[r] <=
              capacity * (to_seconds(timeline.busy[r]).value * (1 + 1e-12) + slack_s(graph)));
    RC_ASSERT(timeline.busy[r] <= timeline.makespan);
  }
}

RC_GTEST_PROP(SimulateProperty, NothingIsFasterThanItWouldBeAlone, ()) {
  const ActivityGraph graph = random_plan().build();
  const Timeline timeline = simulate(graph);
  for (std::size_t i = 0; i < graph.size(); ++i) {
    double alone = 0;
    if (graph.amounts()[i] > 0) {
      double rate = graph.demand_list()[index(graph.demands()[i])].rate_limit;
      for (const Use& use : graph.uses(graph.demands()[i])) {
        rate = std::min(rate, graph.resources()[index(use.resource)].capacity / use.per_unit);
      }
      alone = graph.amounts()[i] / rate;
    }
    const double took =
        to_seconds(timeline.finish[i] - timeline.start[i] - graph.latencies()[i]).value;
    RC_ASSERT(took >= alone * (1 - 1e-12) - slack_s(graph));
  }
}

RC_GTEST_PROP(SimulateProperty, MoreWorkAtAsMuchMoreSpeedTakesAsLong, ()) {
  const Plan plan = random_plan();
  const Timeline once = simulate(plan.build());
  // Powers of two only move the exponent: the times are equal to the bit.
  RC_ASSERT(simulate(plan.build({}, 1024, 1024)).finish == once.finish);
  const Timeline thrice = simulate(plan.build({}, 3, 3));
  for (std::size_t i = 0; i < once.finish.size(); ++i) {
    const double difference = static_cast<double>(thrice.finish[i] - once.finish[i]);
    RC_ASSERT(std::abs(difference) <= 100 + 1e-9 * static_cast<double>(once.finish[i]));
  }
}

RC_GTEST_PROP(SimulateProperty, TwoRunsAreTheSame, ()) {
  const Plan plan = random_plan();
  const Timeline first = simulate(plan.build());
  const Timeline second = simulate(plan.build());
  RC_ASSERT(first.start == second.start);
  RC_ASSERT(first.finish == second.finish);
  RC_ASSERT(first.busy == second.busy);
}

// A graph from a generator of our own, much contention and all features; its times, as one number.
TEST(Determinism, EveryCompilerAndBuildGivesTheSameBytes) {
  std::uint64_t state = 1;
  const auto draw = [&](std::uint64_t below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33) % below;
  };
  Plan plan{{0.7, 50, 1000.1}, {}, {}};
  for (std::uint32_t need = 0; need < 20; ++need) {
    const double limit = need % 3 == 0 ? kUnlimitedRate : 0.1 * static_cast<double>(1 + draw(100));
    plan.needs.push_back({limit, 0.1 * static_cast<double>(1 + draw(9)), {}});
    for (std::uint32_t r = need % 2; r < 3; ++r) {
      plan.needs.back().uses.push_back({ResourceId{r}, 0.1 * static_cast<double>(1 + draw(50))});
    }
  }
  for (std::size_t i = 0; i < 5000; ++i) {
    plan.steps.push_back({0.1 * static_cast<double>(draw(1000)),
                          draw(20),
                          static_cast<Picoseconds>(draw(1'000'000)),
                          {}});
    if (i > 0) {
      plan.steps.back().after.push_back(i - 1 - draw(std::min<std::size_t>(i, 64)));
    }
  }
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Picoseconds time : simulate(plan.build()).finish) {
    hash = (hash ^ static_cast<std::uint64_t>(time)) * 0x100000001b3;
  }
  EXPECT_EQ(hash, 12598551294233733601U);
}

// The order of ids decides nothing but who is taken first at an instant, and that changes no time.
RC_GTEST_PROP(SimulateProperty, NumbersOfActivitiesDoNotMatter, ()) {
  const Plan plan = random_plan();
  std::vector<std::size_t> order(plan.steps.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[*rc::gen::inRange<std::size_t>(0, i)]);
  }
  const Timeline plain = simulate(plan.build());
  const ActivityGraph renumbered = plan.build(order);
  const Timeline other = simulate(renumbered);
  for (std::size_t i = 0; i < order.size(); ++i) {
    RC_ASSERT(other.finish[i] == plain.finish[order[i]]);
  }
  std::vector<std::size_t> place(order.size());
  const auto topological = topological_order(renumbered);
  for (std::size_t i = 0; i < topological.size(); ++i) {
    place[index(topological[i])] = i;
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const ActivityId after : renumbered.successors(ActivityId(i))) {
      RC_ASSERT(place[i] < place[index(after)]);
    }
  }
}

}  // namespace
}  // namespace offsim::engine::properties_test
