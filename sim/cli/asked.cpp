#include "sim/cli/asked.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

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
      imported.warnings.push_back(
          fmt::format("{}: {} gives way to --set", option.first.place.text(), option.first.text));
    }
  }
  if (options.ds_config || options.trainer) {
    scenario.workload = imported.workload;
  }
  return scenario;
}

}  // namespace

Asked ask_step(const StepQuestion& options, const study::Catalog& catalog, std::string_view command,
               std::ostream& err) {
  imports::Imported imported;
  if (options.ds_config || options.trainer) {
    imported = import_config(options, catalog, err);
  }
  const study::Scenario scenario = question(options, imported);
  if (scenario.plans.size() != 1 || scenario.machines.size() != 1) {
    throw InputError(kCommandLine, fmt::format("{} takes one plan and one machine", command),
                     "expected offsim compare for several");
  }
  return {std::move(study::cases(catalog, scenario).front()), std::move(imported)};
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
  return report::paragraph(
      "  config    ",
      fmt::format("{}: {} settings in force, {} without effect (--explain lists them)",
                  imported.name.empty() ? "--trainer" : imported.name,
                  static_cast<std::ptrdiff_t>(imported.settings.size()) - idle, idle),
      style);
}

}  // namespace offsim::cli
