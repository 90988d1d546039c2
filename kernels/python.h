// Benches that need what only Python has (PyTorch): a script of ours, carried in the program as
// text, is given to `python3 -`, and each line that it prints is a point.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/bench.h"

namespace offsim::kernels {

// Why Python or one of its modules cannot be used here; nothing when it can. Modules are looked
// for, not imported.
std::optional<std::string> python_lacks(std::string_view module);

// Runs the script with sys.argv[1:] = arguments and hands over each line of its standard output as
// it comes. Throws std::runtime_error with the last line of its standard error when it fails, and
// when it takes longer than `limit` seconds: it is killed then, with all that it started. It dies
// with this program.
void run_python(std::string_view script, const std::vector<std::string>& arguments, double limit,
                const std::function<void(const std::string& line)>& line);

// A bench of such a script. Its lines are {"at": {"kernel": "mul_f32", "elements": 4096},
// "samples": [1.2e-5, ...], "unit": "s"}; "unit" is one of bench.h and may be left
// out for seconds.
void python_points(const Run& run, std::string_view script,
                   const std::vector<std::string>& arguments, double limit);

}  // namespace offsim::kernels
