#include "sim/cli/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "sim/base/quantity.h"
#include "sim/cli/explain.h"
#include "sim/import/import.h"
#include "sim/report/json.h"
#include "sim/report/layout.h"
#include "sim/report/ledger.h"
#include "sim/report/trace.h"
#include "sim/study/predict.h"

namespace offsim::cli {

namespace {

// Text has no place beside a machine-readable answer on stdout.
void refuse_text_beside_data(const PredictOptions& options) {
  for (const std::string* path : {&options.json, &options.trace, &options.program}) {
    const bool memory = options.memory && path != &options.json;  // JSON has it, too
    if (*path == "-" && (options.explain || options.tokens || memory)) {
      throw InputError({"command line", 0, 0},
                       fmt::format("{} has no effect when '-' sends data to stdout",
                                   options.explain  ? "--explain"
                                   : options.tokens ? "--tokens"
                                                    : "--memory"),
                       "expected a file in place of '-'");
    }
  }
}

std::string next_command(const PredictOptions& options, const plans::Job& job, bool feasible) {
  const Named named{options.model, options.hardware, options.catalog};
  if (!feasible && job.workload.micro_batch > 1) {
    return with_largest(predict_command(named, job), job);
  }
  return compare_command(named, job);
}

}  // namespace

int run_predict(const PredictOptions& options, std::ostream& out, std::ostream& err) {
  refuse_text_beside_data(options);
  const std::optional<UsdPerHour> price = price_of(options.price);
  const std::optional<double> tokens = tokens_of(options.tokens);
  const study::Catalog catalog = open_catalog(options.catalog);
  Asked asked = ask_step(options, catalog, "predict", err);
  study::Case& c = asked.question;
  const imports::Imported& imported = asked.imported;
  if (options.price) {
    c.origins.push_back({"price", *options.price, {"command line", 0, 0}});
  }

  study::Run run;
  study::Prediction prediction =
      in_words_of(imported, [&] { return study::predict(c.job, price, &run); });
  warn_first(imported, prediction);
  std::optional<study::MemoryLedger> ledger;
  if (options.memory) {
    ledger = study::memory_ledger(c.job, run);
  }
  const bool data_on_out = write_all(
      {{"--json", options.json,
        [&](std::ostream& to) {
          to << report::prediction_json(c.job, prediction, ledger ? &*ledger : nullptr);
        }},
       {"--trace", options.trace, [&](std::ostream& to) { report::write_trace(to, run, c.job); }},
       {"--program", options.program,
        [&](std::ostream& to) { runtime::write_program(run.program, to); }}},
      out);
  if (data_on_out) {
    return 0;
  }
  const report::TextStyle& style = options.terminal.style;
  out << report::prediction_text(c.job, prediction, style);
  out << summary_text(imported, style);
  if (tokens) {
    out << report::budget_text(c.job, prediction, *tokens, style);
  }
  if (ledger) {
    out << report::ledger_text(c.job, prediction, *ledger, style);
  }
  if (options.explain) {
    out << settings_text(imported, style) << "\n" << explain_text(catalog, c, style);
  }
  out << report::next_text(next_command(options, c.job, prediction.feasible()), style);
  return 0;
}

}  // namespace offsim::cli
