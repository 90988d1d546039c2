#include "sim/model/flops.h"

#include <algorithm>

#include "sim/model/tensors.h"

namespace offsim::model {

namespace {

double real(std::int64_t n) { return static_cast<double>(n); }

}  // namespace

Flops layer_linear_flops(const Shape& s, std::int64_t tokens) {
  const std::int64_t attention = 4 * s.query_width() + 4 * s.kv_width();
  const std::int64_t mlp = (s.gated_mlp ? 6 : 4) * s.ffn;
  const std::int64_t router =
      s.experts ? 2 * (s.experts->count + (s.experts->shared > 0 ? 1 : 0)) : 0;
  const std::int64_t adapters = s.adapters.any() ? count(trained(layer_tensors(s))) : 0;
  return Flops(real(tokens) * real(s.hidden) * real(attention + mlp + router)) +
         Flops(2 * real(tokens) * real(adapters));
}

Flops layer_attention_flops(const Shape& s, Batch batch, Mask mask) {
  const double sequence = real(batch.sequence);
  // Scores per head and sample: the square, or what lies under the diagonal and within the window.
  double scores = sequence * sequence;
  if (mask == Mask::kCausal) {
    const double window = std::min(real(s.window.value_or(batch.sequence)), sequence);
    scores = window * (sequence - window / 2);
  }
  return Flops(4 * real(batch.samples) * real(s.query_width()) * scores);
}

Flops head_flops(const Shape& s, std::int64_t tokens) {
  return Flops(2 * real(tokens) * real(s.hidden) * real(s.vocabulary));
}

Flops forward_flops(const Shape& s, Batch batch, Mask mask) {
  const Flops layer = layer_linear_flops(s, batch.tokens()) + layer_attention_flops(s, batch, mask);
  return real(s.layers) * layer + head_flops(s, batch.tokens());
}

Flops model_flops(const Shape& s, Batch batch) {
  if (!s.adapters.any()) {
    return (1 + kBackwardOfGemm) * forward_flops(s, batch);
  }
  const Flops weights(2 * real(batch.tokens()) * real(trained_parameters(s)));
  return 2.0 * forward_flops(s, batch) + real(s.layers) * layer_attention_flops(s, batch) + weights;
}

Flops six_nd(const Shape& s, Batch batch) {
  const double all = real(active_parameters(s));
  const double changed = s.adapters.any() ? real(trained_parameters(s)) : all;
  return Flops((4 * all + 2 * changed) * real(batch.tokens()));
}

Flops palm_flops(const Shape& s, Batch batch) {
  const double attention = 12 * real(s.layers) * real(s.query_width()) * real(batch.sequence);
  return six_nd(s, batch) + Flops(real(batch.tokens()) * attention);
}

Flops megatron_flops(const Shape& s, Batch batch) {
  const double tokens = real(batch.tokens());
  const double hidden = real(s.hidden);
  const double query_ratio = real(s.query_width()) / hidden;
  const double kv_hidden = hidden * real(s.kv_heads) / real(s.heads);
  const double attention =
      4 * tokens * hidden * query_ratio * (hidden + kv_hidden + real(batch.sequence) / 2);
  const double mlp = 4 * tokens * hidden * real(s.ffn) * (s.gated_mlp ? 1.5 : 1);
  const double logits = 2 * tokens * hidden * real(s.vocabulary);
  return Flops(3 * (real(s.layers) * (attention + mlp) + logits));
}

Flops narayanan_flops(const Shape& s, Batch batch) {
  const double layers = real(s.layers);
  const double hidden = real(s.hidden);
  const double matrices = 96 * real(batch.tokens()) * layers * hidden * hidden;
  return Flops(matrices * (1 + real(batch.sequence) / (6 * hidden) +
                           real(s.vocabulary) / (16 * layers * hidden)));
}

}  // namespace offsim::model
