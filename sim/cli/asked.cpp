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

imports::Imported import_config(const StepQuestion& options, const study::Catalog& catalog,
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

study::Scenario question(const StepQuestion& options, imports::Imported& imported) {
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
      imported.warnings.push_back(option.first.place.text() + ": " +
                                  fmt::format("{} gives way to --set", option.first.text));
    }
  }
  if (options.ds_config || options.trainer) {
    scenario.workload = imported.workload;
  }
  return scenario;
}

// A launcher's processes, of which one may be asked for; and what else the plan refuses, at the
// place where the configuration names it.
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
  try {
    job.plan->check(job);
    plans::check_question(job);
  } catch (const InputError& refusal) {
    throw refusal.at(imported.plan.name.place);
  }
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
               std::ostream& err) {
  imports::Imported imported;
  if (options.ds_config || options.trainer) {
    imported = import_config(options, catalog, err);
  }
  const study::Scenario scenario = question(options, imported);
  Asked asked{only_case(catalog, scenario, command, "expected offsim compare for several"),
              std::move(imported)};
  if (!asked.imported.plan.name.text.empty()) {
    check(asked.question, asked.imported);
  }
  return asked;
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
      tr_format("{}: {} settings in force, {} without effect (--explain lists them)",
                imported.name.empty() ? "--trainer" : imported.name,
                static_cast<std::ptrdiff_t>(imported.settings.size()) - idle, idle),
      style);
}

}  // namespace offsim::cli
