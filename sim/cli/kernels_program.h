// Runs offsim-kernels, the program that touches the machine, and takes what it writes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace offsim::cli {

// `asked`, or offsim-kernels beside this program. Throws InputError where there is none.
std::string find_kernels(const std::optional<std::string>& asked);

// Lines "progress DONE TOTAL NAME" of its standard error, as it says them.
struct KernelsProgress {
  int done = 0, total = 0;
  std::string name;
};

// What it wrote to standard output. Throws InputError with its own words where it failed, was
// killed, or wrote more than 256 MiB.
std::string run_kernels(const std::string& program, const std::vector<std::string>& arguments,
                        const std::function<void(const KernelsProgress&)>& progress);

}  // namespace offsim::cli
