// Who waits for whom? Launches, streams, events, the host and its workers; times in microseconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/runtime/price.h"
#include "tests/runtime/simulated.h"

namespace offsim::runtime::launch_test {
namespace {

constexpr double kExact = 1e-4;  // us: what rounding to picoseconds may add up to

TEST(Launch, ALayerBoundByItsLaunchesTakesItsLaunches) {
  Recorder gpu = recorder();
  gpu.launch(kernels("layer", 10, 50));
  const Simulated run(std::move(gpu));
  // The kernels begin with the first launch (10 us) and would be done 50 us later; ten launches end
  // at 100 us.
  EXPECT_NEAR(run.start_us("layer", Cause::kGpuCompute), 10, kExact);
  EXPECT_NEAR(run.finish_us("layer", Cause::kGpuCompute), 60, kExact);
  EXPECT_NEAR(run.end_us(), 100, kExact);
}

TEST(Launch, ALayerBoundByTheGpuHidesItsLaunches) {
  Recorder gpu = recorder();
  gpu.launch(kernels("first", 10, 1000));
  gpu.launch(kernels("second", 10, 1000));
  const Simulated run(std::move(gpu));
  // The host is done at 200 us; the GPU works from 10 us on without a gap.
  EXPECT_NEAR(run.finish_us("second", Cause::kHostThread, 1), 200, kExact);
  EXPECT_NEAR(run.start_us("second", Cause::kGpuCompute), 1010, kExact);
  EXPECT_NEAR(run.end_us(), 2010, kExact);
}

TEST(Launch, CostsWhatItsPhaseSays) {
  Recorder gpu = recorder();
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kOptimizer}) {
    gpu.phase(phase);
    gpu.launch(kernels("layer", 10, 1));
  }
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.finish_us("layer", Cause::kHostThread, 1), 200, kExact);
  EXPECT_NEAR(run.finish_us("layer", Cause::kHostThread, 3), 200 + 300, kExact);
  EXPECT_NEAR(run.finish_us("layer", Cause::kHostThread, 5), 200 + 300 + 100, kExact);
}

// The queue holds 100 kernels: ten works of 10 do not wait, the eleventh waits for the first.
TEST(Launch, TheHostIsAtMostAQueueAhead) {
  Recorder gpu = recorder();
  for (int i = 0; i < 12; ++i) {
    gpu.launch(kernels("layer", 10, 10'000));
  }
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("layer", Cause::kHostThread, 18), 900, kExact);          // the tenth
  EXPECT_NEAR(run.start_us("layer", Cause::kHostThread, 20), 10 + 10'000, kExact);  // the eleventh
  EXPECT_NEAR(run.start_us("layer", Cause::kHostThread, 22), 10 + 20'000, kExact);
  EXPECT_NEAR(run.end_us(), 10 + 120'000, kExact);
}

TEST(Launch, AQueueOfOneMoreKernelDoesNotWait) {
  machine::Machine machine = synthetic_machine();
  machine.framework.launch_queue = 110;
  Recorder gpu = recorder();
  for (int i = 0; i < 11; ++i) {
    gpu.launch(kernels("layer", 10, 10'000));
  }
  const Simulated run(std::move(gpu), machine);
  EXPECT_NEAR(run.start_us("layer", Cause::kHostThread, 20), 1000, kExact);
}

TEST(Launch, KernelsOfTwoStreamsShareTheGpu) {
  Recorder gpu = recorder();
  const Lane side = gpu.stream("side");
  gpu.launch(kernels("main", 1, 1000));
  gpu.launch(kernels("aside", 1, 1000), side);
  const Simulated run(std::move(gpu));
  // Alone from 10 us to 20 us, then half each: main has 990 us left, aside 10 us more.
  EXPECT_NEAR(run.finish_us("main", Cause::kGpuCompute), 20 + 2 * 990, kExact);
  EXPECT_NEAR(run.finish_us("aside", Cause::kGpuCompute), 2010, kExact);
}

// --- waits

TEST(Wait, OfOneStreamForAnotherDoesNotBlockTheHost) {
  Recorder gpu = recorder();
  const Lane copies = gpu.stream("copies");
  gpu.copy_h2d(copies, Space::kPinned, Bytes(10'000'000), "weights");
  gpu.wait(kCompute, gpu.record(copies));
  gpu.launch(kernels("layer", 1, 100));
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  // Call 10 us, latency 5 us, 10 MB at 10 GB/s.
  EXPECT_NEAR(run.start_us("layer", Cause::kGpuCompute), 10 + 5 + 1000, kExact);
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 20, kExact);
}

TEST(Wait, IsForWhatTheLaneHadReachedWhenTheEventWasRecorded) {
  Recorder gpu = recorder();
  const Lane copies = gpu.stream("copies");
  gpu.launch(kernels("before", 1, 100));
  const Event event = gpu.record(kCompute);
  gpu.launch(kernels("after", 1, 1000));
  gpu.wait(copies, event);
  gpu.copy_d2h(copies, Space::kPinned, Bytes(10'000), "gradients");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("gradients", Cause::kD2h), 110, kExact);
}

TEST(Wait, OfTheHostBlocksIt) {
  Recorder gpu = recorder();
  gpu.launch(kernels("layer", 1, 1000));
  gpu.read_result();
  gpu.host_busy(HostTask::kOptimizerTensor, 3, "later");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 1010, kExact);
  EXPECT_NEAR(run.end_us(), 1013, kExact);
}

TEST(Wait, ForTheDeviceIsForEveryStreamAndNoWorker) {
  Recorder gpu = recorder();
  const Lane side = gpu.stream("side");
  const Lane worker = gpu.worker("worker");
  gpu.launch(kernels("short", 1, 10));
  gpu.launch(kernels("long", 1, 1000), side);
  gpu.cpu("copy_bf16", 1'000'000'000, "very long", {.thread = worker, .threads = 1});
  gpu.sync_device();
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 20 + 1000, kExact);
  EXPECT_NEAR(run.end_us(), 20 + 1e6, kExact);  // the step ends when everything has
}

// --- threads

TEST(Worker, RunsBesideTheHost) {
  Recorder gpu = recorder();
  const Lane worker = gpu.worker("worker");
  gpu.host_busy(HostTask::kOptimizerTensor, 100, "before");
  gpu.cpu("copy_bf16", 1'000'000, "beside", {.thread = worker, .threads = 1});
  gpu.cpu("add_bf16", 2'000'000, "own", {.threads = 1});
  gpu.wait(kHost, gpu.record(worker));
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "after");
  const Simulated run(std::move(gpu));
  // Handed over at 100 us; 1 M elements at 1 G a second are 1000 us, and the host's own work takes
  // 2000 us.
  EXPECT_NEAR(run.start_us("beside", Cause::kCpuCopy), 100, kExact);
  EXPECT_NEAR(run.finish_us("beside", Cause::kCpuCopy), 1100, kExact);
  EXPECT_NEAR(run.start_us("own", Cause::kCpuCopy), 100, kExact);
  EXPECT_NEAR(run.start_us("after", Cause::kHostThread), 2100, kExact);
}

TEST(Worker, DoesOneThingAfterTheOther) {
  Recorder gpu = recorder();
  const Lane worker = gpu.worker("worker");
  gpu.cpu("copy_bf16", 1'000'000, "first", {.thread = worker, .threads = 1});
  gpu.cpu("copy_bf16", 1'000'000, "second", {.thread = worker, .threads = 1});
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("second", Cause::kCpuCopy), 1000, kExact);
}

// Two kernels of 3 threads each on 4 cores: 4 G elements a second between them.
TEST(Worker, SharesCoresWithTheHost) {
  Recorder gpu = recorder();
  const Lane worker = gpu.worker("worker");
  gpu.cpu("copy_bf16", 2'000'000, "beside", {.thread = worker, .threads = 3});
  gpu.cpu("copy_bf16", 2'000'000, "own", {.threads = 3});
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.end_us(), 1000, kExact);
}

struct CpuCase {
  const char* kernel;
  std::int32_t threads;
  double us;  // of 4 M elements
  Cause cause;
};
class CpuKernels : public testing::TestWithParam<CpuCase> {};

TEST_P(CpuKernels, TakeTheCoresTheyMayAndCan) {
  const CpuCase& c = GetParam();
  Recorder gpu = recorder();
  gpu.cpu(c.kernel, 4'000'000, "work", {.threads = c.threads});
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.finish_us("work", c.cause), c.us, kExact);
  EXPECT_NEAR(run.lowered().totals.front().dram_bytes, 40e6, 1e-6);
}
INSTANTIATE_TEST_SUITE_P(
    Rates, CpuKernels,
    testing::Values(CpuCase{"adam_deepspeed_f32", 0, 1000, Cause::kCpuOptimizer},  // 0: all cores
                    CpuCase{"adam_deepspeed_f32", 2, 2000, Cause::kCpuOptimizer},
                    CpuCase{"adam_deepspeed_f32", 9, 1000, Cause::kCpuOptimizer},  // no more than 4
                    CpuCase{"norm_bf16", 0, 4000, Cause::kCpuClip},                // one core
                    CpuCase{"mul_f32", 1, 4000, Cause::kCpuClip},
                    CpuCase{"cast_f32_bf16", 4, 1000, Cause::kCpuCopy}));

TEST(HostBusy, CostsWhatItsTaskSays) {
  Recorder gpu = recorder();
  gpu.host_busy(HostTask::kOptimizerTensor, 7, "tensors");
  gpu.host_busy(HostTask::kCheckpoint, 2, "checkpoints");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.finish_us("tensors", Cause::kHostThread), 7, kExact);
  EXPECT_NEAR(run.finish_us("checkpoints", Cause::kHostThread), 2007, kExact);
}

// --- prices

// Products of 16 bits run at the rate of their type, fp32 ones at theirs. 1e9 operations and a
// start of 2 us.
TEST(Price, OfAProductIsOfItsType) {
  machine::Machine m = synthetic_machine();
  m.accelerator.bf16 = known<FlopsPerSecond>(1e15);
  m.accelerator.fp16 = known<FlopsPerSecond>(1e14);
  m.accelerator.fp32 = known<FlopsPerSecond>(1e13);
  m.accelerator.memory_bandwidth = known<BytesPerSecond>(1e30);
  model::Kernel product{.kind = model::Kernel::Kind::kGemm, .m = 1000, .n = 1000, .k = 500};
  const auto us = [&](Half half) {
    return price_work(m, {"product", {product}}, half).seconds.value / kMicro;
  };
  EXPECT_NEAR(us(Half::kBf16), 2 + 1, kExact);
  EXPECT_NEAR(us(Half::kFp16), 2 + 10, kExact);
  product.wide = true;
  EXPECT_NEAR(us(Half::kBf16), 2 + 100, kExact);
  EXPECT_NEAR(us(Half::kFp16), 2 + 100, kExact);
}

// Fused attention with a v narrower than q: as of one width with as many operations. Forward a
// product over each, backward three over q's and two over v's: (3 x 200 + 2 x 100) / 5 = 160.
TEST(Price, OfAttentionOfTwoWidthsIsOfItsOperations) {
  const auto seconds = [](std::int64_t q, std::int64_t v, bool backward) {
    const model::Kernel kernel{.kind = model::Kernel::Kind::kAttention,
                               .batch = 1,
                               .heads = 8,
                               .kv_heads = 8,
                               .sequence = 4096,
                               .head_dim = q,
                               .value_dim = v,
                               .backward = backward};
    return price_work(synthetic_machine(), {"attention", {kernel}}).seconds.value;
  };
  EXPECT_DOUBLE_EQ(seconds(200, 100, false), seconds(150, 150, false));
  EXPECT_DOUBLE_EQ(seconds(200, 100, true), seconds(160, 160, true));
  EXPECT_LT(seconds(128, 128, false), seconds(192, 128, false));
}

TEST(Price, NamesTheFiguresItRestsOnWithTheirShares) {
  machine::Machine m = synthetic_machine();
  m.accelerator.elementwise.figure = machine::FigureId(3);
  m.accelerator.gemm.figure = machine::FigureId(7);
  m.accelerator.memory_bandwidth = known<BytesPerSecond>(1e30);
  // 3 us of a product, 1 us of 1 MB.
  const WorkPrice price =
      price_work(m, {"layer",
                     {{.kind = model::Kernel::Kind::kGemm, .m = 1000, .n = 1000, .k = 500},
                      {.bytes = 1'000'000}}});
  ASSERT_EQ(price.shares.size(), 2U);
  EXPECT_EQ(price.launches, 2);
  EXPECT_EQ(price.shares[0].first, machine::FigureId(3));
  EXPECT_NEAR(price.shares[0].second, 0.25, 1e-9);
  EXPECT_EQ(price.shares[1].first, machine::FigureId(7));
  EXPECT_NEAR(price.shares[1].second, 0.75, 1e-9);
}

// --- steps

TEST(Steps, CountTheirOwnBytesAndOperations) {
  const model::Work product{
      "product", {{.kind = model::Kernel::Kind::kGemm, .m = 2, .n = 3, .k = 5, .count = 7}}};
  Recorder gpu = recorder();
  gpu.copy_h2d(kCompute, Space::kPinned, Bytes(100), "weights");
  gpu.end_step();
  gpu.launch(product);
  gpu.copy_h2d(kCompute, Space::kPinned, Bytes(30), "weights");
  gpu.copy_d2h(kCompute, Space::kPageable, Bytes(20), "gradients");
  const Simulated run(std::move(gpu));
  ASSERT_EQ(run.lowered().totals.size(), 2U);
  EXPECT_EQ(run.lowered().totals[0].h2d_bytes, 100);
  EXPECT_EQ(run.lowered().totals[0].d2h_bytes, 0);
  EXPECT_EQ(run.lowered().totals[1].h2d_bytes, 30);
  EXPECT_EQ(run.lowered().totals[1].d2h_bytes, 20);
  // A pageable byte is moved to or from the driver's staging buffer as well.
  EXPECT_EQ(run.lowered().totals[1].dram_bytes, 30 + 3 * 20);
  EXPECT_EQ(run.lowered().totals[1].executed.value, 7 * 2 * 2 * 3 * 5);
}

TEST(Steps, DoNotWaitForEachOther) {
  Recorder gpu = recorder();
  gpu.launch(kernels("first", 1, 1000));
  gpu.end_step();
  gpu.launch(kernels("second", 1, 1000));
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.finish_us("second", Cause::kHostThread), 20, kExact);  // launched ahead
  EXPECT_NEAR(run.end_us(), 2010, kExact);
}

}  // namespace
}  // namespace offsim::runtime::launch_test
