#include "sim/model/peaks.h"

#include <algorithm>

namespace offsim::model {

Peaks mlp_peaks(const Tape& tape, const Shape& shape, std::int64_t ffn, std::int64_t tokens) {
  const std::int64_t wide_mlp = tape.act() * tokens * ffn;
  const std::int64_t hidden = tape.residual() * tokens * shape.hidden;
  // While the MLP runs: gated, silu(gate), up and their product; else what the activation is made
  // of (of one kernel what it reads and writes). Its input and the residual.
  const bool one_kernel =
      shape.activation == Activation::kGelu || shape.activation == Activation::kRelu;
  const std::int64_t alive = shape.gated_mlp
                                 ? (shape.fused_gate_up ? 4 : 3)
                                 : (one_kernel ? 2 : (tape.residual() > tape.act() ? 7 : 4));
  // A quantised weight as 16-bit numbers; of 8 bits forward the 32-bit product instead.
  const Base base = shape.adapters.base;
  const std::int64_t weight = base == Base::k16Bit ? 0 : tape.act() * shape.hidden * ffn;
  const std::int64_t forward = base == Base::kInt8 ? 4 * tokens * ffn : weight;
  // While the MLP's backward runs: the gradients of the product, gate and up, beside the
  // residual's.
  return {2 * hidden + forward, alive * wide_mlp + 3 * hidden + forward,
          (shape.fused_gate_up ? 5 : 3) * wide_mlp + hidden + weight};
}

Peaks mixture_peaks(const Tape& tape, const Shape& shape, const Experts& e, std::int64_t tokens) {
  const std::int64_t hidden = tape.residual() * tokens * shape.hidden;
  const std::int64_t rows = e.per_token * hidden;
  const std::int64_t wide = tape.residual() * tokens * e.per_token * e.width;
  const bool widens =
      (shape.architecture == Architecture::kMixtral || shape.latent) && tape.residual() == 2;
  const std::int64_t weighted = (widens ? 2 : 1) * rows;
  // Weighted rows and their order back; that, or both halves twice (cleared is a copy; gpt_oss's
  // activation has more), beside the sorted rows. Backward likewise.
  const std::int64_t last = 2 * weighted;
  const std::int64_t forward = e.bias ? 7 : 4, backward = e.bias ? 6 : 4;
  // Of frozen experts the sorted rows and the activation's result are there, but nobody saves them.
  const std::int64_t unsaved =
      shape.adapters.any() ? rows + std::max<std::int64_t>(wide - last, 0) : 0;
  return {2 * hidden + unsaved + last, std::max(forward * wide, rows + last) + rows + 3 * hidden,
          std::max(backward * wide, rows + last) + hidden};
}

Peaks attention_peaks(const Tape& tape, const Shape& shape, Batch batch) {
  const std::int64_t tokens = batch.tokens();
  const std::int64_t hidden = tape.residual() * tokens * shape.hidden;
  const std::int64_t q = tokens * shape.query_width();
  if (shape.latent) {
    const std::int64_t kv = tokens * (shape.heads * shape.latent->plain + shape.value_width());
    const std::int64_t value = tape.act() * tokens * shape.value_width();
    // The product of q, which is split and joined; both joined in fp32 under autocast. All of these
    // with k's and v's and the result. Gradients of q, k and v, and k's and v's joined and copied.
    const std::int64_t wide =
        tape.act() < tape.residual() && shape.architecture == Architecture::kDeepseekV3 ? 8 * q : 0;
    const std::int64_t extra = 2 * hidden + tape.act() * q + wide;
    return {extra, extra + tape.act() * (2 * q + kv) + value,
            hidden + 2 * tape.act() * (q + kv) + value};
  }
  if (shape.writes_scores()) {
    const std::int64_t rows = tokens * shape.heads;
    // Masked scores, and these with the sinks, beside the probabilities; three of them backward.
    const std::int64_t width = shape.sinks ? tape.residual() : 4;
    const std::int64_t scores = width * rows * (batch.sequence + (shape.sinks ? 1 : 0));
    const std::int64_t heads = 4 * tape.residual() * q;
    return {2 * hidden + 2 * scores, 2 * hidden + 3 * scores + heads, hidden + 3 * scores};
  }
  return {};
}

Peaks largest(const Peaks& attention, const Peaks& mlp, std::int64_t saved_by_attention,
              std::int64_t saved) {
  const std::int64_t less = saved - saved_by_attention;
  return {std::max(mlp.forward_extra, attention.forward_extra - less),
          std::max(mlp.forward_alone, attention.forward_alone),
          std::max(mlp.backward_extra, attention.backward_extra - less)};
}

}  // namespace offsim::model
