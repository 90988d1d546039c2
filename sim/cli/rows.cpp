#include "sim/cli/rows.h"

#include <fmt/format.h>

#include <chrono>
#include <ostream>

#include "sim/base/error.h"

namespace offsim::cli {

std::vector<report::ComparisonRow> predict_rows(const std::vector<study::Case>& cases,
                                                std::optional<UsdPerHour> price,
                                                const Terminal& terminal, std::ostream& err) {
  using std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience{1};
  const auto began = steady_clock::now();
  bool said = false;
  std::vector<report::ComparisonRow> rows;
  for (const study::Case& c : cases) {
    report::ComparisonRow& row = rows.emplace_back();
    row.job = &c.job;
    try {
      row.prediction = study::predict(c.job, price);
    } catch (const InputError& refusal) {
      row.refused = refusal.what();
    }
    if (c.published) {
      row.published_tflops = c.published->tflops;
      row.published_from = c.published->from;
    }
    if (terminal.progress && steady_clock::now() - began > kPatience) {
      err << fmt::format("\r{} of {}", rows.size(), cases.size()) << std::flush;
      said = true;
    }
  }
  if (said) {
    err << "\r\033[K" << std::flush;
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
