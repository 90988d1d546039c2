// The model on the GPU, as autograd runs it: what forward and backward launch and what memory they
// hold, micro-batch by micro-batch. Shared by the plans whose parameters stay on the GPU (native,
// zero2-offload).
//
// Forward: embedding, layers, head and loss; every layer leaves its saved tensors, or with full
// checkpointing only its input. Backward: head, layers in reverse, embedding. With checkpointing a
// layer is recomputed first, without its last product: non-reentrant checkpointing stops once the
// last tensor that backward needs exists (torch/utils/checkpoint.py). The 16-bit copies that
// autocast makes of the weights live until the backward that saved them, or until the end of the
// forward (the region) when nothing saved them. Gradients appear after the piece's backward; the
// caller decides what becomes of them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "sim/model/tensors.h"
#include "sim/model/work.h"
#include "sim/plans/job.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

model::Numerics numerics_of(Precision precision, bool module_is_16bit);

class GpuModel {
 public:
  GpuModel(const Job& job, runtime::Recorder& gpu, model::Numerics numerics);

  void forward();
  // `gradients` is called after each piece with the tensors whose gradients now exist, in the order
  // of backward.
  using Gradients = std::function<void(const std::vector<model::Tensor>&)>;
  void backward(const Gradients& gradients);

 private:
  struct Held {
    std::optional<runtime::Buffer> activations, cast;
  };

  void forward_layer(Held& layer);
  void backward_layer(Held& layer);
  runtime::Buffer hold(Bytes bytes, std::string_view tag);
  void brief(Bytes bytes,
             std::string_view tag);  // allocated and freed around what is launched next
  void drop(std::optional<runtime::Buffer>& buffer);

  runtime::Recorder& gpu_;
  model::Pieces pieces_;
  bool checkpointing_;
  bool autocast_;
  std::vector<Held> layers_;
  Held head_;
  std::vector<model::Tensor> layer_tensors_, head_tensors_,
      embedding_tensors_;  // in backward order
  runtime::WorkId embedding_forward_, embedding_backward_, layer_forward_, layer_recompute_,
      layer_backward_, head_forward_, head_backward_;
};

}  // namespace offsim::plans
