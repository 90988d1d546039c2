// Runs the benches that were asked for and that this machine can run, and writes their records.
#pragma once

#include <string>
#include <vector>

#include "kernels/bench.h"

namespace offsim::kernels {

struct MeasureOptions {
  Options bench;
  std::vector<std::string> only;  // groups or benches; empty: all
  bool list = false;
};

// Records go to standard output (see bench.h), progress to standard error: a line
// "progress DONE TOTAL NAME" before each bench. Throws UserError, before anything is measured, for
// a name that is none, and for a file that cannot be measured with.
void measure(const MeasureOptions& options);

}  // namespace offsim::kernels
