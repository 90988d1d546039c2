// CPU kernels: measured rates where the host has them, otherwise bytes and cores.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/config.h"
#include "sim/machine/cost.h"

namespace offsim::machine {

namespace {

// A rate in elements a second, with the figure that bounds it.
struct Bound {
  double rate = 0;
  FigureId figure = kNoFigure;
};

Bound formula(const Host& host, const CpuKernel& kernel, double cores) {
  const double core_rate =
      !host.avx && kernel.scalar_rate ? kernel.scalar_rate->value : kernel.core_rate.value;
  const double bytes = kernel.dram_bytes_per_element;
  return std::min(
      {Bound{host.dram.value.value / bytes, host.dram.figure},
       Bound{cores * host.core_bandwidth.value.value / bytes, host.core_bandwidth.figure},
       Bound{cores * core_rate * host.core_speed.value, kernel.figure}},
      [](const Bound& a, const Bound& b) { return a.rate < b.rate; });
}

// The measured rate is of all cores; fewer are slower by the measured speeds, or by the formula.
double share_of_all_cores(const Host& host, const CpuKernel& kernel, std::string_view name,
                          double cores) {
  const auto curve = host.threads.find(name.starts_with("adam") ? "adam" : "stream");
  if (curve != host.threads.end()) {
    return curve->second.at(cores) / curve->second.at(host.cores);
  }
  return formula(host, kernel, cores).rate / formula(host, kernel, host.cores).rate;
}

}  // namespace

std::vector<std::string> cpu_kernel_names() {
  std::vector<std::string> names = {"adam_deepspeed_f32",   "adam_deepspeed_bf16",
                                    "adam_torch_fused_f32", "adam_torch_fused_bf16",
                                    "adam_torch_loop_f32",  "adam_torch_loop_bf16",
                                    "cast_f32_bf16",        "cast_bf16_f32"};
  for (const char* const operation : {"mul", "copy", "add", "zero", "norm", "isinf_any"}) {
    names.push_back(fmt::format("{}_f32", operation));
    names.push_back(fmt::format("{}_bf16", operation));
  }
  return names;
}

CpuWork cpu_kernel(const Machine& machine, std::string_view name, double elements, int threads) {
  SIM_ASSERT(threads >= 1 && elements >= 0, "a kernel has a thread and a size");
  const auto found = machine.framework.kernels.find(name);
  if (found == machine.framework.kernels.end()) {
    throw InputError({}, fmt::format("there is no CPU kernel '{}'", name),
                     suggest(name, cpu_kernel_names()));
  }
  const Host& host = machine.host;
  const CpuKernel& kernel = found->second;
  CpuWork out;
  out.cores = kernel.single_core ? 1 : std::min(threads, host.cores);
  out.dram_bytes_per_element = kernel.dram_bytes_per_element;

  const auto measured = host.kernels.find(name);
  Bound bound;
  if (measured != host.kernels.end()) {
    const double all = measured->second.at(std::max(elements, 1.0));
    const double share = kernel.single_core ? 1 : share_of_all_cores(host, kernel, name, out.cores);
    bound = {all * share, measured->second.figure};
  } else {
    bound = formula(host, kernel, out.cores);
  }
  out.rate = ElementsPerSecond(bound.rate);
  out.figure = bound.figure;
  out.dram_bytes_per_element =
      std::min(out.dram_bytes_per_element, host.dram.value.value / bound.rate);
  return out;
}

}  // namespace offsim::machine
