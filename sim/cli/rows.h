// Predicts the cases of a scenario, one row of a comparison each.
#pragma once

#include <iosfwd>
#include <optional>
#include <vector>

#include "sim/cli/output.h"
#include "sim/study/scenario.h"

namespace offsim::cli {

// The cases of a scenario; says on `err` how far the search for the largest micro-batches is, as
// below.
std::vector<study::Case> cases_of(const study::Catalog& catalog, const study::Scenario& scenario,
                                  const Terminal& terminal, std::ostream& err);

// A row points into `cases`, which must outlive it. What a plan refuses is a row with the reason.
// Says on `err` how far it is when it takes over a second and `terminal.progress`.
std::vector<report::ComparisonRow> predict_rows(const std::vector<study::Case>& cases,
                                                std::optional<UsdPerHour> price,
                                                const Terminal& terminal, std::ostream& err);

// The row with the most tokens a second of those that fit; nothing when none does.
std::optional<std::size_t> best_row(const std::vector<report::ComparisonRow>& rows);

}  // namespace offsim::cli
