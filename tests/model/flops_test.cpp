// Are the counts those of the papers, and how far apart are the conventions?
#include "sim/model/flops.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/model/tensors.h"
#include "tests/model/fixture.h"

namespace offsim::model::flops_test {
namespace {

constexpr double kGiga = 1e9;

struct Reference {
  const char* name;
  double linear_gf;     // layers' matrices and head, per token forward
  double attention_gf;  // causal, at 4096 tokens
};

class PerToken : public testing::TestWithParam<Reference> {};

// Computed by hand from the shapes; the last digit given is exact to half a unit.
TEST_P(PerToken, ForwardAt4096Tokens) {
  const Shape shape = load(GetParam().name);
  const double layers = static_cast<double>(shape.layers);
  const double linear = layers * layer_linear_flops(shape, 0, 1).value + head_flops(shape, 1).value;
  const double attention = layers * layer_attention_flops(shape, 0, {1, 4096}).value / 4096;
  EXPECT_NEAR(linear / kGiga, GetParam().linear_gf, 0.005);
  EXPECT_NEAR(attention / kGiga, GetParam().attention_gf, 0.005);
  EXPECT_DOUBLE_EQ(forward_flops(shape, {1, 4096}).value, 4096 * (linear + attention));
}
INSTANTIATE_TEST_SUITE_P(Models, PerToken,
                         testing::Values(Reference{"llama-7b-v1", 13.21, 1.07},
                                         Reference{"llama-3-8b", 15.01, 1.07},
                                         Reference{"qwen2.5-14b", 27.98, 2.01},
                                         Reference{"llama-3-70b", 139.00, 5.37}));

// A layer small enough to count on paper: h 8, a 4, g 2, p 3, f 10, V 100.
Shape tiny() {
  Shape s;
  s.layers = 1;
  s.hidden = 8;
  s.heads = 4;
  s.kv_heads = 2;
  s.head_dim = 3;
  s.kinds.front().ffn = 10;
  s.vocabulary = 100;
  return s;
}

TEST(Linear, CountsEveryMatrixTwicePerToken) {
  // q and o are 8 x 12, k and v 8 x 6, three of 8 x 10: 528 elements.
  EXPECT_EQ(layer_linear_flops(tiny(), 0, 1).value, 2 * 528);
  EXPECT_EQ(layer_linear_flops(tiny(), 0, 5).value, 5 * 2 * 528);
  Shape gelu = tiny();
  gelu.gated_mlp = false;
  EXPECT_EQ(layer_linear_flops(gelu, 0, 1).value, 2 * (528 - 80));
  EXPECT_EQ(head_flops(tiny(), 5).value, 5 * 2 * 800);
}

TEST(Attention, IsASquareOrHalfOfIt) {
  // Two samples, 4 heads, 6 x 6 scores; 3 multiply-adds each for the score and for the sum.
  EXPECT_EQ(layer_attention_flops(tiny(), 0, {2, 6}, Mask::kFull).value, 2 * 4 * 36 * 3 * 4);
  EXPECT_EQ(layer_attention_flops(tiny(), 0, {2, 6}).value, 2 * 4 * 18 * 3 * 4);
}

TEST(Attention, WindowBindsOnlyBelowTheSequence) {
  Shape s = tiny();
  const double causal = layer_attention_flops(s, 0, {1, 64}).value;
  s.kinds.front().window = 64;
  EXPECT_EQ(layer_attention_flops(s, 0, {1, 64}).value, causal);
  s.kinds.front().window = 1000;
  EXPECT_EQ(layer_attention_flops(s, 0, {1, 64}).value, causal);
  s.kinds.front().window = 16;
  EXPECT_EQ(layer_attention_flops(s, 0, {1, 64}).value, 4 * 12 * 16.0 * (64 - 8));
  // Far below the sequence every token sees the whole window.
  EXPECT_NEAR(layer_attention_flops(s, 0, {1, 100'000}).value / (4 * 12 * 16.0 * 100'000), 1, 1e-4);
}

TEST(Conventions, SixNdCountsEveryParameter) {
  EXPECT_EQ(six_nd(load("llama-3-70b"), {1, 1}).value, 6 * 70'553'706'496.0);
  EXPECT_EQ(six_nd(load("llama-3-70b"), {2, 4096}).value, 6 * 70'553'706'496.0 * 8192);
}

TEST(Conventions, ModelFlopsOfLlama70bAre433GigaPerToken) {
  const Batch batch{1, 4096};
  EXPECT_NEAR(model_flops(load("llama-3-70b"), batch).value / 4096 / kGiga, 433.1, 0.05);
}

TEST(Conventions, PalmAddsTheWholeSquare) {
  const Shape shape = load("llama-3-70b");
  const Batch batch{2, 4096};
  const double square = 80 * layer_attention_flops(shape, 0, batch, Mask::kFull).value;
  EXPECT_DOUBLE_EQ(palm_flops(shape, batch).value, six_nd(shape, batch).value + 3 * square);
}

// 12 h^2 a layer is what a GELU model with full heads has; biases and norms are not in the formula.
TEST(Conventions, NarayananIsFourThirdsOfAGpt2WithTheWholeSquare) {
  const Shape shape = load("gpt2-xl");
  const Batch batch{4, 1024};
  const Flops layers = 48 * (layer_linear_flops(shape, 0, 4096) +
                             layer_attention_flops(shape, 0, batch, Mask::kFull));
  const Flops expected = 4 * layers + 3 * head_flops(shape, 4096);  // the head is not recomputed
  EXPECT_NEAR(narayanan_flops(shape, batch) / expected, 1, 1e-12);
}

RC_GTEST_PROP(ConventionsProperty, MegatronIsModelFlopsWithoutAWindow, ()) {
  Shape s;
  s.layers = *rc::gen::inRange(1, 130);
  s.kv_heads = *rc::gen::inRange(1, 17);
  s.heads = s.kv_heads * *rc::gen::inRange(1, 17);
  s.head_dim = *rc::gen::inRange(1, 257);
  s.hidden = *rc::gen::inRange(1, 20'000);
  s.kinds.front().ffn = *rc::gen::inRange(1, 60'000);
  s.vocabulary = *rc::gen::inRange(1, 200'000);
  s.gated_mlp = *rc::gen::arbitrary<bool>();
  const Batch batch{*rc::gen::inRange(1, 65), *rc::gen::inRange(1, 131'073)};
  RC_ASSERT(std::abs(megatron_flops(s, batch) / model_flops(s, batch) - 1) < 1e-12);
}

// What connects the two inventories: a matrix in the layers costs 2 operations a token.
RC_GTEST_PROP(ConventionsProperty, LinearFlopsAreTwoPerMatrixElement, ()) {
  static const char* const kNames[] = {"gpt2", "llama-2-70b", "qwen2.5-7b", "qwen3-32b"};
  const Shape shape = load(kNames[*rc::gen::inRange(0, 4)]);
  const std::int64_t tokens = *rc::gen::inRange(1, 100'000);
  std::int64_t elements = 0;
  for (const Tensor& tensor : layer_tensors(shape, 0)) {
    elements += tensor.is_matrix ? tensor.numel() : 0;
  }
  RC_ASSERT(layer_linear_flops(shape, 0, tokens).value ==
            2.0 * static_cast<double>(tokens * elements));
}

}  // namespace
}  // namespace offsim::model::flops_test
