// Does MLX's step do what its source says: one memory, one evaluation a micro-batch, an Adam that
// is fused or not, attention that is not?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/base/message_of.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::mlx_test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kNumbers = 106'816;  // parameters
constexpr std::int64_t kLayerNumbers = 36'992, kEmbeddingNumbers = 256 * 64,
                       kHeadNumbers = 64 + 256 * 64;

std::int64_t r(std::int64_t bytes) { return round_up(Bytes(bytes), 512).value; }

machine::Machine unified(machine::Machine m) {
  m.accelerator.unified = true;
  m.link.reset();
  runtime::connect(m);
  return m;
}

Workload of(Workload w, Precision precision = Precision::kBf16) {
  w.precision = precision;
  return w;
}
Job mlx(const Workload& w, const Given& options = {}) {
  return on_paper("mlx", w, options, unified(paper_machine()));
}
std::int64_t peak(const Job& of) { return study::predict(of).pool("unified")->peak.value; }

// --- schedule. Attention is 5 kernels forward and 8 backward (10 not compiled) where a fused one
// is one; the host waits at the end of an evaluation, so its first launch is exposed.

double pass(const Times& t, double attention_backward = 8) {
  return t.forward() + t.backward() + 2 * (4 + attention_backward - 1) * kKernel;
}

TEST(Mlx, CompiledUpdatesWithAKernelATensor) {
  const Times t(model::Numerics::kPure16);
  EXPECT_NEAR(step_us(mlx(of(sixteen_tokens()))), kLaunch + pass(t) + kTensors * kKernel, kExact);
}

TEST(Mlx, NotCompiledUpdatesWithThirteen) {
  const Times t(model::Numerics::kPure16);
  EXPECT_NEAR(step_us(mlx(of(sixteen_tokens()), {{"compile", "false"}})),
              kLaunch + pass(t, 10) + 13 * kTensors * kKernel, kExact);
}

TEST(Mlx, EveryMicroBatchIsWaitedFor) {
  const Times t(model::Numerics::kPure16);
  Workload w = of(sixteen_tokens());
  w.accumulation = 3;
  EXPECT_NEAR(step_us(mlx(w)), 3 * (kLaunch + pass(t)) + (2 + 1) * kTensors * kKernel, kExact);
}

TEST(Mlx, MovesNothing) {
  const study::Prediction p = study::predict(mlx(of(sixteen_tokens())));
  EXPECT_EQ(p.totals.h2d_bytes + p.totals.d2h_bytes + p.totals.dram_bytes, 0);
  EXPECT_EQ(p.pool("host"), nullptr);
}

// --- work

double adam_bytes(const Job& of) {
  double sum = 0;
  for (const model::Work& work : recorded(of).works) {
    for (const model::Kernel& kernel : work.kernels) {
      sum += work.name == "Adam" ? static_cast<double>(kernel.bytes) * kernel.count : 0;
    }
  }
  return sum / kNumbers;
}

TEST(Mlx, AdamReadsAndWritesSevenNumbersCompiledAndThirtyNot) {
  const Workload narrow = of(sixteen_tokens()), wide = of(sixteen_tokens(), Precision::kFp32);
  EXPECT_NEAR(adam_bytes(mlx(narrow)), 14, 0.01);
  EXPECT_NEAR(adam_bytes(mlx(wide)), 28, 0.01);
  EXPECT_NEAR(adam_bytes(mlx(narrow, {{"compile", "false"}})), 60, 0.01);
  EXPECT_NEAR(adam_bytes(mlx(wide, {{"compile", "false"}})), 120, 0.01);
}

// Of B a S^2 p, a layer: fused causal attention does 2 forward and 5 backward, unfused on the whole
// square 4 and 8.
TEST(Mlx, AttentionIsOfTheWholeSquare) {
  const Workload w = of({.micro_batch = 3, .sequence = 128});
  const double unit = 3.0 * 4 * 128 * 128 * 16;
  EXPECT_NEAR(study::predict(mlx(w)).totals.executed.value -
                  study::predict(on_paper("native", w)).totals.executed.value,
              2 * 5 * unit, 1);
}

// --- memory

struct WidthCase {
  Precision precision;
  std::int64_t width;
};
class MlxWidth : public testing::TestWithParam<WidthCase> {};
INSTANTIATE_TEST_SUITE_P(Precisions, MlxWidth,
                         testing::Values(WidthCase{Precision::kBf16, 2},
                                         WidthCase{Precision::kFp32, 4}));

// Parameters, gradients piece by piece, m and v; what two tokens save is less than the moments.
TEST_P(MlxWidth, HoldsFourNumbersAParameterAndSevenWithoutDonation) {
  const auto [precision, width] = GetParam();
  const Workload w = of({.micro_batch = 1, .sequence = 2}, precision);
  const std::int64_t held = r(width * kNumbers) + r(2 * width * kNumbers) +
                            r(width * kHeadNumbers) + 2 * r(width * kLayerNumbers) +
                            r(width * kEmbeddingNumbers);
  EXPECT_EQ(peak(mlx(w)), held);
  EXPECT_EQ(peak(mlx(w, {{"donation", "false"}})), held + r(3 * width * kNumbers));
}

// At the loss every layer has its softmax, S x S a head, and its scaled queries, B S a p.
TEST(MlxMemory, KeepsTheSoftmaxOfEveryLayer) {
  const Workload w = of({.micro_batch = 2, .sequence = 512});
  const model::Pieces p = model::pieces(tiny_shape(), w.batch(), model::Numerics::kPure16);
  const std::int64_t softmax = 2 * (2 * 4 * 512 * 512) + 2 * (2 * 512 * 4 * 16);
  const std::int64_t layers = 2 * (r(p.layers.back().saved.value) + r(softmax));
  const std::int64_t loss = r(p.head.saved.value) +
                            std::max(r(p.head.forward_extra.value), r(p.head.backward_extra.value));
  const std::int64_t states = r(2 * kNumbers) + r(4 * kNumbers);
  // Or in the backward of the last layer, with two more squares beside its softmax.
  const std::int64_t in_layer = layers + r(2 * kHeadNumbers) + r(2 * 2 * (2 * 4 * 512 * 512));
  EXPECT_EQ(peak(mlx(w)), states + std::max(layers + loss, in_layer));
}

TEST(MlxMemory, CheckpointingKeepsOneLayersSoftmax) {
  Workload w = of({.micro_batch = 2, .sequence = 512});
  w.checkpointing = Checkpointing::kFull;
  const auto with = [&w](std::int64_t layers) {
    return peak(job("mlx", w, {}, tiny_shape(layers), unified(paper_machine())));
  };
  const std::int64_t hidden = 2 * 2 * 512 * 64;
  // Two more layers: their inputs, weights, moments, and at the deepest layer nothing of gradients.
  EXPECT_EQ(with(12) - with(10), 2 * r(hidden) + 2 * 6 * kLayerNumbers);
}

// --- refusals

std::string refusal(const Job& job) {
  return message_of([&] { job.plan->check(job); });
}

TEST(MlxRefuses, AMachineWhoseGpuHasItsOwnMemory) {
  EXPECT_EQ(refusal(on_paper("mlx", of(sixteen_tokens()))),
            "mlx needs unified memory, and the GPU of synthetic has a memory of its own; expected "
            "a machine whose CPU and GPU share one, such as mac-studio-m3-ultra");
}

TEST(MlxRefuses, MixedPrecision) {
  EXPECT_THAT(refusal(mlx(of(sixteen_tokens(), Precision::kBf16Mixed))),
              HasSubstr("mlx does not run in bf16-mixed; expected bf16 or fp32"));
  EXPECT_THAT(refusal(mlx(of(sixteen_tokens(), Precision::kFp16Mixed))),
              HasSubstr("mlx does not run in fp16-mixed"));
}

TEST(MlxRefuses, AWiredLimitAboveTheWorkingSet) {
  EXPECT_THAT(refusal(mlx(of(sixteen_tokens()), {{"wired_limit", "1000000000001"}})),
              HasSubstr("mlx.wired_limit is above the system's; expected at most 1000000000000"));
  EXPECT_EQ(refusal(mlx(of(sixteen_tokens()), {{"wired_limit", "1000000000000"}})),
            "(nothing was refused)");
}

}  // namespace
}  // namespace offsim::plans::mlx_test
