// Is the inventory what PyTorch registers: names, shapes, order?
#include "sim/model/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/model/fixture.h"

namespace offsim::model::tensors_test {
namespace {

using testing::ElementsAre;

std::string show(const Tensor& t) {
  return t.name + (t.is_matrix ? " [" + std::to_string(t.rows) + ", " + std::to_string(t.cols) + "]"
                               : " [" + std::to_string(t.rows) + "]");
}
std::vector<std::string> show(const std::vector<Tensor>& tensors) {
  std::vector<std::string> lines;
  for (const Tensor& tensor : tensors) {
    lines.push_back(show(tensor));
  }
  return lines;
}

TEST(Tensors, OfALlamaLayerAreInModuleOrder) {
  EXPECT_THAT(show(layer_tensors(load("llama-3.1-8b"), 31)),
              ElementsAre("model.layers.31.self_attn.q_proj.weight [4096, 4096]",
                          "model.layers.31.self_attn.k_proj.weight [1024, 4096]",
                          "model.layers.31.self_attn.v_proj.weight [1024, 4096]",
                          "model.layers.31.self_attn.o_proj.weight [4096, 4096]",
                          "model.layers.31.mlp.gate_proj.weight [14336, 4096]",
                          "model.layers.31.mlp.up_proj.weight [14336, 4096]",
                          "model.layers.31.mlp.down_proj.weight [4096, 14336]",
                          "model.layers.31.input_layernorm.weight [4096]",
                          "model.layers.31.post_attention_layernorm.weight [4096]"));
}

TEST(Tensors, OfAQwen2LayerHaveABiasAfterEachOfQkv) {
  EXPECT_THAT(show(layer_tensors(load("qwen2.5-0.5b"), 0)),
              ElementsAre("model.layers.0.self_attn.q_proj.weight [896, 896]",
                          "model.layers.0.self_attn.q_proj.bias [896]",
                          "model.layers.0.self_attn.k_proj.weight [128, 896]",
                          "model.layers.0.self_attn.k_proj.bias [128]",
                          "model.layers.0.self_attn.v_proj.weight [128, 896]",
                          "model.layers.0.self_attn.v_proj.bias [128]",
                          "model.layers.0.self_attn.o_proj.weight [896, 896]",
                          "model.layers.0.mlp.gate_proj.weight [4864, 896]",
                          "model.layers.0.mlp.up_proj.weight [4864, 896]",
                          "model.layers.0.mlp.down_proj.weight [896, 4864]",
                          "model.layers.0.input_layernorm.weight [896]",
                          "model.layers.0.post_attention_layernorm.weight [896]"));
}

TEST(Tensors, OfAQwen3LayerHaveNormsOfOneHeadAfterTheProjections) {
  EXPECT_THAT(show(layer_tensors(load("qwen3-32b"), 1)),
              ElementsAre("model.layers.1.self_attn.q_proj.weight [8192, 5120]",
                          "model.layers.1.self_attn.k_proj.weight [1024, 5120]",
                          "model.layers.1.self_attn.v_proj.weight [1024, 5120]",
                          "model.layers.1.self_attn.o_proj.weight [5120, 8192]",
                          "model.layers.1.self_attn.q_norm.weight [128]",
                          "model.layers.1.self_attn.k_norm.weight [128]",
                          "model.layers.1.mlp.gate_proj.weight [25600, 5120]",
                          "model.layers.1.mlp.up_proj.weight [25600, 5120]",
                          "model.layers.1.mlp.down_proj.weight [5120, 25600]",
                          "model.layers.1.input_layernorm.weight [5120]",
                          "model.layers.1.post_attention_layernorm.weight [5120]"));
}

TEST(Tensors, OfAGpt2LayerAreStoredInByOut) {
  EXPECT_THAT(show(layer_tensors(load("gpt2"), 11)),
              ElementsAre("transformer.h.11.ln_1.weight [768]", "transformer.h.11.ln_1.bias [768]",
                          "transformer.h.11.attn.c_attn.weight [768, 2304]",
                          "transformer.h.11.attn.c_attn.bias [2304]",
                          "transformer.h.11.attn.c_proj.weight [768, 768]",
                          "transformer.h.11.attn.c_proj.bias [768]",
                          "transformer.h.11.ln_2.weight [768]", "transformer.h.11.ln_2.bias [768]",
                          "transformer.h.11.mlp.c_fc.weight [768, 3072]",
                          "transformer.h.11.mlp.c_fc.bias [3072]",
                          "transformer.h.11.mlp.c_proj.weight [3072, 768]",
                          "transformer.h.11.mlp.c_proj.bias [768]"));
}

TEST(Tensors, OutsideTheLayersHaveNoHeadWhenTied) {
  EXPECT_THAT(show(outer_tensors(load("llama-3.1-8b"))),
              ElementsAre("model.embed_tokens.weight [128256, 4096]", "model.norm.weight [4096]",
                          "lm_head.weight [128256, 4096]"));
  EXPECT_THAT(show(outer_tensors(load("qwen3-0.6b"))),
              ElementsAre("model.embed_tokens.weight [151936, 1024]", "model.norm.weight [1024]"));
  EXPECT_THAT(
      show(outer_tensors(load("gpt2"))),
      ElementsAre("transformer.wte.weight [50257, 768]", "transformer.wpe.weight [1024, 768]",
                  "transformer.ln_f.weight [768]", "transformer.ln_f.bias [768]"));
}

TEST(Tensors, GoFromEmbeddingThroughLayersToHead) {
  const std::vector<Tensor> all = all_tensors(load("llama-3.1-8b"));
  ASSERT_EQ(all.size(), 1U + 32 * 9 + 2);
  EXPECT_EQ(all.front().group, Group::kEmbedding);
  EXPECT_EQ(all.front().layer, -1);
  EXPECT_EQ(all[1].layer, 0);
  EXPECT_EQ(all[9].layer, 0);
  EXPECT_EQ(all[10].layer, 1);
  EXPECT_EQ(all[288].layer, 31);
  EXPECT_EQ(all[289].group, Group::kFinal);
  EXPECT_EQ(all.back().group, Group::kHead);
}

TEST(Tensors, LargestIsTheEmbeddingOrAnMlpMatrix) {
  EXPECT_EQ(show(largest_tensor(load("llama-3.1-8b"))), "model.embed_tokens.weight [128256, 4096]");
  EXPECT_EQ(show(largest_tensor(load("llama-2-70b"))), "model.embed_tokens.weight [32000, 8192]");
  EXPECT_EQ(show(largest_tensor(load("mistral-7b-v0.1"))),
            "model.embed_tokens.weight [32000, 4096]");
  Shape wide = load("llama-2-70b");
  wide.kinds.front().ffn = 40'000;
  EXPECT_EQ(show(largest_tensor(wide)), "model.layers.0.mlp.gate_proj.weight [40000, 8192]");
}

TEST(Tensors, OfALayerThatIsNotThereAreABug) {
  const Shape shape = load("gpt2");
  EXPECT_THROW(layer_tensors(shape, 12), InternalError);
  EXPECT_THROW(layer_tensors(shape, -1), InternalError);
}

// The formulas of the header, written out again: they must agree with the tensors for any shape.
RC_GTEST_PROP(TensorsProperty, AddUpToTheFormula, ()) {
  Shape s;
  s.layers = *rc::gen::inRange(1, 9);
  s.kv_heads = *rc::gen::inRange(1, 9);
  s.heads = s.kv_heads * *rc::gen::inRange(1, 9);
  s.head_dim = *rc::gen::inRange(1, 257);
  s.hidden = *rc::gen::inRange(1, 5000);
  s.kinds.front().ffn = *rc::gen::inRange(1, 20'000);
  s.vocabulary = *rc::gen::inRange(1, 200'000);
  s.tied = *rc::gen::arbitrary<bool>();
  s.qkv_bias = *rc::gen::arbitrary<bool>();
  s.output_bias = *rc::gen::arbitrary<bool>();
  s.mlp_bias = *rc::gen::arbitrary<bool>();
  s.qk_norm = *rc::gen::arbitrary<bool>();
  const std::int64_t h = s.hidden, a = s.heads, g = s.kv_heads, p = s.head_dim,
                     f = s.kinds.front().ffn;
  std::int64_t layer = 2 * h * a * p + 2 * h * g * p + 3 * h * f + 2 * h;
  layer += s.qkv_bias ? a * p + 2 * g * p : 0;
  layer += s.output_bias ? h : 0;
  layer += s.mlp_bias ? 2 * f + h : 0;
  layer += s.qk_norm ? 2 * p : 0;
  RC_ASSERT(layer_parameters(s, 0) == layer);
  RC_ASSERT(parameters(s) == s.layers * layer + s.vocabulary * h * (s.tied ? 1 : 2) + h);
  RC_ASSERT(parameters(s) == s.layers * layer + embedding_parameters(s) + head_parameters(s) +
                                 final_norm_parameters(s));
}

}  // namespace
}  // namespace offsim::model::tensors_test
