// Random resources, demands and graphs for property tests; RapidCheck shrinks them.
#pragma once

#include <rapidcheck.h>

#include <vector>

#include "sim/engine/graph.h"

namespace offsim::engine {

// Everything a GraphBuilder is told, so that a test can build the graph, and build it again with
// something changed.
struct Plan {
  struct Need {
    double rate_limit = kUnlimitedRate;
    double weight = 1;
    std::vector<Use> uses;
  };
  struct Step {
    double amount = 0;
    std::size_t need = 0;
    Picoseconds latency = 0;
    std::vector<std::size_t> after;  // earlier steps
  };
  std::vector<double> capacities;
  std::vector<Need> needs;
  std::vector<Step> steps;

  // Step order[i] becomes activity i; by default in order. Amounts, capacities, rate limits are
  // multiplied.
  ActivityGraph build(std::vector<std::size_t> order = {}, double amounts = 1,
                      double rates = 1) const {
    GraphBuilder builder;
    for (const double capacity : capacities) {
      builder.add_resource("r", capacity * rates);
    }
    std::vector<DemandId> demands;
    for (const Need& need : needs) {
      demands.push_back(builder.demand(need.rate_limit * rates, need.weight, need.uses));
    }
    std::vector<ActivityId> id_of(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::size_t s = order.empty() ? i : order[i];
      id_of[s] = builder.add({steps[s].amount * amounts, demands[steps[s].need], steps[s].latency});
    }
    for (std::size_t s = 0; s < steps.size(); ++s) {
      for (const std::size_t before : steps[s].after) {
        builder.edge(id_of[before], id_of[s]);
      }
    }
    return std::move(builder).build();
  }
};

inline Plan random_sharing() {
  Plan plan;
  plan.capacities = *rc::gen::resize(8, rc::gen::nonEmpty(rc::gen::container<std::vector<double>>(
                                            rc::gen::element(1.0, 0.7, 50.0, 1000.1, 3e9))));
  const auto count = *rc::gen::inRange(1, 9);
  for (int d = 0; d < count; ++d) {
    Plan::Need need;
    need.weight = *rc::gen::element(1.0, 1.0, 0.3, 3.0);
    for (std::uint32_t r = 0; r < plan.capacities.size(); ++r) {
      if (*rc::gen::inRange(0, 3) == 0) {
        need.uses.push_back({ResourceId(r), *rc::gen::element(1.0, 0.1, 1.0 / 3, 28.0)});
      }
    }
    const double limit = *rc::gen::element(kUnlimitedRate, 0.3, 2.0, 10.0, 1e9);
    need.rate_limit = need.uses.empty() ? 5.0 : limit;
    plan.needs.push_back(need);
  }
  return plan;
}

inline Plan random_plan() {
  Plan plan = random_sharing();
  const auto count = *rc::gen::inRange<std::size_t>(0, 40);
  for (std::size_t i = 0; i < count; ++i) {
    Plan::Step step;
    step.amount = *rc::gen::element(0.0, 1.0, 1.0, 5.1, 123.4, 4567.8);
    step.need = *rc::gen::inRange<std::size_t>(0, plan.needs.size());
    step.latency = *rc::gen::element<Picoseconds>(0, 0, 1, 9'000'000, 1'000'000'000'000);
    const auto edges = i == 0 ? 0 : *rc::gen::inRange(0, 3);
    for (int e = 0; e < edges; ++e) {
      step.after.push_back(*rc::gen::inRange<std::size_t>(i > 8 ? i - 8 : 0, i));
    }
    plan.steps.push_back(step);
  }
  return plan;
}

}  // namespace offsim::engine
