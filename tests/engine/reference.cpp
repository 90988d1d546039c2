#include "tests/engine/reference.h"

#include <algorithm>
#include <optional>

namespace offsim::engine::reference {

std::vector<double> rates(std::span<const Resource> resources, std::span<const Demand> demands,
                          std::span<const Use> uses, std::span<const std::uint32_t> members) {
  std::vector<std::optional<double>> rate(demands.size());
  const auto uses_of = [&](std::size_t d) {
    return uses.subspan(demands[d].first_use, demands[d].use_count);
  };

  // The level at which demand d is stopped if every demand without a rate rises with it.
  const auto bound = [&](std::size_t d) {
    double level = demands[d].rate_limit / demands[d].weight;
    for (const Use& use : uses_of(d)) {
      double left = resources[index(use.resource)].capacity;
      double rising = 0;
      for (std::size_t other = 0; other < demands.size(); ++other) {
        for (const Use& theirs : uses_of(other)) {
          if (members[other] > 0 && theirs.resource == use.resource) {
            const double taken = members[other] * theirs.per_unit;
            left -= rate[other] ? taken * *rate[other] : 0;
            rising += rate[other] ? 0 : taken * demands[other].weight;
          }
        }
      }
      level = std::min(level, left / rising);
    }
    return level;
  };

  while (true) {
    std::optional<std::size_t> first;
    for (std::size_t d = 0; d < demands.size(); ++d) {
      if (members[d] > 0 && !rate[d] && (!first || bound(d) < bound(*first))) {
        first = d;
      }
    }
    if (!first) {
      break;
    }
    rate[*first] = bound(*first) * demands[*first].weight;
  }
  std::vector<double> result;
  for (const auto& r : rate) {
    result.push_back(r.value_or(0));
  }
  return result;
}

std::vector<double> finish_times(const ActivityGraph& graph) {
  enum class State { kBlocked, kWaiting, kWorking, kDone };
  const std::size_t count = graph.size();
  std::vector<State> state(count, State::kBlocked);
  std::vector<double> left(graph.amounts().begin(), graph.amounts().end());
  std::vector<double> latency_left(count);
  std::vector<double> finish(count);
  std::vector<int> blockers(count);
  for (std::size_t i = 0; i < count; ++i) {
    latency_left[i] = to_seconds(graph.latencies()[i]).value;
    for (const ActivityId after : graph.successors(ActivityId(i))) {
      ++blockers[index(after)];
    }
  }
  double now = 0;
  while (true) {
    // Everything that can change state without time passing does.
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < count; ++i) {
        const State before = state[i];
        if (state[i] == State::kBlocked && blockers[i] == 0) {
          state[i] = State::kWaiting;
        }
        if (state[i] == State::kWaiting && latency_left[i] <= 0) {
          state[i] = State::kWorking;
        }
        if (state[i] == State::kWorking && left[i] <= 0) {
          state[i] = State::kDone;
          finish[i] = now;
          for (const ActivityId after : graph.successors(ActivityId(i))) {
            --blockers[index(after)];
          }
        }
        changed = changed || state[i] != before;
      }
    }
    std::vector<std::uint32_t> members(graph.demand_list().size());
    for (std::size_t i = 0; i < count; ++i) {
      if (state[i] == State::kWorking) {
        ++members[index(graph.demands()[i])];
      }
    }
    const auto rate = rates(graph.resources(), graph.demand_list(), graph.use_list(), members);
    const auto time_left = [&](std::size_t i) {
      return state[i] == State::kWaiting ? latency_left[i]
                                         : left[i] / rate[index(graph.demands()[i])];
    };
    std::optional<double> step;
    for (std::size_t i = 0; i < count; ++i) {
      if (state[i] == State::kWaiting || state[i] == State::kWorking) {
        step = std::min(step.value_or(time_left(i)), time_left(i));
      }
    }
    if (!step) {
      return finish;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const bool ends =
          (state[i] == State::kWaiting || state[i] == State::kWorking) && time_left(i) == *step;
      if (state[i] == State::kWaiting) {
        latency_left[i] = ends ? 0 : latency_left[i] - *step;
      } else if (state[i] == State::kWorking) {
        left[i] = ends ? 0 : left[i] - rate[index(graph.demands()[i])] * *step;
      }
    }
    now += *step;
  }
}

}  // namespace offsim::engine::reference
