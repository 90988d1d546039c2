// ratel: all states on the drive, blocks of weights in a queue of three, Adam of finished
// sub-groups beside the backward, outputs of products kept as its planner says (source: the code
// published with LoHan, ratel_optimizer.py, new_checkpoint.py, utils.py; arXiv 2403.06504).
//
// Drive, bytes a parameter: fp32 master and moments 12, 16-bit weights 2. Host, pinned: 8 swap
// buffers of the largest sub-group in fp32, 6 of 1.2e9 16-bit parameters, fp32 gradients (two
// buffers of the largest sub-group; 4 a parameter with accumulation or without is_grad_async), two
// checkpoints a block and what is kept of the forward. GPU: three slots of a block's weights,
// embedding and head in slots of their own, two buffers in which activations leave and come back.
// Forward: a block's weights are read ahead, three blocks deep, and copied on the fetch stream once
// a slot is free. Checkpoints and kept outputs leave on the activation stream; what the host has no
// room for goes on to the drive. Backward: both come back; a block is computed again in full, but
// for the products whose outputs were kept; every gradient is checked and its norm taken, cast and
// sent, 4 B, and nobody waits. Once the gradients of a sub-group have been issued the host reads
// its states and waits (12 B), hands it to the optimizer's process, which waits for the gradients
// and runs Adam (28 B), and then casts and writes the sub-group before (2 + 12 B), waiting:
// is_nvme_rearrange. While it waits it launches nothing. No clipping, a fixed loss scale.
// Bytes a parameter of a block, k micro-batches: H2D 4k + 4(k-1), D2H 4k; drive read 4k + 12,
// written 14. Embedding and head come once a step.
// What to keep: ratel_planner.h, from what the machine's figures say iteration 0 would measure.
//
// The code differs: it aliases all sub-groups' gradients in one buffer and does not ask whether
// Adam is done before it writes; here there are two buffers, and who needs Adam waits for it. It
// has no head, and no accumulation: here gradients add up through the GPU. Left out: the bucket of
// 5e6 elements, below a matrix; what a shared-memory file system costs.
#include <algorithm>
#include <array>
#include <deque>

#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"
#include "sim/plans/gpu_model.h"
#include "sim/plans/plan.h"
#include "sim/plans/plans.h"
#include "sim/plans/ratel_activations.h"

namespace offsim::plans {

using model::Tensor;
using runtime::Buffer;
using runtime::Event;
using runtime::kCompute;
using runtime::kHost;
using runtime::Lane;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

namespace {

constexpr std::int64_t kSlots = 3;             // blocks of weights on the GPU
constexpr std::size_t kGradientsUnderWay = 2;  // blocks whose gradients have not left
constexpr std::int64_t kOptimizerBuffers = 8;  // of config.json
constexpr std::int64_t kParameterBuffers = 6;
constexpr std::int64_t kParameterBufferSize = 1'200'000'000;  // elements

Bytes in_flight_of(const Options& options) {
  return Bytes(options.count("aio_block_size") * options.count("aio_queue_depth") *
               options.count("aio_thread_count"));
}

class Ratel {
 public:
  Ratel(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        shape_(job.shape),
        pieces_(model::pieces(shape_, job.workload.batch(), model::Numerics::kPure16)),
        layer_(pieces_.layers.front()),
        layers_(shape_.layers),
        micros_(job.workload.accumulation),
        in_flight_(in_flight_of(job.options)),
        asynchronous_(job.options.flag("is_grad_async")),
        rearrange_(job.options.flag("is_nvme_rearrange")),
        fetch_(gpu.stream("fetch")),
        reduction_(gpu.stream("reduction")),
        adam_(job.options.flag("is_mp") ? gpu.worker("optimizer process") : kHost),
        weight_reads_(gpu.io_queue("weight reads")),
        optimizer_io_(gpu.io_queue("optimizer I/O")) {
    number_tensors();
    const Bytes pinned = place();
    activations_.emplace(job, gpu, pieces_, pinned, in_flight_);
    const Event start = gpu.record(kCompute);
    slot_free_.fill(start);
    adam_done_.assign(groups_.size(), start);
  }

  void step(bool) {
    enter(job_, gpu_, Phase::kForward);
    fetched_.clear();
    embedding_ready_ = bring(embedding_);
    for (visit_ = 0; visit_ < std::min(kSlots, visits()); ++visit_) {
      fetch_block();
    }
    head_ready_ = bring(head_);
    gpu_.wait(kCompute, embedding_ready_);
    for (std::int64_t micro = 0; micro < micros_; ++micro) {
      last_micro_ = micro + 1 == micros_;
      first_micro_ = micro == 0;
      if (micro > 0) {
        enter(job_, gpu_, Phase::kForward);
      }
      forward();
      enter(job_, gpu_, Phase::kBackward);
      backward();
    }
    enter(job_, gpu_, Phase::kOptimizer);
    finish_groups();
    end_step(job_, gpu_);
  }

 private:
  struct Group {
    std::int64_t elements = 0;
  };
  struct Numbered {
    std::int64_t elements;
    std::size_t group;
  };

  // --- placement

  // Sub-groups in the order of registration; each piece's tensors in the order of backward.
  void number_tensors() {
    const std::int64_t size = job_.options.count("sub_group_size");
    tensors_.resize(static_cast<std::size_t>(layers_) + 2);
    Group open;
    const auto add = [&](std::size_t piece, const Tensor& tensor) {
      tensors_[piece].insert(tensors_[piece].begin(), {tensor.numel(), groups_.size()});
      open.elements += tensor.numel();
      if (open.elements >= size) {
        groups_.push_back(open);
        open = {};
      }
    };
    for (const Tensor& tensor : model::embedding_tensors(shape_)) {
      add(0, tensor);
      embedding_ += tensor.numel();
    }
    for (std::int64_t layer = 1; layer <= layers_; ++layer) {
      for (const Tensor& tensor : model::layer_tensors(shape_, layer - 1)) {
        add(static_cast<std::size_t>(layer), tensor);
      }
    }
    for (const Tensor& tensor : model::tail_tensors(shape_)) {
      add(static_cast<std::size_t>(layers_) + 1, tensor);
      head_ += tensor.numel();
    }
    if (open.elements > 0) {
      groups_.push_back(open);
    }
  }

  // Returns what is pinned.
  Bytes place() {
    const std::int64_t n = model::parameters(shape_);
    block_ = model::layer_parameters(shape_, 0);  // without experts blocks are alike
    place_workspace(job_, gpu_);
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      gpu_.allocate(Space::kGpu, Bytes(2 * block_), "slots of weights");
    }
    gpu_.allocate(Space::kGpu, Bytes(2 * embedding_), "embedding and head");
    gpu_.allocate(Space::kGpu, Bytes(2 * head_), "embedding and head");
    gpu_.allocate_exact(Space::kNvme, Bytes(12 * n), "optimizer states");
    gpu_.allocate_exact(Space::kNvme, Bytes(2 * n), "parameters");
    const std::int64_t largest = std::ranges::max(groups_, {}, &Group::elements).elements;
    Bytes pinned;
    const auto pin = [&](std::int64_t bytes, std::string_view tag) {
      pinned += gpu_.size(gpu_.allocate(Space::kPinned, Bytes(bytes), tag));
    };
    for (std::int64_t i = 0; i < kOptimizerBuffers; ++i) {
      pin(4 * largest, "optimizer swap buffers");
    }
    pin(2 * kParameterBuffers * kParameterBufferSize, "parameter swap buffers");
    if (keeps_all_gradients()) {
      pin(4 * n, "fp32 gradients");
    } else {
      pin(4 * largest, "fp32 gradients");
      pin(4 * largest, "fp32 gradients");
    }
    return pinned;
  }

  bool keeps_all_gradients() const { return micros_ > 1 || !asynchronous_; }

  // --- weights

  std::int64_t visits() const { return 2 * layers_ * micros_; }

  Event bring(std::int64_t elements) {
    gpu_.read(weight_reads_, Bytes(2 * elements), in_flight_, "weights from the drive");
    gpu_.wait(fetch_, gpu_.record(weight_reads_));
    gpu_.copy_h2d(fetch_, Space::kPinned, Bytes(2 * elements), "weights");
    return gpu_.record(fetch_);
  }

  // For the next visit of a block that has no weights yet.
  void fetch_block() {
    gpu_.wait(fetch_, slot_free_[static_cast<std::size_t>(visit_ % kSlots)]);
    fetched_.push_back(bring(block_));
  }

  void begin_visit() {
    gpu_.wait(kCompute, fetched_.front());
    fetched_.pop_front();
  }
  void end_visit() {
    if (visit_ < visits()) {
      slot_free_[static_cast<std::size_t>(visit_ % kSlots)] = gpu_.record(kCompute);
      fetch_block();
      ++visit_;
    }
  }

  // --- forward and backward

  void brief(Bytes bytes, std::string_view tag) {
    gpu_.free(gpu_.allocate(Space::kGpu, bytes, tag));
  }

  void forward() {
    gpu_.launch(pieces_.embedding.forward);
    for (std::int64_t layer = 1; layer <= layers_; ++layer) {
      begin_visit();
      activations_->wait_for_room(layer);
      brief(layer_.forward_alone, "activations");
      gpu_.launch(layer_.forward);
      end_visit();
      activations_->leave(layer);
    }
    head_saved_ = gpu_.allocate(Space::kGpu, pieces_.head.saved, "logits and loss");
    brief(pieces_.head.forward_extra, "logits and loss");
    gpu_.wait(kCompute, head_ready_);
    gpu_.launch(pieces_.head.forward);
  }

  void backward() {
    group_ = groups_.size() - 1;
    activations_->begin_backward();
    brief(pieces_.head.backward_extra, "logits and loss");
    gpu_.launch(pieces_.head.backward);
    gpu_.free(head_saved_);
    gradients(layers_ + 1);
    for (std::int64_t layer = layers_; layer > 0; --layer) {
      begin_visit();
      activations_->wait_for(layer);
      const Buffer saved = gpu_.allocate(Space::kGpu, layer_.saved, "activations");
      gpu_.launch(activations_->recompute(layer));
      brief(layer_.backward_extra, "activations");
      gpu_.launch(layer_.backward);
      gpu_.free(saved);
      end_visit();
      activations_->used(layer);
      gradients(layer);
    }
    gpu_.launch(pieces_.embedding.backward);
    gradients(0);
  }

  void gradients(std::int64_t piece) {
    if (under_way_.size() >= kGradientsUnderWay) {
      gpu_.sync(under_way_.front());
      under_way_.pop_front();
    }
    for (const Numbered& tensor : tensors_[static_cast<std::size_t>(piece)]) {
      const Buffer gradient = gpu_.allocate(Space::kGpu, Bytes(2 * tensor.elements), "gradients");
      if (last_micro_ && tensor.group != group_) {
        if (asynchronous_) {
          update(group_);
        }
        group_ = tensor.group;
      }
      send(tensor, gradient);
    }
    under_way_.push_back(gpu_.record(reduction_));
  }

  void send(const Numbered& tensor, Buffer gradient) {
    const std::int64_t n = tensor.elements;
    gpu_.wait(reduction_, gpu_.record(kCompute));
    if (!keeps_all_gradients() && tensor.group + 2 < groups_.size()) {
      gpu_.wait(reduction_, adam_done_[tensor.group + 2]);  // it has read this buffer
    }
    const Buffer wide = gpu_.allocate(Space::kGpu, Bytes(4 * n), "gradient temporaries");
    gpu_.launch(check_finite, n, reduction_);
    gpu_.launch(norm_in_double, n, reduction_);
    gpu_.launch(cast_to_fp32, n, reduction_);
    if (!first_micro_) {
      gpu_.copy_h2d(reduction_, Space::kPinned, Bytes(4 * n), "fp32 gradients back");
      gpu_.launch(model::elementwise(sized("add gradient", n), n, 12, 1), reduction_);
    }
    gpu_.copy_d2h(reduction_, Space::kPinned, Bytes(4 * n), "fp32 gradients");
    gpu_.free_after(gradient, reduction_);
    gpu_.free_after(wide, reduction_);
  }

  // --- the optimizer

  // single_step: a sub-group whose gradients have been issued.
  void update(std::size_t group) {
    const std::int64_t n = groups_[group].elements;
    const Event arrived = gpu_.record(reduction_);
    gpu_.read(optimizer_io_, Bytes(12 * n), in_flight_, "optimizer states from the drive");
    gpu_.sync(optimizer_io_);
    gpu_.wait(adam_, arrived);
    gpu_.cpu("adam_deepspeed_f32", n, "Adam", {.thread = adam_});
    adam_done_[group] = gpu_.record(adam_);
    if (!rearrange_) {
      write_back(group);
      return;
    }
    if (unwritten_) {
      write_back(*unwritten_);
    }
    unwritten_ = group;
  }

  void write_back(std::size_t group) {
    const std::int64_t n = groups_[group].elements;
    gpu_.sync(adam_done_[group]);
    gpu_.cpu("cast_f32_bf16", n, "cast to 16 bits");
    gpu_.write(optimizer_io_, Bytes(2 * n), in_flight_, "parameters to the drive");
    gpu_.write(optimizer_io_, Bytes(12 * n), in_flight_, "optimizer states to the drive");
    gpu_.sync(optimizer_io_);
  }

  void finish_groups() {
    for (std::size_t group = asynchronous_ ? group_ + 1 : groups_.size(); group-- > 0;) {
      update(group);
    }
    if (unwritten_) {
      write_back(*unwritten_);
      unwritten_.reset();
    }
    under_way_.clear();
  }

  const Job& job_;
  Recorder& gpu_;
  const model::Shape& shape_;
  model::Pieces pieces_;
  const model::Piece& layer_;
  std::int64_t layers_, micros_;
  Bytes in_flight_;
  bool asynchronous_, rearrange_;
  Lane fetch_, reduction_, adam_, weight_reads_, optimizer_io_;
  std::int64_t block_ = 0, embedding_ = 0, head_ = 0;  // elements
  std::vector<Group> groups_;
  std::vector<std::vector<Numbered>> tensors_;  // by piece
  std::optional<RatelActivations> activations_;
  std::array<Event, kSlots> slot_free_{};
  std::deque<Event> fetched_;  // of the visits to come
  std::int64_t visit_ = 0;     // the next one to fetch for
  Event embedding_ready_{}, head_ready_{};
  Buffer head_saved_{};
  bool first_micro_ = true, last_micro_ = true;
  std::size_t group_ = 0;  // whose gradients are being sent
  std::deque<Event> under_way_;
  std::vector<Event> adam_done_;  // by sub-group
  std::optional<std::size_t> unwritten_;
};

}  // namespace

std::vector<OptionSpec> ratel_options() {
  using Kind = OptionSpec::Kind;
  return {
      {"planner",
       Kind::kChoice,
       "convex",
       "",
       "what to keep of the forward: by the paper's search, or the released code's fixed order",
       {"convex", "ordered"}},
      {"swap_ratio", Kind::kNumber, "0.2", "",
       "ordered: the part of the forward that copies of activations may take"},
      {"is_grad_async", Kind::kFlag, "true", "",
       "update a sub-group as soon as its gradients are complete; false: all after the backward"},
      {"is_mp", Kind::kFlag, "true", "", "Adam in a process of its own"},
      {"is_nvme_rearrange", Kind::kFlag, "true", "",
       "write a sub-group once the next one's states are read"},
      {"sub_group_size", Kind::kCount, "7e8", "elements", "updated at a time", {}, 1},
      {"aio_block_size", Kind::kCount, "1048576", "bytes", "of one request to the drive", {}, 4096},
      {"aio_queue_depth", Kind::kCount, "32", "requests", "in flight a thread", {}, 1, 100'000},
      {"aio_thread_count", Kind::kCount, "2", "threads", "that submit requests", {}, 1, 1000},
  };
}

std::vector<std::string> check_ratel(const Job& job) {
  refuse_adapters(job, "its Adam updates every parameter");
  refuse_activation_offload(job, "it has activations and a planner of its own");
  const Options& options = job.options;
  require_precision(job, {Precision::kBf16Mixed, Precision::kFp16Mixed},
                    "bf16-mixed or fp16-mixed: fp32 masters, 16-bit parameters");
  require_drive(job);
  refuse_experts(job, "its planner swaps the products of dense layers");
  std::vector<std::string> warnings;
  if (options.text("planner") == "convex") {
    warn_without_effect(warnings, job, "the convex planner does not ask it", {"swap_ratio"});
  }
  const bool one_group =
      model::parameters(job.shape) - model::all_tensors(job.shape).back().numel() <
      options.count("sub_group_size");
  if (one_group) {
    warn_without_effect(warnings, job, "there is one sub-group", {"is_nvme_rearrange"});
  }
  if (one_group && job.workload.accumulation > 1) {
    warn_without_effect(warnings, job, "there is one sub-group", {"is_grad_async"});
  }
  if (job.workload.checkpointing == Checkpointing::kFull) {
    warnings.emplace_back("checkpointing has no effect: ratel's planner says what is recomputed");
  }
  return warnings;
}

void record_ratel(const Job& job, Recorder& gpu, int steps) {
  record_steps(Ratel(job, gpu), steps);
}

}  // namespace offsim::plans
