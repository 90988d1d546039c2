// What does each plan hold at its worst moment, on the GPU and on the host, to the byte?
//
// N parameters, e of the embedding, h of the final norm and the head, l of a layer; P2 the next
// power of two, to which PyTorch rounds every block of pinned memory. The synthetic framework
// rounds GPU memory to 512 B and has a workspace of 1 MiB.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plans/held.h"

namespace offsim::plans::memory_test {
namespace {

TEST(TheTinyModel, HasTheParametersOfItsComment) {
  EXPECT_EQ(model::parameters(tiny_shape()), 106'816);
  EXPECT_EQ(model::layer_parameters(tiny_shape(), 0), Tiny::layer);
  EXPECT_EQ(model::parameters(tiny_shape()), Tiny::all);
  EXPECT_EQ(model::all_tensors(tiny_shape()).size(), 21U);
  EXPECT_EQ(model::largest_tensor(tiny_shape()).numel(), Tiny::largest);
}

// --- native: 16 bytes a parameter in fp32, 8 in pure bf16; the optimizer step is the peak of a
// small batch.

std::int64_t native_static(std::int64_t width) {
  return r(width * Tiny::all) + r(2 * width * Tiny::all) + kWorkspace;
}

class NativeWidth : public testing::TestWithParam<std::pair<Precision, std::int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Precisions, NativeWidth,
                         testing::Values(std::pair{Precision::kBf16Mixed, 4},
                                         std::pair{Precision::kFp16Mixed, 4},
                                         std::pair{Precision::kFp32, 4},
                                         std::pair{Precision::kBf16, 2}));

TEST_P(NativeWidth, OfParametersGradientsAndMoments) {
  const auto [precision, width] = GetParam();
  Workload w = few_tokens();
  w.precision = precision;
  const std::int64_t gradients =
      r(width * Tiny::head) + 2 * r(width * Tiny::layer) + r(width * Tiny::embedding);
  const study::Prediction p = study::predict(job("native", w));
  EXPECT_EQ(p.pool("gpu")->peak.value, native_static(width) + gradients);
  EXPECT_EQ(p.pool("gpu")->resident.value, native_static(width));
  EXPECT_EQ(p.pool("gpu")->phase, "optimizer");  // first reached when the moments appear
  EXPECT_EQ(p.pool("host")->peak.value, 0);
  EXPECT_EQ(p.pool("gpu")->fixed.value, 3 * kMiB);
  EXPECT_EQ(p.pool("host")->fixed.value, 2 * kMiB);
}

TEST(NativePeak, OfManyTokensIsAtTheLoss) {
  const model::Pieces p = pieces(many_tokens(), model::Numerics::kAutocast);
  const std::int64_t layers = 2 * (r(p.layers.back().saved) + r(p.layers.back().cast));
  const std::int64_t head = r(p.head.saved) + r(p.head.cast) +
                            std::max(r(p.head.forward_extra), r(p.head.backward_extra));
  EXPECT_EQ(peak(job("native", many_tokens()), "gpu"), native_static(4) + layers + head);
}

TEST(NativePeak, OfCheckpointingHoldsOneLayersActivations) {
  const model::Pieces p = pieces(many_tokens(), model::Numerics::kAutocast);
  const std::int64_t checkpoints = 2 * r(p.hidden);
  const std::int64_t head = r(p.head.saved) + r(p.head.cast);
  // The casts of all layers live until the forward ends.
  const std::int64_t at_loss =
      checkpoints + 2 * r(p.layers.back().cast) + head + r(p.head.forward_extra);
  const std::int64_t after_loss = checkpoints + head + r(p.head.backward_extra);
  const std::int64_t in_layer = checkpoints + r(4 * Tiny::head) + r(p.layers.back().saved) +
                                r(p.layers.back().cast) + r(p.layers.back().backward_extra);
  EXPECT_EQ(peak(job("native", many_tokens(Checkpointing::kFull)), "gpu"),
            native_static(4) + std::max({at_loss, after_loss, in_layer}));
}

// --- zero2-offload

const Given kOld{{"deepspeed_version", "0.14.5"}};
const Given kOldPinned{{"deepspeed_version", "0.14.5"}, {"pin_memory", "true"}};
const Given kNew{{"deepspeed_version", "0.19.6"}};
const Given kNewPageable{{"deepspeed_version", "0.19.6"}, {"pin_memory", "false"}};

struct HostCase {
  const char* name;
  Given options;
  std::int64_t accumulation;
  std::int64_t pinned, pageable;
};
class Zero2Host : public testing::TestWithParam<HostCase> {};

// fp32 master and gradient 4 N each, 16-bit staging copy 2 N since 0.16.10, moments 8 N, one
// gradient of the largest tensor, and with accumulation 2 N of 16-bit gradients, a block a tensor.
INSTANTIATE_TEST_SUITE_P(
    Versions, Zero2Host,
    testing::Values(
        HostCase{"old", kOld, 1, p2(4 * Tiny::all),
                 4 * Tiny::all + 2 * Tiny::largest + 8 * Tiny::all},
        HostCase{"old_pinned", kOldPinned, 1, 2 * p2(4 * Tiny::all) + p2(2 * Tiny::largest),
                 8 * Tiny::all},
        HostCase{"new", kNew, 1, 2 * p2(4 * Tiny::all) + p2(2 * Tiny::all) + p2(2 * Tiny::largest),
                 8 * Tiny::all},
        HostCase{"new_pageable", kNewPageable, 1, 0,
                 4 * Tiny::all + 4 * Tiny::all + 2 * Tiny::all + 2 * Tiny::largest + 8 * Tiny::all},
        HostCase{"old_accumulating", kOld, 3, p2(4 * Tiny::all),
                 4 * Tiny::all + 2 * Tiny::largest + 8 * Tiny::all + 2 * Tiny::all},
        HostCase{
            "new_accumulating", kNew, 3,
            2 * p2(4 * Tiny::all) + p2(2 * Tiny::all) + p2(2 * Tiny::largest) + p2_by_tensor(2),
            8 * Tiny::all}),
    [](const auto& of) { return of.param.name; });

TEST_P(Zero2Host, HoldsMasterGradientsStagingAndMoments) {
  Workload w = few_tokens();
  w.accumulation = GetParam().accumulation;
  const study::Prediction p = study::predict(job("zero2-offload", w, GetParam().options));
  EXPECT_EQ(p.pool("host_pinned")->peak.value, GetParam().pinned);
  EXPECT_EQ(p.pool("host")->peak.value, GetParam().pinned + GetParam().pageable);
}

// The fp32 master was pinned whatever pin_memory said, until 0.18.3.
TEST(Zero2Defaults, PinMemorySince0_19_5) {
  EXPECT_EQ(
      peak(job("zero2-offload", few_tokens(), {{"deepspeed_version", "0.17.0"}}), "host_pinned"),
      p2(4 * Tiny::all));
  EXPECT_EQ(
      peak(job("zero2-offload", few_tokens(), {{"deepspeed_version", "0.19.4"}}), "host_pinned"),
      0);
  EXPECT_GT(
      peak(job("zero2-offload", few_tokens(), {{"deepspeed_version", "0.19.5"}}), "host_pinned"),
      0);
}

// The GPU holds 2 N, and in the backward a bucket of 5e8 elements, two with overlap_comm.
class Zero2Bucket : public testing::TestWithParam<std::pair<const char*, std::int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Overlap, Zero2Bucket,
                         testing::Values(std::pair{"false", 1}, std::pair{"true", 2}));

TEST_P(Zero2Bucket, AndTheCheckForInfinitiesAreThePeakOfASmallBatch) {
  const auto [overlap, buckets] = GetParam();
  // 11 B an element of the largest gradient; its norm in double (8 B) and its cast (4 B) come
  // before and after.
  const std::int64_t expected = r(2 * Tiny::all) + kWorkspace + r(2 * Tiny::largest) +
                                buckets * 1'000'000'000 + r(11 * Tiny::largest);
  const Job asked = job("zero2-offload", few_tokens(), {{"overlap_comm", overlap}});
  EXPECT_EQ(peak(asked, "gpu"), expected);
  // However far the host is ahead: they are blocks of the stream that uses them, and are reused in
  // its order.
  Job slow = asked;
  slow.machine.accelerator.kernel_floor = runtime::known<Seconds>(1e-3);
  EXPECT_EQ(peak(slow, "gpu"), expected);
}

// Made when backward starts, up to 0.18.2; since then by the first gradient, when the logits are
// gone.
TEST_P(Zero2Bucket, CoexistsWithTheLogitsBefore0_18_3) {
  const char* const overlap = GetParam().first;
  const std::int64_t buckets = GetParam().second;
  const model::Pieces p = pieces(many_tokens(), model::Numerics::kPure16);
  const std::int64_t at_loss =
      2 * r(p.layers.back().saved) + r(p.head.saved) + r(p.head.backward_extra);
  const auto peak_of = [&](const char* version) {
    return peak(
        job("zero2-offload", many_tokens(),
            {{"overlap_comm", overlap}, {"deepspeed_version", version}, {"pin_memory", "true"}}),
        "gpu");
  };
  const std::int64_t without = r(2 * Tiny::all) + kWorkspace + r(2 * Tiny::largest) + at_loss;
  EXPECT_EQ(peak_of("0.18.2"), without + buckets * 1'000'000'000);
  EXPECT_LT(peak_of("0.18.3"), peak_of("0.18.2"));
}

// Before 0.17 the fp32 parameters pass through the GPU: 4 N more while they do.
TEST(Zero2Peak, OfTheFp32WriteBackIsSixBytesAParameter) {
  Given options = kOld;
  options["reduce_bucket_size"] = "1";
  EXPECT_EQ(peak(job("zero2-offload", few_tokens(), options), "gpu"),
            r(2 * Tiny::all) + kWorkspace + r(2 * Tiny::largest) + r(4 * Tiny::all));
}

// A gradient larger than the bucket keeps its own block while it is sent; the head's is the first,
// with all activations.
TEST(Zero2Peak, OfATensorLargerThanTheBucketIsItsGradientAndItsCheck) {
  Given options = kNew;
  options["reduce_bucket_size"] = "1000";
  const Bytes saved = pieces(few_tokens(), model::Numerics::kPure16).layers.back().saved;
  EXPECT_EQ(peak(job("zero2-offload", few_tokens(), options), "gpu"),
            r(2 * Tiny::all) + kWorkspace + r(2 * Tiny::largest) + r(2000) + 2 * r(saved) +
                r(2 * Tiny::largest) + r(11 * Tiny::largest));
}

// --- megatrain

struct MegatrainHost {
  const char* name;
  Given options;
  std::int64_t flats;    // pinned blocks of a layer: copies of all layers, or the paper's pool
  std::int64_t slabs;    // gradient slabs and staging blocks
  std::int64_t moments;  // bytes a parameter
};
class MegatrainHosts : public testing::TestWithParam<MegatrainHost> {};
INSTANTIATE_TEST_SUITE_P(
    Variants, MegatrainHosts,
    testing::Values(MegatrainHost{"code", {}, 2, 12 + 2, 8},
                    MegatrainHost{"torch_fused", {{"optimizer", "torch_fused"}}, 2, 12 + 2, 4},
                    MegatrainHost{"slabs", {{"num_grad_slabs", "3"}}, 2, 3 + 2, 8},
                    MegatrainHost{"paper", {{"variant", "paper"}}, 4, 12, 8}),
    [](const auto& of) { return of.param.name; });

TEST_P(MegatrainHosts, HoldWeightsGradientsMomentsAndPinnedBlocks) {
  const MegatrainHost& c = GetParam();
  const std::int64_t pinned =
      (c.flats + c.slabs) * p2(2 * Tiny::layer) + p2(2 * Tiny::head) + p2(2 * Tiny::embedding);
  const study::Prediction p = study::predict(job("megatrain", few_tokens(), c.options));
  EXPECT_EQ(p.pool("host_pinned")->peak.value, pinned);
  EXPECT_EQ(p.pool("host")->peak.value, pinned + (2 + 2 + c.moments) * Tiny::all);
}

// Embedding, norm and head; two flat slots and two templates of a layer.
std::int64_t megatrain_static(std::int64_t outside, std::int64_t layer) {
  return r(2 * outside) + r(4 * layer) + r(4 * layer) + kWorkspace;
}

TEST(MegatrainPeak, IsAtTheLossWhenTheVocabularyIsLarge) {
  model::Shape shape = tiny_shape();
  shape.vocabulary = 16'384;
  const std::int64_t head = 64 + 16'384 * 64;
  const Workload w = many_tokens();
  const std::int64_t hidden = 2 * w.batch().tokens() * 64;  // a multiple of 512
  const std::int64_t chunk = w.micro_batch * 128;           // tokens that the head takes at a time
  // The block's checkpoint and the final hidden state; the norm's fp32 input and scaled value with
  // its result; two results that stay local variables; all log-softmaxes; and in the backward the
  // last chunk's logits, the head's gradient, and the gradient of a chunk beside a second one of
  // the weight.
  const std::int64_t at_loss = (2 + 3 + 2) * hidden + r(2 * w.batch().tokens() * 16'384) +
                               r(2 * chunk * 16'384) + r(2 * head) +
                               r(4 * chunk * 16'384 + 2 * head);
  EXPECT_EQ(peak(job("megatrain", w, {}, shape), "gpu"),
            megatrain_static(head + 16'384 * 64, Tiny::layer) + at_loss);
}

// Of a real model, between what must be there and what the source's sizes add up to (K layers
// between checkpoints):
//   2 (e + h) + 8 l + checkpoints (L/K + 1) 2 T hidden + logits 2 T V
//   and at most 4 l of gradients, K + 4 more tensors of the residual stream, two layers'
//   activations, the head's gradient twice, and the gradient of a chunk.
TEST(MegatrainPeak, OfARealModelIsWithinItsFormulas) {
  const model::Shape shape = model::read_config(OFFSIM_SOURCE_DIR "/models/qwen2.5-7b.json");
  const Workload w{.micro_batch = 16, .sequence = 1024};
  const model::Pieces p = model::pieces(shape, w.batch(), model::Numerics::kPure16);
  const std::int64_t layer = model::layer_parameters(shape, 0);
  const std::int64_t outside = model::parameters(shape) - shape.layers * layer;
  const std::int64_t logits = 2 * w.batch().tokens() * shape.vocabulary;
  const std::int64_t chunk = 2 * w.micro_batch * 128 * shape.vocabulary;
  const std::int64_t least =
      2 * outside + 8 * layer + (shape.layers / 4 + 1) * p.hidden.value + logits;
  const std::int64_t most = least + 4 * layer + 8 * p.hidden.value +
                            2 * p.layers.back().saved.value + 4 * model::head_parameters(shape) +
                            4 * chunk;
  const std::int64_t held = peak(job("megatrain", w, {}, shape), "gpu");
  EXPECT_GE(held, least);
  EXPECT_LE(held, most);
}

// --- all plans

// One byte less memory refuses, with the byte it runs.
class EveryPlan : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Plans, EveryPlan, testing::Values("native", "zero2-offload", "megatrain"));

TEST_P(EveryPlan, FitsWithTheLastByteOnly) {
  Job asked = job(GetParam(), many_tokens());
  const study::Prediction p = study::predict(asked);
  const Bytes gpu = p.pool("gpu")->needed();
  const Bytes host = p.pool("host")->needed();
  asked.machine.accelerator.memory.value = gpu;
  asked.machine.host.memory.value = host;
  EXPECT_TRUE(study::predict(asked).feasible());
  asked.machine.accelerator.memory.value = gpu - Bytes(1);
  EXPECT_FALSE(study::predict(asked).feasible());
  asked.machine.accelerator.memory.value = gpu;
  asked.machine.host.memory.value = host - Bytes(1);
  EXPECT_FALSE(study::predict(asked).feasible());
}

// PyTorch rounds each pinned block by itself.
TEST_P(EveryPlan, RoundsEveryPinnedBlockToAPowerOfTwo) {
  Workload w = many_tokens();
  w.accumulation = 2;
  int pinned = 0;
  const runtime::Program program = recorded(job(GetParam(), w));
  for (const runtime::Call& call : program.calls) {
    if (const auto* allocate = std::get_if<runtime::Allocate>(&call)) {
      if (allocate->space == runtime::Space::kPinned) {
        ++pinned;
        EXPECT_EQ(allocate->bytes & (allocate->bytes - 1), 0) << program.text(allocate->tag);
      } else if (allocate->space == runtime::Space::kGpu) {
        EXPECT_EQ(allocate->bytes % 512, 0) << program.text(allocate->tag);
      }
    }
  }
  EXPECT_EQ(pinned > 0, std::string_view(GetParam()) != "native");
}

// A step gives back what it took: three steps hold no more than two.
TEST_P(EveryPlan, HoldsNoMoreAfterMoreSteps) {
  const Job asked = job(GetParam(), many_tokens());
  Plan longer = *asked.plan;
  longer.steps = 5;
  Job more = asked;
  more.plan = &longer;
  for (const char* const pool : {"gpu", "host"}) {
    EXPECT_EQ(peak(more, pool), peak(asked, pool)) << pool;
    EXPECT_EQ(study::predict(more).pool(pool)->resident, study::predict(asked).pool(pool)->resident)
        << pool;
  }
}

}  // namespace
}  // namespace offsim::plans::memory_test
