// What is in force of a plan without being in the file: its defaults, by version where they are.
#pragma once

#include <string>

#include "sim/import/findings.h"

namespace offsim::imports {

// Every option of the plan that was not given, with its default.
void list_defaults(const study::GivenPlan& plan, const std::string& version, Findings& findings);

}  // namespace offsim::imports
