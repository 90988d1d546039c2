// What holds of every prediction, whatever the model, the machine and the plan.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "sim/engine/critical_path.h"
#include "sim/engine/time.h"
#include "tests/plans/jobs.h"

namespace offsim::plans {

// A step ends as it would with another behind it: that is there, or would begin when all is done,
// as this one did.
inline bool ends_too_early(const study::Run& run) {
  const engine::ActivityGraph& graph = run.lowered.graph;
  bool begins_early = false;
  const std::size_t before = engine::index(run.lowered.step_ends[run.reported - run.turns]);
  for (std::size_t i = before + 1; i < graph.size(); ++i) {  // in issue order
    begins_early |= graph.amounts()[i] > 0 && run.timeline.start[i] < run.step.from;
  }
  return begins_early && run.reported + 1 == run.lowered.step_ends.size();
}

// Each belongs to one activity of the critical path: one follows the other without a gap.
inline bool every_picosecond_is_explained(const study::Run& run) {
  const auto path = engine::critical_path(run.lowered.graph, run.timeline, run.step, run.end());
  engine::Picoseconds reached = run.step.from;
  for (const engine::Segment& segment : path.segments) {
    if (segment.from != reached || segment.to <= segment.from) {
      return false;
    }
    reached = segment.to;
  }
  return reached == run.step.to && path.idle == 0;
}

// A resource that does more than it can: in the step; where steps meet, in the whole run, since an
// activity that crosses the ends of the step counts evenly over its time.
inline std::string overused(const Job& job, const study::Prediction& p, const study::Run& run) {
  if (!job.plan->meets_next(job)) {
    for (const auto& [name, share] : p.utilization) {
      if (share > 1 + 1e-6) {
        return name;
      }
    }
  }
  const auto used = engine::resource_use(run.lowered.graph, run.timeline, {});
  const double seconds = engine::to_seconds(run.timeline.makespan).value;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const engine::Resource& resource = run.lowered.graph.resources()[i];
    if (used[i] > resource.capacity * seconds * (1 + 1e-6)) {
      return resource.name;
    }
  }
  return "";
}

// The first rule that the prediction breaks, in words; empty when it keeps all.
inline std::string broken_rule(const Job& job, const Predicted& done) {
  const study::Prediction& p = done.prediction;
  const study::Run& run = done.run;
  const double step = p.step.value;
  for (const double value : {step, p.step_high.value, p.tokens_per_s, p.tflops_model,
                             p.tflops_hardware, p.tflops_six_nd}) {
    if (!std::isfinite(value) || value <= 0) {
      return "a number is not positive and finite";
    }
  }
  if (p.step_low > p.step || p.step > p.step_high) {
    return "the step is outside its range";
  }

  if (!every_picosecond_is_explained(run)) {
    return "the critical path has a gap, or does not reach the end of the step";
  }
  double phases = p.idle.value;
  for (const auto& [name, time] : p.phases) {
    phases += time.value;
  }
  if (std::abs(phases / step - 1) > 1e-9) {
    return "the phases do not add up to the step";
  }

  if (ends_too_early(run)) {
    return "the step meets the one before it, and none behind it";
  }

  if (const std::string name = overused(job, p, run); !name.empty()) {
    return name + " does more than its capacity";
  }
  if (job.machine.link) {
    const machine::Link& link = *job.machine.link;
    const double least = std::max(
        {p.totals.h2d_bytes / link.h2d.value.value, p.totals.d2h_bytes / link.d2h.value.value,
         (p.totals.h2d_bytes + p.totals.d2h_bytes) / link.total.value.value});
    if (step < least * (1 - 1e-9)) {
      return "the step is shorter than its copies on the link";
    }
  }
  if (step < p.totals.dram_bytes / job.machine.host.dram.value.value * (1 - 1e-9)) {
    return "the step is shorter than its bytes in DRAM";
  }

  for (const study::PoolReport& pool : p.pools) {
    const std::int64_t tags =
        std::accumulate(pool.by_tag.begin(), pool.by_tag.end(), std::int64_t{0},
                        [](std::int64_t s, const study::Tagged& t) { return s + t.bytes.value; });
    if (tags != pool.peak.value || pool.resident < Bytes(0) || pool.resident > pool.peak) {
      return pool.name + ": tags do not add up to the peak, or more is resident";
    }
  }
  const bool fits = std::ranges::all_of(p.pools, [](const study::PoolReport& pool) {
    return !pool.capacity || pool.peak + pool.fixed <= *pool.capacity;
  });
  if (p.feasible() != fits) {
    return "feasible is not that every pool holds its peak and what is fixed";
  }
  return "";
}

}  // namespace offsim::plans
