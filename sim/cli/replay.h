// offsim replay: a plan's step executed for real, beside its prediction.
//
// The program of the step is executed by offsim-kernels, which lies beside offsim; or written by
// --save, executed elsewhere, and compared by --measured.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "sim/cli/output.h"
#include "sim/cli/question.h"

namespace offsim::cli {

struct ReplayOptions {
  std::string model, hardware, plan;
  WorkFlags work;
  std::optional<std::string> layers, kernels, file, measured, catalog;
  std::string save, json, trace;  // a path, "-" for stdout, or empty
  Terminal terminal;
};

// Throws InputError for a mistake in the question, and with the words of offsim-kernels where the
// program could not be executed.
int run_replay(const ReplayOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
