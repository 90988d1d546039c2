#include "sim/model/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/model/layout.h"

namespace offsim::model {

namespace {

// Collects tensors that share a prefix and a group.
class Inventory {
 public:
  Inventory(const Shape& shape, std::string prefix, Group group, std::int64_t layer = -1)
      : adapters_(shape.adapters), prefix_(std::move(prefix)), group_(group), layer_(layer) {}

  void matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    const bool quantised = adapters_.any() && group_ == Group::kLayer;
    add(name + ".weight", rows, cols, true, !adapters_.any(),
        quantised ? adapters_.base : Base::k16Bit);
  }
  void vector(const std::string& name, const char* kind, std::int64_t size) {
    add(name + kind, size, 1, false, !adapters_.any());
  }
  // A parameter of a module without a Linear of its own, all experts' matrices in one.
  void stacked(const char* name, std::int64_t count, std::int64_t rows, std::int64_t cols) {
    add(name, count * rows, cols, true, !adapters_.any());
  }
  void router(const std::string& name, std::int64_t experts, std::int64_t hidden, bool bias) {
    add(name + ".weight", experts, hidden, true, !adapters_.any());
    if (bias) {
      vector(name, ".bias", experts);
    }
  }
  // A vector of a module itself.
  void own(const char* name, std::int64_t size) { add(name, size, 1, false, !adapters_.any()); }
  // Linear layers of PyTorch store [out, in]; gpt2's Conv1D stores [in, out].
  void linear(const std::string& name, std::int64_t in, std::int64_t out, bool bias) {
    const std::string base = base_of(name);
    matrix(base, out, in);
    if (bias) {
      vector(base, ".bias", out);
    }
    adapter(name, in, out);
  }
  void conv1d(const std::string& name, std::int64_t in, std::int64_t out) {
    const std::string base = base_of(name);
    matrix(base, in, out);
    vector(base, ".bias", out);
    adapter(name, in, out);
  }
  void norm(const std::string& name, Norm kind, std::int64_t size) {
    vector(name, ".weight", size);
    if (kind == Norm::kLayer) {
      vector(name, ".bias", size);
    }
  }
  std::vector<Tensor> take() && { return std::move(tensors_); }

 private:
  void add(const std::string& name, std::int64_t rows, std::int64_t cols, bool is_matrix,
           bool trained, Base base = Base::k16Bit) {
    tensors_.push_back({prefix_ + name, rows, cols, group_, layer_, is_matrix, trained, base});
  }
  // PEFT puts the Linear that it adapts below a module of its name.
  std::string base_of(const std::string& name) const {
    return adapters_.on(name) ? name + ".base_layer" : name;
  }
  void adapter(const std::string& name, std::int64_t in, std::int64_t out) {
    if (adapters_.on(name)) {
      add(name + ".lora_A.default.weight", adapters_.rank, in, true, true);
      add(name + ".lora_B.default.weight", out, adapters_.rank, true, true);
    }
  }

  Adapters adapters_;
  std::string prefix_;
  Group group_;
  std::int64_t layer_;
  std::vector<Tensor> tensors_;
};

void gated_mlp(Inventory& in, const Shape& s, const std::string& name, std::int64_t ffn) {
  in.linear(name + ".gate_proj", s.hidden, ffn, s.mlp_bias);
  in.linear(name + ".up_proj", s.hidden, ffn, s.mlp_bias);
  in.linear(name + ".down_proj", ffn, s.hidden, s.mlp_bias);
}

void experts(Inventory& in, const Shape& s, const Experts& e) {
  in.stacked("mlp.experts.gate_up_proj", e.count, 2 * e.width, s.hidden);
  if (e.bias) {
    in.stacked("mlp.experts.gate_up_proj_bias", e.count, 1, 2 * e.width);
  }
  in.stacked("mlp.experts.down_proj", e.count, s.hidden, e.width);
  if (e.bias) {
    in.stacked("mlp.experts.down_proj_bias", e.count, 1, s.hidden);
  }
}

void mixture(Inventory& in, const Shape& s, const Experts& e) {
  switch (s.architecture) {
    case Architecture::kGptOss:
      in.router("mlp.router", e.count, s.hidden, true);
      experts(in, s, e);
      break;
    case Architecture::kQwen3Moe:
      experts(in, s, e);
      in.router("mlp.gate", e.count, s.hidden, false);
      break;
    case Architecture::kDeepseekV2:
    case Architecture::kDeepseekV3:
      experts(in, s, e);
      in.router("mlp.gate", e.count, s.hidden, false);
      gated_mlp(in, s, "mlp.shared_experts", e.shared);
      break;
    default:
      in.router("mlp.gate", e.count, s.hidden, false);
      experts(in, s, e);
      if (e.shared > 0) {
        gated_mlp(in, s, "mlp.shared_expert", e.shared);
        in.linear("mlp.shared_expert_gate", s.hidden, 1, false);
      }
  }
}

void latent_attention(Inventory& in, const Shape& s) {
  const Latent& of = *s.latent;
  if (of.q_rank == 0) {
    in.linear("self_attn.q_proj", s.hidden, s.query_width(), false);
  } else {
    in.linear("self_attn.q_a_proj", s.hidden, of.q_rank, s.qkv_bias);
    in.norm("self_attn.q_a_layernorm", s.norm, of.q_rank);
    in.linear("self_attn.q_b_proj", of.q_rank, s.query_width(), false);
  }
  in.linear("self_attn.kv_a_proj_with_mqa", s.hidden, of.kv_rank + of.rotary, s.qkv_bias);
  in.norm("self_attn.kv_a_layernorm", s.norm, of.kv_rank);
  in.linear("self_attn.kv_b_proj", of.kv_rank, s.heads * of.plain + s.value_width(), false);
  in.linear("self_attn.o_proj", s.value_width(), s.hidden, s.output_bias);
}

// One module of a layer, as wide as its part says.
void part(Inventory& in, const Shape& s, std::int64_t f, Part part, const std::string& name) {
  const std::int64_t h = s.hidden, q = s.query_width(), kv = s.kv_width();
  const auto linear = [&](std::int64_t from, std::int64_t to, bool bias) {
    s.architecture == Architecture::kGpt2 ? in.conv1d(name, from, to)
                                          : in.linear(name, from, to, bias);
  };
  switch (part) {
    case Part::kSinks:
      return in.own(name.c_str(), s.heads);
    case Part::kQ:
      return linear(h, q, s.qkv_bias);
    case Part::kK:
    case Part::kV:
      return linear(h, kv, s.qkv_bias);
    case Part::kQkv:
      return linear(h, q + 2 * kv, s.qkv_bias);
    case Part::kOut:
      return linear(q, h, s.output_bias);
    case Part::kQNorm:
    case Part::kKNorm:
      return in.norm(name, s.norm, s.head_dim);
    case Part::kGate:
    case Part::kUp:
      return linear(h, f, s.mlp_bias);
    case Part::kGateUp:
      return linear(h, 2 * f, s.mlp_bias);
    case Part::kDown:
      return linear(f, h, s.mlp_bias);
    case Part::kAttentionNorm:
    case Part::kMlpNorm:
    case Part::kAttentionResultNorm:
    case Part::kMlpResultNorm:
      return in.norm(name, s.norm, h);
    case Part::kNone:
      break;
  }
  SIM_ASSERT(false, "every part has its tensors");
}

bool of_attention(Part part) { return part >= Part::kSinks && part <= Part::kKNorm; }
bool of_mlp(Part part) { return part >= Part::kGate && part <= Part::kDown; }

std::string within(std::string_view a, std::string_view b) {
  return std::string(a) + std::string(b);
}

std::vector<Tensor> final_norm_tensors(const Shape& shape) {
  const Layout& names = layout(shape);
  Inventory in(shape, std::string(names.root), Group::kFinal);
  if (shape.final_norm) {
    in.norm(std::string(names.final_norm), shape.norm, shape.hidden);
  }
  return std::move(in).take();
}

std::vector<Tensor> head_tensors(const Shape& shape) {
  const Layout& names = layout(shape);
  Inventory in(shape, "", Group::kHead);
  if (shape.embedded > 0) {
    in.matrix(within(names.root, "decoder.project_out"), shape.embedded, shape.hidden);
  }
  if (!shape.tied) {
    in.matrix(std::string(names.head), shape.vocabulary, shape.embedding_width());
  }
  if (shape.head_bias) {
    in.vector(std::string(names.head), ".bias", shape.vocabulary);
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

std::vector<Tensor> trained(std::vector<Tensor> tensors) {
  std::erase_if(tensors, [](const Tensor& tensor) { return !tensor.trained; });
  return tensors;
}

Bytes numbers(const Tensor& tensor, Widths widths) {
  const std::int64_t n = tensor.numel();
  switch (tensor.base) {
    case Base::kInt8:
      return Bytes(n);
    case Base::kNf4:
    case Base::kNf4Double:
      return Bytes((n + 1) / 2);
    case Base::k16Bit:
      break;
  }
  return Bytes((tensor.trained ? widths.trained : widths.frozen) * n);
}

Bytes constants(const Tensor& tensor) {
  const std::int64_t blocks = (tensor.numel() + 63) / 64;
  switch (tensor.base) {
    case Base::kInt8:
      return Bytes(4 * tensor.rows);
    case Base::kNf4:
      return Bytes(4 * blocks);
    case Base::kNf4Double:
      return Bytes(blocks + 4 * ((blocks + 255) / 256));
    case Base::k16Bit:
      break;
  }
  return Bytes(0);
}

Bytes numbers(const std::vector<Tensor>& tensors, Widths widths) {
  Bytes sum{};
  for (const Tensor& tensor : tensors) {
    sum += numbers(tensor, widths);
  }
  return sum;
}

Bytes numbers(const Shape& shape, Widths widths) {
  Bytes sum{};
  for_each_tensor(shape, [&](const Tensor& tensor) { sum += numbers(tensor, widths); });
  return sum;
}

Bytes constants(const Shape& shape) {
  Bytes sum{};
  for_each_tensor(shape, [&](const Tensor& tensor) { sum += constants(tensor); });
  return sum;
}

std::vector<Tensor> layer_tensors(const Shape& shape, std::int64_t layer) {
  SIM_ASSERT(layer >= 0 && layer < shape.layers, "only layers of the model have tensors");
  const Layout& names = layout(shape);
  const LayerKind& kind = shape.kind(layer);
  Inventory in(shape, fmt::format("{}{}.", names.layers, layer), Group::kLayer, layer);
  for (const NamedPart& named : names.parts) {
    if (shape.latent && of_attention(named.part)) {
      if (named.part == Part::kQ) {
        latent_attention(in, shape);
      }
    } else if (kind.experts && of_mlp(named.part)) {
      if (named.part == Part::kGate) {
        mixture(in, shape, *kind.experts);
      }
    } else if (has(shape, named.part)) {
      part(in, shape, kind.ffn, named.part, within(named.inside, named.name));
    }
  }
  return std::move(in).take();
}

std::vector<Tensor> embedding_tensors(const Shape& shape) {
  const Layout& names = layout(shape);
  Inventory in(shape, std::string(names.root), Group::kEmbedding);
  in.matrix(std::string(names.embedding), shape.vocabulary, shape.embedding_width());
  if (shape.positions > 0) {
    in.matrix(std::string(names.positions), shape.positions, shape.hidden);
  }
  if (shape.embedded > 0) {
    in.matrix("decoder.project_in", shape.hidden, shape.embedded);
  }
  if (shape.embedding_norm) {
    in.norm(std::string(names.embedding_norm), shape.norm, shape.hidden);
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

std::int64_t layer_parameters(const Shape& shape, std::int64_t layer) {
  return count(layer_tensors(shape, layer));
}
std::int64_t embedding_parameters(const Shape& shape) { return count(embedding_tensors(shape)); }
std::int64_t final_norm_parameters(const Shape& shape) { return count(final_norm_tensors(shape)); }
std::int64_t head_parameters(const Shape& shape) { return count(head_tensors(shape)); }

std::int64_t parameters(const Shape& shape) {
  std::int64_t sum = count(outer_tensors(shape));
  for (const Shape::Alike& alike : shape.different_layers()) {
    sum += alike.count * layer_parameters(shape, alike.layer);
  }
  return sum;
}

std::int64_t active_parameters(const Shape& shape) {
  std::int64_t sum = parameters(shape);
  for (const Shape::Alike& alike : shape.different_layers()) {
    if (const std::optional<Experts>& e = shape.kind(alike.layer).experts) {
      const std::int64_t one =
          3 * shape.hidden * e->width + (e->bias ? 2 * e->width + shape.hidden : 0);
      sum -= alike.count * (e->count - e->per_token) * one;
    }
  }
  return sum;
}

std::int64_t trained_parameters(const Shape& shape) {
  std::int64_t sum = count(trained(outer_tensors(shape)));
  for (const Shape::Alike& alike : shape.different_layers()) {
    sum += alike.count * count(trained(layer_tensors(shape, alike.layer)));
  }
  return sum;
}

namespace {

// In their order, those of one layer of each kind.
std::vector<Tensor> different_tensors(const Shape& shape) {
  std::vector<Tensor> all = embedding_tensors(shape);
  for (const Shape::Alike& alike : shape.different_layers()) {
    append(all, layer_tensors(shape, alike.layer));
  }
  append(all, tail_tensors(shape));
  return all;
}

}  // namespace

Tensor largest_tensor(const Shape& shape) {
  return std::ranges::max(different_tensors(shape), {}, &Tensor::numel);
}

Tensor largest_trained_tensor(const Shape& shape) {
  return std::ranges::max(trained(different_tensors(shape)), {}, &Tensor::numel);
}

}  // namespace offsim::model
