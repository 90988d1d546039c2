// coherent-offload: the GPU's optimizer on states in CPU memory, reached through a coherent link.
// No released system; PyTorch's loop with its fp32 states in memory that both processors address
// (sources: arXiv 2407.07850 and 2408.11556 on Grace Hopper's system-allocated and managed memory).
//
// GPU: 16-bit parameters 2, 16-bit gradients of the piece at work (gradients=gpu: of all, 2).
// Host, pageable, bytes a parameter: master 4, m and v 8, gradients 4 (gradients=gpu: 0).
// Backward: a piece's gradients are cast to fp32 by a kernel that writes them through the link, 4
// B; a further micro-batch reads them too and adds. Step: fused Adam, the kernel reads gradient,
// master, m, v and writes master, m, v: 16 B in and 12 out (gradients=gpu: 12 and 12); the 16-bit
// parameter is written in GPU memory by the same kernel. No CPU work. The compute stream does
// nothing else meanwhile: a kernel ends when its bytes have crossed.
//   access=direct   (malloc) loads and stores of cache lines, at the rates of copies
//   access=managed  (cudaMallocManaged) pages of 2 MiB come to the GPU when it touches them, one
//                   fault after the other, and all go back to make room before they are touched
//                   again: what is read or written crosses once each way, 16 and 16 in the step,
//                   4 and 4 more of every micro-batch's gradients. The pages under way on the GPU
//                   are not counted.
// Bytes a parameter over the link, direct, k micro-batches: in 16 + 4(k - 1), out 12 + 4k.
// Refused where the link is not coherent (hardware/links: coherent) or there is none.
// Left out: that kernels reach about a tenth less than copies do, pages that access counters move,
// pages that stay where GPU memory has room, clipping.
#include <algorithm>

#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/gpu_model.h"
#include "sim/plans/plans.h"

namespace offsim::plans {

using model::Work;
using runtime::Buffer;
using runtime::kCompute;
using runtime::Lane;
using runtime::Mover;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

namespace {

constexpr std::int64_t kPage = 2 * kMiB;

class CoherentOffload {
 public:
  CoherentOffload(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        model_(job, gpu, numerics_of(job.workload.precision, true)),
        managed_(job.options.text("access") == "managed"),
        keeps_gradients_(job.options.text("gradients") == "gpu"),
        loads_(gpu.stream("loads")),
        stores_(gpu.stream("stores")),
        parameters_(model::parameters(job.shape)) {
    gpu_.allocate(Space::kGpu, Bytes(2 * parameters_), "parameters");
    place_workspace(job, gpu_);
    gpu_.allocate(Space::kPageable, Bytes(4 * parameters_), "master weights");
    if (!keeps_gradients_) {
      gpu_.allocate(Space::kPageable, Bytes(4 * parameters_), "gradients");
    }
    gpu_.allocate(Space::kPageable, Bytes(8 * parameters_), "Adam states");
  }

  void step(bool) {
    for (std::int64_t micro = 0; micro < job_.workload.accumulation; ++micro) {
      const GpuModel::Run run = [&](GpuModel::Pass pass, std::int64_t piece) {
        model_.launch(pass, piece);
        if (pass == GpuModel::Pass::kGradients) {
          take(piece, micro);
        }
      };
      enter(job_, gpu_, Phase::kForward);
      model_.forward(run);
      enter(job_, gpu_, Phase::kBackward);
      model_.backward(run);
    }
    enter(job_, gpu_, Phase::kOptimizer);
    const auto tensors = static_cast<std::int64_t>(model::all_tensors(job_.shape).size());
    gpu_.host_busy(runtime::HostTask::kOptimizerTensor, tensors, "collect tensors for Adam");
    const std::int64_t read = keeps_gradients_ ? 12 : 16;
    // In GPU memory it only writes the parameter and, when it is there, reads the gradient.
    reach(model::elementwise("Adam", parameters_, keeps_gradients_ ? 4 : 2,
                             static_cast<int>(model::gpu_adam(1, tensors, true).launches())),
          read * parameters_, 12 * parameters_, "optimizer states");
    for (const Buffer gradient : gradients_) {
      gpu_.free(gradient);
    }
    gradients_.clear();
    end_step(job_, gpu_);
  }

 private:
  void take(std::int64_t piece, std::int64_t micro) {
    const std::int64_t n = count(model_.tensors(piece));
    const Buffer made = gpu_.allocate(Space::kGpu, Bytes(2 * n), "gradients");
    if (!keeps_gradients_) {
      reach(model::elementwise(sized("store fp32 gradients", n), n, 2,
                               static_cast<int>(model_.tensors(piece).size())),
            micro > 0 ? 4 * n : 0, 4 * n, "gradients");
      gpu_.free(made);
    } else if (micro == 0) {
      gradients_.push_back(made);
    } else {
      gpu_.launch(add_gradients(n, model_.tensors(piece).size(), 2));
      gpu_.free(made);
    }
  }

  // Kernels of the compute stream with what they read and write of host memory.
  void reach(const Work& work, std::int64_t read, std::int64_t written, std::string_view what) {
    const runtime::Event before = gpu_.record(kCompute);
    gpu_.launch(work);
    for (const Lane lane : {loads_, stores_}) {
      gpu_.wait(lane, before);
    }
    if (managed_) {  // whole pages, there and back
      const std::int64_t touched = std::max(read, written);
      gpu_.copy_h2d(loads_, Space::kPinned, Bytes(touched), what,
                    {.pieces = (touched + kPage - 1) / kPage, .mover = Mover::kFault});
      gpu_.copy_d2h(stores_, Space::kPinned, Bytes(touched), what, {.mover = Mover::kKernel});
    } else {
      gpu_.copy_h2d(loads_, Space::kPinned, Bytes(read), what, {.mover = Mover::kKernel});
      gpu_.copy_d2h(stores_, Space::kPinned, Bytes(written), what, {.mover = Mover::kKernel});
    }
    for (const Lane lane : {loads_, stores_}) {
      gpu_.wait(kCompute, gpu_.record(lane));
    }
  }

  const Job& job_;
  Recorder& gpu_;
  GpuModel model_;
  bool managed_, keeps_gradients_;
  Lane loads_, stores_;
  std::int64_t parameters_;
  std::vector<Buffer> gradients_;
};

}  // namespace

std::vector<OptionSpec> coherent_options() {
  using Kind = OptionSpec::Kind;
  return {
      {"access",
       Kind::kChoice,
       "direct",
       "",
       "direct: the GPU loads and stores; managed: pages of 2 MiB migrate, a fault each",
       {"direct", "managed"}},
      {"gradients",
       Kind::kChoice,
       "cpu",
       "",
       "cpu: fp32, beside the states; gpu: 16-bit, in GPU memory until the step",
       {"cpu", "gpu"}},
  };
}

std::vector<std::string> check_coherent_offload(const Job& job) {
  refuse_adapters(job, "it is for the states of every parameter");
  refuse_activation_offload(job, "it is for states, not for activations");
  const std::string expected = "expected a machine such as gh200-480gb";
  if (!job.machine.link) {
    throw InputError({},
                     fmt::format("coherent-offload needs a coherent link, and {} has one memory: "
                                 "nothing to reach",
                                 job.machine.name),
                     expected);
  }
  if (!job.machine.link->coherent()) {
    throw InputError({},
                     fmt::format("coherent-offload needs a coherent link: over {} kernels do not "
                                 "reach the memory of processes",
                                 job.machine.link->name),
                     expected);
  }
  require_precision(job, {Precision::kBf16Mixed, Precision::kFp16Mixed},
                    "bf16-mixed or fp16-mixed: 16-bit parameters over fp32 states");
  return {};
}

void record_coherent_offload(const Job& job, Recorder& gpu, int steps) {
  record_steps(CoherentOffload(job, gpu), steps);
}

}  // namespace offsim::plans
