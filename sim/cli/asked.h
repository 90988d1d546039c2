// A question from flags or from the files that people have (sim/import): about one step, or about
// several plans.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "sim/cli/question.h"
#include "sim/import/import.h"
#include "sim/report/text.h"
#include "sim/study/predict.h"

namespace offsim::cli {

struct StepQuestion {
  std::string model, hardware, plan;  // of compare: names separated by commas
  WorkFlags work;
  std::optional<std::string> ds_config, trainer;  // a plan and its work from there
};

struct Asked {
  study::Case question;
  imports::Imported imported;  // empty without a file
};

// Mistakes of a file before the last one go to `err`. Throws InputError, for several plans or
// machines with `several`: what else to do.
Asked ask_step(const StepQuestion& options, const study::Catalog& catalog, std::string_view command,
               std::ostream& err,
               const std::string& several = "expected offsim compare for several");

struct AskedPlans {
  study::Scenario scenario;
  imports::Imported imported;  // empty without a file
};

// The configuration's plan is the first, in place of the plan of its name, with its settings; all
// plans have the work that it gives.
AskedPlans ask_plans(const StepQuestion& options, const study::Catalog& catalog, std::ostream& err);

// What `ask` does; what a plan refuses there is said in the configuration's words, at its place.
template <class Ask>
auto in_words_of(const imports::Imported& imported, const Ask& ask) {
  try {
    return ask();
  } catch (const InputError& refusal) {
    throw imported.in_its_words(refusal);
  }
}

// What was warned of while the configuration was read stands before what a prediction warns of.
void warn_first(const imports::Imported& imported, study::Prediction& prediction);

// What of the configuration is in force, and what is not; empty without one. And that in a line.
std::string settings_text(const imports::Imported& imported, const report::TextStyle& style);
std::string summary_text(const imports::Imported& imported, const report::TextStyle& style);

}  // namespace offsim::cli
