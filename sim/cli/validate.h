// offsim validate: predicted against measured, row by row.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "sim/cli/output.h"

namespace offsim::cli {

struct ValidateOptions {
  std::string file;  // one file of validation/, or empty for all
  std::optional<std::string> catalog;
  std::string json;  // a path, "-" for stdout, or empty
  Terminal terminal;
};

int run_validate(const ValidateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
