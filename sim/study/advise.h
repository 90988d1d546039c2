// What to change about a job: every edit of study/edits.h simulated, and ranked by what it gains.
//
// gain     tokens a second over those of the job as it is, fit or not: a larger micro-batch is a
//          longer step; nothing where the edited job does not fit, since nobody could measure it
// fits     in every pool, without swapping
// effect   an edit that the plan says has none is not simulated
// pairs    two edits at once. Of a job that fits, the best edits of settings, two by two. Of one
//          that no setting makes fit, those settings that bring it nearest, and every other plan on
//          every other machine
// bounds   what each resource alone needs for the step (its utilization times the step), and the
//          longest of these: no overlap makes the step shorter than it
// Every row is a prediction; nothing is interpolated. There is a bound on what is simulated in all
// (kMostWork): what is left untried then is counted. Left out: three edits at once.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/study/edits.h"
#include "sim/study/predict.h"

namespace offsim::study {

struct Tried {
  Edit edit;                // with the micro-batch found, where it was searched
  plans::Job job;           // with the edit
  std::string refused;      // why the plan does not run so; the rest is empty then
  bool idle = false;        // the plan says that it has no effect; the rest is empty then
  Prediction prediction{};  // of job
  double gain = 0;          // 0.12: 12 % more tokens a second; 0 where it does not fit
  bool fits() const { return refused.empty() && !idle && prediction.fits(); }
};

inline constexpr double kWorthIt = 0.02;  // smaller gains are within what a prediction can say
// In steps of the largest size (limits.h), in all: ten seconds.
inline constexpr double kMostWork = 6;

struct Advice {
  Prediction now;
  std::vector<Tried> tried;  // those that fit by gain, then smallest edit; then those that do not,
                             // nearest first; then those refused or without effect
  std::vector<Tried> pairs;  // that fit, by gain; better than either edit alone
  std::size_t untried = 0;   // edits and pairs, for want of time
  std::vector<std::pair<std::string, Seconds>> bounds;  // longest first
  // The single edit with the largest gain worth it, or that makes the job fit: one thing at a time.
  // Where none does, the first pair; else nullptr.
  const Tried* best() const;
};

using AdviceProgress = std::function<void(std::size_t done, std::size_t all)>;

// `machines`: what else to try it on. Throws InputError when the plan refuses the job as it is.
Advice advise(const plans::Job& job, const std::vector<machine::Machine>& machines,
              const AdviceProgress& progress = {});

}  // namespace offsim::study
