// Does torchao-offload move, hold and wait for what torchao's CPUOffloadOptimizer does?
//
// Of the tiny model 12 tensors have minimal_size (4,096) elements or more; the 9 others (norms, k
// and v) keep their optimizer on the GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/base/message_of.h"
#include "tests/plans/activities.h"
#include "tests/plans/calls.h"
#include "tests/plans/held.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::torchao_test {
namespace {

constexpr std::int64_t kSmallOfLayer = 2 * 32 * 64 + 2 * 64;
constexpr std::int64_t kSmall = 2 * kSmallOfLayer + 64;
constexpr std::int64_t kLarge = Tiny::all - kSmall;
constexpr int kLargeTensors = 12, kSmallTensors = 9;

Job asked(Workload w, const Given& options = {},
          const machine::Machine& m = runtime::synthetic_machine()) {
  return job("torchao-offload", w, options, tiny_shape(), m);
}
runtime::StepTotals totals(const Job& of) { return study::predict(of).totals; }

struct Stored {
  Precision precision;
  std::int64_t width;  // bytes of a number
};
const auto kStored = testing::Values(Stored{Precision::kBf16Mixed, 4}, Stored{Precision::kFp32, 4},
                                     Stored{Precision::kBf16, 2});

// --- bytes: gradients in every micro-batch, parameters once

class TorchaoBytes : public testing::TestWithParam<std::tuple<std::int64_t, Stored>> {
 protected:
  std::int64_t k() const { return std::get<0>(GetParam()); }
  std::int64_t width() const { return std::get<1>(GetParam()).width; }
  Workload workload() const {
    return {.micro_batch = 2,
            .sequence = 128,
            .accumulation = k(),
            .precision = std::get<1>(GetParam()).precision};
  }
};
INSTANTIATE_TEST_SUITE_P(Steps, TorchaoBytes, testing::Combine(testing::Values(1, 2, 4), kStored));

TEST_P(TorchaoBytes, AreThoseOfTheLargeTensors) {
  for (const auto& [minimal, n] : std::map<std::string, std::int64_t>{
           {"0", Tiny::all}, {"4096", kLarge}, {"4097", 5 * 16'384}}) {
    const auto t = totals(asked(workload(), {{"minimal_size", minimal}}));
    EXPECT_EQ(t.h2d_bytes, static_cast<double>(width() * n)) << minimal;
    EXPECT_EQ(t.d2h_bytes, static_cast<double>(k() * width() * n)) << minimal;
    EXPECT_EQ(t.dram_bytes - t.h2d_bytes - t.d2h_bytes, 10.0 * static_cast<double>(n)) << minimal;
  }
}

TEST_P(TorchaoBytes, AndOperationsAreThoseOfTheModelOnTheGpu) {
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
    Workload w = workload();
    w.checkpointing = checkpointing;
    EXPECT_EQ(totals(asked(w)).executed.value, totals(job("native", w)).executed.value);
  }
}

// --- memory

class TorchaoMemory : public testing::TestWithParam<Stored> {
 protected:
  Workload few() const {
    Workload w = few_tokens();
    w.precision = GetParam().precision;
    return w;
  }
};
INSTANTIATE_TEST_SUITE_P(Precisions, TorchaoMemory, kStored);

std::int64_t gradients(std::int64_t width, bool small) {
  std::int64_t sum = 0;
  for (const model::Tensor& tensor : model::all_tensors(tiny_shape())) {
    sum += small == (tensor.numel() < 4096) ? r(width * tensor.numel()) : 0;
  }
  return sum;
}

// A pinned copy of each large parameter and its gradient, moments beside.
TEST_P(TorchaoMemory, OfTheHostIsTwoPinnedCopiesAndTheMoments) {
  const std::int64_t b = GetParam().width;
  std::int64_t pinned = 0;
  for (const model::Tensor& tensor : model::all_tensors(tiny_shape())) {
    pinned += tensor.numel() < 4096 ? 0 : 2 * p2(b * tensor.numel());
  }
  const study::Prediction p = study::predict(asked(few()));
  EXPECT_EQ(p.pool("host_pinned")->peak.value, pinned);
  EXPECT_EQ(p.pool("host")->peak.value, pinned + 2 * b * kLarge);
}

TEST_P(TorchaoMemory, OfTheGpuIsParametersAndGradients) {
  const std::int64_t b = GetParam().width;
  EXPECT_EQ(peak(asked(few()), "gpu"), r(b * Tiny::all) + kWorkspace + r(2 * b * kSmall) +
                                           gradients(b, true) + gradients(b, false));
}

// offload_gradients: a large gradient is free once it was sent. Where the host is slower than the
// GPU and the link, each is gone before the next; the largest is the embedding's, which is the
// last.
TEST(TorchaoPeak, OfOffloadedGradientsIsOneWhenTheLinkKeepsUp) {
  Workload w = few_tokens();
  w.precision = Precision::kBf16;
  EXPECT_EQ(
      peak(asked(w, {{"offload_gradients", "true"}}), "gpu"),
      r(2 * Tiny::all) + kWorkspace + r(4 * kSmall) + gradients(2, true) + r(2 * Tiny::embedding));
}

// And all of them when it does not.
TEST(TorchaoPeak, OfOffloadedGradientsIsAllOfThemWhenTheLinkIsSlow) {
  machine::Machine m = runtime::synthetic_machine();
  m.link->d2h = runtime::known<BytesPerSecond>(1e5);
  runtime::connect(m);
  EXPECT_EQ(peak(asked(few_tokens(), {{"offload_gradients", "true"}}, m), "gpu"),
            peak(asked(few_tokens(), {}, m), "gpu"));
}

// --- a step on paper, with no tensor too small and a synchronisation before each phase

Job synchronised(const machine::Machine& m) {
  Workload w = sixteen_tokens();
  w.precision = Precision::kBf16;
  w.phase_sync = true;
  return on_paper("torchao-offload", w, {{"minimal_size", "0"}}, m);
}

// Before the optimizer everything is on the host; the last gradient is the embedding's.
double until_optimizer() {
  const Times t(model::Numerics::kPure16);
  return 2 * kLaunch + t.forward() + t.backward() + kLatency + link(2 * kEmbedding);
}

// A copy to the GPU takes longer than Adam and the host's calls: after Adam of the first tensor,
// the head, copies follow each other.
TEST(Torchao, OnPaperIsBoundByItsCopies) {
  const double head = kTensor + cpu(kEmbedding) + kCall;
  EXPECT_NEAR(step_us(synchronised(paper_machine())),
              until_optimizer() + head + kTensors * kLatency + link(2 * kAll), kExact);
}

// Or Adam hides all copies but the embedding's, which is the last.
TEST(Torchao, OnPaperIsBoundByAdam) {
  machine::Machine m = paper_machine();
  m.framework.kernels["adam_torch_fused_bf16"].core_rate = ElementsPerSecond(1e6);
  EXPECT_NEAR(step_us(synchronised(m)),
              until_optimizer() + kTensors * (kTensor + kCall) + 1000 * cpu(kAll) + kLatency +
                  link(2 * kEmbedding),
              kExact);
}

// --- who waits for whom

constexpr Workload kShort{.micro_batch = 1, .sequence = 16};

TEST(TorchaoSequence, IsGradientsOutThenTensorsInTheirOrder) {
  Workload w = kShort;
  w.accumulation = 2;
  const runtime::Program program = recorded(asked(w));
  EXPECT_THAT(on(program, "side"),
              testing::ElementsAreArray(repeated({"gradients"}, 2 * kLargeTensors) +
                                        repeated({"parameters"}, kLargeTensors)));
  EXPECT_EQ(count_of(on(program, "host"), "Adam"), kLargeTensors);
  EXPECT_EQ(count_of(on(program, "compute"), "Adam"), 1);  // of all small ones
  EXPECT_EQ(count_of(on(program, "compute"), "add gradient"), kLargeTensors + kSmallTensors);
}

machine::Machine slow_link(double h2d, double d2h) {
  machine::Machine m = runtime::synthetic_machine();
  m.link->h2d = runtime::known<BytesPerSecond>(h2d);
  m.link->d2h = runtime::known<BytesPerSecond>(d2h);
  runtime::connect(m);
  return m;
}

// The head's gradient leaves while the layers' backward has not begun.
TEST(TorchaoWaits, GradientsLeaveBesideTheBackward) {
  const Activities of(asked(kShort, {}, paper_machine()));
  EXPECT_LT(of.start(of.nth("gradients", Cause::kD2h, 0)),
            of.finish(of.nth("layer backward", Cause::kGpuCompute, 0)));
}

TEST(TorchaoWaits, AdamOfATensorWaitsForItsGradientOnly) {
  const Activities of(asked(kShort, {}, slow_link(10e9, 1e7)));
  for (int i = 0; i + 1 < kLargeTensors; ++i) {
    const std::size_t adam = of.nth("Adam", Cause::kCpuOptimizer, i);
    EXPECT_GE(of.start(adam), of.finish(of.nth("gradients", Cause::kD2h, i)));
    EXPECT_LT(of.start(adam), of.finish(of.nth("gradients", Cause::kD2h, i + 1)));
  }
}

// One stream carries both ways: a parameter goes up once the last gradient is down.
TEST(TorchaoWaits, ParametersWaitForTheLastGradient) {
  const Activities of(asked(kShort, {}, slow_link(10e9, 1e7)));
  EXPECT_GE(of.start(of.nth("parameters", Cause::kH2d, 0)),
            of.finish(of.nth("gradients", Cause::kD2h, kLargeTensors - 1)));
}

TEST(TorchaoWaits, AParameterGoesUpBesideAdamOfTheNext) {
  const Activities of(asked(kShort, {}, slow_link(1e7, 10e9)));
  for (int i = 0; i + 1 < kLargeTensors; ++i) {
    const std::size_t up = of.nth("parameters", Cause::kH2d, i);
    EXPECT_GE(of.start(up), of.finish(of.nth("Adam", Cause::kCpuOptimizer, i)));
    EXPECT_LT(of.start(of.nth("Adam", Cause::kCpuOptimizer, i + 1)), of.finish(up));
  }
}

// The host waits for the last of them: the next forward has the new parameters.
TEST(TorchaoWaits, TheNextStepBeginsWithAllParameters) {
  const Activities of(asked(kShort, {}, slow_link(1e7, 10e9)));
  EXPECT_GE(of.start(of.nth("embedding forward", Cause::kHostThread, 2)),  // two calls a step
            of.finish(of.nth("parameters", Cause::kH2d, kLargeTensors - 1)));
}

TEST(TorchaoRefuses, OffloadedGradientsThatAccumulate) {
  Workload w = kShort;
  w.accumulation = 2;
  Job of = asked(w);
  of.options.set("offload_gradients", "true", {"case.yaml", 3, 7});
  EXPECT_EQ(message_of([&] { of.plan->check(of); }),
            "case.yaml:3:7: torchao-offload.offload_gradients does not work with accumulation; "
            "expected accumulation 1, or offload_gradients false");
}

}  // namespace
}  // namespace offsim::plans::torchao_test
