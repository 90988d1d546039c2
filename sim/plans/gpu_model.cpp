#include "sim/plans/gpu_model.h"

#include <algorithm>

namespace offsim::plans {

using model::Tensor;
using runtime::Buffer;
using runtime::Space;

model::Numerics numerics_of(Precision precision, bool module_is_16bit) {
  if (precision == Precision::kFp32) {
    return model::Numerics::kFp32;
  }
  return precision == Precision::kBf16 || module_is_16bit ? model::Numerics::kPure16
                                                          : model::Numerics::kAutocast;
}

GpuModel::GpuModel(const Job& job, runtime::Recorder& gpu, model::Numerics numerics)
    : gpu_(gpu),
      pieces_(model::pieces(job.shape, job.workload.batch(), numerics)),
      checkpointing_(job.workload.checkpointing == Checkpointing::kFull),
      autocast_(numerics == model::Numerics::kAutocast),
      tied_bytes_(job.shape.tied ? (numerics == model::Numerics::kPure16 ? 2 : 4) *
                                       job.shape.vocabulary * job.shape.hidden
                                 : 0),
      layers_(static_cast<std::size_t>(job.shape.layers)),
      layer_tensors_(model::layer_tensors(job.shape)),
      head_tensors_(model::tail_tensors(job.shape)),
      embedding_tensors_(model::embedding_tensors(job.shape)) {
  for (std::vector<Tensor>* tensors : {&layer_tensors_, &head_tensors_, &embedding_tensors_}) {
    std::reverse(tensors->begin(), tensors->end());
  }
  const auto works = [&gpu](const model::Piece& piece, const model::Work& recompute) {
    return Works{gpu.work(piece.forward), gpu.work(recompute), gpu.work(piece.backward)};
  };
  embedding_ =
      works(pieces_.embedding, pieces_.embedding.forward);  // these two are never recomputed
  layer_ = works(pieces_.layer, pieces_.recompute);
  head_works_ = works(pieces_.head, pieces_.head.forward);
}

void GpuModel::launch(Pass pass, std::int64_t piece) {
  if (pass == Pass::kGradients) {
    return;
  }
  const Works& works = is_layer(piece) ? layer_ : (piece == 0 ? embedding_ : head_works_);
  gpu_.launch(pass == Pass::kForward     ? works.forward
              : pass == Pass::kRecompute ? works.recompute
                                         : works.backward);
}

const std::vector<Tensor>& GpuModel::tensors(std::int64_t piece) const {
  return is_layer(piece) ? layer_tensors_ : (piece == 0 ? embedding_tensors_ : head_tensors_);
}

const std::vector<model::Module>& GpuModel::modules(std::int64_t piece) const {
  return is_layer(piece) ? pieces_.layer.modules
                         : (piece == 0 ? pieces_.embedding.modules : pieces_.head.modules);
}

Buffer GpuModel::hold(Bytes bytes, std::string_view tag) {
  return gpu_.allocate(Space::kGpu, bytes, tag);
}

void GpuModel::brief(Bytes bytes, std::string_view tag) { gpu_.free(hold(bytes, tag)); }

void GpuModel::drop(std::optional<Buffer>& buffer) {
  if (buffer) {
    gpu_.free(*buffer);
    buffer.reset();
  }
}

void GpuModel::forward(const Run& run) {
  run(Pass::kForward, 0);
  for (std::int64_t piece = 1; piece < head(); ++piece) {
    forward_layer(piece, run);
  }
  if (autocast_) {
    head_.cast = hold(pieces_.cast_head, "16-bit weights of autocast");
  }
  head_.activations = hold(pieces_.head.saved, "logits and loss");
  brief(pieces_.head.forward_extra, "logits and loss");
  run(Pass::kForward, head());
  if (checkpointing_) {  // the region ends: only what backward needs keeps its casts
    for (Held& layer : layers_) {
      drop(layer.cast);
    }
  }
}

void GpuModel::forward_layer(std::int64_t piece, const Run& run) {
  Held& layer = layers_[static_cast<std::size_t>(piece - 1)];
  if (autocast_) {
    layer.cast = hold(pieces_.cast_layer, "16-bit weights of autocast");
  }
  if (checkpointing_) {
    gpu_.host_busy(runtime::HostTask::kCheckpoint, 1, "checkpoint a layer");
    layer.activations = hold(pieces_.hidden, "checkpoints");
    brief(pieces_.layer.forward_alone, "activations");
  } else {
    layer.activations = hold(pieces_.layer.saved, "activations");
    brief(pieces_.layer.forward_extra, "activations");
  }
  run(Pass::kForward, piece);
}

void GpuModel::backward(const Run& run) {
  brief(pieces_.head.backward_extra, "logits and loss");
  run(Pass::kBackward, head());
  std::optional<Buffer> tied;  // the head's share of the embedding's gradient waits for the rest
  if (tied_bytes_ > 0) {
    tied = hold(Bytes(tied_bytes_), "gradients");
  }
  drop(head_.activations);
  drop(head_.cast);
  run(Pass::kGradients, head());
  for (std::int64_t piece = head() - 1; piece > 0; --piece) {
    backward_layer(piece, run);
  }
  run(Pass::kBackward, 0);
  if (tied) {
    gpu_.launch(model::elementwise("add tied gradient", tied_bytes_, 3, 1));
    drop(tied);
  }
  run(Pass::kGradients, 0);
}

void GpuModel::backward_layer(std::int64_t piece, const Run& run) {
  Held& layer = layers_[static_cast<std::size_t>(piece - 1)];
  std::optional<Buffer> recomputed;
  if (checkpointing_) {
    gpu_.host_busy(runtime::HostTask::kCheckpoint, 1, "checkpoint a layer");
    recomputed = hold(pieces_.layer.saved, "activations");
    if (autocast_) {
      layer.cast = hold(pieces_.cast_layer, "16-bit weights of autocast");
    }
    run(Pass::kRecompute, piece);
  }
  brief(pieces_.layer.backward_extra, "activations");
  run(Pass::kBackward, piece);
  drop(recomputed);
  drop(layer.activations);
  drop(layer.cast);
  run(Pass::kGradients, piece);
}

}  // namespace offsim::plans
