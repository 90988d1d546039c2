// The CPU kernels of a training step as an installed PyTorch runs them, by the names of
// sim/machine/cost.h: a list of tensors in one call or one loop, divided by their number.
#pragma once

#include <optional>
#include <string>

#include "kernels/bench.h"

namespace offsim::kernels {

std::optional<std::string> torch_cpu_unavailable(const Options& options);
void torch_cpu_kernel(const Run& run);

}  // namespace offsim::kernels
