// The parameters of a model, tensor by tensor, in the order PyTorch registers them in transformers.
//
// Order: embedding (token table, then the position table), layers, final norm, head. A tied head
// is not listed: it is the embedding. This is the order of named_parameters(), on which systems
// that bucket, pin or fetch tensor by tensor depend (opt makes its final norm and its projections
// before its layers; here they are behind). A matrix is stored rows x cols as in the
// checkpoint: [out, in] for a Linear, [in, out] for gpt2's Conv1D. Source of names and order:
// transformers, src/transformers/models/*/modeling_*.py.
//
// Parameters of a dense SwiGLU layer: 2 h a p (q, o) + 2 h g p (k, v) + 3 h f + 2 h (norms), plus
// biases a p + 2 g p (qwen2) or norms 2 p (qwen3). Without a gate: 2 h f and biases. A mixture
// has, for the MLP's 3 h f, E h (router) + 3 E h w (two tensors of all experts: transformers 5; in
// 4 it was 3 an expert) and of a shared expert 3 h f_shared, with its gate h more (qwen2_moe).
// gpt_oss: biases of all of these, E (1 + 2 w + h), and a sinks. Latent attention, for q, k, v and
// o: h r_q + r_q + r_q a p (or h a p), h (r_kv + d_rotary) + r_kv + r_kv a (d_plain + d_v), a d_v
// h. Model: its layers + V h (embedding) + V h (head, unless tied) + final norm + positions h. An
// embedding of e instead of h numbers (opt-350m): V e, and two projections of h e. With adapters
// (shape.h) the model's own tensors are frozen and each adapted Linear has two more, behind its
// own: rank (in + out) trained parameters. Left out: buffers (gpt2's masks, rotary frequencies),
// which are not trained; vision parts, which are Shape::outside.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/model/shape.h"

namespace offsim::model {

enum class Group : std::uint8_t { kEmbedding, kLayer, kFinal, kHead };

struct Tensor {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  std::int64_t rows = 0;
  std::int64_t cols = 1;  // 1 for a vector
  Group group = Group::kLayer;
  std::int64_t layer = -1;  // which layer, -1 outside the layers
  bool is_matrix = false;
  bool trained = true;       // it has a gradient and optimizer states; frozen otherwise
  Base base = Base::k16Bit;  // how a frozen one is stored

  std::int64_t numel() const { return rows * cols; }
};

std::int64_t count(const std::vector<Tensor>& tensors);    // elements
std::vector<Tensor> trained(std::vector<Tensor> tensors);  // those that are
// Bytes of a number: of trained parameters, of frozen ones.
struct Widths {
  std::int64_t trained = 2, frozen = 2;
};
Bytes numbers(const Tensor& tensor, Widths widths);  // of a quantised one: 8 or 4 bits each
Bytes constants(const Tensor& tensor);  // what a quantised one needs beside its numbers
Bytes numbers(const std::vector<Tensor>& tensors, Widths widths);
Bytes numbers(const Shape& shape, Widths widths);  // of a whole model
Bytes constants(const Shape& shape);

// The tensors of one layer. Those of a kind are alike but for the index in their names.
// Requires: 0 <= layer < shape.layers.
std::vector<Tensor> layer_tensors(const Shape& shape, std::int64_t layer);
// Before the layers, and behind them: final norm and, unless it is tied, the head.
std::vector<Tensor> embedding_tensors(const Shape& shape);
std::vector<Tensor> tail_tensors(const Shape& shape);
// Both: what is outside the layers.
std::vector<Tensor> outer_tensors(const Shape& shape);
// The whole inventory in order: about a thousand names for 80 layers, so loops prefer the two above
// and for_each_tensor().
std::vector<Tensor> all_tensors(const Shape& shape);

// Visits the whole inventory in order. Layers of a kind are made once: all have the names of the
// first of them.
template <class Visit>
void for_each_tensor(const Shape& shape, Visit visit) {
  std::ranges::for_each(embedding_tensors(shape), visit);
  std::vector<std::vector<Tensor>> of_kind(shape.kinds.size());
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    std::vector<Tensor>& tensors = of_kind[shape.kind_index(layer)];
    if (tensors.empty()) {
      tensors = layer_tensors(shape, layer);
    }
    std::ranges::for_each(tensors, visit);
  }
  std::ranges::for_each(tail_tensors(shape), visit);
}

std::int64_t layer_parameters(const Shape& shape, std::int64_t layer);
std::int64_t embedding_parameters(const Shape& shape);  // tables, norm, projection
std::int64_t final_norm_parameters(const Shape& shape);
std::int64_t head_parameters(const Shape& shape);  // 0 when tied
std::int64_t parameters(const Shape& shape);       // all of them, each counted once
// Those that one token uses: k of the E experts, embedding and head included. Published figures
// often leave the input embedding out (DeepSeek-V2-Lite's 2.4 B, gpt-oss's 3.6 and 5.1 B), others
// do not (Mixtral's 12.9 B, Qwen3's 3.3 and 22 B); DeepSeek-V3's 37 B is either.
std::int64_t active_parameters(const Shape& shape);
std::int64_t trained_parameters(const Shape& shape);
// The largest tensor, the first of them when several are alike; of those that are trained.
Tensor largest_tensor(const Shape& shape);
Tensor largest_trained_tensor(const Shape& shape);

}  // namespace offsim::model
