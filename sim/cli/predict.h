// offsim predict: one step of one model on one machine under one plan.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "sim/cli/asked.h"
#include "sim/cli/output.h"

namespace offsim::cli {

struct PredictOptions : StepQuestion {
  std::optional<std::string> price, tokens, catalog;
  std::string json, trace, program;  // a path, "-" for stdout, or empty
  bool explain = false, memory = false;
  Terminal terminal;
};

// An infeasible plan is an answer: 0. Throws InputError for a mistake in the question and for what
// the plan refuses; nothing is written then.
int run_predict(const PredictOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
