// Does each wait of a plan hold exactly what it should, and nothing more? One thing is made slow in
// each question.
#include <gtest/gtest.h>

#include <optional>

#include "tests/plans/activities.h"

namespace offsim::plans::waits_test {
namespace {

constexpr Workload kShort{.micro_batch = 1, .sequence = 16};
constexpr int kTensors = 9;  // of a layer

machine::Machine slow_link(double h2d, double d2h) {
  machine::Machine m = runtime::synthetic_machine();
  m.link->h2d = runtime::known<BytesPerSecond>(h2d);
  m.link->d2h = runtime::known<BytesPerSecond>(d2h);
  runtime::connect(m);
  return m;
}

// Two slots: the host loads the layer after next once its slot's last copy is done, but does not
// wait for the next one's.
TEST(MegatrainWaits, TheHostLoadsAtMostTwoLayersAhead) {
  const Activities of(job("megatrain", kShort, {{"checkpoint_interval", "6"}}, tiny_shape(6),
                          slow_link(1e6, 10e9)));
  for (int layer = 2; layer < 6; ++layer) {
    const std::size_t call = of.nth("weights", Cause::kHostThread, layer);
    EXPECT_GE(of.start(call), of.finish(of.nth("weights", Cause::kH2d, layer - 2)));
    EXPECT_LT(of.start(call), of.finish(of.nth("weights", Cause::kH2d, layer - 1)));
  }
}

// Two templates: layer 1 of the backward takes the one of layer 3, whose gradients must have left
// it; layer 2 need not wait.
TEST(MegatrainWaits, ATemplateIsFreeWhenItsGradientsHaveLeft) {
  const Activities of(job("megatrain", kShort, {}, tiny_shape(4), slow_link(10e9, 1e6)));
  constexpr int kBefore = 5 + 4;  // forward, layer 0 twice, and recomputation
  const Picoseconds left = of.finish(of.nth("layer gradients", Cause::kD2h, kTensors - 1));
  EXPECT_LT(of.start(of.nth("unflatten", Cause::kGpuCompute, kBefore + 1)), left);
  EXPECT_GE(of.start(of.nth("unflatten", Cause::kGpuCompute, kBefore + 2)), left);
}

// The host takes a slab for a layer's gradients when the worker has emptied it.
TEST(MegatrainWaits, TheHostWaitsForAFreeSlab) {
  machine::Machine m = runtime::synthetic_machine();
  m.framework.kernels["copy_bf16"].core_rate = ElementsPerSecond(1e6);
  constexpr int kHead = 2;  // tensors that the worker takes before
  for (const int slabs : {1, 2}) {
    const Activities of(
        job("megatrain", kShort, {{"num_grad_slabs", std::to_string(slabs)}}, tiny_shape(3), m));
    const Picoseconds emptied =
        of.finish(of.nth("gradients into p.grad", Cause::kCpuCopy, kHead + kTensors - 1));
    const Picoseconds taken =
        of.start(of.nth("layer gradients", Cause::kHostThread, kTensors));  // of the second layer
    EXPECT_EQ(taken >= emptied, slabs == 1) << slabs;
  }
}

// With overlap_comm one bucket is on its way while the next is filled: at a flush the compute
// stream waits for the bucket before it, not for this one.
TEST(Zero2Waits, OneBucketIsOnItsWay) {
  Workload w = kShort;
  w.accumulation = 2;  // in the first micro-batch the host waits for nothing
  const Activities of(job("zero2-offload", w,
                          {{"overlap_comm", "true"}, {"reduce_bucket_size", "40000"}},
                          tiny_shape(4), slow_link(10e9, 1e6)));
  const auto is_flush = [&](std::size_t i) {
    return of.cause_of(i) == Cause::kGpuCompute && of.label_of(i).starts_with("average");
  };
  const auto on_compute = [&](std::size_t i) {
    return of.cause_of(i) == Cause::kGpuCompute && of.lane_of(i) == 1;
  };
  const auto last_sent = [&](std::size_t from, std::size_t to) {
    std::optional<Picoseconds> last;
    for (std::size_t i = from; i < to; ++i) {
      last = of.cause_of(i) == Cause::kD2h ? of.finish(i) : last;
    }
    return last.value();
  };
  const std::size_t first = of.find(0, is_flush);
  const std::size_t second = of.find(first + 1, is_flush);
  const std::size_t next = of.find(second, on_compute);
  EXPECT_GE(of.start(next), last_sent(first, second));
  EXPECT_LT(of.start(next), last_sent(second, next));
}

// Without it everything is in line: copies that take as long as the layers between them add to the
// step.
TEST(Zero2Waits, WithoutOverlapLayersAndBucketsAreInLine) {
  machine::Machine m = slow_link(10e9, 1e7);
  m.accelerator.kernel_floor = runtime::known<Seconds>(1e-4);
  Workload w = kShort;
  w.accumulation = 2;
  const auto step = [&](const char* overlap) {
    const Given options{{"overlap_comm", overlap}, {"reduce_bucket_size", "40000"}};
    return study::predict(job("zero2-offload", w, options, tiny_shape(4), m)).step;
  };
  EXPECT_LT(step("true"), 0.95 * step("false"));
}

}  // namespace
}  // namespace offsim::plans::waits_test
