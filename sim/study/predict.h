// A job's prediction: record its steps, lower, simulate, and read off a steady one: the last. Where
// the next begins before it ends (Plan::meets_next), steps may take turns, a long one and a short
// one: then the mean of the two before the last is reported, with the last behind them.
//
//   step_s           from the end of the step before to its end
//   phases, causes   the critical path of that step, which adds up to it exactly
//                    (engine/critical_path.h)
//   memory           peaks over everything recorded, plus what is fixed (GPU context, process);
//                    feasible when they fit; a warning where the machine may swap (PoolReport)
//   range            first order: each figure's share of the critical path times its spread, in
//                    quadrature
//   several GPUs     ranks are alike: one is simulated with its share of the host; bytes and
//                    utilization are one rank's, host memory, drives, tokens and cost all ranks'
//   tflops           model: 3 x forward, causal attention halved; hardware: as executed;
//                    six_nd: 6 N tokens; per GPU
// A share of a resource's time may pass 1 where steps meet: what crosses the step's ends counts
// evenly over its time.
// Left out: steps that repeat every third time or later (not seen in 100,000 random predictions).
// Units in names; times in seconds. Throws InputError for what the plan refuses.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/memory.h"
#include "sim/engine/simulate.h"
#include "sim/plans/job.h"
#include "sim/plans/plan.h"
#include "sim/runtime/lower.h"

namespace offsim::study {

struct Tagged {
  std::string tag;
  Bytes bytes;
};

// Host memory this full may make the machine swap: the last twentieth is what other processes,
// the page cache and the kernel's reserves live in (assumed). Of a unified machine's memory also
// what lies beyond the working set that its driver recommends (accelerator.memory; on macOS the
// wired limit), which may be compressed or swapped. It fits still, but a step that swaps is
// slower than predicted.
inline constexpr double kSwapsFrom = 0.95;

struct PoolReport {
  std::string name;  // gpu, host, host_pinned, nvme, unified
  Bytes peak;        // allocated, as the framework counts it
  Bytes resident;    // held when the last step ends
  Bytes fixed;       // context or process, beside the peak
  std::optional<Bytes> capacity;
  std::string phase;                     // in which the peak is reached
  std::vector<Tagged> by_tag;            // at the peak, largest first
  std::optional<Bytes> swaps_from = {};  // of what is needed; host and unified memory
  Bytes needed() const { return peak + fixed; }
  bool fits() const { return !capacity || needed() <= *capacity; }
  bool may_swap() const { return fits() && swaps_from && needed() > *swaps_from; }
};

struct Cost {
  UsdPerHour usd_per_hour;
  Usd usd_per_step;
  Usd usd_per_million_tokens;
};

// What a cause's share of the critical path was spent on: the labels of its activities.
struct Spent {
  runtime::Cause cause;
  std::string label;
  Seconds time;
};

// How much of the step's critical path rests on a figure.
struct Support {
  machine::FigureId figure;
  double share = 0;
};

struct Prediction {
  Seconds step, step_low, step_high;
  double tokens_per_s = 0;
  double tflops_model = 0, tflops_hardware = 0, tflops_six_nd = 0;
  std::map<std::string, Seconds> phases;                  // forward, backward, optimizer
  std::array<Seconds, runtime::kCauses> critical_path{};  // by Cause
  Seconds idle;
  std::vector<Spent> spent;                      // on the critical path, longest first
  std::array<Seconds, runtime::kCauses> busy{};  // by Cause: time with at least one such activity
  std::vector<std::pair<std::string, double>> utilization;  // by resource
  runtime::StepTotals totals;
  std::vector<PoolReport> pools;
  Bytes nvme_written_a_day;  // by all ranks, step after step
  std::optional<Cost> cost;
  std::array<double, 4> sources{};  // by machine::Source: share of the critical path
  std::vector<Support> supports;    // largest share first
  std::vector<std::string> warnings;
  std::size_t activities = 0;
  Seconds simulate;  // wall clock: recording, lowering, simulating and reading off

  bool feasible() const;
  bool may_swap() const;
  bool fits() const { return feasible() && !may_swap(); }
  const PoolReport* pool(std::string_view name) const;  // nullptr when the machine has none of it
};

// Everything a trace or a test may want beside the summary.
struct Run {
  runtime::Program program;
  runtime::Lowered lowered;
  engine::Timeline timeline;
  std::size_t reported = 0;  // which step
  std::size_t turns = 1;     // it and those before it whose mean is reported
  engine::Window step;       // of them
  engine::ActivityId end() const { return lowered.step_ends[reported]; }
};

// `steps` steps as the plan records them, or more, and where they meet two more: one to take turns
// with, and one that follows. One rank on its machine; ranks are alike. Requires: at least
// the plan's own number of steps.
Run simulate(const plans::Job& job, int steps);

// `price` overrides the machine's. `run`, when given, receives the parts.
Prediction predict(const plans::Job& job, std::optional<UsdPerHour> price = std::nullopt,
                   Run* run = nullptr);

// For programs that predict many steps, to be called once: what a prediction gives back, the next
// one takes. Left to itself the C library returns it to the kernel each time, which clears new
// pages for the next: 27 % of zero2-offload's time on Qwen2.5-72B, by perf.
void keep_freed_memory();

// The largest micro-batch up to `most` that fits the machine and does not swap, by bisection; 0
// when not even 1 does.
std::int64_t largest_micro_batch(plans::Job job, std::int64_t most);

}  // namespace offsim::study
