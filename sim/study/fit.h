// What fits: the largest micro-batch, sequence and model of a plan on a machine, each with the rest
// of the job as it is. "Fits" is in every pool, without swapping.
//
// micro_batch   by doubling from 1, then bisection
// sequence      at the job's micro-batch, in steps of 1,024 tokens, likewise; up to what learned
//               positions allow (Shape::max_sequence), whatever the model was trained for
// model         the most parameters among the catalog's dense models, each tried from the largest
//               on: a plan may refuse one and take a larger one
// What stops the micro-batch is the pool that is too small at the next one, or a refusal of the
// plan. Adapters are the job's for every model. Left out: two at once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plans/job.h"

namespace offsim::study {

inline constexpr std::string_view kRefused = "refused";  // by the plan, or by limits.h
inline constexpr std::int64_t kSequenceStep = 1024;

struct Fit {
  std::string refused;           // why the plan does not run; the rest is empty then
  std::int64_t micro_batch = 0;  // 0: not even 1
  std::int64_t sequence = 0;     // 0: not even 1,024
  std::string model;             // empty: none of them
  std::string stops;             // of the micro-batch: "gpu", "host", or kRefused
};

// Models of one size order: smallest first. `tried` is told of each prediction.
Fit fit(const plans::Job& job, const std::vector<model::Shape>& models,
        const std::function<void()>& tried = {});

}  // namespace offsim::study
