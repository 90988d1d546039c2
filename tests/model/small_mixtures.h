// Mixtures small enough to count on paper: one like DeepSeek-V3, one like gpt-oss.
#pragma once

#include "sim/model/shape.h"

namespace offsim::model {

// h 64, 4 heads with 8 + 4 elements of q and k and 6 of v; ranks 24 and 16. 4 layers, the first
// dense, f 100; then 8 experts of 20, 2 a token, and one for all. V 1000.
//   attention     q 64 x 24 + 24 + 24 x 48, kv 64 x 20 + 16 + 16 x 56, o 24 x 64: 6,440
//   dense layer   6,440 + 3 x 64 x 100 + 2 x 64                          = 25,768
//   sparse layer  6,440 + (8 + 1) 3 x 64 x 20 + 8 x 64 + 2 x 64          = 41,640
//   model         25,768 + 3 x 41,640 + 2 x 64,000 + 64                  = 278,752
inline Shape small_deepseek() {
  Shape s;
  s.name = "small deepseek";
  s.architecture = Architecture::kDeepseekV3;
  s.layers = 4;
  s.hidden = 64;
  s.heads = s.kv_heads = 4;
  s.latent = Latent{.q_rank = 24, .kv_rank = 16, .plain = 8, .rotary = 4};
  s.head_dim = 12;
  s.value_dim = 6;
  s.vocabulary = 1000;
  s.max_sequence = 4096;
  const Experts experts{
      .count = 8, .per_token = 2, .width = 20, .shared = 20, .normalized = true, .grouped = true};
  s.kinds = {LayerKind{.ffn = 100, .window = {}, .experts = {}},
             LayerKind{.ffn = 60, .window = {}, .experts = experts}};
  s.kind_of = {0, 1, 1, 1};
  return s;
}

// h 64, 4 heads and 2 of k and v, of 8 elements. 3 layers with windows of 128 in the first and the
// last, 8 experts of 100, 2 a token. V 1000.
//   attention     4 sinks, q 64 x 32 + 32, k and v 64 x 16 + 16 each, o 32 x 64 + 64: 6,276
//   an expert     64 x 200 + 200 + 100 x 64 + 64                                    = 19,464
//   layer         6,276 + 8 x 19,464 + 8 x 64 + 8 + 2 x 64                          = 162,636
//   model         3 x 162,636 + 2 x 64,000 + 64                                     = 615,972
inline Shape small_gpt_oss() {
  Shape s;
  s.name = "small gpt-oss";
  s.architecture = Architecture::kGptOss;
  s.layers = 3;
  s.hidden = 64;
  s.heads = 4;
  s.kv_heads = 2;
  s.head_dim = 8;
  s.vocabulary = 1000;
  s.max_sequence = 4096;
  s.norm = Norm::kRmsLate;
  s.sinks = s.qkv_bias = s.output_bias = true;
  const Experts experts{.count = 8, .per_token = 2, .width = 100, .bias = true};
  s.kinds = {LayerKind{.ffn = 200, .window = 128, .experts = experts},
             LayerKind{.ffn = 200, .window = {}, .experts = experts}};
  s.kind_of = {0, 1, 0};
  return s;
}

}  // namespace offsim::model
