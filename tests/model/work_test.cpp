// Does a layer launch, move and keep what PyTorch was seen to launch, move and keep?
//
// The oracle is hardware/measured/raw/h200-layers.jsonl: five architectures of four layers on 8 x
// 1024 tokens, under autocast and in pure bf16, by memory marks before each layer and by a profile
// of each pass.
#include "sim/model/work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/model/fixture.h"
#include "tests/model/profiles.h"

namespace offsim::model::work_test {
namespace {

std::vector<Case> cases(bool checkpointing) {
  std::vector<Case> out = profiled("h200-layers.jsonl", checkpointing);
  EXPECT_EQ(out.size(), 10U);
  return out;
}

// Scalars (random state), and under autocast 16-bit copies of biases.
constexpr std::int64_t kSmall = 20 * kKiB;
// A block that the caching allocator does not split keeps up to this much unused, and counts it as
// allocated.
constexpr std::int64_t kRemainder = kMiB;

TEST(SavedBytes, OfALayerAreAsMeasured) {
  for (const Case& c : cases(false)) {
    const std::int64_t modelled =
        (c.pieces.layers.back().saved + c.pieces.layers.back().cast).value;
    const bool unsplit = c.name == "qwen2-2048-gqa autocast";
    EXPECT_GE(c.least_step(), modelled) << c.name;
    EXPECT_LE(c.least_step(), modelled + (unsplit ? kRemainder : kSmall)) << c.name;
  }
}

TEST(SavedBytes, OfAWholeForwardAreAsMeasuredWithinTwoPerMille) {
  for (const Case& c : cases(false)) {
    const double modelled =
        c.pass([](const Piece& piece) { return piece.saved.value; }) +
        static_cast<double>(kLayers * c.pieces.layers.back().cast.value + c.pieces.head.cast.value);
    const double measured = c.after_forward - c.before;
    EXPECT_NEAR(modelled / measured, 1, 0.002) << c.name;
  }
}

// Under checkpointing a layer leaves its input, and under autocast the 16-bit copies that live
// until the region ends.
TEST(SavedBytes, OfACheckpointedLayerAreAsMeasured) {
  for (const Case& c : cases(true)) {
    const std::int64_t modelled = (c.pieces.hidden + c.pieces.layers.back().cast).value;
    EXPECT_GE(c.least_step(), modelled) << c.name;
    EXPECT_LE(c.least_step(), modelled + kSmall) << c.name;
  }
}

// The same sums on paper, bytes a token: h hidden, f ffn, a heads.
TEST(SavedBytes, OfALlamaLayerAreThoseOfItsFormula) {
  constexpr std::int64_t h = 2048, f = 5504, a = 16;
  const Shape shape = shape_of("llama-2048");
  const std::int64_t tokens = kBatch.tokens();
  const std::int64_t matrices = 4 * h * h + 3 * h * f;
  const Pieces autocast = pieces(shape, kBatch, Numerics::kAutocast);
  EXPECT_EQ(autocast.layers.back().saved.value, tokens * (34 * h + 8 * f + 4 * a + 8));
  EXPECT_EQ(autocast.layers.back().cast.value, 2 * matrices);
  EXPECT_EQ(autocast.hidden.value, tokens * 4 * h);
  const Pieces pure = pieces(shape, kBatch, Numerics::kPure16);
  EXPECT_EQ(pure.layers.back().saved.value, tokens * 93'256);
  EXPECT_EQ(pure.layers.back().saved.value, tokens * (24 * h + 8 * f + 4 * a + 8));
  EXPECT_EQ(pure.layers.back().cast.value, 0);
  EXPECT_EQ(pure.hidden.value, tokens * 2 * h);
}

// --- profiles

TEST(Launches, OfAPassAreAsProfiledWithinThreePercent) {
  for (const Case& c : cases(false)) {
    const double forward = c.pass([](const Piece& piece) { return piece.forward.launches(); });
    const double backward = c.pass([](const Piece& piece) { return piece.backward.launches(); });
    EXPECT_NEAR(forward / c.forward.launches, 1, 0.03) << c.name;
    EXPECT_NEAR(backward / c.backward.launches, 1, 0.03) << c.name;
  }
}

// The rotary table is one small product of the forward that no Linear launches.
TEST(Launches, OfProductsAreAsProfiledExactly) {
  for (const Case& c : cases(false)) {
    const bool rotary = !c.name.starts_with("gpt2");
    EXPECT_EQ(c.pass([](const Piece& p) { return products(p.forward); }) + (rotary ? 1 : 0),
              c.forward.products)
        << c.name;
    EXPECT_EQ(c.pass([](const Piece& p) { return products(p.backward); }), c.backward.products)
        << c.name;
  }
}

// What a checkpointed backward launches beyond one without: the layers again, up to the last saved
// tensor.
TEST(Launches, OfRecomputationAreAsProfiled) {
  const std::vector<Case> plain = cases(false);
  const std::vector<Case> checkpointed = cases(true);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const Profile without = plain[i].backward;
    const Profile with = checkpointed[i].backward;
    const Work& again = plain[i].pieces.layers.back().recompute;
    EXPECT_EQ(products(again) * kLayers, with.products - without.products) << plain[i].name;
    EXPECT_NEAR(
        static_cast<double>(again.launches() * kLayers) / (with.launches - without.launches), 1,
        0.03)
        << plain[i].name;
  }
}

TEST(Elementwise, TimeOfAPassIsAsProfiledWithinFifteenPercent) {
  for (const Case& c : cases(false)) {
    const double forward = c.pass([](const Piece& piece) { return other_seconds(piece.forward); });
    const double backward =
        c.pass([](const Piece& piece) { return other_seconds(piece.backward); });
    EXPECT_NEAR(forward / c.forward.other_s, 1, 0.15) << c.name;
    EXPECT_NEAR(backward / c.backward.other_s, 1, 0.15) << c.name;
  }
}

// --- rules

// Products and attention do the operations that flops.h counts from the shape alone.
RC_GTEST_PROP(WorkProperty, ForwardFlopsAreThoseOfTheShape, ()) {
  static const char* const kNames[] = {"gpt2", "llama-2-70b", "qwen2.5-7b", "qwen3-32b"};
  const Shape shape = load(kNames[*rc::gen::inRange(0, 4)]);
  const Batch batch{*rc::gen::inRange(1, 9), *rc::gen::inRange(1, 2049)};
  const auto numerics = static_cast<Numerics>(*rc::gen::inRange(0, 3));
  const Pieces p = pieces(shape, batch, numerics);
  const Flops linear = layer_linear_flops(shape, 0, batch.tokens());
  const Flops attention = layer_attention_flops(shape, 0, batch);
  RC_ASSERT(std::abs(p.layers.back().forward.flops() / (linear + attention) - 1) < 1e-12);
  RC_ASSERT(std::abs(p.layers.back().backward.flops() /
                         (kBackwardOfGemm * linear + kBackwardOfFlashAttention * attention) -
                     1) < 1e-12);
  RC_ASSERT(std::abs(p.head.forward.flops() / head_flops(shape, batch.tokens()) - 1) < 1e-12);
  RC_ASSERT(std::abs(p.head.backward.flops() / (2 * head_flops(shape, batch.tokens())) - 1) <
            1e-12);
}

// Early stop: recomputation leaves out the last product (down) and what follows.
RC_GTEST_PROP(WorkProperty, RecomputationLeavesOutTheLastProduct, ()) {
  static const char* const kNames[] = {"gpt2", "llama-2-70b", "qwen2.5-7b", "qwen3-32b"};
  const Shape shape = load(kNames[*rc::gen::inRange(0, 4)]);
  const Batch batch{*rc::gen::inRange(1, 9), *rc::gen::inRange(1, 2049)};
  const Pieces p = pieces(shape, batch, Numerics::kAutocast);
  const double down = 2.0 * static_cast<double>(batch.tokens() * shape.kinds.front().ffn) *
                      static_cast<double>(shape.hidden);
  RC_ASSERT(std::abs((p.layers.back().recompute.flops().value + down) /
                         p.layers.back().forward.flops().value -
                     1) < 1e-12);
  RC_ASSERT(p.layers.back().recompute.launches() < p.layers.back().forward.launches());
}

// Bytes that are kept grow with tokens and nothing else: twice the samples, twice the bytes;
// weights' copies stay.
RC_GTEST_PROP(WorkProperty, SavedBytesAreProportionalToTokens, ()) {
  static const char* const kNames[] = {"gpt2", "llama-2-70b", "qwen2.5-7b", "qwen3-32b"};
  const Shape shape = load(kNames[*rc::gen::inRange(0, 4)]);
  const std::int64_t samples = *rc::gen::inRange(1, 9);
  const std::int64_t sequence = *rc::gen::inRange(1, 2049);
  const auto numerics = static_cast<Numerics>(*rc::gen::inRange(0, 3));
  const Pieces one = pieces(shape, {1, sequence}, numerics);
  const Pieces many = pieces(shape, {samples, sequence}, numerics);
  RC_ASSERT(many.layers.back().saved == samples * one.layers.back().saved);
  RC_ASSERT(many.head.saved == samples * one.head.saved);
  RC_ASSERT(many.hidden == samples * one.hidden);
  RC_ASSERT(many.layers.back().cast == one.layers.back().cast);
  RC_ASSERT((one.layers.back().cast.value > 0) == (numerics == Numerics::kAutocast));
}

TEST(Adam, LaunchesOncePerSixtyTensorsAndTouchesEveryElement) {
  EXPECT_EQ(gpu_adam(6000, 60, true).launches(), 1);
  EXPECT_EQ(gpu_adam(6000, 61, true).launches(), 2);
  const Kernel kernel = gpu_adam(6000, 150, false).kernels.front();
  EXPECT_EQ(kernel.elements * kernel.count, 6000);
  EXPECT_FALSE(kernel.wide);
}

TEST(ElementwiseWork, SharesItsBytesAmongItsLaunches) {
  const Work work = elementwise("unflatten", 1000, 4, 5);
  EXPECT_EQ(work.launches(), 5);
  EXPECT_EQ(work.kernels.front().bytes, 800);
}

}  // namespace
}  // namespace offsim::model::work_test
