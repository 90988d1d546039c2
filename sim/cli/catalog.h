// offsim catalog: what can be named: hardware, models, plans and their options, scenarios.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "sim/cli/output.h"

namespace offsim::cli {

struct CatalogOptions {
  std::string what;                 // hardware, models, plans, options, scenarios
  std::optional<std::string> name;  // one machine with its figures; the options of one plan
  std::optional<std::string> catalog;
  Terminal terminal;
};

int run_catalog(const CatalogOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
