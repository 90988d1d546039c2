// superoffload: Adam on the CPU as soon as gradients arrive, beside the backward.
//
// variant code (DeepSpeed's offload_optimizer.super_offload; source: runtime/superoffload): stage 3
// (stage3.h, optimizer on the CPU) whose sub-groups are updated by a process of its own with
// cpuadam_cores_perc of the cores; the training process keeps the first ones. When the bucket that
// completes a sub-group was sent, the host synchronises the reduction stream and, only without
// gradient clipping, hands the sub-group over: the worker copies the gradient into its pinned
// buffer (8 B a parameter) and runs Adam (28 B). Handing over turned master and gradient into
// shared memory: the gradient is no longer pinned (its pinned block stays cached), so that its D2H
// of 4 B keeps the host. Step: wait for all results; then per sub-group an unscale that no longer
// matters (8 B on the host), Adam of GPU sub-groups, and the write-back of stage 3. With clipping
// nothing is speculative: per sub-group unscale, hand over, wait, write back. Host: stage 3's, and
// the worker's pinned buffer of 4 B an element of the largest sub-group, and the cached pinned
// gradients.
//
// variant paper (arXiv 2509.21271): weights on the GPU, 2N. Backward fills buckets of 64 MB; of
// each: a GPU cast, D2H 4 B a parameter, Adam on the CPU (28 B), H2D 4 B of fp32 weights, a GPU
// cast, each on its own stream or worker. The last 1 - ratio of the buckets keep master and states
// on the GPU. The validation of gradients reads them on the GPU. A piece of the next forward waits
// for its weights. Left out: rollbacks (0.12 % of the steps), GraceAdam's kernel (the host's own
// Adam is taken), weight flow (offload_param).
#include <algorithm>

#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"
#include "sim/plans/plan.h"
#include "sim/plans/plans.h"
#include "sim/plans/stage3.h"
#include "sim/plans/stage3_step.h"

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

constexpr std::int64_t kPaperBucket = 64'000'000 / 4;  // elements of 64 MB of fp32

class SuperOffload {
 public:
  SuperOffload(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        stage_(job, gpu, Tier::kCpu),
        clips_(job.options.given("gradient_clipping")
                   ? job.options.number("gradient_clipping") > 0
                   : job.options.version("deepspeed_version") >= kClippingByDefaultSince),
        worker_(gpu.worker("optimizer process")) {
    const int cores = job.machine.host.cores;
    const double share = job.options.number("cpuadam_cores_perc");
    host_threads_ = std::max(1, static_cast<int>((1 - share) * cores));
    worker_threads_ = std::max(1, cores - static_cast<int>((1 - share) * cores));
    std::int64_t largest = 0;
    for (const SubGroup& group : stage_.sub_groups()) {
      largest = std::max(largest, group.elements);
    }
    gpu.allocate(Space::kPinned, Bytes(4 * largest), "optimizer process's gradient buffer");
    missing_.resize(stage_.sub_groups().size());
    stage_.gradients().on_sent(
        [this](const std::vector<std::size_t>& parameters) { sent(parameters); });
  }

  void step(bool first) {
    for (std::size_t i = 0; i < missing_.size(); ++i) {
      missing_[i] = stage_.sub_groups()[i].tensors;
    }
    stage_.micro_steps();
    enter(job_, gpu_, Phase::kOptimizer);
    gpu_.sync(worker_);
    stage_.begin_optimizer(first);
    read_gradient_norms(gpu_, stage_);
    for (const SubGroup& group : stage_.sub_groups()) {
      update(group);
    }
    if (first) {
      share_memory();
    }
    stage_.end_optimizer();
    end_step(job_, gpu_);
  }

 private:
  // partition_grads: what this bucket completes is handed over once it has arrived.
  void sent(const std::vector<std::size_t>& parameters) {
    std::vector<const SubGroup*> complete;
    for (const std::size_t parameter : parameters) {
      const std::size_t group = stage_.sub_group_of(parameter);
      if (--missing_[group] == 0) {
        complete.push_back(&stage_.sub_groups()[group]);
      }
    }
    if (complete.empty()) {
      return;
    }
    gpu_.sync(stage_.reduction());
    for (const SubGroup* group : complete) {
      if (group->optimizer == Tier::kCpu && !clips_) {
        hand_over(*group);
      }
    }
  }

  void hand_over(const SubGroup& group) {
    const Recorder::CpuOptions on{.thread = worker_, .threads = worker_threads_};
    gpu_.cpu("copy_f32", group.elements, "gradient into the process's buffer", on);
    gpu_.cpu("adam_deepspeed_f32", group.elements, "Adam", on);
  }

  // The queue turns storages into shared memory, once.
  void share_memory() {
    for (const SubGroup& group : stage_.sub_groups()) {
      if (group.optimizer == Tier::kCpu) {
        gpu_.allocate(Space::kPageable, Bytes(4 * group.elements), "shared fp32 gradients");
      }
    }
    stage_.gradients().unpin_fp32();
  }

  void update(const SubGroup& group) {
    if (group.optimizer == Tier::kGpu) {
      update_on_gpu(gpu_, stage_, group);
      return;
    }
    gpu_.cpu("mul_f32", group.elements, "unscale and clip", {.threads = host_threads_});
    if (clips_) {
      hand_over(group);
      gpu_.sync(worker_);
    }
    write_back_from_cpu(gpu_, stage_, group, host_threads_);
  }

  const Job& job_;
  Recorder& gpu_;
  Stage3 stage_;
  bool clips_;
  Lane worker_;
  int host_threads_ = 1, worker_threads_ = 1;
  std::vector<std::int64_t> missing_;  // by sub-group: tensors whose gradients have not come
};

class SuperOffloadPaper {
 public:
  SuperOffloadPaper(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        model_(job, gpu, numerics_of(job.workload.precision, true)),
        to_host_(gpu.stream("gradients")),
        to_gpu_(gpu.stream("parameters")),
        worker_(gpu.worker("optimizer")) {
    const std::int64_t n = model::parameters(job.shape);
    gpu.allocate(Space::kGpu, Bytes(2 * n), "parameters");
    place_workspace(job, gpu);
    if (job.workload.accumulation > 1) {
      gpu.allocate(Space::kGpu, Bytes(2 * n), "16-bit gradients");
    }
    on_cpu_ = static_cast<std::int64_t>(job.options.number("ratio") * static_cast<double>(n));
    gpu.allocate(Space::kPinned, Bytes(4 * on_cpu_), "fp32 master");
    gpu.allocate(Space::kPinned, Bytes(4 * on_cpu_), "fp32 gradients");
    gpu.allocate(Space::kGpu, Bytes(4 * (n - on_cpu_)), "fp32 master");
    ready_.assign(static_cast<std::size_t>(model_.head()) + 1, gpu.record(to_gpu_));
  }

  void step(bool first) {
    const std::int64_t k = job_.workload.accumulation;
    for (std::int64_t micro = 0; micro < k; ++micro) {
      const GpuModel::Run run = [&](GpuModel::Pass pass, std::int64_t piece) {
        if (pass == GpuModel::Pass::kForward) {
          gpu_.wait(kCompute, ready_[static_cast<std::size_t>(piece)]);
        }
        model_.launch(pass, piece);
        if (pass == GpuModel::Pass::kGradients) {
          gradients_of(piece, micro);
        }
      };
      enter(job_, gpu_, Phase::kForward);
      model_.forward(run);
      enter(job_, gpu_, Phase::kBackward);
      sent_ = 0;
      model_.backward(run);
    }
    flush();
    enter(job_, gpu_, Phase::kOptimizer);
    if (first) {
      const std::int64_t n = model::parameters(job_.shape);
      gpu_.allocate(Space::kPageable, Bytes(8 * on_cpu_), "Adam states");
      gpu_.allocate(Space::kGpu, Bytes(8 * (n - on_cpu_)), "Adam states");
    }
    end_step(job_, gpu_);
  }

 private:
  void gradients_of(std::int64_t piece, std::int64_t micro) {
    const bool boundary = micro + 1 == job_.workload.accumulation;
    for (const Tensor& tensor : model_.tensors(piece)) {
      const std::int64_t n = tensor.numel();
      if (job_.workload.accumulation > 1) {
        gpu_.launch(model::elementwise(sized(micro == 0 ? "keep gradient" : "add gradient", n), n,
                                       micro == 0 ? 4 : 6, 1));
      }
      if (boundary) {
        in_bucket_ += n;
        bucket_.push_back(gpu_.allocate(Space::kGpu, Bytes(2 * n), "gradients"));
      }
    }
    if (boundary) {
      pieces_.push_back(piece);
      if (in_bucket_ >= kPaperBucket) {
        flush();
      }
    }
  }

  // A bucket of gradients becomes weights again.
  void flush() {
    if (in_bucket_ == 0) {
      return;
    }
    const std::int64_t n = in_bucket_;
    gpu_.launch(model::elementwise(sized("validate gradients", n), n, 2, 1));
    if (sent_ + n <= on_cpu_) {
      update_on_cpu(n);
    } else {  // the gradients that come last
      gpu_.launch(cast_to_fp32, n);
      model::Work adam = model::gpu_adam(n, 1, true);
      adam.name = sized("Adam", n);
      gpu_.launch(adam);
      gpu_.launch(cast_to_16_bits, n);
      for (const Buffer gradient : bucket_) {
        gpu_.free(gradient);
      }
    }
    sent_ += n;
    bucket_.clear();
    pieces_.clear();
    in_bucket_ = 0;
  }

  void update_on_cpu(std::int64_t n) {
    gpu_.wait(to_host_, gpu_.record(kCompute));
    const Buffer wide = gpu_.allocate(Space::kGpu, Bytes(4 * n), "fp32 gradients in transit");
    gpu_.launch(cast_to_fp32, n, to_host_);
    gpu_.copy_d2h(to_host_, Space::kPinned, Bytes(4 * n), "fp32 gradients");
    for (const Buffer gradient : bucket_) {
      gpu_.free_after(gradient, to_host_);
    }
    gpu_.free_after(wide, to_host_);
    gpu_.wait(worker_, gpu_.record(to_host_));
    gpu_.cpu("adam_deepspeed_f32", n, "Adam", {.thread = worker_});
    gpu_.wait(to_gpu_, gpu_.record(worker_));
    gpu_.wait(to_gpu_, gpu_.record(kCompute));  // backward may still read the old weights
    const Buffer back = gpu_.allocate(Space::kGpu, Bytes(4 * n), "fp32 parameters in transit");
    gpu_.copy_h2d(to_gpu_, Space::kPinned, Bytes(4 * n), "fp32 parameters");
    gpu_.launch(cast_to_16_bits, n, to_gpu_);
    gpu_.free_after(back, to_gpu_);
    const Event ready = gpu_.record(to_gpu_);
    for (const std::int64_t piece : pieces_) {
      ready_[static_cast<std::size_t>(piece)] = ready;
    }
  }

  const Job& job_;
  Recorder& gpu_;
  GpuModel model_;
  Lane to_host_, to_gpu_, worker_;
  std::int64_t on_cpu_ = 0;   // parameters whose optimizer is on the CPU
  std::vector<Event> ready_;  // by piece: its weights are those of the last step
  std::vector<Buffer> bucket_;
  std::vector<std::int64_t> pieces_;  // in the bucket
  std::int64_t in_bucket_ = 0, sent_ = 0;
};

}  // namespace

std::vector<OptionSpec> superoffload_options() {
  using Kind = OptionSpec::Kind;
  std::vector<OptionSpec> options = zero3_options("cpu");
  std::erase_if(options, [](const OptionSpec& option) {
    return option.name == "offload_optimizer" || is_of_drive(option.name);
  });
  for (OptionSpec& option : options) {
    if (option.name == "offload_param") {
      option.fallback = "none";
      option.choices = {"none", "cpu"};
    }
  }
  options.push_back(
      {"gradient_clipping", Kind::kNumber, "by version", "",
       "the norm to clip to; 0: none, which alone lets Adam run beside the backward"});
  options.push_back({"cpuadam_cores_perc", Kind::kNumber, "0.8", "",
                     "the part of the cores that the optimizer process gets"});
  options.push_back({"variant",
                     Kind::kChoice,
                     "code",
                     "",
                     "DeepSpeed's code, or what the paper states (64 MB buckets, validation beside "
                     "the next forward)",
                     {"code", "paper"}});
  return options;
}

std::vector<std::string> check_superoffload(const Job& job) {
  refuse_adapters(job, "its Adam beside the backward is for every parameter");
  std::vector<std::string> warnings = check_stage3(job);
  const double share = job.options.number("cpuadam_cores_perc");
  if (!(share > 0 && share <= 1)) {
    throw InputError(job.options.place("cpuadam_cores_perc"),
                     fmt::format("superoffload.cpuadam_cores_perc is {}", share),
                     "expected more than 0, at most 1");
  }
  if (job.options.text("variant") == "paper") {
    warn_without_effect(warnings, job, "the paper's variant has its own buckets and streams",
                        {"offload_param", "pin_memory", "sub_group_size",
                         "stage3_prefetch_bucket_size", "stage3_max_live_parameters",
                         "stage3_max_reuse_distance", "stage3_param_persistence_threshold",
                         "reduce_bucket_size", "overlap_comm", "contiguous_gradients", "zero_init",
                         "gradient_clipping", "cpuadam_cores_perc", "deepspeed_version"});
  }
  return warnings;
}

void record_superoffload(const Job& job, Recorder& gpu, int steps) {
  if (job.options.text("variant") == "paper") {
    record_steps(SuperOffloadPaper(job, gpu), steps);
  } else {
    record_steps(SuperOffload(job, gpu), steps);
  }
}

}  // namespace offsim::plans
