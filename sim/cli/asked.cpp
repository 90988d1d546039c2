#include "sim/cli/asked.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "sim/base/language.h"
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
  const model::Shape shape = catalog.model(options.model, kCommandLine);
  ask.shape = &shape;
  try {
    // A version changes how a file is read, and the file says of which plan it is: one that is set
    // counts where reading by it leads to its plan.
    constexpr std::string_view kVersion = ".deepspeed_version=";
    for (const std::string& set : options.work.set) {
      if (const std::size_t at = set.find(kVersion); at != std::string::npos) {
        ask.deepspeed_version = set.substr(at + kVersion.size());
        imports::Imported read = import_question(ask);
        if (read.plan.name.text == set.substr(0, at)) {
          return read;
        }
      }
    }
    ask.deepspeed_version.reset();
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
        imported.warnings.push_back(option.first.place.text() + ": " +
                                    fmt::format("{} gives way to --set", option.first.text));
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

// "ds.json:3:12", "default of DeepSpeed 0.19.6", "ds.json:3:12, auto: the Trainer's".
std::string setting_origin(const std::string& origin) {
  const std::size_t at = origin.find(", auto: ");
  return at == std::string::npos
             ? report::placed_text(origin)
             : report::listed({origin.substr(0, at), tr_sentence(origin.substr(at + 2))});
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
  std::string out =
      "\n  " +
      tr_format("{} and what comes of it", imported.name.empty() ? "--trainer" : imported.name) +
      "\n";
  for (const imports::Setting& s : imported.settings) {
    out += report::paragraph(
        "    ",
        tr_format("{} {}{} ({})", s.key, tr_value(s.value),
                  s.effect.empty() ? "" : tr_format(", no effect: {}", tr_sentence(s.effect)),
                  setting_origin(s.origin)),
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
  return report::labelled(
      "config",
      tr_format("{}: settings in force {}, without effect {} (offsim predict --explain lists them)",
                imported.name.empty() ? "--trainer" : imported.name,
                static_cast<std::ptrdiff_t>(imported.settings.size()) - idle, idle),
      style);
}

}  // namespace offsim::cli
