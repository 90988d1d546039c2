// offsim run: every case of scenario files, a table a file.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "sim/cli/output.h"

namespace offsim::cli {

struct RunOptions {
  std::vector<std::string> scenarios;  // names of the catalog or paths
  std::optional<std::string> price, catalog;
  std::string json;  // a path, "-" for stdout, or empty: all files in one
  Terminal terminal;
};

int run_scenarios(const RunOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
