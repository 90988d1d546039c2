#include "sim/cli/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "sim/base/quantity.h"
#include "sim/base/table.h"
#include "sim/cli/rows.h"
#include "sim/model/tensors.h"
#include "sim/report/layout.h"
#include "sim/study/fit.h"
#include "sim/study/limits.h"

namespace offsim::cli {

namespace {

using study::Fit;

// Smallest first. Mixtures are no size between two dense ones.
std::vector<model::Shape> dense_models(const study::Catalog& catalog) {
  std::vector<model::Shape> models;
  for (const std::string& name : catalog.model_names()) {
    model::Shape shape = catalog.model(name, kCommandLine);
    const auto sparse = [](const model::LayerKind& kind) { return kind.experts.has_value(); };
    if (std::ranges::none_of(shape.kinds, sparse)) {
      models.push_back(std::move(shape));
    }
  }
  std::ranges::stable_sort(models, {}, [](const model::Shape& s) { return model::parameters(s); });
  return models;
}

// Three searches a plan, of some 60 steps together.
void refuse_long(const std::vector<study::Case>& cases) {
  constexpr double kSteps = 60;
  constexpr double kMostWork = 40;  // steps of the largest size: half a minute
  double work = 0;
  for (const study::Case& c : cases) {
    work += kSteps * study::step_size(c.job.shape, c.job.workload).share();
  }
  if (work > kMostWork) {
    throw InputError(kCommandLine,
                     fmt::format("fitting these plans takes {:.0f} times as long as it may",
                                 std::ceil(work / kMostWork)),
                     "expected fewer --plans, or a smaller --accumulation");
  }
}

std::string fits_text(const std::vector<study::Case>& cases, const std::vector<Fit>& fits,
                      const report::TextStyle& style) {
  const plans::Job& job = cases.front().job;
  using Align = Table::Align;
  Table table({{"plan"},
               {"micro-batch", Align::kRight},
               {"stopped by"},
               {"sequence", Align::kRight},
               {"largest dense model"}});
  std::vector<std::string> refused;
  for (std::size_t i = 0; i < fits.size(); ++i) {
    const Fit& fit = fits[i];
    if (!fit.refused.empty()) {
      refused.emplace_back(cases[i].job.plan->name);
      continue;
    }
    const auto count = [](std::int64_t n) {
      return n == 0 ? std::string("none") : with_commas(static_cast<double>(n));
    };
    table.add_row({std::string(cases[i].job.plan->name), count(fit.micro_batch),
                   fit.stops.empty() || fit.stops == study::kRefused
                       ? fit.stops
                       : std::string(report::pool_title(fit.stops)),
                   count(fit.sequence), fit.model.empty() ? "none" : fit.model});
  }
  std::string out = report::paragraph(
      "",
      fmt::format("What fits {}: {}'s largest micro-batch with {} tokens, its longest sequence "
                  "with a micro-batch of {}, and the largest dense model of the catalog with both "
                  "as asked.",
                  job.machine.name, job.shape.name,
                  with_commas(static_cast<double>(job.workload.sequence)),
                  job.workload.micro_batch),
      style);
  out += "\n" + report::join(report::rows_of(table, style), "\n") + "\n";
  if (!refused.empty()) {
    out += report::paragraph("  ", "refused here: " + report::join(refused, ", "), style);
  }
  return out;
}

std::string fits_json(const std::vector<study::Case>& cases, const std::vector<Fit>& fits) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < fits.size(); ++i) {
    nlohmann::ordered_json row{{"plan", cases[i].job.plan->name}};
    if (!fits[i].refused.empty()) {
      row["refused"] = fits[i].refused;
    } else {
      row["micro_batch"] = fits[i].micro_batch;
      row["stopped_by"] = fits[i].stops;
      row["sequence"] = fits[i].sequence;
      row["model"] = fits[i].model;
    }
    rows.push_back(std::move(row));
  }
  return nlohmann::ordered_json{{"schema", "offsim.fit/1"}, {"plans", rows}}.dump(2) + "\n";
}

}  // namespace

int run_fit(const FitOptions& options, std::ostream& out, std::ostream& err) {
  const study::Catalog catalog = open_catalog(options.catalog);
  const study::Scenario scenario =
      scenario_of(options.model, options.hardware, options.plan, options.work);
  if (scenario.machines.size() != 1) {
    throw InputError(kCommandLine, "fit takes one machine",
                     "expected offsim compare --micro-batch largest for several");
  }
  if (options.work.micro_batch == "largest" || options.work.micro_batch_limit) {
    throw InputError({"command line: --micro-batch", 0, 0},
                     "largest has no effect: fit says which is the largest",
                     "expected a number, of which the sequence is the longest");
  }
  const std::vector<study::Case> cases = cases_of(catalog, scenario, options.terminal, err);
  refuse_long(cases);
  const std::vector<model::Shape> models = dense_models(catalog);
  std::vector<Fit> fits;
  {
    ProgressLine line(options.terminal, err);
    for (const study::Case& c : cases) {
      fits.push_back(study::fit(
          c.job, models, [&] { line.show("fitting plan ", fits.size() + 1, cases.size()); }));
    }
  }
  if (write_all({{"--json", options.json, [&](std::ostream& to) { to << fits_json(cases, fits); }}},
                out)) {
    return 0;
  }
  const report::TextStyle& style = options.terminal.style;
  const Named named{options.model, options.hardware, options.catalog};
  out << fits_text(cases, fits, style)
      << report::next_text(
             with_largest(compare_command(named, cases.front().job), cases.front().job), style);
  return 0;
}

}  // namespace offsim::cli
