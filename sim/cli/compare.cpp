#include "sim/cli/compare.h"

#include <fmt/format.h>

#include <ostream>

#include "sim/base/language.h"
#include "sim/cli/rows.h"
#include "sim/report/json.h"

namespace offsim::cli {

namespace {

std::string next_command(const CompareOptions& options, const study::Scenario& scenario,
                         const std::vector<study::Case>& cases,
                         const std::vector<report::ComparisonRow>& rows) {
  const auto best = best_row(rows);
  const std::size_t shown = best.value_or(0);
  const plans::Job& job = cases[shown].job;
  const std::string& machine = scenario.machines[shown / scenario.plans.size()].text;
  if (best) {
    return predict_command({options.model, machine, options.catalog}, job);
  }
  if (job.workload.micro_batch > 1) {
    return with_largest(compare_command({options.model, options.hardware, options.catalog}, job),
                        job);
  }
  return "offsim catalog hardware";
}

}  // namespace

int run_compare(const CompareOptions& options, std::ostream& out, std::ostream& err) {
  const std::optional<UsdPerHour> price = price_of(options.price);
  const study::Catalog catalog = open_catalog(options.catalog);
  const AskedPlans asked = ask_plans(options, catalog, err);
  const study::Scenario& scenario = asked.scenario;
  const imports::Imported& imported = asked.imported;
  const std::vector<study::Case> cases =
      in_words_of(imported, [&] { return cases_of(catalog, scenario, options.terminal, err); });
  auto rows = predict_rows(cases, price, options.terminal, err);
  warn_first(imported, rows.front().prediction);
  for (report::ComparisonRow& row : rows) {
    if (row.job->plan->name == imported.plan.name.text) {
      row.refused = imported.in_its_words(row.refused);
    }
  }
  if (write_all({{"--json", options.json,
                  [&](std::ostream& to) { to << report::comparison_json(rows); }}},
                out)) {
    return 0;
  }
  std::string title = imported.plan.name.text.empty()
                          ? tr("plans compared")
                          : tr_format("{} beside other plans", imported.name);
  if (options.work.micro_batch == "largest") {
    title = report::listed({title, tr("each with the largest micro-batch that fits")});
  }
  out << report::comparison_text(title, rows, options.terminal.style)
      << summary_text(imported, options.terminal.style)
      << report::next_text(next_command(options, scenario, cases, rows), options.terminal.style);
  return 0;
}

}  // namespace offsim::cli
