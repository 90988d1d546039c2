// native: everything on the GPU, as PyTorch trains without offload.
//
// One step, per micro-batch: forward, backward; gradients appear on the first micro-batch and are
// added to on the others (the accumulated gradient is read, the new one read, the sum written).
// Then the optimizer: optional clipping, which reads the gradients for their norm and scales them,
// then fused Adam over all parameters. Gradients are dropped. Bytes a parameter on the GPU: 16 with
// fp32 parameters (4 parameter, 4 gradient, 8 moments), 8 in pure bf16; with adapters so many for
// each of theirs and 2 for each frozen one (4 in fp32). Adam's moments appear in the first step. On
// unified memory this is the same loop on the one pool. Left out: foreach and for-loop optimizers,
// data parallelism.
#include "sim/plans/common.h"
#include "sim/plans/gpu_model.h"
#include "sim/plans/plans.h"

namespace offsim::plans {

using runtime::Buffer;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

std::vector<std::string> check_native(const Job&) { return {}; }

void record_native(const Job& job, Recorder& gpu, int steps) {
  const bool wide = job.workload.precision != Precision::kBf16;
  const std::int64_t width = wide ? 4 : 2;
  const std::int64_t parameters = model::trained_parameters(job.shape);
  const auto tensors =
      static_cast<std::int64_t>(model::trained(model::all_tensors(job.shape)).size());
  const bool clip = job.options.flag("gradient_clipping");

  GpuModel model(job, gpu, numerics_of(job.workload.precision, false));
  place_on_gpu(job, gpu, width);
  place_workspace(job, gpu);

  for (int step = 0; step < steps; ++step) {
    std::vector<Buffer> gradients;
    for (std::int64_t micro = 0; micro < job.workload.accumulation; ++micro) {
      const auto run = [&](GpuModel::Pass pass, std::int64_t piece) {
        model.launch(pass, piece);
        if (pass != GpuModel::Pass::kGradients || model.trained(piece).empty()) {
          return;
        }
        const std::int64_t fresh = count(model.trained(piece));
        const Buffer made = gpu.allocate(Space::kGpu, Bytes(width * fresh), "gradients");
        if (micro == 0) {
          gradients.push_back(made);
        } else {
          gpu.launch(add_gradients(fresh, model.trained(piece).size(), width));
          gpu.free(made);
        }
      };
      enter(job, gpu, Phase::kForward);
      model.forward(run);
      enter(job, gpu, Phase::kBackward);
      model.backward(run);
    }
    enter(job, gpu, Phase::kOptimizer);
    if (step == 0) {
      gpu.allocate(Space::kGpu, Bytes(2 * width * parameters), "Adam states");
    }
    if (clip) {
      gpu.launch(
          model::elementwise("clip gradients", parameters, 3.0 * static_cast<double>(width), 4));
    }
    gpu.host_busy(runtime::HostTask::kOptimizerTensor, tensors, "collect tensors for Adam");
    gpu.launch(model::gpu_adam(parameters, tensors, wide));
    for (const Buffer gradient : gradients) {
      gpu.free(gradient);
    }
    end_step(job, gpu);
  }
}

}  // namespace offsim::plans
