// Every value that is in force, with its origin: settings, and the figures of a machine.
#pragma once

#include <string>

#include "sim/machine/machine.h"
#include "sim/report/text.h"
#include "sim/study/catalog.h"
#include "sim/study/scenario.h"

namespace offsim::cli {

// Workload and options with their place or "default".
std::string settings_text(const study::Case& c, const report::TextStyle& style);
// These, then the machine's figures.
std::string explain_text(const study::Catalog& catalog, const study::Case& c,
                         const report::TextStyle& style);

// A row a figure: name, value as its file writes it, source with spread; below it where it is from,
// and its place.
std::string figures_text(const study::Catalog& catalog, const machine::Machine& machine,
                         const report::TextStyle& style);

}  // namespace offsim::cli
