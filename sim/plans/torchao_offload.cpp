// torchao-offload: torchao's CPUOffloadOptimizer, one GPU (source: torchao/optim/cpu_offload.py).
//
// b is the size of a number: 4 with fp32 parameters (bf16-mixed, fp32), 2 in pure bf16. GPU:
// parameters b, gradients b (or, with offload_gradients, those of what was computed last). Host: a
// pinned copy of every parameter and every gradient, rounded tensor by tensor to powers of two; m
// and v, 2b, pageable, from the first step on. Tensors under minimal_size elements have their
// optimizer on the GPU. Backward, a hook a parameter: the side stream waits for compute, D2H of the
// accumulated gradient, not blocking, in every micro-batch (only the last one's is used). Step:
// Adam of the small tensors on the GPU; then, in the order in which gradients arrived, the host
// waits for a tensor's copy, runs fused Adam (14 or 28 B a parameter) and queues the H2D of the
// parameter on the same side stream, beside the next tensor's Adam. At the end the host waits for
// the stream. Bytes a parameter: D2H b k, H2D b. With adapters all of this is of theirs,
// and frozen parameters are 2 bytes on the GPU (4 in fp32). Left out: other base optimizers.
#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/gpu_model.h"
#include "sim/plans/plan.h"
#include "sim/plans/plans.h"

namespace offsim::plans {

using model::Tensor;
using runtime::Buffer;
using runtime::Event;
using runtime::kCompute;
using runtime::Lane;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

namespace {

class Torchao {
 public:
  Torchao(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        model_(job, gpu, numerics_of(job.workload.precision, false)),
        wide_(job.workload.precision != Precision::kBf16),
        width_(wide_ ? 4 : 2),
        minimal_(job.options.count("minimal_size")),
        drops_gradients_(job.options.flag("offload_gradients")),
        side_(gpu.stream("side")) {
    place_on_gpu(job, gpu, width_);
    place_workspace(job, gpu_);
    for (const Tensor& tensor : model::trained(model::all_tensors(job.shape))) {
      const std::int64_t n = tensor.numel();
      if (is_small(n)) {
        small_elements_ += n;
        small_tensors_ += 1;
      } else {
        gpu_.allocate(Space::kPinned, Bytes(width_ * n), "parameters");
        gpu_.allocate(Space::kPinned, Bytes(width_ * n), "gradients");
      }
    }
  }

  void step(bool first) {
    for (std::int64_t micro = 0; micro < job_.workload.accumulation; ++micro) {
      const GpuModel::Run run = [&](GpuModel::Pass pass, std::int64_t piece) {
        model_.launch(pass, piece);
        if (pass == GpuModel::Pass::kGradients) {
          for (const Tensor& tensor : model_.trained(piece)) {
            take(tensor.numel(), micro);
          }
        }
      };
      sent_.clear();
      enter(job_, gpu_, Phase::kForward);
      model_.forward(run);
      enter(job_, gpu_, Phase::kBackward);
      model_.backward(run);
    }
    enter(job_, gpu_, Phase::kOptimizer);
    optimizer_step(first);
    for (const Buffer gradient : gradients_) {  // zero_grad
      gpu_.free(gradient);
    }
    gradients_.clear();
    end_step(job_, gpu_);
  }

 private:
  struct Sent {
    std::int64_t elements;
    Event event;
  };

  bool is_small(std::int64_t elements) const { return elements < minimal_; }

  // A gradient is there: kept or added to, then sent.
  void take(std::int64_t n, std::int64_t micro) {
    const Buffer gradient = gpu_.allocate(Space::kGpu, Bytes(width_ * n), "gradients");
    if (micro > 0) {
      gpu_.launch(
          model::elementwise(sized("add gradient", n), n, 3.0 * static_cast<double>(width_), 1));
      gpu_.free(gradient);
    } else if (!drops_gradients_ || is_small(n)) {
      gradients_.push_back(gradient);
    }
    if (is_small(n)) {
      return;
    }
    gpu_.wait(side_, gpu_.record(kCompute));
    gpu_.copy_d2h(side_, Space::kPinned, Bytes(width_ * n), "gradients");
    sent_.push_back({n, gpu_.record(side_)});
    if (drops_gradients_) {
      gpu_.free_after(gradient, side_);
    }
  }

  void optimizer_step(bool first) {
    if (first) {
      const std::int64_t large = model::trained_parameters(job_.shape) - small_elements_;
      gpu_.allocate(Space::kPageable, Bytes(2 * width_ * large), "Adam states");
      gpu_.allocate(Space::kGpu, Bytes(2 * width_ * small_elements_), "Adam states");
    }
    if (small_tensors_ > 0) {
      gpu_.host_busy(runtime::HostTask::kOptimizerTensor, small_tensors_,
                     "collect tensors for Adam");
      gpu_.launch(model::gpu_adam(small_elements_, small_tensors_, wide_));
    }
    for (const Sent& sent : sent_) {
      gpu_.sync(sent.event);
      gpu_.host_busy(runtime::HostTask::kOptimizerObject, 1, "an optimizer of one tensor");
      gpu_.cpu(wide_ ? "adam_torch_fused_f32" : "adam_torch_fused_bf16", sent.elements, "Adam");
      gpu_.copy_h2d(side_, Space::kPinned, Bytes(width_ * sent.elements), "parameters");
    }
    gpu_.sync(side_);
  }

  const Job& job_;
  Recorder& gpu_;
  GpuModel model_;
  bool wide_;
  std::int64_t width_, minimal_;
  bool drops_gradients_;
  Lane side_;
  std::int64_t small_elements_ = 0, small_tensors_ = 0;
  std::vector<Sent> sent_;  // of the last micro-batch, in the order of arrival
  std::vector<Buffer> gradients_;
};

}  // namespace

std::vector<OptionSpec> torchao_options() {
  using Kind = OptionSpec::Kind;
  return {
      {"offload_gradients", Kind::kFlag, "false", "",
       "free a gradient on the GPU once it is sent; not with accumulation"},
      {"minimal_size", Kind::kCount, "4096", "elements",
       "smaller tensors keep their optimizer on the GPU"},
  };
}

std::vector<std::string> check_torchao_offload(const Job& job) {
  if (job.options.flag("offload_gradients") && job.workload.accumulation > 1) {
    throw InputError(job.options.place("offload_gradients"),
                     "torchao-offload.offload_gradients does not work with accumulation",
                     "expected accumulation 1, or offload_gradients false");
  }
  require_precision(job, {Precision::kBf16Mixed, Precision::kBf16, Precision::kFp32},
                    "bf16-mixed, bf16 or fp32: there is no loss scaling");
  return {};
}

void record_torchao_offload(const Job& job, Recorder& gpu, int steps) {
  record_steps(Torchao(job, gpu), steps);
}

}  // namespace offsim::plans
