// What a job costs beside its alternatives: a table by dollars, and where the balance tips.
//
// The table has what can be bought; below it stands what cannot, and why. JSON, schema
// "offsim.cost/1", keys may be added, never renamed:
//
//   schema, model, tokens, micro_batch, sequence, accumulation, precision
//   rows        in the order of the table, of each: way (asked, one_gpu, ideal), hardware, plan,
//               checkpointing, gpus, machines, possible, refused, step_s, tokens_per_step,
//               tokens_per_s, usd_per_gpu_hour, price_date, price_from, steps, hours, usd
//   asked       which row
//   break_even  against (which row), accumulation, tokens_per_step, most_accumulation,
//               unfit_at_most (asked, against), nearest_accumulation, dearer_at_nearest, refused,
//               usd_per_gpu_hour
//
// What a row or the balance does not have is null. `gpus` of an ideal row is the fewest that would
// do, also where one machine has not as many, and then the row is not possible.
#pragma once

#include <string>

#include "sim/report/text.h"
#include "sim/study/alternatives.h"

namespace offsim::report {

std::string cost_text(const study::CostStudy& study, const TextStyle& style = {});
std::string cost_json(const study::CostStudy& study);

}  // namespace offsim::report
