// offsim fit: the largest micro-batch, sequence and model that fit, plan by plan.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "sim/cli/output.h"
#include "sim/cli/question.h"

namespace offsim::cli {

struct FitOptions {
  std::string model, hardware, plan = "all";
  WorkFlags work;
  std::optional<std::string> catalog;
  std::string json;
  Terminal terminal;
};

int run_fit(const FitOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
