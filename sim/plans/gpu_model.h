// The model on the GPU, as autograd runs it: what forward and backward launch and what memory they
// hold, micro-batch by micro-batch. Plans that run PyTorch's autograd are built around it, wherever
// their parameters are.
//
// Forward: embedding, layers, head and loss; every layer leaves its saved tensors, or with full
// checkpointing only its input. Backward: head, layers in reverse, embedding. With checkpointing a
// layer is recomputed first, without its last product: non-reentrant checkpointing stops once the
// last tensor that backward needs exists (torch/utils/checkpoint.py), unless DeepSpeed's does it
// (checkpoint_offload.h). The 16-bit copies that
// autocast makes of the weights live until the backward that saved them, or until the end of the
// forward (the region) when nothing saved them. With adapters the embedding has no backward, and
// the first layer's stops at its adapters, unless checkpointing asks for its input's gradient. How
// a piece's kernels come to run is the plan's: it may bring weights first, run module by module,
// and take the gradients after a backward.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sim/model/tensors.h"
#include "sim/model/work.h"
#include "sim/plans/activation_offload.h"
#include "sim/plans/checkpoint_offload.h"
#include "sim/plans/job.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

model::Numerics numerics_of(Precision precision, bool module_is_16bit);

class GpuModel {
 public:
  GpuModel(const Job& job, runtime::Recorder& gpu, model::Numerics numerics);

  // Pieces are 0, the embedding, 1 to L, the layers, and L + 1, the head.
  // kGradients: after a piece's backward; its gradients exist, what it had saved is gone. Not of
  // the embedding when it is frozen.
  enum class Pass : std::uint8_t { kForward, kRecompute, kBackward, kGradients };
  using Run = std::function<void(Pass pass, std::int64_t piece)>;
  void forward(const Run& run);
  void backward(const Run& run);

  // All of a piece's kernels of a pass; none for kGradients. Module by module, with the copies of
  // what each saves, when that goes to host memory.
  void launch(Pass pass, std::int64_t piece);
  // A work of one of modules(), known by where it is.
  void launch_module(const model::Work& work);
  std::int64_t head() const { return static_cast<std::int64_t>(layers_.size()) + 1; }
  // Of a piece, in the order in which backward makes their gradients.
  const std::vector<model::Tensor>& tensors(std::int64_t piece) const;
  const std::vector<model::Tensor>& trained(std::int64_t piece) const;  // have gradients
  const std::vector<model::Module>& modules(std::int64_t piece) const;  // in the order of forward

 private:
  struct Held {
    std::optional<runtime::Buffer> activations, cast;
  };

  void forward_layer(std::int64_t piece, const Run& run);
  void backward_layer(std::int64_t piece, const Run& run);
  // Its saved tensors go to host memory; of a checkpointed layer only its input does.
  bool offloads(std::int64_t piece) const {
    return hooks_.active() && !(checkpointing_ && is_layer(piece));
  }
  void launch_with_hooks(Pass pass, std::int64_t piece);
  void hold_checkpoint(std::int64_t piece);
  void restore_checkpoint(std::int64_t piece);
  void drop_checkpoint(std::int64_t piece);
  bool is_layer(std::int64_t piece) const { return piece > 0 && piece < head(); }
  static std::size_t index_of(std::int64_t piece) { return static_cast<std::size_t>(piece - 1); }
  const model::Piece& layer(std::int64_t piece) const { return pieces_.layer(piece - 1); }
  std::optional<runtime::Buffer> hold_casts(Bytes bytes);
  runtime::Buffer hold(Bytes bytes, std::string_view tag);
  void brief(Bytes bytes,
             std::string_view tag);  // allocated and freed around what is launched next
  void drop(std::optional<runtime::Buffer>& buffer);

  runtime::Recorder& gpu_;
  model::Pieces pieces_;
  ActivationHooks hooks_;
  CheckpointOffload checkpoint_offload_;
  bool checkpointing_;
  std::int64_t tied_bytes_;  // of a tied matrix's gradient, 0 where the head has its own
  std::vector<Held> layers_;
  Held head_;
  struct Tensors {  // in backward order
    std::vector<model::Tensor> all, trained;
  };
  static Tensors backward_order(std::vector<model::Tensor> tensors);
  const Tensors& tensors_of(std::int64_t piece) const;
  Tensors embedding_tensors_, head_tensors_;
  std::vector<Tensors> layer_tensors_;  // by kind of piece
  struct Works {
    runtime::WorkId forward, recompute, backward;
  };
  Works embedding_, head_works_;
  std::vector<Works> layer_works_;  // by kind of piece
  std::unordered_map<const model::Work*, runtime::WorkId> module_works_;
};

}  // namespace offsim::plans
