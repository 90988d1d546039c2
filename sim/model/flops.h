// Floating-point operations of a step, a multiply-add counted as 2.
//
// Per micro-batch of T = B S tokens, forward (B samples of S tokens; symbols in shape.h):
//   q, o projections      4 T h a p
//   k, v projections      4 T h g p
//   MLP                   6 T h f gated, 4 T h f otherwise
//   attention, full       4 T S a p     (scores and weighted sum, the whole square)
//   attention, causal     2 T S a p     (the lower triangle, without the rest of diagonal tiles)
//   attention, window w   4 B a p w (S - w/2) with w at most S: the triangle at w = S
//   latent attention      for q, k, v and o 2 T n (n the elements of its matrices); for a p above
//                         a (p + d_v) / 2
//   experts' router       2 T h E, and of qwen2_moe's gate of the shared expert 2 T h
//   head                  2 T h V; of an embedding of e numbers 2 T e (V + 2 h), with projections
//   adapters              2 T n         (n their parameters in a layer)
// Norms, rotary, softmax, activations, biases and the embedding lookup are bandwidth: 0 here.
// The backward of a matrix product is 2 x forward (dX and dW), of a frozen one 1 x (dX).
// What is executed beyond that (recomputed layers, flash attention's backward) is counted by
// whoever records a step; the constants for it are here.
//
// Sources: Korthikanti et al. 2022 (arXiv 2205.05198); Chowdhery et al. 2022 (PaLM, 2204.02311,
// appendix B); Narayanan et al. 2021 (2104.04473); Dao 2023 (FlashAttention-2, 2307.08691).
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/model/shape.h"

namespace offsim::model {

// One micro-batch: `samples` sequences of `sequence` tokens each, all of full length.
struct Batch {
  std::int64_t samples = 1;
  std::int64_t sequence = 1;

  std::int64_t tokens() const { return samples * sequence; }
};

enum class Mask : std::uint8_t { kCausal, kFull };

inline constexpr double kBackwardOfGemm = 2.0;            // and of attention, as conventions count
inline constexpr double kBackwardOfFlashAttention = 2.5;  // as executed: 5 products for 2

// Forward: one layer's matrices (q, k, v, o, MLP), one layer's attention, the head.
Flops layer_linear_flops(const Shape& shape, std::int64_t layer, std::int64_t tokens);
Flops layer_attention_flops(const Shape& shape, std::int64_t layer, Batch batch,
                            Mask mask = Mask::kCausal);
Flops head_flops(const Shape& shape, std::int64_t tokens);
// Forward of all layers and the head.
Flops forward_flops(const Shape& shape, Batch batch, Mask mask = Mask::kCausal);

// What published TFLOPS count for one micro-batch of forward and backward. They differ by up to a
// half, so compare like with like.
//   model_flops      3 x forward with causal attention: "model FLOPs"; of frozen products 2 x
//   six_nd           6 N T, N all parameters that a token uses: no attention, but the embedding
//                    (MegaTrain's script); with n of them trained 4 N T + 2 n T, which nobody
//                    publishes
//   palm_flops       T (6 N + 12 L a p S): attention of the whole square (PaLM's MFU)
//   megatron_flops   3 x [sum of layers (4 T h r (h + h g/a + S/2) + MLP) + 2 T h V], r = a p / h,
//                    MLP 4 T h f, x 3/2 if gated (Megatron-LM's num_floating_point_operations): the
//                    same number as model_flops when there is no window, and no router. Of latent
//                    attention 2 T (h r_q + r_q a p (or h a p) + h (r_kv + d_rotary) +
//                    r_kv a (d_plain + d_v) + a d_v h + a (p + d_v) S/2) for the first term
//   narayanan_flops  96 T L h^2 (1 + S/(6h) + V/(16 L h)): assumes 12 h^2 parameters a layer and
//                    includes one recomputation, so about 4/3 of model FLOPs
Flops model_flops(const Shape& shape, Batch batch);
Flops six_nd(const Shape& shape, Batch batch);
Flops palm_flops(const Shape& shape, Batch batch);
Flops megatron_flops(const Shape& shape, Batch batch);
Flops narayanan_flops(const Shape& shape, Batch batch);

}  // namespace offsim::model
