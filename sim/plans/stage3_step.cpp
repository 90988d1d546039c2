#include "sim/plans/stage3_step.h"
#include "sim/plans/checkpoint_offload.h"
#include "sim/plans/checks.h"

#include <fmt/format.h>

#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"
#include "sim/plans/plan.h"

namespace offsim::plans {

using runtime::Buffer;
using runtime::kCompute;
using runtime::Recorder;
using runtime::Space;

std::vector<std::string> check_stage3(const Job& job) {
  const Options& options = job.options;
  refuse_activation_offload(job, "hooks on saved tensors would copy gathered parameters too");
  require_precision(job, {Precision::kBf16Mixed, Precision::kFp16Mixed},
                    "bf16-mixed or fp16-mixed: fp32 masters, 16-bit parameters");
  std::vector<std::string> warnings;
  check_checkpoint_offload(job, warnings);
  if (options.text("offload_param") == "none" && options.flag("overlap_comm")) {
    warn_without_effect(warnings, job, "parameters are on the GPU",
                        {"stage3_prefetch_bucket_size", "stage3_max_live_parameters",
                         "stage3_max_reuse_distance", "stage3_param_persistence_threshold"});
  }
  if (options.text("offload_param") == "none") {
    warn_without_effect(warnings, job, "parameters are on the GPU", {"zero_init"});
  }
  const std::size_t groups = make_sub_groups(job).size();
  const Range on_gpu = kept_on_gpu(job, groups);
  if (on_gpu.from == on_gpu.to && options.number("ratio") < 1) {
    warn_without_effect(warnings, job,
                        fmt::format("of {} sub-groups none stays on the GPU", groups), {"ratio"});
  }
  return warnings;
}

void read_gradient_norms(Recorder& gpu, const Stage3& stage) {
  for (const SubGroup& group : stage.sub_groups()) {
    gpu.host_busy(runtime::HostTask::kStepTensor, group.tensors, "step's Python, a parameter");
    if (!stage.offloaded()) {  // else the norms are there
      const std::int64_t n = group.elements / group.tensors;
      model::Work norm = norm_in_double(n);
      norm.name = sized("norms in double", group.elements,
                        fmt::format("elements in {} tensors", group.tensors));
      for (model::Kernel& kernel : norm.kernels) {
        kernel.count = static_cast<std::int32_t>(group.tensors);
      }
      gpu.launch(norm);
    }
    gpu.read_result();
  }
}

void update_on_gpu(Recorder& gpu, Stage3& stage, const SubGroup& group) {
  const std::int64_t n = group.elements;
  std::optional<Buffer> wide;
  if (!stage.offloaded()) {  // _prepare_fp32_grad_for_sub_group: joined, then cast
    const Buffer joined = gpu.allocate(Space::kGpu, Bytes(2 * n), "joined gradients");
    gpu.launch(join_gradients, n);
    wide = gpu.allocate(Space::kGpu, Bytes(4 * n), "fp32 gradients");
    gpu.launch(cast_to_fp32, n);
    gpu.free(joined);
  }
  gpu.launch(model::elementwise(sized("unscale", n), n, 8, 1));
  model::Work adam = model::gpu_adam(n, 1, true);
  adam.name = sized("Adam", n);
  gpu.launch(adam);
  if (stage.parameters() == Tier::kGpu) {
    gpu.launch(cast_to_16_bits, n);
  } else {
    gpu.convert_d2h(kCompute, {.elements = n, .from_bytes = 4, .to_bytes = 2},
                    "write parameters back");
    if (group.elements_on_drive > 0) {
      stage.parameter_swapper()->write_back(group.elements_on_drive);
    }
  }
  if (wide) {
    gpu.free(*wide);
  }
}

void write_back_from_cpu(Recorder& gpu, const Stage3& stage, const SubGroup& group, int threads) {
  SIM_ASSERT(group.elements_on_drive == 0, "parameters on the drive are written by their swapper");
  if (stage.parameters() == Tier::kGpu) {
    gpu.convert_h2d(kCompute, {.elements = group.elements, .from_bytes = 4, .to_bytes = 2},
                    "write parameters back");
  } else {
    gpu.cpu("cast_f32_bf16", group.elements, "cast to 16 bits", {.threads = threads});
  }
}

}  // namespace offsim::plans
