// Every value that is in force, with its origin: settings, and the figures of a machine.
#pragma once

#include <string>

#include "sim/machine/machine.h"
#include "sim/study/catalog.h"
#include "sim/study/scenario.h"

namespace offsim::cli {

// Workload and options with their place or "default", then the machine's figures.
std::string explain_text(const study::Catalog& catalog, const study::Case& c);

// Two lines a figure: name, value as its file writes it, source with spread, place; then from.
std::string figures_text(const study::Catalog& catalog, const machine::Machine& machine);

}  // namespace offsim::cli
