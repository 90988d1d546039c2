// Does a layer with experts launch, move and keep what PyTorch was seen to launch, move and keep?
//
// The oracle is hardware/measured/raw/h200-moe-2026-11-30.jsonl: three architectures of four layers
// on 8 x 1024 tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/model/tensors.h"
#include "tests/model/fixture.h"
#include "tests/model/profiles.h"

namespace offsim::model::mixture_test {
namespace {

std::vector<Case> cases(bool checkpointing, const std::string& mode = "") {
  std::vector<Case> out = profiled("h200-moe-2026-11-30.jsonl", checkpointing);
  std::erase_if(out, [&](const Case& c) { return !mode.empty() && c.mode != mode; });
  EXPECT_EQ(out.size(), mode.empty() ? 6U : 3U);
  return out;
}

// Beside what is modelled: scalars and lists of one number an expert; less by what the allocator
// rounds.
constexpr std::int64_t kSmall = 160 * kKiB;

TEST(Mixture, KeepsTheBytesThatWereMeasured) {
  for (const Case& c : cases(false)) {
    EXPECT_NEAR(
        static_cast<double>((c.pieces.layers.back().saved + c.pieces.layers.back().cast).value),
        static_cast<double>(c.least_step()), kSmall)
        << c.name;
  }
}

TEST(Mixture, KeepsItsInputWhenCheckpointed) {
  for (const Case& c : cases(true)) {
    EXPECT_NEAR(static_cast<double>((c.pieces.hidden + c.pieces.layers.back().cast).value),
                static_cast<double>(c.least_step()), 20 * kKiB)
        << c.name;
  }
}

// A grouped product is one kernel, and one that prepares it, both by cutlass; the rotary table is a
// product too.
TEST(Mixture, LaunchesTheProductsThatWereProfiled) {
  for (const Case& c : cases(false, "bf16")) {
    EXPECT_EQ(c.pass([](const Piece& p) { return products(p.forward); }) + 1 + kLayers * 2,
              c.forward.products)
        << c.name;
    EXPECT_EQ(c.pass([](const Piece& p) { return products(p.backward); }) + kLayers * 4,
              c.backward.products)
        << c.name;
  }
}

// What a checkpointed backward launches beyond one without: the layer up to what was saved last.
// Two of its products are grouped.
TEST(Mixture, RecomputesTheProductsThatWereProfiled) {
  const std::vector<Case> plain = cases(false, "bf16"), checkpointed = cases(true, "bf16");
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(kLayers * (products(plain[i].pieces.layers.back().recompute) + 2),
              checkpointed[i].backward.products - plain[i].backward.products)
        << plain[i].name;
  }
}

// fp32 products go by other names, and some of them are split into two.
TEST(Mixture, LaunchesAsOftenAsProfiledWithinSixPercent) {
  for (const Case& c : cases(false, "bf16")) {
    const double forward = c.pass([](const Piece& piece) { return piece.forward.launches(); });
    const double backward = c.pass([](const Piece& piece) { return piece.backward.launches(); });
    EXPECT_NEAR(forward / c.forward.launches, 1, 0.06) << c.name;
    EXPECT_NEAR(backward / c.backward.launches, 1, 0.06) << c.name;
  }
}

TEST(Mixture, MovesItsBytesInTheTimeProfiledWithinSevenPercent) {
  for (const Case& c : cases(false, "bf16")) {
    const double forward = c.pass([](const Piece& piece) { return other_seconds(piece.forward); });
    const double backward =
        c.pass([](const Piece& piece) { return other_seconds(piece.backward); });
    EXPECT_NEAR(forward / c.forward.other_s, 1, 0.07) << c.name;
    EXPECT_NEAR(backward / c.backward.other_s, 1, 0.07) << c.name;
  }
}

// A token passes k experts: the work is that of an MLP of their width; the bytes are of all.
TEST(Mixture, WorksWithTheExpertsOfATokenAndHoldsAll) {
  const Shape mixtral = load("mixtral-8x7b");
  EXPECT_EQ(mixtral.kinds.front().ffn, 2 * 14336);
  Shape dense = mixtral;
  dense.kinds.front().experts.reset();
  dense.architecture = Architecture::kMistral;
  const std::int64_t router = mixtral.layers * 8 * 4096;
  EXPECT_EQ(active_parameters(mixtral), parameters(dense) + router);
  EXPECT_DOUBLE_EQ(layer_linear_flops(mixtral, 0, 100).value,
                   layer_linear_flops(dense, 0, 100).value + 2.0 * 100 * 4096 * 8);
}

struct Active {
  const char* name;
  double billions;
};

// As published, embedding and head included.
TEST(Mixture, ActiveParametersAreThePublishedOnes) {
  for (const Active& of : {Active{"mixtral-8x7b", 12.88}, Active{"qwen1.5-moe-a2.7b", 2.69},
                           Active{"qwen3-30b-a3b", 3.35}, Active{"qwen3-235b-a22b", 22.19}}) {
    EXPECT_NEAR(static_cast<double>(active_parameters(load(of.name))) / 1e9, of.billions, 0.005)
        << of.name;
  }
}

}  // namespace
}  // namespace offsim::model::mixture_test
