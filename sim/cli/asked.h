// A question about one step, from flags or from the files that people have (sim/import).
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "sim/cli/question.h"
#include "sim/import/import.h"
#include "sim/report/text.h"

namespace offsim::cli {

struct StepQuestion {
  std::string model, hardware, plan;
  WorkFlags work;
  std::optional<std::string> ds_config, trainer;  // a plan and its work from there
};

struct Asked {
  study::Case question;
  imports::Imported imported;  // empty without a file
};

// Mistakes of a file before the last one go to `err`. Throws InputError.
Asked ask_step(const StepQuestion& options, const study::Catalog& catalog, std::string_view command,
               std::ostream& err);

// What of the configuration is in force, and what is not; empty without one. And that in a line.
std::string settings_text(const imports::Imported& imported, const report::TextStyle& style);
std::string summary_text(const imports::Imported& imported, const report::TextStyle& style);

}  // namespace offsim::cli
