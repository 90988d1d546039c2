// offsim cost: an offloaded job beside its alternatives, in dollars and hours for so many tokens.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "sim/cli/asked.h"
#include "sim/cli/output.h"

namespace offsim::cli {

struct CostOptions : StepQuestion {
  std::string tokens;
  std::optional<std::string> price;     // of a GPU of `hardware`
  std::optional<std::string> machines;  // names separated by commas; absent: all with a price
  std::optional<std::string> catalog;
  std::string json;  // a path, "-" for stdout, or empty
  Terminal terminal;
};

// What does not fit is an answer: 0. Throws InputError for a mistake in the question and for what
// the plan asked refuses.
int run_cost(const CostOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
