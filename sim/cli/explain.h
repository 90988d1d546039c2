// Every value that is in force, with its origin: settings, and the figures of a machine.
#pragma once

#include <string>
#include <vector>

#include "sim/machine/machine.h"
#include "sim/report/text.h"
#include "sim/study/catalog.h"
#include "sim/study/scenario.h"

namespace offsim::cli {

// What was asked for, each with its place and, where one of `warnings` says so, without effect; and
// in a line what is left as it is by default.
std::string given_text(const study::Case& c, const std::vector<std::string>& warnings,
                       const report::TextStyle& style);
// Workload and options with their place or "default", then the machine's figures.
std::string explain_text(const study::Catalog& catalog, const study::Case& c,
                         const report::TextStyle& style);

// A row a figure: name, value as its file writes it, source with spread; below it where it is from,
// and its place.
std::string figures_text(const study::Catalog& catalog, const machine::Machine& machine,
                         const report::TextStyle& style);

}  // namespace offsim::cli
