// memascend: ZeRO-Infinity with less host memory, component by component (arXiv 2505.23254; no code
// is published).
//
// The step is zero-infinity's (zero3_offload.cpp, nvme.h); with every component at ZeRO-Infinity's
// value the two are one. Each component by itself:
//   pool              equal: param_buffer_count buffers of the largest parameter; adaptive: buffers
//                     by the sizes of parameters, 2 B an element
//   allocator         torch: pinned memory rounded to powers of two and cached; exact: to the byte
//   overflow_check    of fp16, chain: isinf and isnan, 16 B a gradient; fused: one pass, 4 B
//   engine            filesystem: what aio_* keeps in flight; raw: the drive's full rate
//   optimizer_states  fp32: 16 B a parameter read, 12 written; bf16: 8 and 6, gradients leave the
//                     GPU in 2 B, Adam moves 14 B
// Assumed, where the paper's summary does not say: layers in flight of the adaptive pool (nvme.h);
// that exactly allocated memory is pinned for CUDA too; the master is narrow with the states.
// Left out: what a file system costs beyond its shallow queue, for which there is no figure; the
// chain's temporaries, 3 B a parameter of host memory while it runs.
#include "sim/plans/checks.h"
#include "sim/plans/nvme.h"
#include "sim/plans/plan.h"
#include "sim/plans/plans.h"
#include "sim/plans/stage3_step.h"

namespace offsim::plans {

std::vector<OptionSpec> memascend_options() {
  using Kind = OptionSpec::Kind;
  std::vector<OptionSpec> options = zero3_options("nvme");
  const auto add = [&](std::string_view name, std::string_view fallback, std::string_view effect,
                       std::vector<std::string> choices) {
    options.push_back({name, Kind::kChoice, fallback, "", effect, std::move(choices)});
  };
  add("pool", "adaptive", "swap buffers of parameters: all of the largest, or by class",
      {"equal", "adaptive"});
  add("allocator", "exact", "pinned memory in powers of two, or to the byte", {"torch", "exact"});
  add("overflow_check", "fused", "of fp16 gradients: isinf and isnan, or one pass",
      {"chain", "fused"});
  add("engine", "raw", "the drive through a file system and aio_*, or its blocks",
      {"filesystem", "raw"});
  add("optimizer_states", "fp32", "on the drive: master, moments and gradients in 4 or 2 B",
      {"fp32", "bf16"});
  return options;
}

std::vector<std::string> check_memascend(const Job& job) {
  refuse_adapters(job, "frozen parameters on a drive are not modelled");
  const Options& options = job.options;
  std::vector<std::string> warnings = check_zero3_offload(job);
  const bool optimizer_nvme = options.text("offload_optimizer") == "nvme";
  if (options.text("optimizer_states") == "bf16" &&
      (!optimizer_nvme || options.text("offload_param") == "none")) {
    throw InputError(options.place("optimizer_states"), "bf16 states are states on the drive",
                     "expected offload_optimizer nvme and offload_param cpu or nvme");
  }
  const auto useless = [&](bool is, std::string_view name, std::string_view why) {
    if (is) {
      warn_without_effect(warnings, job, why, {name});
    }
  };
  const bool asked_nvme = options.text("offload_param") == "nvme";
  const bool parameters_nvme =
      asked_nvme && model::parameters(job.shape) > options.count("max_in_cpu");
  useless(!asked_nvme, "pool", "no parameters are on a drive");
  useless(asked_nvme && options.text("pool") == "adaptive", "param_buffer_size",
          "the adaptive pool has the parameters' own sizes");
  useless(!parameters_nvme && !optimizer_nvme, "engine", "nothing is on a drive");
  useless(job.workload.precision != Precision::kFp16Mixed, "overflow_check",
          "only fp16 looks for infinities");
  useless(options.text("offload_optimizer") == "none", "overflow_check",
          "gradients are on the GPU");
  return warnings;
}

}  // namespace offsim::plans
