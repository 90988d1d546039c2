#include "sim/cli/run.h"

#include <fmt/format.h>

#include <ostream>

#include "sim/cli/question.h"
#include "sim/cli/rows.h"
#include "sim/report/json.h"

namespace offsim::cli {

namespace {

struct Answered {
  study::Scenario scenario;
  std::vector<study::Case> cases;
  std::vector<report::ComparisonRow> rows;  // points into cases
};

// Cases are in the order of study::cases: models first, plans last.
Named named(const Answered& answered, std::size_t index, const RunOptions& options) {
  const study::Scenario& s = answered.scenario;
  const std::size_t a_model = answered.cases.size() / s.models.size();
  const std::size_t a_machine = a_model / s.machines.size();
  return {s.models[index / a_model].text, s.machines[index % a_model / a_machine].text,
          options.catalog};
}

std::string next_command(const Answered& answered, const RunOptions& options) {
  if (const auto best = best_row(answered.rows)) {
    return predict_command(named(answered, *best, options), answered.cases[*best].job);
  }
  return compare_command(named(answered, 0, options), answered.cases.front().job);
}

}  // namespace

int run_scenarios(const RunOptions& options, std::ostream& out, std::ostream& err) {
  const std::optional<UsdPerHour> price = price_of(options.price);
  const study::Catalog catalog = open_catalog(options.catalog);
  std::vector<study::Scenario> scenarios;
  for (const std::string& name : options.scenarios) {
    scenarios.push_back(study::load_scenario(catalog, name));  // mistakes first, then the work
  }
  std::vector<Answered> answers;
  std::vector<report::ComparisonRow> all;
  for (study::Scenario& scenario : scenarios) {
    Answered& answered = answers.emplace_back();
    answered.scenario = std::move(scenario);
    answered.cases = cases_of(catalog, answered.scenario, options.terminal, err);
    answered.rows = predict_rows(answered.cases, price, options.terminal, err);
    all.insert(all.end(), answered.rows.begin(), answered.rows.end());
  }
  if (write_all(
          {{"--json", options.json, [&](std::ostream& to) { to << report::comparison_json(all); }}},
          out)) {
    return 0;
  }
  for (const Answered& answered : answers) {
    out << (&answered == &answers.front() ? "" : "\n")
        << report::comparison_text(answered.scenario.title, answered.rows, options.terminal.style);
  }
  out << report::next_text(next_command(answers.back(), options), options.terminal.style);
  return 0;
}

}  // namespace offsim::cli
