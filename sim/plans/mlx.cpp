// mlx: training with MLX on a machine whose CPU and GPU share one memory (sources: ml-explore/mlx,
// python/mlx/optimizers/optimizers.py, mlx/transforms.cpp, mlx/compile.cpp, mlx/fast.cpp,
// mlx/backend/metal; the loop is that of ml-explore/mlx-lm, mlx_lm/tuner/trainer.py).
//
// One memory, no copies. Parameters, gradients, m and v all have the type of the parameters
// (zeros_like): 8 bytes a parameter in bf16, 16 in fp32. There is no autocast.
// A micro-batch is a lazy graph that one mx.eval runs, for which the host waits. So that its first
// launch is exposed, once a micro-batch, and nothing overlaps the next one's.
// Adam, with weight decay, is 13 elementwise operations a tensor: 30 numbers read and written a
// parameter (m 7, v 9, the update 12, the decay 2). mx.compile fuses them into one kernel that
// reads gradient, parameter, m and v and writes three: 7 numbers, 14 or 28 bytes.
// An array that nothing else refers to gives its buffer to its result. With donation false a
// reference to the old tree is kept until mx.eval returns: old and new parameters, m and v coexist.
// Attention is unfused in training, forward and backward (scaled_dot_product_attention.cpp,
// use_fallback): all S x S scores of all heads, not half; the softmax stays from forward to
// backward (or is made again: mx.checkpoint, which recomputes no product that backward does not
// read).
//   forward    q scaled; scores; where(mask), softmax: 4 numbers a score; the product with v
//   backward   gradients of softmax and v; softmax's and where's gradients: 11 numbers a score, 7
//              compiled; gradients of q and k
// Limits: memory_limit (1.5 times the working set that Metal recommends, at most 95 % of memory)
// makes the host wait for running work, and fails nothing; wired_limit keeps so much resident and
// is refused above that working set (accelerator.memory). What lies beyond it may be swapped.
// Left out: MLX's fused norms and rotary (a layer's other kernels are eager PyTorch's, which move
// more), what else mx.compile fuses, building the graph in Python before its launches, buffers of
// whole pages, updates that the graph may run before the backward is done.
#include <algorithm>

#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/gpu_model.h"
#include "sim/plans/plans.h"

namespace offsim::plans {

using model::Kernel;
using model::Work;
using runtime::Buffer;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

namespace {

// The kernels in place of fused attention's, as batched products written as one tall product each.
class UnfusedAttention {
 public:
  UnfusedAttention(const Kernel& fused, bool wide, bool compiled)
      : rows_(fused.batch * fused.heads * fused.sequence),
        sequence_(fused.sequence),
        head_dim_(fused.head_dim),
        width_(wide ? 4 : 2),
        wide_(wide),
        compiled_(compiled) {}

  std::int64_t score_bytes() const { return width_ * rows_ * sequence_; }
  std::int64_t query_bytes() const { return width_ * rows_ * head_dim_; }

  std::vector<Kernel> forward() const {
    return {{.bytes = 2 * query_bytes()},
            to_scores(),
            {.bytes = 2 * score_bytes()},
            {.bytes = 2 * score_bytes()},
            from_scores()};
  }
  std::vector<Kernel> backward() const {
    const std::int64_t s = score_bytes();
    std::vector<Kernel> kernels{to_scores(), from_scores(), {.bytes = 3 * s}, {.bytes = s}};
    if (compiled_) {
      kernels.push_back({.bytes = 3 * s});
    } else {
      kernels.insert(kernels.end(), {{.bytes = 2 * s}, {.bytes = 3 * s}, {.bytes = 2 * s}});
    }
    kernels.insert(kernels.end(), {from_scores(), from_scores(), {.bytes = 2 * query_bytes()}});
    return kernels;
  }

 private:
  Kernel product(std::int64_t n, std::int64_t k) const {
    return {.kind = Kernel::Kind::kGemm, .m = rows_, .n = n, .k = k, .wide = wide_};
  }
  Kernel to_scores() const { return product(sequence_, head_dim_); }
  Kernel from_scores() const { return product(head_dim_, sequence_); }

  std::int64_t rows_, sequence_, head_dim_, width_;  // rows: of scores
  bool wide_, compiled_;
};

class Mlx {
 public:
  Mlx(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        model_(job, gpu, numerics_of(job.workload.precision, false)),
        wide_(job.workload.precision == Precision::kFp32),
        compiled_(job.options.flag("compile")),
        checkpointing_(job.workload.checkpointing == Checkpointing::kFull),
        width_(wide_ ? 4 : 2),
        parameters_(model::parameters(job.shape)),
        tensors_(static_cast<std::int64_t>(model::all_tensors(job.shape).size())) {
    const model::Pieces pieces =
        model::pieces(job.shape, job.workload.batch(), numerics_of(job.workload.precision, false));
    const model::Piece& layer = pieces.layers.front();  // without experts they are alike
    forward_ = unfused("layer forward, unfused attention", layer.forward);
    recompute_ = unfused("layer recompute, unfused attention", layer.recompute);
    backward_ = unfused("layer backward, unfused attention", layer.backward);
    gpu_.allocate(Space::kGpu, Bytes(width_ * parameters_), "parameters");
  }

  void step(bool first) {
    for (std::int64_t micro = 0; micro < job_.workload.accumulation; ++micro) {
      const GpuModel::Run run = [&](GpuModel::Pass pass, std::int64_t piece) {
        this->run(pass, piece);
        if (pass == GpuModel::Pass::kGradients) {
          take(piece, micro);
        }
      };
      enter(job_, gpu_, Phase::kForward);
      model_.forward(run);
      enter(job_, gpu_, Phase::kBackward);
      model_.backward(run);
      if (micro + 1 < job_.workload.accumulation) {
        gpu_.sync_device();  // mx.eval
      }
    }
    enter(job_, gpu_, Phase::kOptimizer);
    if (first) {
      gpu_.allocate(Space::kGpu, Bytes(2 * width_ * parameters_), "Adam states");
    }
    update();
    gpu_.sync_device();  // mx.eval
    for (const Buffer buffer : until_eval_) {
      gpu_.free(buffer);
    }
    until_eval_.clear();
    end_step(job_, gpu_);
  }

 private:
  // The work with every fused attention replaced; remembers their sizes.
  Work unfused(std::string name, const Work& work) {
    Work out{std::move(name), {}};
    for (const Kernel& kernel : work.kernels) {
      if (kernel.kind != Kernel::Kind::kAttention) {
        out.kernels.push_back(kernel);
        continue;
      }
      const UnfusedAttention attention(kernel, wide_, compiled_);
      const std::vector<Kernel> kernels =
          kernel.backward ? attention.backward() : attention.forward();
      out.kernels.insert(out.kernels.end(), kernels.begin(), kernels.end());
      scores_ = Bytes(attention.score_bytes());
      saved_ = Bytes(attention.score_bytes() + attention.query_bytes());
    }
    return out;
  }

  void run(GpuModel::Pass pass, std::int64_t piece) {
    using Pass = GpuModel::Pass;
    if (piece == 0 || piece == model_.head()) {
      model_.launch(pass, piece);
      return;
    }
    if (pass == Pass::kForward && checkpointing_) {
      gpu_.free(hold(saved_));
    } else if (pass == Pass::kForward || pass == Pass::kRecompute) {
      softmax_.push_back(hold(saved_));
    } else if (pass == Pass::kBackward) {
      gpu_.free(hold(2 * scores_));
    }
    if (pass != Pass::kGradients) {
      gpu_.launch(pass == Pass::kForward     ? forward_
                  : pass == Pass::kRecompute ? recompute_
                                             : backward_);
    } else {
      gpu_.free(softmax_.back());
      softmax_.pop_back();
    }
  }
  Buffer hold(Bytes bytes) { return gpu_.allocate(Space::kGpu, bytes, "attention scores"); }

  // Gradients of a piece: the first are kept, others are added to them.
  void take(std::int64_t piece, std::int64_t micro) {
    const std::int64_t fresh = count(model_.tensors(piece));
    const Buffer made = gpu_.allocate(Space::kGpu, Bytes(width_ * fresh), "gradients");
    if (micro == 0) {
      until_eval_.push_back(made);
      return;
    }
    gpu_.launch(add_gradients(fresh, model_.tensors(piece).size(), width_));
    gpu_.free(made);
  }

  void update() {
    constexpr int kOperations = 13, kNumbers = 30, kNumbersFused = 7;
    if (!job_.options.flag("donation")) {
      until_eval_.push_back(gpu_.allocate(Space::kGpu, Bytes(3 * width_ * parameters_),
                                          "old parameters and Adam states"));
    }
    gpu_.launch(model::elementwise(
        "Adam", parameters_, static_cast<double>(width_) * (compiled_ ? kNumbersFused : kNumbers),
        static_cast<int>(tensors_) * (compiled_ ? 1 : kOperations)));
  }

  const Job& job_;
  Recorder& gpu_;
  GpuModel model_;
  bool wide_, compiled_, checkpointing_;
  std::int64_t width_, parameters_, tensors_;
  Work forward_, recompute_, backward_;
  Bytes scores_, saved_;
  std::vector<Buffer> softmax_, until_eval_;
};

}  // namespace

std::vector<OptionSpec> mlx_options() {
  using Kind = OptionSpec::Kind;
  return {
      {"compile", Kind::kFlag, "true", "",
       "mx.compile of the step: Adam is one kernel a tensor, not 13"},
      {"donation", Kind::kFlag, "true", "",
       "false: old parameters and states are referred to until mx.eval returns, beside the new"},
      {"memory_limit", Kind::kCount, "auto", "bytes",
       "set_memory_limit: the host waits for running work above it; no effect on a step here"},
      {"wired_limit", Kind::kCount, "0", "bytes",
       "set_wired_limit: stays resident, at most what Metal recommends; no effect on a step here"},
  };
}

std::vector<std::string> check_mlx(const Job& job) {
  refuse_adapters(job, "adapters of mlx-lm are not modelled");
  refuse_activation_offload(job, "CPU and GPU have one memory");
  refuse_experts(job, "its kernels for them are not those of PyTorch");
  if (!job.machine.accelerator.unified) {
    throw InputError({},
                     fmt::format("mlx needs unified memory, and the GPU of {} has a memory of its "
                                 "own",
                                 job.machine.name),
                     "expected a machine whose CPU and GPU share one, such as mac-studio-m3-ultra");
  }
  require_precision(job, {Precision::kBf16, Precision::kFp32},
                    "bf16 or fp32: MLX has no autocast, and Adam's states have the type of the "
                    "parameters");
  const std::int64_t wired = job.options.count("wired_limit");
  const Bytes working_set = job.machine.accelerator.memory.value;
  if (wired > working_set.value) {
    throw InputError(job.options.place("wired_limit"), "mlx.wired_limit is above the system's",
                     fmt::format("expected at most {} bytes, the working set that Metal recommends",
                                 working_set.value));
  }
  std::vector<std::string> warnings;
  warn_without_effect(warnings, job,
                      "no other program's memory is modelled, and what the host waits for is freed "
                      "in order",
                      {"memory_limit", "wired_limit"});
  return warnings;
}

void record_mlx(const Job& job, Recorder& gpu, int steps) { record_steps(Mlx(job, gpu), steps); }

}  // namespace offsim::plans
