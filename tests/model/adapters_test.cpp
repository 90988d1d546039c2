// What do adapters (LoRA) add to a model, and what does a frozen model no longer launch and keep?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/model/tensors.h"
#include "sim/model/work.h"
#include "tests/model/fixture.h"

namespace offsim::model::adapters_test {
namespace {

using testing::ElementsAre;

Shape adapted(const std::string& name, std::int64_t rank, AdapterTargets targets) {
  Shape shape = load(name);
  shape.adapters = {rank, targets};
  return shape;
}

std::vector<std::string> names(const std::vector<Tensor>& tensors) {
  std::vector<std::string> out;
  for (const Tensor& tensor : tensors) {
    out.push_back(tensor.name);
  }
  return out;
}

// --- tensors

// PEFT names them so, and registers them behind the Linear's own.
TEST(Adapters, FollowTheLinearThatTheyAdapt) {
  const Shape shape = adapted("llama-3.1-8b", 16, AdapterTargets::kQueryValue);
  const std::vector<Tensor> layer = layer_tensors(shape, 3);
  ASSERT_EQ(layer.size(), 13U);
  const std::string attention = "model.layers.3.self_attn.";
  EXPECT_EQ(layer[0].name, attention + "q_proj.base_layer.weight");
  EXPECT_EQ(layer[1].name, attention + "q_proj.lora_A.default.weight");
  EXPECT_EQ(layer[2].name, attention + "q_proj.lora_B.default.weight");
  EXPECT_EQ(layer[3].name, attention + "k_proj.weight");
  EXPECT_EQ(layer[1].rows, 16);
  EXPECT_EQ(layer[1].cols, 4096);
  EXPECT_EQ(layer[2].rows, 4096);
  EXPECT_EQ(layer[2].cols, 16);
}

// A and B alone are trained: rank (in + out) each.
TEST(Adapters, AreAllThatIsTrained) {
  const Shape all = adapted("llama-3.1-8b", 8, AdapterTargets::kAllLinear);
  EXPECT_EQ(count(trained(layer_tensors(all, 0))),
            8 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)));
  EXPECT_TRUE(trained(outer_tensors(all)).empty());  // the head is no target
  EXPECT_EQ(trained_parameters(all), 32 * count(trained(layer_tensors(all, 0))));
  EXPECT_EQ(parameters(all), parameters(load("llama-3.1-8b")) + trained_parameters(all));
  EXPECT_EQ(trained_parameters(load("llama-3.1-8b")), parameters(load("llama-3.1-8b")));
}

// As counted in the measured run (h200-offload-2026-11-30.jsonl, lora-b8).
TEST(Adapters, OfTheMeasuredModelAreAsCountedThere) {
  const Shape shape = adapted("llama-1b-24x2048", 16, AdapterTargets::kAttention);
  EXPECT_EQ(parameters(shape), 1'351'714'816);
  EXPECT_EQ(trained_parameters(shape), 24 * 4 * 16 * (2048 + 2048));
}

TEST(Adapters, OfGpt2AreOnItsFusedProjection) {
  const Shape shape = adapted("gpt2", 4, AdapterTargets::kQueryValue);
  const std::vector<Tensor> of_layer = trained(layer_tensors(shape, 0));
  EXPECT_THAT(names(of_layer), ElementsAre("transformer.h.0.attn.c_attn.lora_A.default.weight",
                                           "transformer.h.0.attn.c_attn.lora_B.default.weight"));
  EXPECT_EQ(count(of_layer), 4 * (768 + 3 * 768));
  EXPECT_EQ(trained(layer_tensors(adapted("gpt2", 4, AdapterTargets::kAttention), 0)).size(), 4U);
  EXPECT_EQ(trained(layer_tensors(adapted("gpt2", 4, AdapterTargets::kAllLinear), 0)).size(), 8U);
}

TEST(Stored, BytesAreByWhatIsTrained) {
  const Shape shape = adapted("llama-1b-24x2048", 16, AdapterTargets::kAttention);
  const std::int64_t n = trained_parameters(shape);
  EXPECT_EQ(numbers(all_tensors(shape), {4, 2}).value, 2 * (parameters(shape) - n) + 4 * n);
  EXPECT_EQ(constants(shape).value, 0);
}

// Of a layer the Linears are quantised, 4 x 2048^2 + 3 x 2048 x 5504; norms, embedding and head are
// not. 4 bits: 0.5 B and 4 B for 64; double: 1 B for 64 and 4 B for 64 x 256. 8 bits: 4 B a row.
TEST(Stored, BytesOfAQuantisedBase) {
  constexpr std::int64_t kLinears = 24 * (4 * 2048 * 2048 + 3 * 2048 * 5504);
  constexpr std::int64_t kRows = 24 * (4 * 2048 + 2 * 5504 + 2048);
  Shape shape = adapted("llama-1b-24x2048", 16, AdapterTargets::kAttention);
  const std::int64_t n = trained_parameters(shape);
  const std::int64_t others = 2 * (parameters(shape) - n - kLinears) + 4 * n;
  const auto is = [&](Base base, std::int64_t of_numbers, std::int64_t of_constants) {
    shape.adapters.base = base;
    EXPECT_EQ(numbers(all_tensors(shape), {4, 2}).value, others + of_numbers) << to_string(base);
    EXPECT_EQ(constants(shape).value, of_constants) << to_string(base);
  };
  is(Base::kNf4, kLinears / 2, kLinears / 16);
  is(Base::kNf4Double, kLinears / 2, kLinears / 64 + kLinears / 4096);
  is(Base::kInt8, kLinears, 4 * kRows);
}

// --- operations and kernels: two heads of 32, rank 8, T tokens

constexpr std::int64_t h = 64, kv = 32, f = 128, rank = 8, T = 64;

Shape small(AdapterTargets targets) {
  Shape s;
  s.layers = 2;
  s.hidden = h;
  s.heads = 2;
  s.kv_heads = 1;
  s.head_dim = 32;
  s.kinds.front().ffn = f;
  s.vocabulary = 256;
  s.adapters = {rank, targets};
  return s;
}
constexpr Batch kBatch{1, T};

double forward_of_frozen(const Shape& s) {
  Shape plain = s;
  plain.adapters = {};
  return layer_linear_flops(plain, 0, T).value;
}
double of_products(const Work& work) {
  double sum = 0;
  for (const Kernel& kernel : work.kernels) {
    sum += kernel.kind == Kernel::Kind::kGemm ? kernel.flops().value : 0;
  }
  return sum;
}

// A frozen product's backward is as long as its forward, an adapter's twice as long. Below the
// first adapter nothing has a gradient: the first layer makes none of q, k, v and of their A.
TEST(Frozen, ProductsHaveNoGradientOfTheirWeights) {
  for (const AdapterTargets targets : {AdapterTargets::kQueryValue, AdapterTargets::kAllLinear}) {
    const Shape s = small(targets);
    const Pieces p = pieces(s, kBatch, Numerics::kPure16);
    const double frozen = forward_of_frozen(s);
    const double adapters = 2.0 * T * static_cast<double>(count(trained(layer_tensors(s, 0))));
    EXPECT_DOUBLE_EQ(of_products(p.layers.back().forward), frozen + adapters);
    EXPECT_DOUBLE_EQ(of_products(p.layers.back().backward), frozen + 2 * adapters);
    const double adapted_inputs = targets == AdapterTargets::kQueryValue ? 2 : 3;
    EXPECT_DOUBLE_EQ(of_products(p.layers.back().backward) - of_products(p.layers.front().backward),
                     2.0 * T * (h * (h + 2 * kv) + adapted_inputs * h * rank));
    EXPECT_EQ(p.layers.front().forward, p.layers.back().forward);
    EXPECT_DOUBLE_EQ(of_products(p.head.backward), of_products(p.head.forward));
    EXPECT_TRUE(p.embedding.backward.kernels.empty());
  }
}

TEST(Frozen, ModelFlopsCountWhatIsThere) {
  const Shape s = small(AdapterTargets::kAllLinear);
  const double n = static_cast<double>(trained_parameters(s));
  EXPECT_DOUBLE_EQ(model_flops(s, kBatch).value,
                   2 * (2 * forward_of_frozen(s) + head_flops(s, T).value) + 3 * 2.0 * T * n +
                       3 * 2 * layer_attention_flops(s, 0, kBatch).value);
  EXPECT_DOUBLE_EQ(six_nd(s, kBatch).value, T * (4.0 * static_cast<double>(parameters(s)) + 2 * n));
}

// Asked for the gradient of its input, as PEFT does for checkpointing, the first layer is as the
// others.
TEST(Frozen, FirstLayerIsAsTheOthersWhenAsked) {
  const Pieces p = pieces(small(AdapterTargets::kAttention), kBatch, Numerics::kPure16, true);
  EXPECT_EQ(p.layers.front().backward, p.layers.back().backward);
  EXPECT_EQ(p.layers.front().saved, p.layers.back().saved);
}

// Of each norm the fp32 input and a number a row; the one input of q, k, v, for their A; what A
// made; q, k, v and the result of attention with its log-sum-exp; gate, silu(gate) and up. No input
// of a product that has no adapter.
TEST(Frozen, LayerKeepsWhatItsAdaptersNeed) {
  const std::int64_t norm = 4 * T * h + 4 * T;
  const std::int64_t attention = 2 * T * (2 * h + 2 * kv) + 4 * T * 2;
  const std::int64_t mlp = 6 * T * f;
  const std::int64_t made_by_a = 2 * T * rank;
  const Pieces p = pieces(small(AdapterTargets::kAttention), kBatch, Numerics::kPure16);
  EXPECT_EQ(p.layers.back().saved.value, 2 * norm + 2 * T * h + attention + mlp + 4 * made_by_a);
  EXPECT_EQ(p.layers.front().saved.value, p.layers.back().saved.value - norm);
  const Pieces all = pieces(small(AdapterTargets::kAllLinear), kBatch, Numerics::kPure16);
  EXPECT_EQ(all.layers.back().saved.value,  // the input of gate and up, and that of down
            p.layers.back().saved.value + 2 * T * h + 2 * T * f + 3 * made_by_a);
}

// fp32 adapters under autocast: each keeps a 16-bit copy of its own input, and of A and B. The rest
// of the model has nothing that autocast would cast.
TEST(Frozen, LayerUnderAutocastKeepsACopyAnAdapter) {
  const Shape s = small(AdapterTargets::kAttention);
  const Pieces narrow = pieces(s, kBatch, Numerics::kPure16);
  const Pieces mixed = pieces(s, kBatch, Numerics::kAutocast);
  // Two more of the input of q, k and v, and one of o's.
  EXPECT_EQ(mixed.layers.back().saved.value, narrow.layers.back().saved.value + 3 * 2 * T * h);
  EXPECT_EQ(mixed.layers.back().cast.value, 2 * count(trained(layer_tensors(s, 0))));
  EXPECT_EQ(narrow.layers.back().cast.value, 0);
  EXPECT_EQ(mixed.head.cast.value, 0);
  EXPECT_EQ(mixed.hidden, narrow.hidden);
}

// A product, its scaling and its addition, beside A's.
TEST(Frozen, AdapterIsFourKernelsForward) {
  Shape s = small(AdapterTargets::kAttention);
  const std::int64_t with = pieces(s, kBatch, Numerics::kPure16).layers.back().forward.launches();
  s.adapters = {};
  EXPECT_EQ(with, pieces(s, kBatch, Numerics::kPure16).layers.back().forward.launches() + 4 * 4);
}

// --- a quantised base: its products read 16-bit numbers that a kernel has just written

std::int64_t elementwise_bytes(const Work& work) {
  std::int64_t sum = 0;
  for (const Kernel& kernel : work.kernels) {
    sum += kernel.bytes * kernel.count;
  }
  return sum;
}

// Every Linear of the layer, forward and again for its backward; when recomputed all but the last,
// of which nothing is saved. Per number 0.5 B and 1/16 B read, 2 B written.
TEST(Quantised, WeightsAreDequantisedForEveryProduct) {
  Shape s = small(AdapterTargets::kQueryValue);
  const Pieces plain = pieces(s, kBatch, Numerics::kPure16);
  s.adapters.base = Base::kNf4;
  const Pieces p = pieces(s, kBatch, Numerics::kPure16);
  const std::int64_t down = h * f;
  const std::int64_t all = 2 * h * h + 2 * h * kv + 3 * h * f;
  const auto bytes = [](std::int64_t n) { return n / 2 + n / 16 + 2 * n; };
  EXPECT_EQ(p.layers.back().forward.launches(), plain.layers.back().forward.launches() + 7);
  EXPECT_EQ(
      elementwise_bytes(p.layers.back().forward) - elementwise_bytes(plain.layers.back().forward),
      bytes(all));
  EXPECT_EQ(
      elementwise_bytes(p.layers.back().backward) - elementwise_bytes(plain.layers.back().backward),
      bytes(all));
  EXPECT_EQ(elementwise_bytes(p.layers.back().recompute) -
                elementwise_bytes(plain.layers.back().recompute),
            bytes(all - down));
  EXPECT_EQ(p.layers.back().saved, plain.layers.back().saved);
  EXPECT_EQ(p.head.forward, plain.head.forward);  // is not quantised
  s.adapters.base = Base::kNf4Double;             // two more kernels on the numbers of blocks
  const Pieces twice = pieces(s, kBatch, Numerics::kPure16);
  EXPECT_EQ(twice.layers.back().forward.launches(), plain.layers.back().forward.launches() + 3 * 7);
  EXPECT_EQ(
      elementwise_bytes(twice.layers.back().forward) - elementwise_bytes(p.layers.back().forward),
      all / 64 * 13);
}

// LLM.int8 quantises the input and dequantises the product; only its backward needs the weight.
TEST(Quantised, EightBitWeightsAreDequantisedForTheBackwardAlone) {
  Shape s = small(AdapterTargets::kQueryValue);
  const Pieces plain = pieces(s, kBatch, Numerics::kPure16);
  s.adapters.base = Base::kInt8;
  const Pieces p = pieces(s, kBatch, Numerics::kPure16);
  const std::int64_t in = 6 * h + f, out = 2 * h + 2 * kv + 2 * f + h;  // of all Linears
  const std::int64_t weights = 2 * h * h + 2 * h * kv + 3 * h * f;
  EXPECT_EQ(
      elementwise_bytes(p.layers.back().forward) - elementwise_bytes(plain.layers.back().forward),
      T * (7 * in + 10 * out));
  EXPECT_EQ(
      elementwise_bytes(p.layers.back().backward) - elementwise_bytes(plain.layers.back().backward),
      7 * weights);
}

}  // namespace
}  // namespace offsim::model::adapters_test
