#include "sim/cli/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "sim/report/alternatives.h"
#include "sim/study/alternatives.h"

namespace offsim::cli {

namespace {

// Those asked for, or all of the catalog that have a price.
std::vector<study::MachineNamed> other_machines(const CostOptions& options,
                                                const study::Catalog& catalog) {
  std::vector<study::MachineNamed> others;
  if (!options.machines) {
    for (const std::string& name : catalog.machine_names()) {
      machine::Machine machine = catalog.machine(name, kCommandLine);
      if (name != options.hardware && machine.price) {
        others.push_back({name, std::move(machine)});
      }
    }
    return others;
  }
  for (const study::Given& given : names_of("--machines", *options.machines)) {
    if (given.text == options.hardware) {
      throw InputError(kCommandLine,
                       fmt::format("--machines names {} that --hardware names already", given.text),
                       "expected other machines");
    }
    others.push_back({given.text, catalog.machine(given.text, given.place)});
  }
  return others;
}

// To ask the cheapest that can be predicted by itself.
std::string next_command(const CostOptions& options, const study::CostStudy& study) {
  const auto best = std::ranges::find_if(study.rows, [](const study::Alternative& row) {
    return row.possible() && row.way != study::Way::kIdeal;
  });
  const study::Alternative& row = best == study.rows.end() ? study.rows[study.asked] : *best;
  return predict_command({options.model, row.hardware, options.catalog}, row.job);
}

}  // namespace

int run_cost(const CostOptions& options, std::ostream& out, std::ostream& err) {
  const std::optional<UsdPerHour> price = price_of(options.price);
  if (price && price->value <= 0) {
    throw InputError({"command line: --price", 0, 0}, "nothing is to be paid",
                     "expected more than 0: costs are compared");
  }
  const double tokens = *tokens_of(options.tokens);  // it is required
  const study::Catalog catalog = open_catalog(options.catalog);
  const Asked asked =
      ask_step(options, catalog, "cost", err,
               "expected other machines in --machines, or offsim compare for plans");
  const std::vector<study::MachineNamed> others = other_machines(options, catalog);
  ProgressLine progress(options.terminal, err);
  study::CostStudy study = in_words_of(asked.imported, [&] {
    return study::cost_study(
        asked.question.job, options.hardware, others, price, tokens,
        [&progress](std::size_t done, std::size_t all) { progress.show("machines: ", done, all); });
  });
  warn_first(asked.imported, study.rows[study.asked].prediction);
  if (write_all(
          {{"--json", options.json, [&](std::ostream& to) { to << report::cost_json(study); }}},
          out)) {
    return 0;
  }
  out << report::cost_text(study, options.terminal.style)
      << summary_text(asked.imported, options.terminal.style)
      << report::next_text(next_command(options, study), options.terminal.style);
  return 0;
}

}  // namespace offsim::cli
