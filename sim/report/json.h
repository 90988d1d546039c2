// What a script reads: a prediction in the schema offsim.prediction/1.
//
// The keys of the schema; keys may be added, never renamed. Units are in the names, shares
// and fractions are of 1, `cost` is null without a price and a capacity is null where there is no
// limit; every number is finite. The times of a prediction that does not fit are those of a machine
// with enough memory: look at `feasible` first. `reserved_bytes` is the peak again: allocations are
// counted as the allocator rounds them, and what it holds beyond that, its fragmentation, is not
// modelled. Indented by two spaces, a newline at the end.
#pragma once

#include <string>
#include <vector>

#include "sim/plans/job.h"
#include "sim/report/text.h"
#include "sim/study/memory_ledger.h"
#include "sim/study/predict.h"

namespace offsim::report {

// With a ledger also "memory_phases": {pool: [{phase, peak_bytes, by_tag}]}, "load_bytes" and
// "save_bytes" on the host, and "deepspeed_estimate_bytes" for its plans.
std::string prediction_json(const plans::Job& job, const study::Prediction& prediction,
                            const study::MemoryLedger* ledger = nullptr);

// {"schema": "offsim.comparison/1", "predictions": [...]} with a prediction for each row. A row
// that the plan refuses has only schema, scenario, feasible: false and refused.
// Requires: every row has its job.
std::string comparison_json(const std::vector<ComparisonRow>& rows);

}  // namespace offsim::report
