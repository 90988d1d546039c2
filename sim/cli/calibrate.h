// offsim calibrate: measures this machine and writes its file.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "sim/cli/output.h"

namespace offsim::cli {

struct CalibrateOptions {
  std::string out;                  // a machine file; its records go beside it, as .jsonl
  std::string check;                // a machine file: measure again and say what has drifted
  std::optional<std::string> only;  // groups or benches, separated by commas
  bool quick = false;
  std::optional<std::string> base;             // a system of the catalog for what is not measured
  std::optional<std::string> file, file_size;  // of the storage benches
  std::optional<std::string> kernels, records, catalog;
  Terminal terminal;
};

// Files are written when all is measured, together or not at all. Throws InputError for a mistake
// in the question, and for what offsim-kernels says when it fails.
int run_calibrate(const CalibrateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
