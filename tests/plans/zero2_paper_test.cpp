// Is the delayed parameter update of ZeRO-Offload's paper as its figure draws it: Adam beside the
// next forward and backward, then the new weights?
#include <gtest/gtest.h>

#include "tests/plans/activities.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::zero2_paper_test {
namespace {

Job delayed(const Workload& workload, const machine::Machine& machine = paper_machine(),
            const model::Shape& shape = tiny_shape()) {
  return job("zero2-offload", workload, {{"variant", "paper"}}, shape, machine);
}

// --- bytes

class DelayedAccumulation : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Steps, DelayedAccumulation, testing::Values(1, 2, 4));

// 2 B of weights to the GPU, 2 B of gradients to the host; with accumulation through the GPU too.
TEST_P(DelayedAccumulation, MovesTwoBytesAParameterEachWay) {
  Workload w = sixteen_tokens();
  w.accumulation = GetParam();
  const runtime::StepTotals totals = study::predict(delayed(w)).totals;
  EXPECT_EQ(totals.h2d_bytes, 2 * static_cast<double>(GetParam()) * kAll);
  EXPECT_EQ(totals.d2h_bytes, 2 * static_cast<double>(GetParam()) * kAll);
  EXPECT_EQ(totals.dram_bytes - totals.h2d_bytes - totals.d2h_bytes, 10 * kAll);  // Adam alone
}

// --- memory

TEST(DelayedMemory, HoldsTwoGradientBuffersOnTheHostAndTwoBytesAParameterOnTheGpu) {
  constexpr std::int64_t n = 106'816;
  const study::Prediction p = study::predict(delayed(sixteen_tokens()));
  EXPECT_EQ(p.pool("host_pinned")->peak, Bytes(3 * power_of_two(Bytes(2 * n)).value));
  EXPECT_EQ(p.pool("host")->peak - p.pool("host_pinned")->peak, Bytes(12 * n));
  const Bytes kept = round_up(Bytes(2 * n), 512) + Bytes(kMiB) + Bytes(2 * 1'000'000'000);
  EXPECT_EQ(p.pool("gpu")->resident, kept);
}

// --- time

// Kernels, with each gradient's way into the bucket.
double on_gpu(const Times& t) { return t.forward() + t.backward() + kTensors * kKernel; }

// The weights wait for the backward, and the next forward for the weights; gradients cross the
// other way meanwhile, at full rate.
TEST(DelayedSchedule, BoundByTheGpuIsItsKernelsAndTheSwapOfWeights) {
  const Times t(model::Numerics::kPure16);
  for (const double bytes_per_us : {10e3, 1e2}) {
    machine::Machine m = paper_machine();
    m.link->h2d = runtime::known<BytesPerSecond>(bytes_per_us * 1e6);
    m.link->total = runtime::known<BytesPerSecond>(20e9);
    runtime::connect(m);
    EXPECT_NEAR(step_us(delayed(sixteen_tokens(), m)),
                on_gpu(t) + kLatency + 2 * kAll / bytes_per_us, kExact);
  }
}

// Weights cross at 2 GB/s. Adam of this step begins beside them, once the last gradient has
// arrived: it moves 10 B an element, each of which weighs as much as ten of theirs, in DRAM of 12
// GB/s. It takes 11 B / 12 GB/s an element, so long half of the weights' 2 B cross; the other half
// alone.
TEST(DelayedSchedule, TheNextAdamTakesItsShareOfDramFromTheSwapOfWeights) {
  const Times t(model::Numerics::kPure16);
  machine::Machine m = paper_machine();
  m.host.dram = runtime::known<BytesPerSecond>(12e9);
  m.host.dma_weight = runtime::known<double>(0.1);
  m.link->latency = runtime::known<Seconds>(0);
  m.link->h2d = runtime::known<BytesPerSecond>(2e9);
  m.link->d2h = m.link->total = runtime::known<BytesPerSecond>(1e15);
  runtime::connect(m);
  EXPECT_NEAR(step_us(delayed(sixteen_tokens(), m)), on_gpu(t) + 11 * kAll / 12e3 + kAll / 2e3,
              kExact);
}

machine::Machine slow_cores() {
  machine::Machine m = paper_machine();
  m.framework.kernels["adam_deepspeed_f32"].core_rate = ElementsPerSecond(1e5);
  return m;
}

TEST(DelayedSchedule, BoundByAdamIsAdam) {
  EXPECT_NEAR(step_us(delayed(sixteen_tokens(), slow_cores())), kAll / 0.4, kExact);
}

// The code does one after the other.
TEST(DelayedSchedule, OfTheCodeIsLonger) {
  const Job code = on_paper("zero2-offload", sixteen_tokens(), {}, slow_cores());
  const Times t(model::Numerics::kPure16);
  EXPECT_GT(step_us(code), kAll / 0.4 + on_gpu(t));
}

// --- who waits for whom

// 256 Mi elements of embedding and as many of the head: four tiles and a bit.
model::Shape of_many_tiles() {
  model::Shape s = tiny_shape();
  s.vocabulary = 1 << 22;
  return s;
}
constexpr int kTiles = 5;

TEST(DelayedWaits, ATileCrossesOnceItIsFinishedBesideTheNext) {
  const Activities of(delayed(sixteen_tokens(), slow_cores(), of_many_tiles()));
  for (int tile = 0; tile + 1 < kTiles; ++tile) {  // the last, a small one, waits for the link
    const std::size_t copy = of.nth("parameters", Cause::kH2d, tile);
    EXPECT_EQ(of.start(copy), of.finish(of.nth("Adam", Cause::kCpuOptimizer, tile))) << tile;
  }
}

TEST(DelayedWaits, NoTileCrossesBeforeTheBackwardAndNoForwardStartsBeforeTheLast) {
  const Activities of(delayed(sixteen_tokens(), paper_machine(), of_many_tiles()));
  for (int step = 1; step < 3; ++step) {
    const std::size_t backward = of.nth("embedding backward", Cause::kGpuCompute, step);
    const std::size_t first = of.nth("parameters", Cause::kH2d, (step - 1) * kTiles);
    EXPECT_GE(of.start(first), of.finish(backward));
  }
  const std::size_t last = of.nth("parameters", Cause::kH2d, kTiles - 1);
  EXPECT_GE(of.start(of.nth("embedding forward", Cause::kGpuCompute, 2)), of.finish(last));
}

// Adam of a step waits for its gradients, not for what the GPU does next.
TEST(DelayedWaits, AdamStartsWhenTheLastGradientHasArrived) {
  machine::Machine m = paper_machine();
  m.link->d2h = runtime::known<BytesPerSecond>(1e8);
  runtime::connect(m);
  const Activities of(delayed(sixteen_tokens(), m));
  const std::size_t gradient = of.nth("gradients", Cause::kD2h, 21 - 1);
  EXPECT_EQ(of.start(of.nth("Adam", Cause::kCpuOptimizer, 0)), of.finish(gradient));
}

}  // namespace
}  // namespace offsim::plans::zero2_paper_test
