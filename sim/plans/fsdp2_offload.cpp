// fsdp2-offload: PyTorch's fully_shard on every layer and the root with CPUOffloadPolicy
// (source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py,
// _fsdp_param.py).
//
// d GPUs, one process each; a shard is a d-th of a tensor's rows, rounded up.
// Host, bytes a shard's parameter: fp32 parameters 4 and gradients 4, pinned tensor by tensor and
// rounded to powers of two; Adam's m and v 8, pageable, from the first step on. Without pin_memory
// parameters are pageable, and so are gradients: new blocks in every step, given back by zero_grad.
// With precision bf16 all of these are 2 bytes a number. Frozen parameters (adapters) have no
// gradient and no states, and stay the 16-bit numbers as which they were loaded: they cross as 2
// bytes and need no cast. Of 4-bit ones (QLoRA: bnb_4bit_quant_storage is the parameters' type)
// only the numbers are sharded and come, half a byte each; their constants stay on the GPU.
// GPU: the groups' 16-bit parameters. The root group (embedding, final norm, head) stays from its
// unshard until the end of the backward; a layer's are freed after its forward and its backward.
// Unshard, one GPU: on the *compute* stream, so nothing of it overlaps compute, and prefetching
// has no effect: tensor by tensor H2D of 4 B a parameter, a cast to 16 bits and one more copy.
// Unshard, d GPUs: on the copy-in stream tensor by tensor H2D of 4 B a shard's parameter, a cast,
// and one copy into this rank's part of the gathered bytes; on the all-gather stream the
// all-gather; then compute waits and copies out into the parameters. Forward, implicit prefetch:
// the host issues a group's gather first and only then makes the two streams wait for the copy-out
// of the group before, whose gathered bytes are kept until then; so a group comes while the one
// before computes, and the next one waits. Backward, explicit prefetch: the two streams wait for a
// group's copy-out, its gathered bytes go, and the host issues the gather of the layer before at
// once; the root's hook is the first, so the last layer comes during the loss.
// Backward of a group: unshard again, (recompute,) backward, parameters freed; then compute waits
// for the reduce-scatter of the group before, not for its copies, and copies the gradients in; on
// the reduce-scatter stream they are reduced (one GPU: copied), cast to the parameters' type and
// sent, 4 B a shard's parameter, tensor by tensor, not blocking. From the second micro-batch on
// every copy blocks, into a new pageable temporary, and the CPU adds it (12 B).
// At the end of the backward the host waits for all of that. Then, the GPU idle: clip (norms on one
// core, and a scaling), AdamW: fused 28 B a parameter, one call a tensor; for-loop about 88 B,
// which makes and drops two temporaries of every tensor. Nothing goes back: the next unshard reads
// it. Blocks of the reduce-scatter stream are its own, so that they are free as soon as the host
// drops them: no record_stream.
// H2D bytes a shard's parameter: 8 a micro-batch for the layers, 4 for the root; D2H 4 a
// micro-batch; between the GPUs 2 (d - 1) / d a parameter, for each of these.
// Left out: reduce_dtype other than 16 bits (and the divisions beside fp16), reshard_after_forward
// false, set_requires_gradient_sync, the all-reduce of clipping's one number, NCCL's own buffers,
// several hosts. Refused on several GPUs: mixtures, whose experts' tensors are cut expert by
// expert, so that ranks differ where their number does not divide.
#include <utility>

#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"
#include "sim/plans/gpu_model.h"
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

class Fsdp2 {
 public:
  Fsdp2(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        model_(job, gpu, model::Numerics::kPure16),
        width_(job.workload.precision == Precision::kBf16 ? 2 : 4),
        fused_(job.options.flag("fused")),
        host_(job.options.flag("pin_memory") ? Space::kPinned : Space::kPageable),
        ranks_(static_cast<int>(job.workload.gpus)),
        reduction_(gpu.stream("reduce-scatter")),
        trained_(shards(model::trained(model::all_tensors(job.shape)))) {
    if (ranks_ > 1) {
      copy_in_ = gpu.stream("copy-in");
      gather_ = gpu.stream("all-gather");
    }
    place_workspace(job, gpu_);
    if (const Bytes bytes = constants(job.shape); bytes.value > 0) {
      gpu_.allocate(Space::kGpu, bytes, "constants of quantisation");
    }
    model::for_each_tensor(job.shape, [this](const Tensor& tensor) {
      gpu_.allocate(host_, numbers(shard(tensor), {width_, 2}), "parameters");
      if (host_ == Space::kPinned &&
          tensor.trained) {  // PyTorch's cache of pinned blocks keeps them between steps
        gpu_.allocate(host_, Bytes(width_ * shard(tensor).numel()), "gradients");
      }
    });
  }

  void step(bool first) {
    const GpuModel::Run run = [this](GpuModel::Pass pass, std::int64_t piece) {
      this->run(pass, piece);
    };
    for (std::int64_t micro = 0; micro < job_.workload.accumulation; ++micro) {
      first_micro_ = micro == 0;
      enter(job_, gpu_, Phase::kForward);
      forward_ = true;
      root_ = unshard(root_tensors());
      model_.forward(run);
      drop_last_gather();
      forward_ = false;
      enter(job_, gpu_, Phase::kBackward);
      prefetch_before(model_.head());  // the root's hook is the first of all
      model_.backward(run);
      reduce(model::trained(root_tensors()), root_, root_gradients_);
      root_gradients_.clear();
      drop_last_reduction();
      gpu_.sync(reduction_);
    }
    enter(job_, gpu_, Phase::kOptimizer);
    if (first) {
      gpu_.allocate(Space::kPageable, Bytes(2 * width_ * count(trained_)), "Adam states");
    }
    optimizer_step();
    for (const Buffer gradient : pageable_gradients_) {  // zero_grad
      gpu_.free(gradient);
    }
    pageable_gradients_.clear();
    end_step(job_, gpu_);
  }

 private:
  bool is_root(std::int64_t piece) const { return piece == 0 || piece == model_.head(); }

  // In the order of backward, as of any piece; groups keep the order of registration.
  std::vector<Tensor> root_tensors() const {
    std::vector<Tensor> tensors = model_.tensors(model_.head());
    const std::vector<Tensor>& embedding = model_.tensors(0);
    tensors.insert(tensors.end(), embedding.begin(), embedding.end());
    return tensors;
  }

  // fully_shard cuts a tensor's rows as torch.chunk does; the first rank has no fewer than others.
  Tensor shard(Tensor tensor) const {
    tensor.rows = (tensor.rows + ranks_ - 1) / ranks_;
    return tensor;
  }
  std::vector<Tensor> shards(std::vector<Tensor> tensors) const {
    for (Tensor& tensor : tensors) {
      tensor = shard(std::move(tensor));
    }
    return tensors;
  }

  void hooks(runtime::HostTask task, const std::vector<Tensor>& tensors) {
    gpu_.host_busy(task, std::ssize(tensors), "FSDP2's hooks");
  }

  // A shard as it is stored comes, and is cast.
  Buffer bring(const Tensor& shard, Lane stream) {
    const Bytes bytes = numbers(shard, {width_, 2});
    const Buffer stored = gpu_.allocate(Space::kGpu, bytes, "parameters in transit");
    gpu_.copy_h2d(stream, host_, bytes, "parameters");
    if (!shard.trained || width_ == 2) {
      return stored;
    }
    const std::int64_t n = shard.numel();
    const Buffer cast = gpu_.allocate(Space::kGpu, Bytes(2 * n), "parameters in transit");
    gpu_.launch(model::elementwise(sized("cast parameters to 16 bits", n), n, 6, 1), stream);
    gpu_.free(stored);
    return cast;
  }

  void launch_copy(Bytes bytes, Lane stream) {
    const std::int64_t moved = 2 * bytes.value;  // read and written
    gpu_.launch(model::elementwise(sized("copy parameters", moved, "bytes"), moved, 1, 1), stream);
  }

  // foreach_all_gather, unless the group's is under way.
  void start_gather(const std::vector<Tensor>& tensors) {
    if (ranks_ == 1 || gather_ahead_) {
      return;
    }
    const std::vector<Tensor> mine = shards(tensors);
    hooks(runtime::HostTask::kUnshardTensor, tensors);
    std::vector<Buffer> inputs;
    for (auto at = mine.rbegin(); at != mine.rend(); ++at) {
      inputs.push_back(bring(*at, copy_in_));
    }
    const Bytes part = numbers(mine, {2, 2});
    const Buffer gathered = gpu_.allocate(Space::kGpu, part * ranks_, "all-gather buffers");
    launch_copy(part, copy_in_);
    for (const Buffer input : inputs) {
      gpu_.free(input);
    }
    gpu_.wait(gather_, gpu_.record(copy_in_));
    gpu_.all_gather(gather_, part * ranks_, ranks_, "all-gather of parameters");
    gather_ahead_ = Gather{gathered, gpu_.record(gather_)};
  }

  // wait_for_unshard: the parameters are there for what is launched next.
  Buffer unshard(const std::vector<Tensor>& tensors) {
    if (ranks_ == 1) {
      return unshard_alone(tensors);
    }
    start_gather(tensors);
    if (forward_) {
      drop_last_gather();
    }
    const Gather gather = *std::exchange(gather_ahead_, std::nullopt);
    gpu_.wait(kCompute, gather.event);
    const Buffer whole =
        gpu_.allocate(Space::kGpu, numbers(tensors, {2, 2}), "unsharded parameters");
    launch_copy(numbers(tensors, {2, 2}), kCompute);
    last_gather_ = Gather{gather.bytes, gpu_.record(kCompute)};
    if (!forward_) {
      drop_last_gather();
    }
    return whole;
  }

  Buffer unshard_alone(const std::vector<Tensor>& tensors) {
    hooks(runtime::HostTask::kUnshardTensor, tensors);
    const Buffer whole =
        gpu_.allocate(Space::kGpu, numbers(tensors, {2, 2}), "unsharded parameters");
    for (auto at = tensors.rbegin(); at != tensors.rend(); ++at) {
      const Buffer transit = bring(*at, kCompute);
      launch_copy(numbers(*at, {2, 2}), kCompute);
      gpu_.free(transit);
    }
    return whole;
  }

  // What was gathered is kept until it has been copied out; the next copy-in waits for that.
  void drop_last_gather() {
    if (last_gather_) {
      gpu_.wait(copy_in_, last_gather_->event);
      gpu_.wait(gather_, last_gather_->event);
      gpu_.free(last_gather_->bytes);
      last_gather_.reset();
    }
  }

  // _backward_prefetch: the next layer's, in reverse.
  void prefetch_before(std::int64_t piece) {
    if (piece > 1) {
      start_gather(model_.tensors(piece - 1));
    }
  }

  void run(GpuModel::Pass pass, std::int64_t piece) {
    if (is_root(piece)) {
      model_.launch(pass, piece);
      const std::int64_t fresh = count(model_.trained(piece));
      if (pass == GpuModel::Pass::kGradients && fresh > 0) {
        root_gradients_.push_back(
            gpu_.allocate(Space::kGpu, Bytes(2 * fresh), "unsharded gradients"));
      }
      return;
    }
    const bool checkpointing = job_.workload.checkpointing == Checkpointing::kFull;
    if (pass == GpuModel::Pass::kForward || pass == GpuModel::Pass::kRecompute ||
        (pass == GpuModel::Pass::kBackward && !checkpointing)) {
      layer_ = unshard(model_.tensors(piece));
      if (pass != GpuModel::Pass::kForward) {
        prefetch_before(piece);
      }
    }
    model_.launch(pass, piece);
    if (pass == GpuModel::Pass::kForward) {
      gpu_.free(*layer_);
    } else if (pass == GpuModel::Pass::kGradients) {
      const std::vector<Tensor>& trained = model_.trained(piece);
      const Buffer gradients =
          gpu_.allocate(Space::kGpu, Bytes(2 * count(trained)), "unsharded gradients");
      reduce(trained, *layer_, {gradients});
    }
  }

  // post_backward: foreach_reduce and the copies to the host. What the reduction reads was copied
  // in by the compute stream and is held until the next group's; the rest is memory of its own
  // stream.
  void reduce(const std::vector<Tensor>& tensors, Buffer parameters,
              const std::vector<Buffer>& gradients) {
    gpu_.free(parameters);  // reshard
    if (tensors.empty()) {
      return;
    }
    const std::vector<Tensor> mine = shards(tensors);
    const std::int64_t n = count(mine), all = n * ranks_;
    hooks(runtime::HostTask::kReduceTensor, tensors);
    drop_last_reduction();
    const Buffer in = gpu_.allocate(Space::kGpu, Bytes(2 * all), "reduce-scatter buffers");
    gpu_.launch(model::elementwise(sized("copy gradients in", all), all, 4, 1));
    for (const Buffer gradient : gradients) {
      gpu_.free(gradient);
    }
    gpu_.wait(reduction_, gpu_.record(kCompute));
    const Buffer out = gpu_.allocate(Space::kGpu, Bytes(2 * n), "reduce-scatter buffers");
    if (ranks_ == 1) {
      gpu_.launch(model::elementwise(sized("copy for reduce-scatter", n), n, 4, 1), reduction_);
    } else {
      gpu_.reduce_scatter(reduction_, Bytes(2 * all), ranks_, "reduce-scatter of gradients");
    }
    last_ = {in, gpu_.record(reduction_)};
    std::optional<Buffer> stored;
    if (width_ == 4) {
      stored = gpu_.allocate(Space::kGpu, Bytes(4 * n), "fp32 gradients in transit");
      gpu_.launch(cast_to_fp32, n, reduction_);
    }
    for (auto at = mine.rbegin(); at != mine.rend(); ++at) {
      send(at->numel());
    }
    gpu_.free(out);
    if (stored) {
      gpu_.free(*stored);
    }
  }

  // What a reduce-scatter reads is kept until compute has waited for it.
  void drop_last_reduction() {
    if (last_) {
      gpu_.wait(kCompute, last_->done);
      gpu_.free(last_->in);
      last_.reset();
    }
  }

  // to("cpu", non_blocking): into pinned memory only when it does not block.
  void send(std::int64_t n) {
    const Bytes bytes(width_ * n);
    if (first_micro_ && host_ == Space::kPinned) {
      gpu_.copy_d2h(reduction_, host_, bytes, "gradients");
      return;
    }
    const Buffer fresh = gpu_.allocate(Space::kPageable, bytes,
                                       first_micro_ ? "gradients" : "temporaries of copies");
    gpu_.copy_d2h(reduction_, Space::kPageable, bytes, "gradients",
                  {.blocking = true, .into = fresh});
    if (first_micro_) {
      pageable_gradients_.push_back(fresh);
      return;
    }
    gpu_.cpu(width_ == 4 ? "add_f32" : "add_bf16", n, "add gradients");
    gpu_.free(fresh);
  }

  void optimizer_step() {
    const bool wide = width_ == 4;
    if (job_.options.flag("gradient_clipping")) {
      each_tensor(wide ? "norm_f32" : "norm_bf16", "clip");
      each_tensor(wide ? "mul_f32" : "mul_bf16", "clip");
    }
    const auto tensors = static_cast<std::int64_t>(trained_.size());
    gpu_.host_busy(runtime::HostTask::kOptimizerTensor, tensors, "collect tensors for Adam");
    // Every operation on a DTensor passes through its dispatch: fused AdamW is one a tensor.
    gpu_.host_busy(runtime::HostTask::kDistributedOperation, fused_ ? tensors : 12 * tensors,
                   "operations on distributed tensors");
    if (fused_) {
      each_tensor(wide ? "adam_torch_fused_f32" : "adam_torch_fused_bf16", "Adam");
    } else {
      each_tensor(wide ? "adam_torch_loop_f32" : "adam_torch_loop_bf16", "Adam");
    }
  }

  void each_tensor(std::string_view kernel, std::string_view what) {
    for (const Tensor& tensor : trained_) {
      gpu_.cpu(kernel, tensor.numel(), what);
    }
  }

  struct Reduction {
    Buffer in;
    Event done;
  };
  struct Gather {
    Buffer bytes;
    Event event;  // it has arrived; of the last one: it has been copied out
  };

  const Job& job_;
  Recorder& gpu_;
  GpuModel model_;
  std::int64_t width_;  // bytes of a stored number that is trained
  bool fused_;
  Space host_;
  int ranks_;
  Lane reduction_;
  Lane copy_in_{}, gather_{};    // of several GPUs
  std::vector<Tensor> trained_;  // this rank's shards
  bool first_micro_ = true, forward_ = true;
  Buffer root_{};
  std::optional<Buffer> layer_;
  std::optional<Gather> gather_ahead_, last_gather_;
  std::vector<Buffer> root_gradients_;
  std::vector<Buffer> pageable_gradients_;  // of this step
  std::optional<Reduction> last_;
};

}  // namespace

std::vector<OptionSpec> fsdp2_options() {
  using Kind = OptionSpec::Kind;
  return {
      {"fused", Kind::kFlag, "true", "",
       "AdamW(fused=True); false is torch's default, the for-loop"},
      {"pin_memory", Kind::kFlag, "true", "", "CPUOffloadPolicy's: asynchronous copies"},
      {"gradient_clipping", Kind::kFlag, "false", "",
       "clip_grad_norm_: norms on one core and a scaling before the step"},
  };
}

std::vector<std::string> check_fsdp2_offload(const Job& job) {
  refuse_int8(job);
  if (job.workload.gpus > 1) {
    refuse_experts(job, "fully_shard cuts its tensors expert by expert, so that ranks differ");
  }
  require_precision(job, {Precision::kBf16Mixed, Precision::kBf16, Precision::kFp16Mixed},
                    "bf16-mixed (MixedPrecisionPolicy over fp32) or bf16");
  return {};
}

void record_fsdp2_offload(const Job& job, Recorder& gpu, int steps) {
  record_steps(Fsdp2(job, gpu), steps);
}

}  // namespace offsim::plans
