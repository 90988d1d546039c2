#include "sim/plans/gpu_model.h"

#include <algorithm>

#include "sim/plans/common.h"

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

namespace {

void recompute_whole_layers(model::Pieces& pieces) {
  for (model::Piece& piece : pieces.layers) {
    piece.recompute.kernels = piece.forward.kernels;
    for (model::Module& module : piece.modules) {
      module.recompute.kernels = module.forward.kernels;
    }
  }
}

}  // namespace

GpuModel::GpuModel(const Job& job, runtime::Recorder& gpu, model::Numerics numerics)
    : gpu_(gpu),
      pieces_(model::pieces(job.shape, job.workload.batch(), numerics,
                            job.workload.checkpointing == Checkpointing::kFull)),
      hooks_(job, gpu),
      checkpoint_offload_(job, gpu, pieces_.hidden),
      checkpointing_(job.workload.checkpointing == Checkpointing::kFull),
      tied_bytes_(job.shape.tied && !job.shape.adapters.any()
                      ? (numerics == model::Numerics::kPure16 ? 2 : 4) * job.shape.head_elements()
                      : 0),
      layers_(static_cast<std::size_t>(job.shape.layers)),
      embedding_tensors_(backward_order(model::embedding_tensors(job.shape))),
      head_tensors_(backward_order(model::tail_tensors(job.shape))),
      layer_tensors_(pieces_.layers.size()) {
  SIM_ASSERT(!(hooks_.active() && checkpoint_offload_.active()), "checks refuse both");
  if (checkpoint_offload_.active()) {
    recompute_whole_layers(pieces_);
  }
  const auto works = [&gpu](const model::Piece& piece, const model::Work& recompute) {
    return Works{gpu.work(piece.forward), gpu.work(recompute), gpu.work(piece.backward)};
  };
  embedding_ =
      works(pieces_.embedding, pieces_.embedding.forward);  // these two are never recomputed
  for (const model::Piece& piece : pieces_.layers) {
    layer_works_.push_back(works(piece, piece.recompute));
  }
  head_works_ = works(pieces_.head, pieces_.head.forward);
  for (std::int64_t layer = 0; layer < job.shape.layers; ++layer) {
    Tensors& of_kind = layer_tensors_[pieces_.index(layer)];
    if (of_kind.all.empty()) {
      of_kind = backward_order(model::layer_tensors(job.shape, layer));
    }
  }
}

void GpuModel::launch(Pass pass, std::int64_t piece) {
  if (pass == Pass::kGradients) {
    return;
  }
  if (offloads(piece)) {
    launch_with_hooks(pass, piece);
    return;
  }
  const Works& works = piece == 0        ? embedding_
                       : piece == head() ? head_works_
                                         : layer_works_[pieces_.index(piece - 1)];
  gpu_.launch(pass == Pass::kForward     ? works.forward
              : pass == Pass::kRecompute ? works.recompute
                                         : works.backward);
}

void GpuModel::launch_module(const model::Work& work) {
  const auto [found, added] = module_works_.try_emplace(&work);
  if (added) {
    found->second = gpu_.work(work);
  }
  gpu_.launch(found->second);
}

void GpuModel::launch_with_hooks(Pass pass, std::int64_t piece) {
  const std::vector<model::Module>& all = modules(piece);
  if (pass == Pass::kForward) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      launch_module(all[i].forward);
      if (!all[i].saved.empty()) {
        hooks_.pack({piece, i}, all[i].saved);
      }
    }
    return;
  }
  for (std::size_t i = all.size(); i-- > 0;) {
    if (all[i].saved.empty()) {
      launch_module(all[i].backward);
      continue;
    }
    hooks_.unpack({piece, i});
    launch_module(all[i].backward);
    hooks_.drop({piece, i});
  }
}

GpuModel::Tensors GpuModel::backward_order(std::vector<Tensor> tensors) {
  std::ranges::reverse(tensors);
  return {tensors, model::trained(tensors)};
}

const GpuModel::Tensors& GpuModel::tensors_of(std::int64_t piece) const {
  return is_layer(piece) ? layer_tensors_[pieces_.index(piece - 1)]
         : piece == 0    ? embedding_tensors_
                         : head_tensors_;
}

const std::vector<Tensor>& GpuModel::tensors(std::int64_t piece) const {
  return tensors_of(piece).all;
}

const std::vector<Tensor>& GpuModel::trained(std::int64_t piece) const {
  return tensors_of(piece).trained;
}

const std::vector<model::Module>& GpuModel::modules(std::int64_t piece) const {
  return is_layer(piece) ? layer(piece).modules
                         : (piece == 0 ? pieces_.embedding.modules : pieces_.head.modules);
}

Buffer GpuModel::hold(Bytes bytes, std::string_view tag) {
  return gpu_.allocate(Space::kGpu, bytes, tag);
}

std::optional<Buffer> GpuModel::hold_casts(Bytes bytes) {
  return bytes.value > 0 ? std::optional(hold(bytes, "16-bit weights of autocast")) : std::nullopt;
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
  head_.cast = hold_casts(pieces_.head.cast);
  if (offloads(head())) {
    brief(pieces_.head.forward_alone, "logits and loss");
  } else {
    head_.activations = hold(pieces_.head.saved, "logits and loss");
    brief(pieces_.head.forward_extra, "logits and loss");
  }
  run(Pass::kForward, head());
  if (checkpointing_ || hooks_.active()) {  // the region ends: only what is saved keeps its casts
    for (Held& layer : layers_) {
      drop(layer.cast);
    }
  }
  if (hooks_.active()) {
    drop(head_.cast);
  }
}

void GpuModel::forward_layer(std::int64_t piece, const Run& run) {
  Held& held = layers_[index_of(piece)];
  held.cast = hold_casts(layer(piece).cast);
  if (checkpointing_) {
    gpu_.host_busy(runtime::HostTask::kCheckpoint, 1, "checkpoint a layer");
    hold_checkpoint(piece);
    brief(layer(piece).forward_alone, "activations");
  } else if (offloads(piece)) {
    brief(layer(piece).forward_alone, "activations");
  } else {
    held.activations = hold(layer(piece).saved, "activations");
    brief(layer(piece).forward_extra, "activations");
  }
  run(Pass::kForward, piece);
  if (checkpoint_offload_.active()) {
    checkpoint_offload_.after_forward(index_of(piece));
  }
}

void GpuModel::hold_checkpoint(std::int64_t piece) {
  if (hooks_.active()) {
    hooks_.pack({piece, 0}, {{pieces_.hidden.value, false}});
  } else if (checkpoint_offload_.active()) {
    checkpoint_offload_.before_forward(index_of(piece));
  } else {
    layers_[index_of(piece)].activations = hold(pieces_.hidden, "checkpoints");
  }
}

void GpuModel::restore_checkpoint(std::int64_t piece) {
  if (hooks_.active()) {
    hooks_.unpack({piece, 0});
  } else if (checkpoint_offload_.active()) {
    checkpoint_offload_.restore(index_of(piece));
  }
}

void GpuModel::drop_checkpoint(std::int64_t piece) {
  if (hooks_.active()) {
    hooks_.drop({piece, 0});
  } else if (checkpoint_offload_.active()) {
    checkpoint_offload_.drop(index_of(piece));
  }
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
  hooks_.end_backward();
  if (trained(0).empty()) {
    return;
  }
  run(Pass::kBackward, 0);
  hooks_.end_backward();
  if (tied) {
    gpu_.launch(add_tied_gradient(Bytes(tied_bytes_)));
    drop(tied);
  }
  run(Pass::kGradients, 0);
}

void GpuModel::backward_layer(std::int64_t piece, const Run& run) {
  Held& held = layers_[index_of(piece)];
  std::optional<Buffer> recomputed, result;
  if (checkpointing_) {
    gpu_.host_busy(runtime::HostTask::kCheckpoint, 1, "checkpoint a layer");
    restore_checkpoint(piece);
    recomputed = hold(layer(piece).saved, "activations");
    if (checkpoint_offload_.active()) {
      result = hold(pieces_.hidden, "activations");
    }
    held.cast = hold_casts(layer(piece).cast);
    run(Pass::kRecompute, piece);
  }
  brief(layer(piece).backward_extra, "activations");
  run(Pass::kBackward, piece);
  if (checkpointing_) {
    drop_checkpoint(piece);
  }
  drop(recomputed);
  drop(result);
  drop(held.activations);
  drop(held.cast);
  run(Pass::kGradients, piece);
}

}  // namespace offsim::plans
