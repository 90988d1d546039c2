#include "sim/model/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace offsim::model {

namespace {

// Collects tensors that share a prefix and a group.
class Inventory {
 public:
  Inventory(std::string prefix, Group group, std::int64_t layer = -1)
      : prefix_(std::move(prefix)), group_(group), layer_(layer) {}

  void matrix(const char* name, std::int64_t rows, std::int64_t cols) {
    tensors_.push_back({prefix_ + name + ".weight", rows, cols, group_, layer_, true});
  }
  void vector(const char* name, const char* kind, std::int64_t size) {
    tensors_.push_back({prefix_ + name + kind, size, 1, group_, layer_, false});
  }
  // A parameter of a module without a Linear of its own, all experts' matrices in one.
  void stacked(const char* name, std::int64_t count, std::int64_t rows, std::int64_t cols) {
    tensors_.push_back({prefix_ + name, count * rows, cols, group_, layer_, true});
  }
  // Linear layers of PyTorch store [out, in]; gpt2's Conv1D stores [in, out].
  void linear(const char* name, std::int64_t in, std::int64_t out, bool bias) {
    matrix(name, out, in);
    if (bias) {
      vector(name, ".bias", out);
    }
  }
  void conv1d(const char* name, std::int64_t in, std::int64_t out) {
    matrix(name, in, out);
    vector(name, ".bias", out);
  }
  void norm(const char* name, Norm kind, std::int64_t size) {
    vector(name, ".weight", size);
    if (kind == Norm::kLayer) {
      vector(name, ".bias", size);
    }
  }
  std::vector<Tensor> take() && { return std::move(tensors_); }

 private:
  std::string prefix_;
  Group group_;
  std::int64_t layer_;
  std::vector<Tensor> tensors_;
};

std::vector<Tensor> gpt2_layer(const Shape& s, std::int64_t layer) {
  Inventory in(fmt::format("transformer.h.{}.", layer), Group::kLayer, layer);
  in.norm("ln_1", s.norm, s.hidden);
  in.conv1d("attn.c_attn", s.hidden, s.query_width() + 2 * s.kv_width());
  in.conv1d("attn.c_proj", s.query_width(), s.hidden);
  in.norm("ln_2", s.norm, s.hidden);
  in.conv1d("mlp.c_fc", s.hidden, s.ffn);
  in.conv1d("mlp.c_proj", s.ffn, s.hidden);
  return std::move(in).take();
}

void gated_mlp(Inventory& in, const Shape& s) {
  in.linear("mlp.gate_proj", s.hidden, s.ffn, s.mlp_bias);
  in.linear("mlp.up_proj", s.hidden, s.ffn, s.mlp_bias);
  in.linear("mlp.down_proj", s.ffn, s.hidden, s.mlp_bias);
}

void mixture(Inventory& in, const Shape& s) {
  const Experts& e = *s.experts;
  const bool experts_first = s.architecture == Architecture::kQwen3Moe;
  if (!experts_first) {
    in.matrix("mlp.gate", e.count, s.hidden);
  }
  in.stacked("mlp.experts.gate_up_proj", e.count, 2 * e.width, s.hidden);
  in.stacked("mlp.experts.down_proj", e.count, s.hidden, e.width);
  if (experts_first) {
    in.matrix("mlp.gate", e.count, s.hidden);
  }
  if (e.shared > 0) {
    in.linear("mlp.shared_expert.gate_proj", s.hidden, e.shared, false);
    in.linear("mlp.shared_expert.up_proj", s.hidden, e.shared, false);
    in.linear("mlp.shared_expert.down_proj", e.shared, s.hidden, false);
    in.linear("mlp.shared_expert_gate", s.hidden, 1, false);
  }
}

std::vector<Tensor> llama_layer(const Shape& s, std::int64_t layer) {
  Inventory in(fmt::format("model.layers.{}.", layer), Group::kLayer, layer);
  in.linear("self_attn.q_proj", s.hidden, s.query_width(), s.qkv_bias);
  in.linear("self_attn.k_proj", s.hidden, s.kv_width(), s.qkv_bias);
  in.linear("self_attn.v_proj", s.hidden, s.kv_width(), s.qkv_bias);
  in.linear("self_attn.o_proj", s.query_width(), s.hidden, s.output_bias);
  if (s.qk_norm) {
    in.norm("self_attn.q_norm", s.norm, s.head_dim);
    in.norm("self_attn.k_norm", s.norm, s.head_dim);
  }
  s.experts ? mixture(in, s) : gated_mlp(in, s);
  in.norm("input_layernorm", s.norm, s.hidden);
  in.norm("post_attention_layernorm", s.norm, s.hidden);
  return std::move(in).take();
}

bool is_gpt2(const Shape& shape) { return shape.architecture == Architecture::kGpt2; }

std::vector<Tensor> final_norm_tensors(const Shape& shape) {
  Inventory in(is_gpt2(shape) ? "transformer." : "model.", Group::kFinal);
  in.norm(is_gpt2(shape) ? "ln_f" : "norm", shape.norm, shape.hidden);
  return std::move(in).take();
}

std::vector<Tensor> head_tensors(const Shape& shape) {
  Inventory in("", Group::kHead);
  if (!shape.tied) {
    in.matrix("lm_head", shape.vocabulary, shape.hidden);
  }
  return std::move(in).take();
}

void append(std::vector<Tensor>& all, std::vector<Tensor> more) {
  std::ranges::move(more, std::back_inserter(all));
}

}  // namespace

std::int64_t count(const std::vector<Tensor>& tensors) {
  std::int64_t sum = 0;
  for (const Tensor& tensor : tensors) {
    sum += tensor.numel();
  }
  return sum;
}

std::vector<Tensor> layer_tensors(const Shape& shape, std::int64_t layer) {
  SIM_ASSERT(layer >= 0 && layer < shape.layers, "only layers of the model have tensors");
  return is_gpt2(shape) ? gpt2_layer(shape, layer) : llama_layer(shape, layer);
}

std::vector<Tensor> embedding_tensors(const Shape& shape) {
  Inventory in(is_gpt2(shape) ? "transformer." : "model.", Group::kEmbedding);
  in.matrix(is_gpt2(shape) ? "wte" : "embed_tokens", shape.vocabulary, shape.hidden);
  if (shape.positions > 0) {
    in.matrix("wpe", shape.positions, shape.hidden);
  }
  return std::move(in).take();
}

std::vector<Tensor> tail_tensors(const Shape& shape) {
  std::vector<Tensor> tail = final_norm_tensors(shape);
  append(tail, head_tensors(shape));
  return tail;
}

std::vector<Tensor> outer_tensors(const Shape& shape) {
  std::vector<Tensor> all = embedding_tensors(shape);
  append(all, tail_tensors(shape));
  return all;
}

std::vector<Tensor> all_tensors(const Shape& shape) {
  std::vector<Tensor> all = embedding_tensors(shape);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    append(all, layer_tensors(shape, layer));
  }
  append(all, tail_tensors(shape));
  return all;
}

std::int64_t layer_parameters(const Shape& shape) { return count(layer_tensors(shape)); }
std::int64_t embedding_parameters(const Shape& shape) { return count(embedding_tensors(shape)); }
std::int64_t final_norm_parameters(const Shape& shape) { return count(final_norm_tensors(shape)); }
std::int64_t head_parameters(const Shape& shape) { return count(head_tensors(shape)); }

std::int64_t parameters(const Shape& shape) {
  return shape.layers * layer_parameters(shape) + count(outer_tensors(shape));
}

std::int64_t active_parameters(const Shape& shape) {
  if (!shape.experts) {
    return parameters(shape);
  }
  const Experts& e = *shape.experts;
  return parameters(shape) - shape.layers * (e.count - e.per_token) * 3 * shape.hidden * e.width;
}

Tensor largest_tensor(const Shape& shape) {
  Shape one = shape;  // layers are alike: the first stands for all
  one.layers = 1;
  return std::ranges::max(all_tensors(one), {}, &Tensor::numel);
}

}  // namespace offsim::model
