#include "sim/plans/gpu_model.h"

#include <algorithm>

namespace offsim::plans {

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
      layers_(static_cast<std::size_t>(job.shape.layers)),
      layer_tensors_(model::layer_tensors(job.shape)) {
  std::reverse(layer_tensors_.begin(), layer_tensors_.end());
  for (const model::Tensor& tensor : model::outer_tensors(job.shape)) {
    auto& list = tensor.group == model::Group::kEmbedding ? embedding_tensors_ : head_tensors_;
    list.insert(list.begin(), tensor);
  }
  embedding_forward_ = gpu.work(pieces_.embedding.forward);
  embedding_backward_ = gpu.work(pieces_.embedding.backward);
  layer_forward_ = gpu.work(pieces_.layer.forward);
  layer_recompute_ = gpu.work(pieces_.recompute);
  layer_backward_ = gpu.work(pieces_.layer.backward);
  head_forward_ = gpu.work(pieces_.head.forward);
  head_backward_ = gpu.work(pieces_.head.backward);
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

void GpuModel::forward() {
  gpu_.launch(embedding_forward_);
  for (Held& layer : layers_) {
    forward_layer(layer);
  }
  if (autocast_) {
    head_.cast = hold(pieces_.cast_head, "16-bit weights of autocast");
  }
  head_.activations = hold(pieces_.head.saved, "logits and loss");
  brief(pieces_.head.forward_extra, "logits and loss");
  gpu_.launch(head_forward_);
  if (checkpointing_) {  // the region ends: only what backward needs keeps its casts
    for (Held& layer : layers_) {
      drop(layer.cast);
    }
  }
}

void GpuModel::forward_layer(Held& layer) {
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
  gpu_.launch(layer_forward_);
}

void GpuModel::backward(const Gradients& gradients) {
  brief(pieces_.head.backward_extra, "logits and loss");
  gpu_.launch(head_backward_);
  drop(head_.activations);
  drop(head_.cast);
  gradients(head_tensors_);
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    backward_layer(*layer);
    gradients(layer_tensors_);
  }
  gpu_.launch(embedding_backward_);
  gradients(embedding_tensors_);
}

void GpuModel::backward_layer(Held& layer) {
  std::optional<Buffer> recomputed;
  if (checkpointing_) {
    gpu_.host_busy(runtime::HostTask::kCheckpoint, 1, "checkpoint a layer");
    recomputed = hold(pieces_.layer.saved, "activations");
    if (autocast_) {
      layer.cast = hold(pieces_.cast_layer, "16-bit weights of autocast");
    }
    gpu_.launch(layer_recompute_);
  }
  brief(pieces_.layer.backward_extra, "activations");
  gpu_.launch(layer_backward_);
  drop(recomputed);
  drop(layer.activations);
  drop(layer.cast);
}

}  // namespace offsim::plans
