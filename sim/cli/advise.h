// offsim advise: what is in force, what to change, and what that would gain.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "sim/cli/asked.h"
#include "sim/cli/output.h"

namespace offsim::cli {

struct AdviseOptions : StepQuestion {
  std::optional<std::string> catalog;
  std::string json;
  Terminal terminal;
};

int run_advise(const AdviseOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
