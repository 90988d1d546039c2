// What do adapters on the attention of a mixture add, and what do frozen experts no longer launch
// and keep?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/model/tensors.h"
#include "sim/model/work.h"
#include "tests/model/small_mixtures.h"

namespace offsim::model::adapters_mixture_test {
namespace {

constexpr std::int64_t h = 64, kv = 32, T = 64, rank = 8;
constexpr std::int64_t E = 8, k = 2, w = 32, P = k * T;  // P: pairs of a token and an expert
constexpr Batch kBatch{1, T};

// Two heads of 32, one of k and v.
Shape small(Architecture architecture, std::int64_t shared = 0) {
  Shape s;
  s.architecture = architecture;
  s.layers = 2;
  s.hidden = h;
  s.heads = 2;
  s.kv_heads = 1;
  s.head_dim = 32;
  s.vocabulary = 256;
  s.kinds.front().ffn = k * w + shared;
  s.kinds.front().experts =
      Experts{.count = E, .per_token = k, .width = w, .shared = shared, .normalized = true};
  return s;
}
Shape mixtral() { return small(Architecture::kMixtral); }

Shape adapted(Shape s, AdapterTargets targets = AdapterTargets::kAttention,
              Base base = Base::k16Bit) {
  s.adapters = {rank, targets, base};
  return s;
}
Piece last_layer(const Shape& s, Numerics numerics = Numerics::kPure16) {
  return pieces(s, kBatch, numerics).layers.back();
}
double of_products(const Work& work) {
  double sum = 0;
  for (const Kernel& kernel : work.kernels) {
    sum += kernel.kind == Kernel::Kind::kGemm ? kernel.flops().value : 0;
  }
  return sum;
}

// --- tensors

// rank (in + out) of q, k, v and o: 64 + 64, 64 + 32 twice, 64 + 64. The rest is frozen.
TEST(AdaptedMixture, TrainsItsAttentionsAdaptersAlone) {
  for (const Architecture a :
       {Architecture::kMixtral, Architecture::kQwen2Moe, Architecture::kQwen3Moe}) {
    const Shape s = adapted(small(a, a == Architecture::kQwen2Moe ? 40 : 0));
    EXPECT_EQ(trained_parameters(s), 2 * rank * 448) << to_string(a);
    EXPECT_EQ(trained(layer_tensors(s, 0)).size(), 8U);
    Shape plain = s;
    plain.adapters = {};
    EXPECT_EQ(parameters(s) - trained_parameters(s), parameters(plain));
  }
}

// Of latent attention q 64 x 24 and 24 x 48, kv 64 x 20 and 16 x 56, o 24 x 64; with a plain q
// 64 x 48 in the place of two.
TEST(AdaptedMixture, OfLatentAttentionHasAdaptersOnEachOfItsLinears) {
  Shape s = adapted(small_deepseek());
  EXPECT_EQ(trained_parameters(s), 4 * rank * (88 + 72 + 84 + 72 + 88));
  EXPECT_EQ(trained(layer_tensors(s, 3)).size(), 10U);
  s.latent->q_rank = 0;
  EXPECT_EQ(trained_parameters(s), 4 * rank * (112 + 84 + 72 + 88));
}

// The router is no Linear either: all of them are q 64 x 32, k and v 64 x 16, o 32 x 64.
TEST(AdaptedMixture, OfGptOssHasNoLinearBesideItsAttention) {
  for (const AdapterTargets targets : {AdapterTargets::kAttention, AdapterTargets::kAllLinear}) {
    EXPECT_EQ(trained_parameters(adapted(small_gpt_oss(), targets)),
              3 * rank * (96 + 80 + 80 + 96));
  }
}

// bitsandbytes takes the place of Linears: of q, k, v and o, and of a shared expert with its gate.
// Experts and router are 16-bit.
TEST(QuantisedMixture, HasExpertsOf16Bits) {
  constexpr std::int64_t attention = h * (2 * h + 2 * kv), shared = 3 * h * 40 + h;
  const auto saved = [](const Shape& s) {
    return numbers(all_tensors(adapted(s)), {4, 2}).value -
           numbers(all_tensors(adapted(s, AdapterTargets::kAttention, Base::kNf4)), {4, 2}).value;
  };
  EXPECT_EQ(saved(mixtral()), 2 * (2 * attention - attention / 2));
  EXPECT_EQ(saved(small(Architecture::kQwen2Moe, 40)),
            2 * (2 * (attention + shared) - (attention + shared) / 2));
  const Piece wide = last_layer(adapted(mixtral()));
  const Piece four_bits = last_layer(adapted(mixtral(), AdapterTargets::kAttention, Base::kNf4));
  EXPECT_EQ(four_bits.forward.launches(), wide.forward.launches() + 4);  // q, k, v and o
  EXPECT_EQ(four_bits.backward.launches(), wide.backward.launches() + 4);
}

// --- operations: a frozen product's backward is as long as its forward, an adapter's twice as long

TEST(FrozenExperts, HaveNoGradientsOfTheirWeights) {
  for (const Shape& plain : {mixtral(), small(Architecture::kQwen2Moe, 40), small_deepseek()}) {
    for (const Numerics numerics : {Numerics::kPure16, Numerics::kFp32}) {
      const Shape s = adapted(plain);
      const double frozen = of_products(last_layer(plain, numerics).forward);
      const double adapters = 2.0 * T * static_cast<double>(count(trained(layer_tensors(s, 0))));
      EXPECT_DOUBLE_EQ(of_products(last_layer(s, numerics).forward), frozen + adapters);
      EXPECT_DOUBLE_EQ(of_products(last_layer(s, numerics).backward), frozen + 2 * adapters);
    }
  }
}

// Two of its products have no weights: the scores and their sum of values, 2 T T 32 each, of which
// both operands have gradients. k has none in the first layer when only q and v are adapted; nor
// have the inputs of q, k and v, and of two of their A.
TEST(FrozenExperts, OfGptOssLeaveTheScoresTheirGradients) {
  const Shape plain = small_gpt_oss();
  const double scores = 2.0 * T * T * 32;
  const double frozen = of_products(last_layer(plain).forward);
  const Shape s = adapted(plain, AdapterTargets::kQueryValue);
  const double adapters = 2.0 * T * rank * (96 + 80);
  const Pieces p = pieces(s, kBatch, Numerics::kPure16);
  EXPECT_DOUBLE_EQ(of_products(p.layer(2).backward), frozen + 2 * scores + 2 * adapters);
  EXPECT_DOUBLE_EQ(of_products(p.layer(2).backward) - of_products(p.layer(0).backward),
                   scores + 2.0 * T * (h * (32 + 2 * 16) + 2 * h * rank));
}

// Latent attention of the first layer: no gradient of the inputs of q_a and kv_a and of their A.
TEST(FrozenExperts, FirstLayerOfLatentAttentionStopsAtItsAdapters) {
  Shape s = adapted(small_deepseek());
  s.kind_of = {1, 1, 1, 1};
  const Pieces p = pieces(s, kBatch, Numerics::kPure16);
  EXPECT_DOUBLE_EQ(of_products(p.layer(3).backward) - of_products(p.layer(0).backward),
                   2.0 * T * h * (24 + 20 + 2 * rank));
}

TEST(FrozenExperts, ModelFlopsCountWhatATokenPasses) {
  const Shape s = adapted(mixtral());
  const double n = static_cast<double>(trained_parameters(s));
  const double layer = 2.0 * T * (h * (2 * h + 2 * kv) + E * h + 3 * h * k * w);
  EXPECT_DOUBLE_EQ(model_flops(s, kBatch).value,
                   2 * (2 * layer + head_flops(s, T).value) + 3 * 2.0 * T * n +
                       3 * 2 * layer_attention_flops(s, 0, kBatch).value);
}

// --- what is kept

// Of each norm the fp32 input and a number a row; the one input of q, k and v, for their A, and
// what each A made; q, k, v and the result with its log-sum-exp. Scores of all experts and the k
// best; of each pair three indices, a mask and the fp32 weight, both halves and silu of one, and
// what came out. Not the sorted rows, nor what the second product reads.
TEST(FrozenExperts, LayerKeepsWhatItsAdaptersNeed) {
  const std::int64_t norm = 4 * T * h + 4 * T;
  const std::int64_t attention = 2 * T * (2 * h + 2 * kv) + 4 * T * 2;
  const std::int64_t router = 4 * T * E + 8 * P;
  const std::int64_t experts = P * (3 * 8 + 1 + 4) + 2 * P * (2 * w + w) + 2 * P * h;
  EXPECT_EQ(last_layer(adapted(mixtral())).saved.value,
            2 * norm + 2 * T * h + attention + 4 * 2 * T * rank + router + experts);
}

// The trained layer keeps these, the inputs of its products, and of each norm the scaled result.
TEST(FrozenExperts, KeepNoOperandOfTheirWeightsGradients) {
  const std::int64_t norms = 2 * 2 * T * h, inputs = 2 * T * h + 2 * T * h + 2 * T * h;
  const std::int64_t rows = 2 * P * h, products = 2 * P * w;
  const std::int64_t of_adapters = 2 * T * h + 4 * 2 * T * rank;
  EXPECT_EQ(last_layer(mixtral()).saved.value -
                (last_layer(adapted(mixtral())).saved.value - of_adapters),
            norms + inputs + rows + products - 2 * T * h);
  // gpt-oss keeps one product less of its activation, deepseek no fp32 input of its router.
  const auto fewer = [](const Shape& s) {
    return last_layer(s).saved.value - last_layer(adapted(s)).saved.value;
  };
  Shape wide = small_gpt_oss();
  for (LayerKind& kind : wide.kinds) {
    kind.experts->width += 100;
    kind.ffn += k * 100;
  }
  EXPECT_EQ(fewer(wide) - fewer(small_gpt_oss()), 2 * P * 100);
}

}  // namespace
}  // namespace offsim::model::adapters_mixture_test
