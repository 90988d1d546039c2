#include "sim/cli/rows.h"

#include "sim/base/error.h"

namespace offsim::cli {

std::vector<study::Case> cases_of(const study::Catalog& catalog, const study::Scenario& scenario,
                                  const Terminal& terminal, std::ostream& err) {
  ProgressLine progress(terminal, err);
  return study::cases(catalog, scenario, [&progress](std::size_t done, std::size_t all) {
    progress.show("cases ready: ", done, all);
  });
}

std::vector<report::ComparisonRow> predict_rows(const std::vector<study::Case>& cases,
                                                std::optional<UsdPerHour> price,
                                                const Terminal& terminal, std::ostream& err) {
  ProgressLine progress(terminal, err);
  std::vector<report::ComparisonRow> rows;
  for (const study::Case& c : cases) {
    report::ComparisonRow& row = rows.emplace_back();
    row.job = &c.job;
    try {
      row.prediction = study::predict(c.job, price);
    } catch (const InputError& refusal) {
      // A file's cases say where they are; the command line's are all in one line.
      row.refused = c.place.line > 0 ? refusal.at(c.place).what() : refusal.what();
    }
    if (c.published) {
      row.published_tflops = c.published->tflops;
      row.published_from = c.published->from;
    }
    progress.show("", rows.size(), cases.size());
  }
  return rows;
}

std::optional<std::size_t> best_row(const std::vector<report::ComparisonRow>& rows) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const study::Prediction& p = rows[i].prediction;
    if (rows[i].refused.empty() && p.feasible() &&
        (!best || p.tokens_per_s > rows[*best].prediction.tokens_per_s)) {
      best = i;
    }
  }
  return best;
}

}  // namespace offsim::cli
