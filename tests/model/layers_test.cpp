// Layers that differ, and the mixtures that have them: are their counts, bytes and operations those
// on paper (tests/model/small_mixtures.h)?
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sim/model/flops.h"
#include "sim/model/tensors.h"
#include "sim/model/work.h"
#include "tests/model/fixture.h"
#include "tests/model/small_mixtures.h"

namespace offsim::model::layers_test {
namespace {

using testing::ElementsAre;
using testing::Optional;

constexpr Batch kTen{2, 5};  // ten tokens

std::vector<std::size_t> kinds(const Shape& shape) {
  std::vector<std::size_t> out;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    out.push_back(shape.kind_index(layer));
  }
  return out;
}

// --- which layer is of which kind

TEST(Layers, OfDeepseekAreDenseFirst) {
  const Shape v3 = load("deepseek-v3");
  ASSERT_EQ(v3.kinds.size(), 2U);
  EXPECT_EQ(v3.different_layers().front().count, 3);
  EXPECT_EQ(v3.different_layers().back().layer, 3);
  EXPECT_EQ(v3.different_layers().back().count, 58);
  EXPECT_EQ(v3.kind(2).ffn, 18432);
  EXPECT_FALSE(v3.kind(2).experts);
  EXPECT_EQ(v3.kind(3).experts->count, 256);
  EXPECT_TRUE(v3.has_experts());
}

TEST(Layers, OfGptOssSlideInEveryOtherOne) {
  const Shape shape = load("gpt-oss-20b");
  ASSERT_EQ(shape.kinds.size(), 2U);
  EXPECT_THAT(shape.kind(0).window, Optional(128));
  EXPECT_EQ(shape.kind(1).window, std::nullopt);
  EXPECT_EQ(shape.different_layers().front().count, 12);
}

Shape parse(const std::string& text) {
  return read_config(parse_document(text, "small.json", Syntax::kJson), "small");
}

// transformers: windows are listed, or begin at max_window_layers; qwen's experts are in every
// decoder_sparse_step-th layer that is not in mlp_only_layers.
TEST(Layers, OfQwenDifferAsTheirFilesAsk) {
  constexpr const char* kSmall = R"({{"model_type": "{}", "num_hidden_layers": 4, "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 100,
    "vocab_size": 1000, "max_position_embeddings": 2048, {}}})";
  const std::string window = R"("use_sliding_window": true, "sliding_window": 512, )";
  const Shape late = parse(fmt::format(kSmall, "qwen2", window + R"("max_window_layers": 3)"));
  EXPECT_THAT(kinds(late), ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(late.kind(0).window, std::nullopt);
  EXPECT_THAT(late.kind(3).window, Optional(512));
  // Of more layers than transformers' default border of 28 none slides before it.
  EXPECT_EQ(parse(fmt::format(kSmall, "qwen2", window + R"("x": 1)")).kind(3).window, std::nullopt);
  const std::string experts =
      R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 20, )";
  const Shape sparse = parse(fmt::format(
      kSmall, "qwen3_moe", experts + R"("decoder_sparse_step": 2, "mlp_only_layers": [3])"));
  EXPECT_THAT(kinds(sparse), ElementsAre(0, 1, 0, 0));
  const Shape all = parse(fmt::format(kSmall, "qwen3_moe", window + experts + R"("x": 1)"));
  EXPECT_THAT(kinds(all), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(all.kind(0).window, Optional(512));
  const Shape others = parse(fmt::format(
      kSmall, "qwen2_moe",
      window + experts + R"("shared_expert_intermediate_size": 40, "max_window_layers": 2)"));
  EXPECT_THAT(others.kind(0).window, Optional(512));
  EXPECT_THAT(kinds(others), ElementsAre(0, 1, 1, 1));
  EXPECT_EQ(sparse.kind(0).ffn, 100);
  EXPECT_EQ(sparse.kind(1).ffn, 2 * 20);
  EXPECT_EQ(layer_parameters(sparse, 1) - layer_parameters(sparse, 0),
            8 * 64 + 8 * 3 * 64 * 20 - 3 * 64 * 100);
}

// --- parameters

TEST(SmallDeepseek, HasTheParametersOfItsComment) {
  const Shape s = small_deepseek();
  EXPECT_EQ(layer_parameters(s, 0), 25'768);
  EXPECT_EQ(layer_parameters(s, 1), 41'640);
  EXPECT_EQ(parameters(s), 278'752);
  EXPECT_EQ(active_parameters(s), 278'752 - 3 * 6 * 3 * 64 * 20);
  EXPECT_EQ(trained_parameters(s), parameters(s));
  EXPECT_EQ(largest_tensor(s).name, "model.embed_tokens.weight");
  // A plain q is 64 x 48 in the place of three tensors.
  Shape plain = s;
  plain.latent->q_rank = 0;
  EXPECT_EQ(layer_parameters(plain, 0), 25'768 - (64 * 24 + 24 + 24 * 48) + 64 * 48);
}

TEST(SmallGptOss, HasTheParametersOfItsComment) {
  const Shape s = small_gpt_oss();
  EXPECT_EQ(layer_parameters(s, 0), 162'636);
  EXPECT_EQ(layer_parameters(s, 1), 162'636);
  EXPECT_EQ(parameters(s), 615'972);
  EXPECT_EQ(active_parameters(s), 615'972 - 3 * 6 * 19'464);
  EXPECT_EQ(largest_tensor(s).numel(), 8 * 64 * 200);
}

// As published: of deepseek-v3 37 B either way; of the others without the input embedding.
TEST(Mixtures, ActiveParametersAreThePublishedOnes) {
  const auto billions = [](const char* name, bool embedding) {
    const Shape shape = load(name);
    const std::int64_t less = embedding ? 0 : embedding_parameters(shape);
    return static_cast<double>(active_parameters(shape) - less) / 1e9;
  };
  EXPECT_NEAR(billions("deepseek-v3", true), 37.55, 0.005);
  EXPECT_NEAR(billions("deepseek-v3", false), 36.63, 0.005);
  EXPECT_NEAR(billions("deepseek-v2-lite", false), 2.45, 0.005);
  EXPECT_NEAR(billions("gpt-oss-20b", false), 3.61, 0.005);
  EXPECT_NEAR(billions("gpt-oss-120b", false), 5.13, 0.005);
}

// The tensor sum of the checkpoint has the bias of the router's choice too, which is a buffer.
TEST(DeepseekV3, HasABufferMoreThanParameters) {
  EXPECT_EQ(parameters(load("deepseek-v3")) + 58 * 256, 671'026'419'200);
}

std::vector<std::string> names(const Shape& shape, std::int64_t layer) {
  std::vector<std::string> out;
  for (const Tensor& tensor : layer_tensors(shape, layer)) {
    out.push_back(tensor.name.substr(std::string("model.layers.0.").size()));
  }
  return out;
}

TEST(SmallDeepseek, RegistersInTheOrderOfTransformers) {
  EXPECT_THAT(
      names(small_deepseek(), 1),
      ElementsAre("self_attn.q_a_proj.weight", "self_attn.q_a_layernorm.weight",
                  "self_attn.q_b_proj.weight", "self_attn.kv_a_proj_with_mqa.weight",
                  "self_attn.kv_a_layernorm.weight", "self_attn.kv_b_proj.weight",
                  "self_attn.o_proj.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj",
                  "mlp.gate.weight", "mlp.shared_experts.gate_proj.weight",
                  "mlp.shared_experts.up_proj.weight", "mlp.shared_experts.down_proj.weight",
                  "input_layernorm.weight", "post_attention_layernorm.weight"));
}

TEST(SmallGptOss, RegistersInTheOrderOfTransformers) {
  EXPECT_THAT(
      names(small_gpt_oss(), 0),
      ElementsAre("self_attn.sinks", "self_attn.q_proj.weight", "self_attn.q_proj.bias",
                  "self_attn.k_proj.weight", "self_attn.k_proj.bias", "self_attn.v_proj.weight",
                  "self_attn.v_proj.bias", "self_attn.o_proj.weight", "self_attn.o_proj.bias",
                  "mlp.router.weight", "mlp.router.bias", "mlp.experts.gate_up_proj",
                  "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj",
                  "mlp.experts.down_proj_bias", "input_layernorm.weight",
                  "post_attention_layernorm.weight"));
}

// Systems that hook into modules find every parameter of a layer in one of them, and once.
TEST(Layers, HaveEveryParameterInAModule) {
  for (const Shape& shape : {small_deepseek(), small_gpt_oss()}) {
    const Pieces p = pieces(shape, kTen, Numerics::kPure16);
    for (const Shape::Alike& alike : shape.different_layers()) {
      std::vector<std::int64_t> in_modules, in_layer;
      for (const Module& module : p.layer(alike.layer).modules) {
        in_modules.insert(in_modules.end(), module.elements.begin(), module.elements.end());
      }
      for (const Tensor& tensor : layer_tensors(shape, alike.layer)) {
        in_layer.push_back(tensor.numel());
      }
      EXPECT_THAT(in_modules, testing::UnorderedElementsAreArray(in_layer)) << shape.name;
    }
  }
}

// --- operations

TEST(SmallDeepseek, CountsMatricesAndTheTwoWidthsOfAttention) {
  const Shape s = small_deepseek();
  const double dense = 6'400 + 3 * 64 * 100;  // elements that a token meets
  const double sparse = 6'400 + (2 + 1) * 3 * 64 * 20 + 8 * 64;
  EXPECT_EQ(layer_linear_flops(s, 0, 1).value, 2 * dense);
  EXPECT_EQ(layer_linear_flops(s, 3, 7).value, 7 * 2 * sparse);
  // 4 heads, 10 x 10 scores of 12 multiply-adds each, weighting 6; half of it under the diagonal.
  EXPECT_EQ(layer_attention_flops(s, 0, {1, 10}, Mask::kFull).value, 2 * 4 * 100 * (12 + 6));
  EXPECT_EQ(layer_attention_flops(s, 0, {1, 10}).value, 4 * 100 * (12 + 6));
  const double tokens = 20, attention = 4 * 2 * 4 * 100 * (12 + 6);
  EXPECT_EQ(forward_flops(s, {2, 10}).value,
            tokens * (2 * dense + 3 * 2 * sparse + 2 * 64'000) + attention);
  EXPECT_EQ(six_nd(s, {2, 10}).value, 6 * 20.0 * static_cast<double>(active_parameters(s)));
  // Megatron's formula has no router.
  const double router = 3 * 3 * tokens * 2 * 8 * 64;
  EXPECT_DOUBLE_EQ(megatron_flops(s, {2, 10}).value + router, model_flops(s, {2, 10}).value);
}

TEST(SmallGptOss, CountsItsWindowsWhereTheyAre) {
  const Shape s = small_gpt_oss();
  EXPECT_EQ(layer_linear_flops(s, 0, 1).value, 2 * (6'144 + 8 * 64 + 2 * 3 * 64 * 100));
  EXPECT_EQ(layer_attention_flops(s, 0, {1, 128}).value, 2 * 64 * 128 * 64);
  EXPECT_EQ(layer_attention_flops(s, 0, {1, 200}).value, 2 * 64 * 128 * (200 - 64));
  EXPECT_EQ(layer_attention_flops(s, 1, {1, 200}).value, 2 * 64 * 200 * 100);
}

double products_of(const Work& work) {
  double sum = 0;
  for (const Kernel& kernel : work.kernels) {
    sum += kernel.kind == Kernel::Kind::kGemm ? kernel.flops().value : 0;
  }
  return sum;
}

// The dense layer has nothing but matrices and fused attention, whose backward has three products
// over the width of q and two over that of v.
TEST(SmallDeepseek, LaunchesTheOperationsThatItCounts) {
  const Shape s = small_deepseek();
  const Piece dense = pieces(s, kTen, Numerics::kPure16).layer(0);
  const double linear = layer_linear_flops(s, 0, 10).value;
  EXPECT_DOUBLE_EQ(dense.forward.flops().value, linear + layer_attention_flops(s, 0, kTen).value);
  EXPECT_DOUBLE_EQ(dense.backward.flops().value, 2 * linear + 2 * 4 * 25 * (3 * 12 + 2 * 6));
  EXPECT_EQ(dense.forward.name, "dense layer forward");
}

// Scores of the whole square in layers with windows too; of the experts' products half a tile each
// is padding (64 rows).
TEST(SmallGptOss, LaunchesAllScoresAsProducts) {
  const Shape s = small_gpt_oss();
  const Pieces p = pieces(s, {2, 200}, Numerics::kPure16);
  const double tokens = 400;
  const double linear = tokens * 2 * (6'144 + 8 * 64);
  const double experts = 2 * (tokens * 2 + 8 * 64) * 3 * 64 * 100;
  const double scores = 2 * 2 * 4 * 200 * 200 * (8 + 8);
  EXPECT_DOUBLE_EQ(products_of(p.layer(0).forward), linear + experts + scores);
  EXPECT_EQ(p.layer(0).forward, p.layer(1).forward);
}

// --- bytes kept for the backward, of ten tokens in 16 bits

constexpr std::int64_t kNorm = 4 * 640 + 4 * 10 + 2 * 640;  // fp32 input, one a row, scaled

TEST(SmallDeepseek, KeepsWhatAutogradSaves) {
  const Pieces p = pieces(small_deepseek(), kTen, Numerics::kPure16);
  const auto narrow = [](std::int64_t rank) { return 4 * 10 * rank + 4 * 10 + 2 * 10 * rank; };
  const std::int64_t latents = 2 * 640 + narrow(24) + 2 * 10 * 24 + narrow(16) + 2 * 10 * 16;
  // q and k of 4 x 12, the product that v is a view of (4 x 14), the result, log-sum-exp.
  const std::int64_t attention = 2 * 10 * (48 + 48 + 56 + 24) + 4 * 10 * 4;
  const std::int64_t above = kNorm + latents + attention + kNorm;
  EXPECT_EQ(p.layer(0).saved.value, above + 2 * 640 + 4 * 2 * 10 * 100);
  // Router: fp32 copies of its input and matrix, scores, where the best are.
  const std::int64_t router = 4 * 640 + 4 * 8 * 64 + 4 * 10 * 8 + 8 * 10 * 2;
  // 20 rows: three lists, a mask, fp32 weights; each in and out; both halves, silu, product of 20.
  const std::int64_t experts = 20 * (3 * 8 + 1 + 4) + 2 * 2 * 20 * 64 + 4 * 2 * 20 * 20;
  const std::int64_t shared = 2 * 640 + 4 * 2 * 10 * 20;
  EXPECT_EQ(p.layer(1).saved.value, above + router + experts + shared);
}

TEST(SmallGptOss, KeepsWhatAutogradSaves) {
  const Pieces p = pieces(small_gpt_oss(), kTen, Numerics::kPure16);
  const std::int64_t norm = 4 * 640 + 4 * 10 + 4 * 640;  // scaled in fp32, by the weight too
  // q, and k and v of every head; where the largest is; probabilities of 5 scores and a sink.
  const std::int64_t attention = 3 * 2 * 10 * 32 + 8 * 40 + 2 * 40 * (5 + 1);
  const std::int64_t router = 2 * 640 + 8 * 20 + 2 * 20;
  // 20 rows as above; gate and up, five results of the clamped SwiGLU, of 100.
  const std::int64_t experts = 20 * (3 * 8 + 1 + 2) + 2 * 2 * 20 * 64 + 7 * 2 * 20 * 100;
  EXPECT_EQ(p.layer(0).saved.value,
            2 * norm + 2 * 640 + attention + 2 * 10 * 32 + router + experts);
}

// All scores of a head are there three times at the worst moment: 2 samples, 4 heads, S (S + 1).
TEST(SmallGptOss, HoldsAllScoresThreeTimes) {
  const Pieces p = pieces(small_gpt_oss(), {2, 1000}, Numerics::kPure16);
  const std::int64_t scores = 2 * 2 * 4 * 1000 * 1001;
  EXPECT_GT(p.layer(0).forward_alone.value, 3 * scores);
  EXPECT_LT(p.layer(0).forward_alone.value, 3.2 * static_cast<double>(scores));
  EXPECT_GT(p.layer(0).saved.value, scores);
  EXPECT_EQ(p.layer(0).saved, p.layer(1).saved);
}

}  // namespace
}  // namespace offsim::model::layers_test
