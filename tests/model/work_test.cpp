// Does a layer launch, move and keep what PyTorch was seen to launch, move and keep?
//
// The oracle is hardware/measured/raw/h200-layers.jsonl: five architectures of four layers on 8 x
// 1024 tokens, under autocast and in pure bf16, by memory marks before each layer and by a profile
// of each pass.
#include "sim/model/work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sim/base/config.h"
#include "tests/model/fixture.h"

namespace offsim::model {
namespace {

constexpr Batch kBatch{8, 1024};
constexpr std::int64_t kLayers = 4;

// The configurations of kernels/measure_torch.py.
Shape shape_of(const std::string& name) {
  Shape s;
  s.layers = kLayers;
  s.hidden = 2048;
  s.heads = 16;
  s.kv_heads = name == "llama-2048" ? 16 : 4;
  s.head_dim = 128;
  s.ffn = 5504;
  s.vocabulary = 32000;
  s.qkv_bias = name.starts_with("qwen2");
  s.qk_norm = name.starts_with("qwen3");
  if (name == "llama-3072-gqa") {
    s.hidden = 3072;
    s.heads = 24;
    s.kv_heads = 8;
    s.ffn = 8192;
  } else if (name == "gpt2-1024") {
    s.hidden = 1024;
    s.kv_heads = 16;
    s.head_dim = 64;
    s.ffn = 4096;
    s.positions = 1024;
    s.norm = Norm::kLayer;
    s.gated_mlp = false;
    s.tied = s.fused_qkv = s.qkv_bias = s.output_bias = s.mlp_bias = true;
  }
  return s;
}

std::vector<nlohmann::json> records(bool checkpointing) {
  std::istringstream lines(read_file(OFFSIM_SOURCE_DIR "/hardware/measured/raw/h200-layers.jsonl"));
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json record = nlohmann::json::parse(line);
    if (record["kind"] == "layers" && record["ckpt"] == checkpointing) {
      out.push_back(record);
    }
  }
  return out;
}

struct Case {
  nlohmann::json record;
  std::string name;
  Pieces pieces;

  explicit Case(const nlohmann::json& r)
      : record(r),
        name(r["model"].get<std::string>() + " " + r["mode"].get<std::string>()),
        pieces(model::pieces(shape_of(r["model"]), kBatch,
                             r["mode"] == "autocast" ? Numerics::kAutocast : Numerics::kPure16)) {}

  std::vector<std::int64_t> marks() const { return record["memory"]["marks"]; }
  // Bytes that each layer's forward left allocated. In pure bf16 the first and the last one's also
  // hold the residual stream's tensor for a caller's local variable, so the least is the steady
  // one.
  std::int64_t least_step() const {
    const std::vector<std::int64_t> m = marks();
    std::int64_t least = m[1] - m[0];
    for (std::size_t i = 2; i <= static_cast<std::size_t>(kLayers); ++i) {
      least = std::min(least, m[i] - m[i - 1]);
    }
    return least;
  }

  template <class Of>
  double pass(Of of) const {
    return static_cast<double>(of(pieces.embedding)) +
           static_cast<double>(kLayers) * static_cast<double>(of(pieces.layer)) +
           static_cast<double>(of(pieces.head));
  }
};

std::vector<Case> cases(bool checkpointing) {
  std::vector<Case> out;
  for (const nlohmann::json& record : records(checkpointing)) {
    out.emplace_back(record);
  }
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
    const std::int64_t modelled = (c.pieces.layer.saved + c.pieces.cast_layer).value;
    const bool unsplit = c.name == "qwen2-2048-gqa autocast";
    EXPECT_GE(c.least_step(), modelled) << c.name;
    EXPECT_LE(c.least_step(), modelled + (unsplit ? kRemainder : kSmall)) << c.name;
  }
}

TEST(SavedBytes, OfAWholeForwardAreAsMeasuredWithinTwoPerMille) {
  for (const Case& c : cases(false)) {
    const double modelled = c.pass([](const Piece& piece) {
      return piece.saved.value;
    }) + static_cast<double>(kLayers * c.pieces.cast_layer.value + c.pieces.cast_head.value);
    const nlohmann::json& memory = c.record["memory"];
    const double measured = memory["after_forward"].get<double>() - memory["before"].get<double>();
    EXPECT_NEAR(modelled / measured, 1, 0.002) << c.name;
  }
}

// Under checkpointing a layer leaves its input, and under autocast the 16-bit copies that live
// until the region ends.
TEST(SavedBytes, OfACheckpointedLayerAreAsMeasured) {
  for (const Case& c : cases(true)) {
    const std::int64_t modelled = (c.pieces.hidden + c.pieces.cast_layer).value;
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
  EXPECT_EQ(autocast.layer.saved.value, tokens * (34 * h + 8 * f + 4 * a + 8));
  EXPECT_EQ(autocast.cast_layer.value, 2 * matrices);
  EXPECT_EQ(autocast.hidden.value, tokens * 4 * h);
  const Pieces pure = pieces(shape, kBatch, Numerics::kPure16);
  EXPECT_EQ(pure.layer.saved.value, tokens * 93'256);
  EXPECT_EQ(pure.layer.saved.value, tokens * (24 * h + 8 * f + 4 * a + 8));
  EXPECT_EQ(pure.cast_layer.value, 0);
  EXPECT_EQ(pure.hidden.value, tokens * 2 * h);
}

// --- profiles

enum class Family { kProduct, kAttention, kOther };

Family family_of(const std::string& kernel) {
  if (kernel.starts_with("nvjet") || kernel.find("cutlass") != std::string::npos) {
    return Family::kProduct;
  }
  const bool attention =
      kernel.starts_with("cudnn_generated") || kernel.find("cudnn::fusion") != std::string::npos;
  return attention ? Family::kAttention : Family::kOther;
}

struct Profile {
  double launches = 0;  // all of a pass
  double products = 0;
  double other_s = 0;  // of kernels that are neither products nor attention
};

// Rows are [name, count a pass, microseconds a pass].
Profile profile(const nlohmann::json& rows) {
  Profile p;
  for (const nlohmann::json& row : rows) {
    const std::string kernel = row[0];
    if (kernel.starts_with("Memset")) {  // of matrix products, left out
      continue;
    }
    p.launches += row[1].get<double>();
    p.products += family_of(kernel) == Family::kProduct ? row[1].get<double>() : 0;
    p.other_s += family_of(kernel) == Family::kOther ? row[2].get<double>() * 1e-6 : 0;
  }
  return p;
}

// What the H200 of that file moves and finds (its elementwise records), without any fit to the
// layers.
double other_seconds(const Work& work) {
  constexpr double kBytesPerS = 4.2e12;
  constexpr double kIndexedPerS = 330e9;
  constexpr double kFloorS = 1e-6;
  double sum = 0;
  for (const Kernel& kernel : work.kernels) {
    if (kernel.kind == Kernel::Kind::kElementwise) {
      sum += kernel.count * std::max({kFloorS, static_cast<double>(kernel.bytes) / kBytesPerS,
                                      static_cast<double>(kernel.indexed) / kIndexedPerS});
    }
  }
  return sum;
}

std::int64_t products(const Work& work) {
  std::int64_t sum = 0;
  for (const Kernel& kernel : work.kernels) {
    sum += kernel.kind == Kernel::Kind::kGemm ? kernel.count : 0;
  }
  return sum;
}

TEST(Launches, OfAPassAreAsProfiledWithinThreePercent) {
  for (const Case& c : cases(false)) {
    const double forward = c.pass([](const Piece& piece) { return piece.forward.launches(); });
    const double backward = c.pass([](const Piece& piece) { return piece.backward.launches(); });
    EXPECT_NEAR(forward / profile(c.record["forward_kernels"]).launches, 1, 0.03) << c.name;
    EXPECT_NEAR(backward / profile(c.record["backward_kernels"]).launches, 1, 0.03) << c.name;
  }
}

// The rotary table is one small product of the forward that no Linear launches.
TEST(Launches, OfProductsAreAsProfiledExactly) {
  for (const Case& c : cases(false)) {
    const bool rotary = !c.name.starts_with("gpt2");
    EXPECT_EQ(c.pass([](const Piece& p) { return products(p.forward); }) + (rotary ? 1 : 0),
              profile(c.record["forward_kernels"]).products)
        << c.name;
    EXPECT_EQ(c.pass([](const Piece& p) { return products(p.backward); }),
              profile(c.record["backward_kernels"]).products)
        << c.name;
  }
}

// What a checkpointed backward launches beyond one without: the layers again, up to the last saved
// tensor.
TEST(Launches, OfRecomputationAreAsProfiled) {
  const std::vector<Case> plain = cases(false);
  const std::vector<Case> checkpointed = cases(true);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const Profile without = profile(plain[i].record["backward_kernels"]);
    const Profile with = profile(checkpointed[i].record["backward_kernels"]);
    const Work& again = plain[i].pieces.recompute;
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
    EXPECT_NEAR(forward / profile(c.record["forward_kernels"]).other_s, 1, 0.15) << c.name;
    EXPECT_NEAR(backward / profile(c.record["backward_kernels"]).other_s, 1, 0.15) << c.name;
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
  const Flops linear = layer_linear_flops(shape, batch.tokens());
  const Flops attention = layer_attention_flops(shape, batch);
  RC_ASSERT(std::abs(p.layer.forward.flops() / (linear + attention) - 1) < 1e-12);
  RC_ASSERT(std::abs(p.layer.backward.flops() /
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
  const double down =
      2.0 * static_cast<double>(batch.tokens() * shape.ffn) * static_cast<double>(shape.hidden);
  RC_ASSERT(std::abs((p.recompute.flops().value + down) / p.layer.forward.flops().value - 1) <
            1e-12);
  RC_ASSERT(p.recompute.launches() < p.layer.forward.launches());
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
  RC_ASSERT(many.layer.saved == samples * one.layer.saved);
  RC_ASSERT(many.head.saved == samples * one.head.saved);
  RC_ASSERT(many.hidden == samples * one.hidden);
  RC_ASSERT(many.cast_layer == one.cast_layer);
  RC_ASSERT((one.cast_layer.value > 0) == (numerics == Numerics::kAutocast));
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
}  // namespace offsim::model
