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

namespace offsim::engine {
namespace {

// Every activity's end is rounded by half a picosecond, and what that shifts is shifted again by those that follow.
double slack_s(const ActivityGraph& graph) { return 1e-11 * (1.0 + static_cast<double>(graph.size())); }

RC_GTEST_PROP(SimulateProperty, AgreesWithThePlainSimulation, ()) {
  const ActivityGraph graph = random_plan().build();
  const Timeline timeline = simulate(graph);
  const auto reference = reference::finish_times(graph);
  for (std::size_t i = 0; i < graph.size(); ++i) {
    RC_ASSERT(std::abs(to_seconds(timeline.finish[i]).value - reference[i]) <= 1e-9 * reference[i] + slack_s(graph));
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
  RC_ASSERT(timeline.makespan == std::accumulate(timeline.finish.begin(), timeline.finish.end(), Picoseconds{0},
                                                 [](Picoseconds a, Picoseconds b) { return std::max(a, b); }));
}

// Work is conserved: a resource that is the only thing in anybody's way runs at exactly its capacity while it is busy.
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
    RC_ASSERT(used[r] <= capacity * (to_seconds(timeline.busy[r]).value * (1 + 1e-12) + slack_s(graph)));
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
    const double took = to_seconds(timeline.finish[i] - timeline.start[i] - graph.latencies()[i]).value;
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
}  // namespace offsim::engine
