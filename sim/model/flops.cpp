#include "sim/model/flops.h"

#include <algorithm>

#include "sim/model/tensors.h"

namespace offsim::model {

namespace {

double real(std::int64_t n) { return static_cast<double>(n); }

// Of the matrices of q, k, v and o.
double attention_elements(const Shape& s) {
  if (!s.latent) {
    return real(s.hidden) * real(2 * s.query_width() + 2 * s.kv_width());
  }
  const Latent& l = *s.latent;
  const double q = l.q_rank > 0 ? real(l.q_rank) * real(s.hidden + s.query_width())
                                : real(s.hidden) * real(s.query_width());
  const double kv = real(s.hidden) * real(l.kv_rank + l.rotary) +
                    real(l.kv_rank) * real(s.heads * l.plain + s.value_width());
  return q + kv + real(s.value_width()) * real(s.hidden);
}

template <class Of>
Flops sum_of_layers(const Shape& s, Of of) {
  Flops sum;
  for (const Shape::Alike& alike : s.different_layers()) {
    sum += real(alike.count) * of(alike.layer);
  }
  return sum;
}

Flops attention_flops(const Shape& s, Batch batch, Mask mask) {
  return sum_of_layers(
      s, [&](std::int64_t layer) { return layer_attention_flops(s, layer, batch, mask); });
}

}  // namespace

Flops layer_linear_flops(const Shape& s, std::int64_t layer, std::int64_t tokens) {
  const LayerKind& kind = s.kind(layer);
  std::int64_t router = 0;
  if (kind.experts) {
    const bool gate = kind.experts->shared > 0 && s.architecture == Architecture::kQwen2Moe;
    router = s.hidden * (kind.experts->count + (gate ? 1 : 0));
  }
  const double mlp = (s.gated_mlp ? 3 : 2) * real(s.hidden) * real(kind.ffn);
  const std::int64_t adapters = s.adapters.any() ? count(trained(layer_tensors(s, layer))) : 0;
  return Flops(2 * real(tokens) * (attention_elements(s) + mlp + real(router) + real(adapters)));
}

Flops layer_attention_flops(const Shape& s, std::int64_t layer, Batch batch, Mask mask) {
  const double sequence = real(batch.sequence);
  // Scores per head and sample: the square, or what lies under the diagonal and within the window.
  double scores = sequence * sequence;
  if (mask == Mask::kCausal) {
    const double window = std::min(real(s.kind(layer).window.value_or(batch.sequence)), sequence);
    scores = window * (sequence - window / 2);
  }
  return Flops(2 * real(batch.samples) * real(s.query_width() + s.value_width()) * scores);
}

Flops head_flops(const Shape& s, std::int64_t tokens) {
  const double projections = s.embedded > 0 ? 2 * real(s.hidden) * real(s.embedded) : 0;
  return Flops(2 * real(tokens) * (real(s.embedding_width()) * real(s.vocabulary) + projections));
}

Flops forward_flops(const Shape& s, Batch batch, Mask mask) {
  const Flops linear = sum_of_layers(
      s, [&](std::int64_t layer) { return layer_linear_flops(s, layer, batch.tokens()); });
  return linear + attention_flops(s, batch, mask) + head_flops(s, batch.tokens());
}

Flops model_flops(const Shape& s, Batch batch) {
  if (!s.adapters.any()) {
    return (1 + kBackwardOfGemm) * forward_flops(s, batch);
  }
  const Flops weights(2 * real(batch.tokens()) * real(trained_parameters(s)));
  return 2.0 * forward_flops(s, batch) + attention_flops(s, batch, Mask::kCausal) + weights;
}

Flops six_nd(const Shape& s, Batch batch) {
  const double all = real(active_parameters(s));
  const double changed = s.adapters.any() ? real(trained_parameters(s)) : all;
  return Flops((4 * all + 2 * changed) * real(batch.tokens()));
}

Flops palm_flops(const Shape& s, Batch batch) {
  return six_nd(s, batch) + 3.0 * attention_flops(s, batch, Mask::kFull);
}

Flops megatron_flops(const Shape& s, Batch batch) {
  const double tokens = real(batch.tokens());
  const double hidden = real(s.hidden);
  double attention = 0;
  if (s.latent) {
    const double scores = real(s.query_width() + s.value_width()) * real(batch.sequence) / 2;
    attention = 2 * tokens * (attention_elements(s) + scores);
  } else {
    const double query_ratio = real(s.query_width()) / hidden;
    const double kv_hidden = hidden * real(s.kv_heads) / real(s.heads);
    attention = 4 * tokens * hidden * query_ratio * (hidden + kv_hidden + real(batch.sequence) / 2);
  }
  const Flops layers = sum_of_layers(s, [&](std::int64_t layer) {
    const double mlp = 4 * tokens * hidden * real(s.kind(layer).ffn) * (s.gated_mlp ? 1.5 : 1);
    return Flops(attention + mlp);
  });
  return 3.0 * (layers + head_flops(s, batch.tokens()));
}

Flops narayanan_flops(const Shape& s, Batch batch) {
  const double layers = real(s.layers);
  const double hidden = real(s.hidden);
  const double matrices = 96 * real(batch.tokens()) * layers * hidden * hidden;
  return Flops(matrices * (1 + real(batch.sequence) / (6 * hidden) +
                           real(s.vocabulary) / (16 * layers * hidden)));
}

}  // namespace offsim::model
