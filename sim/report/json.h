// What a script reads: a prediction in the schema offsim.prediction/1.
//
// Keys may be added, never renamed; units are in the names. Times and rates of a step that does not
// fit are null: such a step cannot run. Numbers are finite. Sorted keys, two spaces of indent, a
// newline at the end.
#pragma once

#include <string>
#include <vector>

#include "sim/plans/job.h"
#include "sim/report/text.h"
#include "sim/study/predict.h"

namespace offsim::report {

std::string prediction_json(const plans::Job& job, const study::Prediction& prediction);

// {"schema": "offsim.comparison/1", "predictions": [...]} with a prediction for each row. A row
// that the plan refuses has only schema, scenario, feasible: false and refused.
// Requires: every row has its job.
std::string comparison_json(const std::vector<ComparisonRow>& rows);

}  // namespace offsim::report
