// zero2-offload: DeepSpeed stage 2 with offload_optimizer.device = cpu (source:
// runtime/zero/stage_1_and_2.py).
//
// GPU: 16-bit parameters 2N; a 16-bit buffer of the largest tensor; during backward a bucket of
// reduce_bucket_size elements (two with overlap_comm), made when backward starts before 0.18.3,
// by the first gradient since. CPU: fp32 master 4N (pinned whatever pin_memory says before
// 0.18.3) and its fp32 gradient 4N, moments 8N from the first step on; before 0.17 nothing more,
// since then a 16-bit staging copy 2N; with accumulation 2N of 16-bit gradients, one block a
// tensor.
// Backward: gradients on their way to the host as zero2_gradients.h says.
// Step, the host alone: read the norms; per group unscale (8 B a parameter), CPU Adam (28 B), write
// back:
//   before 0.17   blocking H2D of 4 B a parameter, then a GPU cast, 4N transient bytes on the GPU
//   since         CPU cast to the staging copy (6 B), H2D of 2 B a parameter, not blocking
// H2D bytes a parameter: 2(k-1) + 4 or + 2. D2H: 4 for k = 1, else 2k + 4.
// Frozen parameters (adapters) are 2 bytes on the GPU and nothing else; N and all buffers are of
// the trained ones then. Checkpoints in host memory: checkpoint_offload.h.
//
// variant = paper: the delayed parameter update of arXiv 2101.06840, which the code does not have.
// Gradients leave in 16 bits on a stream of their own, beside the backward, and nobody waits for
// them. Adam of step t runs on a worker while the GPU does forward and backward of t + 1, whose
// weights are therefore one update old and whose gradients go to a second buffer. Adam goes tile by
// tile and writes the tile's 16-bit parameters too: as many bytes (28) as with fp32 gradients. A
// tile crosses once it is finished and the backward of t + 1 reads the old weights no more; the
// forward of t + 2 waits for the last. GPU: 2N and the two buckets. CPU: 4N + 8N, pinned gradients
// 2 x 2N and parameters 2N. H2D 2(k-1) + 2, D2H 2k: 2 each for k = 1.
//
// Left out: several GPUs, stage 1, more than one parameter group, fp16 loss scaling's skipped
// steps; of the paper the first 40 steps, which are not delayed, and a norm and a check of the
// gradients, of which it says nothing.
#include <algorithm>

#include "sim/plans/checkpoint_offload.h"
#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"
#include "sim/plans/gpu_model.h"
#include "sim/plans/plans.h"
#include "sim/plans/zero2_gradients.h"

namespace offsim::plans {

using model::Tensor;
using runtime::Buffer;
using runtime::kCompute;
using runtime::Lane;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

namespace {

// Elements that the Adam of early DeepSpeed copied to the GPU at a time (csrc/adam, before #5409).
constexpr std::int64_t kTile = 128 * kMiB;

class Zero2 {
 public:
  Zero2(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        model_(job, gpu, numerics_of(job.workload.precision, true)),
        parameters_(model::trained_parameters(job.shape)),
        version_(job.options.version("deepspeed_version")),
        delayed_(job.options.text("variant") == "paper"),
        overlap_(delayed_ || job.options.flag("overlap_comm")),
        host_(delayed_ || job.options.flag("pin_memory", version_ >= kPinnedByDefaultSince)
                  ? Space::kPinned
                  : Space::kPageable),
        gradients_(gpu, {.bucket_elements = job.options.count("reduce_bucket_size"),
                         .overlap = overlap_,
                         .host = host_,
                         .in_16_bits = delayed_}) {
    if (delayed_) {
      adam_ = gpu.worker("Adam");
      weights_ = gpu.stream("weights");
      place_as_the_paper();
    } else {
      place_zero2(job, gpu, version_ >= kMasterPinnedByFlagSince ? host_ : Space::kPinned, host_,
                  version_ >= kStagingSince);
      gpu_.allocate(host_, Bytes(4 * parameters_), "fp32 gradients");
    }
  }

  void step(bool first) {
    if (delayed_ && !first) {
      start_adam();
    }
    const std::int64_t k = job_.workload.accumulation;
    const auto run = [this](GpuModel::Pass pass, std::int64_t piece) {
      model_.launch(pass, piece);
      if (pass == GpuModel::Pass::kGradients) {
        for (const Tensor& tensor : model_.trained(piece)) {
          gradients_.reduce(tensor);
        }
      }
    };
    for (std::int64_t micro = 0; micro < k; ++micro) {
      gradients_.begin(micro == 0, micro + 1 == k);
      enter(job_, gpu_, Phase::kForward);
      model_.forward(run);
      enter(job_, gpu_, Phase::kBackward);
      if (version_ < kLazyBucketsSince && !delayed_) {
        gradients_.allocate_buckets();
      }
      model_.backward(run);
      gradients_.flush();
      if (!delayed_) {
        if (overlap_) {
          gpu_.sync_device();
        }
        gradients_.free_buckets();
      }
    }
    enter(job_, gpu_, Phase::kOptimizer);
    if (first) {
      gpu_.allocate(Space::kPageable, Bytes(8 * parameters_), "Adam states");
    }
    if (delayed_) {
      take_new_weights();
    } else if (version_ >= kStagingSince) {
      update_zero2(job_, gpu_, host_);
    } else {
      update_and_write_back_fp32();
    }
    end_step(job_, gpu_);
  }

 private:
  void place_as_the_paper() {
    place_on_gpu(job_, gpu_, 2);
    place_workspace(job_, gpu_);
    gpu_.allocate(Space::kPageable, Bytes(4 * parameters_), "fp32 master");
    for (int i = 0; i < 2; ++i) {
      gpu_.allocate(Space::kPinned, Bytes(2 * parameters_), "16-bit gradients");
    }
    gpu_.allocate(Space::kPinned, Bytes(2 * parameters_), "16-bit parameters");
    gradients_.allocate_buckets();
    if (job_.workload.accumulation > 1) {
      gpu_.allocate(Space::kGpu, Bytes(2 * model::largest_trained_tensor(job_.shape).numel()),
                    "16-bit gradient buffer");
    }
  }

  void update_and_write_back_fp32() {
    begin_zero2_step(job_, gpu_);
    gpu_.cpu("mul_f32", parameters_, "unscale and clip");
    gpu_.cpu("adam_deepspeed_f32", parameters_, "Adam");
    const Buffer wide =
        gpu_.allocate(Space::kGpu, Bytes(4 * parameters_), "fp32 parameters in transit");
    gpu_.copy_h2d(kCompute, Space::kPinned, Bytes(4 * parameters_), "fp32 parameters",
                  {.blocking = true});
    gpu_.launch(cast_to_16_bits, parameters_);
    gpu_.free(wide);
  }

  // Of the step before, handed to the worker once its gradients are there.
  void start_adam() {
    gpu_.phase(Phase::kOptimizer);
    gpu_.wait(adam_, gpu_.record(gradients_.reduction()));
    for (std::int64_t done = 0; done < parameters_; done += kTile) {
      const std::int64_t n = std::min(kTile, parameters_ - done);
      gpu_.cpu("adam_deepspeed_f32", n, "Adam", {.thread = adam_});
      tiles_.push_back({n, gpu_.record(adam_)});
    }
  }

  // What Adam has finished meanwhile takes the place of the weights that nobody reads any more.
  void take_new_weights() {
    gpu_.wait(weights_, gpu_.record(kCompute));
    for (const Tile& tile : tiles_) {
      gpu_.wait(weights_, tile.finished);
      gpu_.copy_h2d(weights_, Space::kPinned, Bytes(2 * tile.elements), "parameters");
    }
    tiles_.clear();
    gpu_.sync(adam_);
    gpu_.wait(kCompute, gpu_.record(weights_));
  }

  struct Tile {
    std::int64_t elements;
    runtime::Event finished;
  };

  const Job& job_;
  Recorder& gpu_;
  GpuModel model_;
  std::int64_t parameters_;  // that are trained
  std::int64_t version_;
  bool delayed_, overlap_;
  Space host_;
  Zero2Gradients gradients_;
  Lane adam_{}, weights_{};  // of the delayed update
  std::vector<Tile> tiles_;
};

}  // namespace

std::vector<std::string> check_zero2_offload(const Job& job) {
  require_precision(
      job, {Precision::kBf16Mixed, Precision::kFp16Mixed},
      "bf16-mixed or fp16-mixed: fp32 masters on the CPU, 16-bit parameters on the GPU");
  std::vector<std::string> warnings;
  check_checkpoint_offload(job, warnings);
  if (job.options.text("variant") == "paper") {
    warn_without_effect(warnings, job, "the paper's variant pins and overlaps",
                        {"pin_memory", "overlap_comm", "deepspeed_version"});
  }
  warn_without_effect(warnings, job, "DeepSpeed sets it with offload", {"contiguous_gradients"});
  warn_without_effect(warnings, job, "there is one GPU",
                      {"allgather_bucket_size", "round_robin_gradients"});
  return warnings;
}

// The paper's Adam begins beside the copies of the weights that end its step.
bool zero2_meets_next(const Job& job) { return job.options.text("variant") == "paper"; }

void record_zero2_offload(const Job& job, Recorder& gpu, int steps) {
  // The paper's update comes a step later, and so does what is steady. So it does where Adam's
  // states, which the first step makes, may have taken the heap that pageable activations left.
  const bool later = job.options.text("variant") == "paper" ||
                     job.options.flag("cpu_checkpointing") ||
                     job.workload.activation_offload == ActivationOffload::kSaveOnCpu;
  record_steps(Zero2(job, gpu), later ? steps + 1 : steps);
}

}  // namespace offsim::plans
