// Does fsdp2-offload move, hold and wait for what PyTorch's fully_shard does on one GPU?
//
// N parameters, R of the root group (embedding, norm, head), l of a layer; k micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plans/activities.h"
#include "tests/plans/calls.h"
#include "tests/plans/held.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::fsdp2_test {
namespace {

constexpr std::int64_t kRoot = Tiny::embedding + Tiny::head;
constexpr int kLayerTensors = 9, kRootTensors = 3;

Job asked(Workload w, const Given& options = {},
          const machine::Machine& m = runtime::synthetic_machine()) {
  return job("fsdp2-offload", w, options, tiny_shape(), m);
}
runtime::StepTotals totals(const Job& of) { return study::predict(of).totals; }

// --- bytes: layers come twice a micro-batch, the root once, gradients go once

struct Stored {
  Precision precision;
  std::int64_t width;  // bytes of a stored number
};
class Fsdp2Bytes : public testing::TestWithParam<std::tuple<std::int64_t, Stored>> {
 protected:
  std::int64_t k() const { return std::get<0>(GetParam()); }
  std::int64_t width() const { return std::get<1>(GetParam()).width; }
  Workload workload(Checkpointing checkpointing = Checkpointing::kNone) const {
    return {.micro_batch = 2,
            .sequence = 128,
            .accumulation = k(),
            .checkpointing = checkpointing,
            .precision = std::get<1>(GetParam()).precision};
  }
};
INSTANTIATE_TEST_SUITE_P(Steps, Fsdp2Bytes,
                         testing::Combine(testing::Values(1, 2, 4),
                                          testing::Values(Stored{Precision::kBf16Mixed, 4},
                                                          Stored{Precision::kFp16Mixed, 4},
                                                          Stored{Precision::kBf16, 2})));

TEST_P(Fsdp2Bytes, OverTheLinkAreThoseOfStoredNumbers) {
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
    for (const char* const pinned : {"true", "false"}) {
      const auto t = totals(asked(workload(checkpointing), {{"pin_memory", pinned}}));
      const std::int64_t up = width() * k() * (2 * 2 * Tiny::layer + kRoot);
      EXPECT_EQ(t.h2d_bytes, static_cast<double>(up));
      EXPECT_EQ(t.d2h_bytes, static_cast<double>(width() * k() * Tiny::all));
    }
  }
}

// 10 B an element whichever kernel; a pinned byte counts once, a pageable one three times. Only
// the first micro-batch's gradients land in pinned memory.
TEST_P(Fsdp2Bytes, OfTheCpuAreAdamAndTheAdditionsOfLaterMicroBatches) {
  const auto kernels = [&](const Given& options) {
    const auto t = totals(asked(workload(), options));
    const double pageable = static_cast<double>((k() - 1) * width() * Tiny::all);
    return t.dram_bytes - t.h2d_bytes - t.d2h_bytes - 2 * pageable;
  };
  const double all = 10.0 * static_cast<double>(Tiny::all);
  const double additions = static_cast<double>(k() - 1);
  EXPECT_EQ(kernels({}), (1 + additions) * all);
  EXPECT_EQ(kernels({{"fused", "false"}}), (1 + additions) * all);
  EXPECT_EQ(kernels({{"gradient_clipping", "true"}}), (1 + additions + 2) * all);  // norm, scale
}

TEST_P(Fsdp2Bytes, AndOperationsAreThoseOfTheModelOnTheGpu) {
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
    const Workload w = workload(checkpointing);
    EXPECT_EQ(totals(asked(w)).executed.value, totals(job("native", w)).executed.value);
  }
}

// --- memory

struct HostCase {
  const char* name;
  Precision precision;
  const char* pinned;
  std::int64_t accumulation;
  std::int64_t in_pinned, pageable;
};
class Fsdp2Host : public testing::TestWithParam<HostCase> {};
// Accumulating, the largest tensor's gradient lands in a temporary.
INSTANTIATE_TEST_SUITE_P(
    Placements, Fsdp2Host,
    testing::Values(
        HostCase{"pinned", Precision::kBf16Mixed, "true", 1, 2 * p2_by_tensor(4), 8 * Tiny::all},
        HostCase{"bf16", Precision::kBf16, "true", 1, 2 * p2_by_tensor(2), 4 * Tiny::all},
        HostCase{"pageable", Precision::kBf16Mixed, "false", 1, 0, 16 * Tiny::all},
        HostCase{"accumulating", Precision::kBf16Mixed, "true", 2, 2 * p2_by_tensor(4),
                 8 * Tiny::all + 4 * Tiny::largest},
        HostCase{"accumulating_pageable", Precision::kBf16Mixed, "false", 2, 0,
                 16 * Tiny::all + 4 * Tiny::largest}),
    [](const auto& of) { return of.param.name; });

TEST_P(Fsdp2Host, HoldsParametersGradientsAndMoments) {
  Workload w = few_tokens();
  w.precision = GetParam().precision;
  w.accumulation = GetParam().accumulation;
  const study::Prediction p = study::predict(asked(w, {{"pin_memory", GetParam().pinned}}));
  EXPECT_EQ(p.pool("host_pinned")->peak.value, GetParam().in_pinned);
  EXPECT_EQ(p.pool("host")->peak.value, GetParam().in_pinned + GetParam().pageable);
}

// Of few tokens: while the last layer's gradients leave. The root group and the head's gradients
// are there, and the first layer's activations; of the layer what the reduce-scatter reads and
// writes, 2 B each, and the fp32 copy that is sent.
TEST(Fsdp2Peak, OfAFewTokensIsAGroupsReduction) {
  const Bytes saved = pieces(few_tokens(), model::Numerics::kPure16).layers.back().saved;
  EXPECT_EQ(peak(asked(few_tokens()), "gpu"), kWorkspace + r(2 * kRoot) + r(2 * Tiny::head) +
                                                  r(saved) + 2 * r(2 * Tiny::layer) +
                                                  r(4 * Tiny::layer));
}

// In bf16 the gradients are sent as they are. The peak is the end of the first layer's backward:
// its
// parameters and gradients beside what the last reduce-scatter read.
TEST(Fsdp2Peak, OfBf16IsWithoutAWideCopy) {
  Workload w = few_tokens();
  w.precision = Precision::kBf16;
  EXPECT_EQ(peak(asked(w), "gpu"),
            kWorkspace + r(2 * kRoot) + r(2 * Tiny::head) + 3 * r(2 * Tiny::layer));
}

TEST(Fsdp2Peak, OfManyTokensIsAtTheLoss) {
  const Workload w = many_tokens();
  const model::Pieces p = pieces(w, model::Numerics::kPure16);
  EXPECT_EQ(peak(asked(w), "gpu"), kWorkspace + r(2 * kRoot) + 2 * r(p.layers.back().saved) +
                                       r(p.head.saved) +
                                       std::max(r(p.head.forward_extra), r(p.head.backward_extra)));
}

// Blocks are free when the host drops them, however far it is ahead of the GPU and the link.
TEST(Fsdp2Peak, DoesNotDependOnHowFarTheHostIsAhead) {
  machine::Machine slow = runtime::synthetic_machine();
  slow.accelerator.kernel_floor = runtime::known<Seconds>(1e-3);
  slow.link->d2h = runtime::known<BytesPerSecond>(1e6);
  runtime::connect(slow);
  EXPECT_EQ(peak(asked(few_tokens(), {}, slow), "gpu"), peak(asked(few_tokens()), "gpu"));
}

// --- a step on paper

// A link and a memory that both directions fill at once.
machine::Machine duplex_machine() {
  machine::Machine m = paper_machine();
  m.link->total = runtime::known<BytesPerSecond>(20e9);
  runtime::connect(m);
  return m;
}

// A group comes on the compute stream: of each tensor a copy, a cast and one more copy.
double unshard(double tensors, double elements) {
  return tensors * (kLatency + 2 * kKernel) + link(4 * elements);
}

// Compute is never waited for but at the end. Each layer's gradients are copied in (a kernel); the
// two kernels of their reduction share the GPU with what compute does next: after the second layer
// that is a copy of 64 x 64 fp32 numbers, beside which they run alone, then kernels; after the
// first the embedding's backward. The root's run alone, and its gradients are waited for.
TEST(Fsdp2, OnPaperIsOneLineOfComputeThenTheHost) {
  const Times t(model::Numerics::kPure16);
  const double layer = unshard(kLayerTensors, Tiny::layer);
  const double forward =
      unshard(kRootTensors, kRoot) + t.embedding + 2 * (layer + t.layer) + t.head;
  const double reduction = 2 * kKernel;
  const double beside_a_copy = kLatency + link(4 * 64 * 64);
  const double backward = t.head_backward + 2 * (layer + t.layer_backward + kKernel) +
                          (reduction - beside_a_copy) + reduction + t.embedding_backward;
  const double root = kKernel + reduction + kRootTensors * kLatency + link(4 * kRoot);
  const double optimizer = kTensors * kTensor + cpu(kAll);
  EXPECT_NEAR(step_us(on_paper("fsdp2-offload", sixteen_tokens(), {}, duplex_machine())),
              kCall + forward + backward + root + optimizer, kExact);
}

TEST(Fsdp2, ClippingAddsANormOnOneCoreAndAScaling) {
  const auto step = [](const char* clipping) {
    return step_us(on_paper("fsdp2-offload", sixteen_tokens(), {{"gradient_clipping", clipping}}));
  };
  EXPECT_NEAR(step("true") - step("false"), one_core(kAll) + cpu(kAll), kExact);
}

// --- who waits for whom

constexpr Workload kShort{.micro_batch = 1, .sequence = 16};

TEST(Fsdp2Sequence, OfAGroupsBackward) {
  Workload w = kShort;
  w.checkpointing = Checkpointing::kFull;
  const runtime::Program program = recorded(asked(w));
  const Names tensor{"parameters", "cast parameters to 16 bits", "copy parameters"};
  const Names layer = repeated(tensor, kLayerTensors);
  const Names backward = layer + Names{"layer recompute", "layer backward", "copy gradients in"};
  EXPECT_THAT(on(program, "compute"),
              testing::ElementsAreArray(
                  repeated(tensor, kRootTensors) + Names{"embedding forward"} +
                  repeated(layer + Names{"layer forward"}, 2) +
                  Names{"head and loss forward", "head and loss backward"} + repeated(backward, 2) +
                  Names{"embedding backward", "copy gradients in"}));
  const Names reduction{"copy for reduce-scatter", "cast to fp32"};
  EXPECT_THAT(
      on(program, "reduce-scatter"),
      testing::ElementsAreArray(repeated(reduction + repeated({"gradients"}, kLayerTensors), 2) +
                                reduction + repeated({"gradients"}, kRootTensors)));
}

// The host is a step ahead, yet a layer's parameters come when the layer before is computed.
TEST(Fsdp2Waits, ParametersAreInLineWithCompute) {
  const Activities of(asked(kShort, {}, paper_machine()));
  const std::size_t first = of.nth("layer forward", Cause::kGpuCompute, 0);
  const std::size_t next = of.nth("parameters", Cause::kH2d, kRootTensors + kLayerTensors);
  EXPECT_LT(of.start(of.nth("parameters", Cause::kHostThread, kRootTensors + kLayerTensors)),
            of.start(first));
  EXPECT_GE(of.start(next), of.finish(first));
}

// Gradients leave slowly: compute waits for a reduce-scatter, which stands behind the copies of the
// group before it, but not for that reduce-scatter's own copies.
TEST(Fsdp2Waits, ComputeWaitsForTheReduceScatterBeforeAndNotForItsCopies) {
  machine::Machine m = runtime::synthetic_machine();
  m.link->d2h = runtime::known<BytesPerSecond>(1e6);
  runtime::connect(m);
  const Activities of(job("fsdp2-offload", kShort, {}, tiny_shape(3), m));
  const auto copied_in = [&](int group) {  // from the last layer on
    const std::string label = "copy gradients in (" + std::to_string(Tiny::layer) + " elements)";
    return of.start(of.nth(label, Cause::kGpuCompute, group));
  };
  const auto left = [&](int group) {
    return of.finish(of.nth("gradients", Cause::kD2h, (group + 1) * kLayerTensors - 1));
  };
  EXPECT_LT(copied_in(1), left(0));
  EXPECT_GE(copied_in(2), left(0));
  EXPECT_LT(copied_in(2), left(1));
}

// The host waits for the last gradient before the optimizer.
TEST(Fsdp2Waits, AdamComesAfterTheLastGradient) {
  const Activities of(asked(kShort));
  const std::size_t last = of.nth("gradients", Cause::kD2h, 2 * kLayerTensors + kRootTensors - 1);
  EXPECT_GE(of.start(of.nth("Adam", Cause::kCpuOptimizer, 0)), of.finish(last));
}

// In the second micro-batch the host waits for every copy and adds before it sends the next.
TEST(Fsdp2Waits, AccumulationKeepsTheHostTensorByTensor) {
  Workload w = kShort;
  w.accumulation = 2;
  const Activities of(asked(w));
  constexpr int kFirst = 2 * kLayerTensors + kRootTensors;
  for (int i = 0; i < kLayerTensors; ++i) {
    const std::size_t addition = of.nth("add gradients", Cause::kCpuCopy, i);
    EXPECT_GE(of.start(addition), of.finish(of.nth("gradients", Cause::kD2h, kFirst + i)));
    EXPECT_GE(of.start(of.nth("gradients", Cause::kHostThread, kFirst + i + 1)),
              of.finish(addition));
  }
}

// And where blocks are mapped afresh every copy faults its pages in (1 GB/s) and gives them back
// (10 GB/s). With pinned memory the first micro-batch does not.
TEST(Fsdp2Waits, AccumulationFaultsNewPages) {
  Workload w = sixteen_tokens();
  const auto step = [&](std::int64_t threshold, const char* pinned) {
    machine::Machine m = paper_machine();
    m.framework.map_threshold = runtime::known_bytes(threshold);
    return step_us(on_paper("fsdp2-offload", w, {{"pin_memory", pinned}}, m));
  };
  const double pages = 4 * kAll / 1e3 + 4 * kAll / 10e3;
  EXPECT_NEAR(step(1, "true") - step(kGiB, "true"), 0, kExact);
  EXPECT_NEAR(step(1, "false") - step(kGiB, "false"), pages, kExact);
  w.accumulation = 3;
  EXPECT_NEAR(step(1, "true") - step(kGiB, "true"), 2 * pages, kExact);
  EXPECT_NEAR(step(1, "false") - step(kGiB, "false"), 3 * pages, kExact);
}

}  // namespace
}  // namespace offsim::plans::fsdp2_test
