// Runs offsim-kernels, the program that touches the machine, and takes what it writes.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "sim/cli/output.h"

namespace offsim::cli {

// `asked`, or offsim-kernels beside this program. Throws InputError where there is none.
std::string find_kernels(const std::optional<std::string>& asked);

// What it wrote to standard output. Lines "progress DONE TOTAL NAME" of its standard error are
// shown on `err`, if that is a terminal, behind `verb`: "measuring copy: 3 of 40". Throws
// InputError with its own words where it failed, was killed, or wrote more than 256 MiB.
std::string run_kernels(const std::string& program, const std::vector<std::string>& arguments,
                        const std::string& verb, const Terminal& terminal, std::ostream& err);

}  // namespace offsim::cli
