// What to change about a job: every edit of study/edits.h simulated, and ranked by what it gains.
//
// gain     tokens a second over those of the job as it is: a larger micro-batch is a longer step
// fits     in every pool, without swapping
// pairs    two edits at once: where no single setting makes the job fit, of those that bring it
//          nearest; else the best edits of settings, two by two
// bounds   what each resource alone needs for the step (its utilization times the step), and the
//          longest of these: no overlap makes the step shorter than it
// Every row is a prediction; nothing is interpolated. Left out: three edits at once.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/study/edits.h"
#include "sim/study/predict.h"

namespace offsim::study {

struct Tried {
  Edit edit;                // with the micro-batch found, where it was searched
  std::string refused;      // why the plan does not run so; the rest is empty then
  Prediction prediction{};  // of edit.job
  double gain = 0;          // 0.12: 12 % more tokens a second
  bool fits() const { return refused.empty() && prediction.feasible() && !prediction.may_swap(); }
};

inline constexpr double kWorthIt = 0.02;  // smaller gains are within what a prediction can say

struct Advice {
  Prediction now;
  std::vector<Tried> tried;  // those that fit by gain, then smallest edit; then those that do not
  std::vector<Tried> pairs;  // that fit, by gain; better than either edit alone
  std::vector<std::pair<std::string, Seconds>> bounds;  // longest first
  const Tried* best() const;  // with a gain worth it, or that makes the job fit; else nullptr
};

using AdviceProgress = std::function<void(std::size_t done, std::size_t all)>;

// `machines`: what else to try it on. Throws InputError when the plan refuses the job as it is.
Advice advise(const plans::Job& job, const std::vector<machine::Machine>& machines,
              const AdviceProgress& progress = {});

// The edit of both, where they change different settings of one plan and machine.
std::optional<Edit> together(const Edit& first, const Edit& second);

}  // namespace offsim::study
