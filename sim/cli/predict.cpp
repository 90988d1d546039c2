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

std::optional<double> tokens_of(const PredictOptions& options) {
  if (!options.tokens) {
    return std::nullopt;
  }
  const Place place{"command line: --tokens", 0, 0};
  const double tokens = parse_count(*options.tokens, place);
  if (tokens < 1) {
    throw InputError(place, fmt::format("'{}' is no budget", *options.tokens),
                     "expected at least 1, such as 10M");
  }
  return tokens;
}

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

imports::Imported import_config(const PredictOptions& options, const study::Catalog& catalog,
                                std::ostream& err) {
  WorkFlags flags = options.work;
  flags.set.clear();  // they are of a plan that is not known yet
  imports::Ask ask{options.ds_config, options.trainer,
                   scenario_of(options.model, options.hardware, "native", flags).workload,
                   std::nullopt, nullptr};
  constexpr std::string_view kVersion = ".deepspeed_version=";
  for (const std::string& set : options.work.set) {
    if (const std::size_t at = set.find(kVersion); at != std::string::npos) {
      ask.deepspeed_version = set.substr(at + kVersion.size());
    }
  }
  const model::Shape shape = catalog.model(options.model, kCommandLine);
  ask.shape = &shape;
  try {
    return import_question(ask);
  } catch (const imports::Refused& refused) {
    for (const std::string& line : refused.before()) {
      err << line << "\n";
    }
    throw;
  }
}

study::Scenario question(const PredictOptions& options, imports::Imported& imported) {
  const bool named = !imported.plan.name.text.empty();
  if (named && !options.plan.empty()) {
    throw InputError(
        kCommandLine, "--plan and the configuration both name a plan",
        fmt::format("expected one of them: the configuration is {}", imported.plan.name.text));
  }
  if (!named && options.plan.empty()) {
    throw InputError(kCommandLine, "--plan is missing",
                     "expected one, or --ds-config: offsim predict --help shows an example");
  }
  study::Scenario scenario =
      scenario_of(options.model, options.hardware, named ? imported.plan.name.text : options.plan,
                  options.work);
  auto& set = scenario.plans.front().options;
  for (const auto& option : imported.plan.options) {
    const bool by_flag = std::ranges::any_of(
        set, [&](const auto& given) { return given.first.text == option.first.text; });
    if (!by_flag) {
      set.push_back(option);
    } else if (option.first.text != "deepspeed_version") {
      imported.warnings.push_back(
          fmt::format("{}: {} gives way to --set", option.first.place.text(), option.first.text));
    }
  }
  if (options.ds_config || options.trainer) {
    scenario.workload = imported.workload;
  }
  return scenario;
}

// What of the configuration is in force, and what is not.
std::string settings_text(const imports::Imported& imported, const report::TextStyle& style) {
  std::string out = fmt::format("\n  {} and what comes of it\n",
                                imported.name.empty() ? "--trainer" : imported.name);
  for (const imports::Setting& s : imported.settings) {
    out +=
        report::paragraph("    ",
                          fmt::format("{} {}{} ({})", s.key, s.value,
                                      s.effect.empty() ? "" : ", no effect: " + s.effect, s.origin),
                          style);
  }
  return out;
}

std::string summary_text(const imports::Imported& imported, const report::TextStyle& style) {
  const auto idle = std::ranges::count_if(
      imported.settings, [](const imports::Setting& s) { return !s.effect.empty(); });
  return report::paragraph(
      "  config    ",
      fmt::format("{}: {} settings in force, {} without effect (--explain lists them)",
                  imported.name.empty() ? "--trainer" : imported.name,
                  static_cast<std::ptrdiff_t>(imported.settings.size()) - idle, idle),
      style);
}

}  // namespace

int run_predict(const PredictOptions& options, std::ostream& out, std::ostream& err) {
  refuse_text_beside_data(options);
  const std::optional<UsdPerHour> price = price_of(options.price);
  const std::optional<double> tokens = tokens_of(options);
  const study::Catalog catalog = open_catalog(options.catalog);
  const bool from_file = options.ds_config || options.trainer;
  imports::Imported imported =
      from_file ? import_config(options, catalog, err) : imports::Imported{};
  const study::Scenario scenario = question(options, imported);
  if (scenario.plans.size() != 1 || scenario.machines.size() != 1) {
    throw InputError({"command line", 0, 0}, "predict takes one plan and one machine",
                     "expected offsim compare for several");
  }
  study::Case c = std::move(study::cases(catalog, scenario).front());
  if (options.price) {
    c.origins.push_back({"price", *options.price, {"command line", 0, 0}});
  }

  study::Run run;
  study::Prediction prediction = study::predict(c.job, price, &run);
  prediction.warnings.insert(prediction.warnings.begin(), imported.warnings.begin(),
                             imported.warnings.end());
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
  if (from_file) {
    out << summary_text(imported, style);
  }
  if (tokens) {
    out << report::budget_text(c.job, prediction, *tokens, style);
  }
  if (ledger) {
    out << report::ledger_text(c.job, prediction, *ledger, style);
  }
  if (options.explain) {
    out << (from_file ? settings_text(imported, style) : "") << "\n"
        << explain_text(catalog, c, style);
  }
  out << report::next_text(next_command(options, c.job, prediction.feasible()), style);
  return 0;
}

}  // namespace offsim::cli
