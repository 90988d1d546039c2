#include "sim/cli/asked.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "sim/plans/checks.h"
#include "sim/plans/plan.h"
#include "sim/report/layout.h"

namespace offsim::cli {

namespace {

// Empty without a configuration.
imports::Imported import_config(const StepQuestion& options, const study::Catalog& catalog,
                                std::ostream& err) {
  if (!options.ds_config && !options.trainer) {
    return {};
  }
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

// `plans` of the command line, of which the configuration's takes its options where --set does not,
// and the configuration's work.
study::Scenario question(const StepQuestion& options, const std::string& plans,
                         imports::Imported& imported) {
  study::Scenario scenario = scenario_of(options.model, options.hardware, plans, options.work);
  for (study::GivenPlan& plan : scenario.plans) {
    if (plan.name.text != imported.plan.name.text) {
      continue;
    }
    for (const auto& option : imported.plan.options) {
      const bool by_flag = std::ranges::any_of(
          plan.options, [&](const auto& given) { return given.first.text == option.first.text; });
      if (!by_flag) {
        plan.options.push_back(option);
      } else if (option.first.text != "deepspeed_version") {
        imported.warnings.push_back(
            fmt::format("{}: {} gives way to --set", option.first.place.text(), option.first.text));
      }
    }
  }
  if (options.ds_config || options.trainer) {
    scenario.workload = imported.workload;
  }
  return scenario;
}

// What one step is asked of, by the command line or by the configuration.
std::string only_plan(const StepQuestion& options, const imports::Imported& imported,
                      std::string_view command) {
  const std::string& named = imported.plan.name.text;
  if (!named.empty() && !options.plan.empty()) {
    throw InputError(kCommandLine, "--plan and the configuration both name a plan",
                     fmt::format("expected one of them: the configuration is {}", named));
  }
  if (named.empty() && options.plan.empty()) {
    throw InputError(
        kCommandLine, "--plan is missing",
        fmt::format("expected one, or --ds-config: offsim {} --help shows an example", command));
  }
  return named.empty() ? options.plan : named;
}

// A launcher's processes, of which one may be asked for; and what else the plan refuses.
void check(const study::Case& c, const imports::Imported& imported) {
  const plans::Job& job = c.job;
  const std::int64_t most = job.plan->several_gpus ? job.machine.gpus : 1;
  const auto& gpus = imported.workload.gpus;
  if (gpus && gpus->place != kCommandLine && job.workload.gpus > most) {
    throw InputError(gpus->place,
                     fmt::format("{} processes, and {}", job.workload.gpus,
                                 most == 1 && !job.plan->several_gpus
                                     ? fmt::format("{} is modelled on one GPU", job.plan->name)
                                     : fmt::format("{} has {}", job.machine.name, most)),
                     fmt::format("expected --gpus {}, which overrides it", most));
  }
  job.plan->check(job);
  plans::check_question(job);
}

}  // namespace

Asked ask_step(const StepQuestion& options, const study::Catalog& catalog, std::string_view command,
               std::ostream& err, const std::string& several) {
  imports::Imported imported = import_config(options, catalog, err);
  const study::Scenario scenario =
      question(options, only_plan(options, imported, command), imported);
  study::Case c = in_words_of(imported, [&] {
    study::Case only = only_case(catalog, scenario, command, several);
    if (!imported.plan.name.text.empty()) {
      check(only, imported);
    }
    return only;
  });
  return {std::move(c), std::move(imported)};
}

AskedPlans ask_plans(const StepQuestion& options, const study::Catalog& catalog,
                     std::ostream& err) {
  imports::Imported imported = import_config(options, catalog, err);
  const study::Given& named = imported.plan.name;
  if (named.text.empty()) {
    return {question(options, options.plan, imported), std::move(imported)};
  }
  const bool among =
      options.plan == "all" ||
      std::ranges::count(names_of("--plans", options.plan), named.text, &study::Given::text) > 0;
  study::Scenario scenario =
      question(options, among ? options.plan : named.text + "," + options.plan, imported);
  auto& plans = scenario.plans;
  const auto own = std::ranges::find(plans, named.text,
                                     [](const study::GivenPlan& plan) { return plan.name.text; });
  own->name = named;  // with its place
  std::rotate(plans.begin(), own, own + 1);
  return {std::move(scenario), std::move(imported)};
}

void warn_first(const imports::Imported& imported, study::Prediction& prediction) {
  prediction.warnings.insert(prediction.warnings.begin(), imported.warnings.begin(),
                             imported.warnings.end());
}

std::string settings_text(const imports::Imported& imported, const report::TextStyle& style) {
  if (imported.settings.empty()) {
    return "";
  }
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
  if (imported.settings.empty()) {
    return "";
  }
  const auto idle = std::ranges::count_if(
      imported.settings, [](const imports::Setting& s) { return !s.effect.empty(); });
  const auto in_force = static_cast<std::ptrdiff_t>(imported.settings.size()) - idle;
  return report::paragraph(
      "  config    ",
      fmt::format("{}: {} {} in force, {} without effect (offsim predict --explain lists them)",
                  imported.name.empty() ? "--trainer" : imported.name, in_force,
                  in_force == 1 ? "setting" : "settings", idle),
      style);
}

}  // namespace offsim::cli
