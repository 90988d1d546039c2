// offsim compare: plans and machines beside each other for one model and one work.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "sim/cli/asked.h"
#include "sim/cli/output.h"

namespace offsim::cli {

struct CompareOptions : StepQuestion {
  CompareOptions() { plan = "all"; }
  std::optional<std::string> price, catalog;
  std::string json;  // a path, "-" for stdout, or empty
  Terminal terminal;
};

// Plans that do not fit, or refuse the work, stay in the table with the reason.
int run_compare(const CompareOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
