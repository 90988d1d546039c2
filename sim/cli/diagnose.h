// offsim diagnose: a run's log beside its prediction, and the first suspect.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "sim/cli/output.h"
#include "sim/cli/question.h"

namespace offsim::cli {

struct DiagnoseOptions {
  std::string log;  // a path, or "-" for stdin
  std::string model, hardware, plan;
  WorkFlags work;
  std::optional<std::string> catalog;
  std::string json;  // a path, "-" for stdout, or empty
  Terminal terminal;
};

// Throws InputError for a mistake in the question, and for a log in which nothing is known.
int run_diagnose(const DiagnoseOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
