// Is each rule of copies tight? Blocking, pageable memory, both directions, DRAM; microseconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/runtime/simulated.h"

namespace offsim::runtime::copy_test {
namespace {

constexpr double kExact = 1e-4;             // us: what rounding to picoseconds may add up to
constexpr Bytes kTenMegabytes{10'000'000};  // 1000 us at 10 GB/s

TEST(PinnedCopy, KeepsTheHostForItsCallOnly) {
  Recorder gpu = recorder();
  gpu.copy_h2d(kCompute, Space::kPinned, kTenMegabytes, "weights");
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 10, kExact);
  EXPECT_NEAR(run.finish_us("weights", Cause::kH2d), 10 + 5 + 1000, kExact);
}

TEST(PinnedCopy, PaysCallAndLatencyForEveryPiece) {
  Recorder gpu = recorder();
  gpu.copy_d2h(kCompute, Space::kPinned, kTenMegabytes, "gradients", {.pieces = 4});
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.finish_us("gradients", Cause::kHostThread), 40, kExact);
  EXPECT_NEAR(run.end_us(), 40 + 4 * 5 + 1000, kExact);
}

// A blocking copy keeps the host until its whole stream is drained, not only until it is done
// itself.
TEST(BlockingCopy, WaitsForTheWholeStream) {
  Recorder gpu = recorder();
  const Lane other = gpu.stream("other");
  gpu.launch(kernels("layer", 1, 3000));
  gpu.launch(kernels("aside", 1, 100), other);
  gpu.copy_d2h(kCompute, Space::kPinned, kTenMegabytes, "gradients", {.blocking = true});
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  // Launch 10 us; 3000 us and what the other stream takes from it (100 us); then latency and bytes.
  EXPECT_NEAR(run.start_us("gradients", Cause::kD2h), 10 + 3100, kExact);
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 10 + 3100 + 5 + 1000, kExact);
}

TEST(BlockingCopy, DoesNotWaitForOtherStreams) {
  Recorder gpu = recorder();
  const Lane copies = gpu.stream("copies");
  gpu.launch(kernels("layer", 1, 30'000));
  gpu.copy_d2h(copies, Space::kPinned, kTenMegabytes, "gradients", {.blocking = true});
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 20 + 5 + 1000, kExact);
}

TEST(PageableCopy, BlocksTheHostAtItsOwnRate) {
  Recorder gpu = recorder();
  gpu.launch(kernels("layer", 1, 3000));
  gpu.copy_h2d(kCompute, Space::kPageable, kTenMegabytes, "weights");  // not asked to block
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 3010 + 5 + 2000, kExact);
}

// --- sharing. Calls cost nothing here, so that copies begin together.

machine::Machine without_calls() {
  machine::Machine machine = synthetic_machine();
  machine.framework.copy_call = known<Seconds>(0);
  machine.link->latency = known<Seconds>(0);
  return machine;
}

TEST(Duplex, BothDirectionsTogetherMoveExactlyTheTotal) {
  Recorder gpu = recorder();
  const Lane up = gpu.stream("up");
  gpu.copy_h2d(kCompute, Space::kPinned, Bytes(5'000'000), "weights");
  gpu.copy_d2h(up, Space::kPinned, kTenMegabytes, "gradients");
  const Simulated run(std::move(gpu), without_calls());
  // 7.5 GB/s each while both run; the rest of the gradients, 5 MB, alone at 10 GB/s.
  EXPECT_NEAR(run.finish_us("weights", Cause::kH2d), 5000 / 7.5, kExact);
  EXPECT_NEAR(run.finish_us("gradients", Cause::kD2h), 5000 / 7.5 + 500, kExact);
}

TEST(Duplex, OfATotalOfBothSidesCostsNothing) {
  machine::Machine machine = without_calls();
  machine.link->total = known<BytesPerSecond>(20 * kGiga);
  connect(machine);
  Recorder gpu = recorder();
  const Lane up = gpu.stream("up");
  gpu.copy_h2d(kCompute, Space::kPinned, kTenMegabytes, "weights");
  gpu.copy_d2h(up, Space::kPinned, kTenMegabytes, "gradients");
  const Simulated run(std::move(gpu), machine);
  EXPECT_NEAR(run.end_us(), 1000, kExact);
}

TEST(OneDirection, IsSharedByStreams) {
  Recorder gpu = recorder();
  const Lane other = gpu.stream("other");
  gpu.copy_h2d(kCompute, Space::kPinned, kTenMegabytes, "weights");
  gpu.copy_h2d(other, Space::kPinned, kTenMegabytes, "more weights");
  const Simulated run(std::move(gpu), without_calls());
  EXPECT_NEAR(run.finish_us("weights", Cause::kH2d), 2000, kExact);
  EXPECT_NEAR(run.end_us(), 2000, kExact);
}

// DRAM of 12 GB/s between a copy that could move 10 and a kernel that could move 40: in proportion
// to the weight of a byte.
struct Weighted {
  double dma_weight, copy_gb_s, kernel_gb_s;
};
class Dram : public testing::TestWithParam<Weighted> {};

TEST_P(Dram, IsSharedByCopiesAndKernelsByWeight) {
  machine::Machine machine = without_calls();
  machine.host.dram = known<BytesPerSecond>(12 * kGiga);
  machine.host.dma_weight = known<double>(GetParam().dma_weight);
  connect(machine);
  Recorder gpu = recorder();
  const Lane worker = gpu.worker("worker");
  // Each has as many bytes as it moves in 1000 us, so both end together.
  gpu.copy_h2d(kCompute, Space::kPinned,
               Bytes(static_cast<std::int64_t>(GetParam().copy_gb_s * 1e6)), "weights");
  gpu.cpu("adam_deepspeed_f32", static_cast<std::int64_t>(GetParam().kernel_gb_s * 1e5), "Adam",
          {.thread = worker});
  const Simulated run(std::move(gpu), machine);
  EXPECT_NEAR(run.finish_us("weights", Cause::kH2d), 1000, 1e-3);
  EXPECT_NEAR(run.finish_us("Adam", Cause::kCpuOptimizer), 1000, 1e-3);
}
INSTANTIATE_TEST_SUITE_P(Weights, Dram,
                         testing::Values(Weighted{1, 6, 6}, Weighted{0.5, 4, 8}, Weighted{2, 8, 4},
                                         Weighted{9, 10, 2}));  // the link holds it back

// A pageable byte passes DRAM three times, so at 15 GB/s of DRAM it is no faster than pinned at 5.
TEST(Dram, IsPassedThreeTimesByAPageableByte) {
  machine::Machine machine = without_calls();
  machine.host.dram = known<BytesPerSecond>(6 * kGiga);
  connect(machine);
  Recorder gpu = recorder();
  gpu.copy_h2d(kCompute, Space::kPageable, kTenMegabytes, "weights");
  const Simulated run(std::move(gpu), machine);
  EXPECT_NEAR(run.finish_us("weights", Cause::kH2d), 5000, kExact);  // 2 GB/s
}

// --- copies that change the type: 268 M elements to 16 bits cross as 4 bytes into new pages

TEST(ConvertingCopy, ToTheHostFaultsATemporaryInAndCastsThere) {
  Recorder gpu = recorder();
  gpu.launch(kernels("layer", 1, 100));
  gpu.convert_d2h(kCompute, {.elements = 2'500'000, .from_bytes = 4, .to_bytes = 2}, "gradients");
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  // The kernel to 110 us; 10 MB of new pages at 1 GB/s by the driver's one thread; 5 us and 2 ms of
  // pageable copy; the cast at 4 x 1 G elements a second; the pages back at 10 GB/s.
  EXPECT_NEAR(run.start_us("gradients", Cause::kD2h), 110 + 10'000, kExact);
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 110 + 10'000 + 2005 + 625 + 1000, kExact);
}

TEST(ConvertingCopy, ToTheGpuCastsFirst) {
  Recorder gpu = recorder();
  gpu.convert_h2d(kCompute, {.elements = 2'500'000, .from_bytes = 4, .to_bytes = 2}, "parameters");
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  // 5 MB of new pages by four threads at 4 GB/s, the cast, a call, 5 us and 1 ms of pageable copy.
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 1250 + 625 + 10 + 1005 + 500, kExact);
}

TEST(ConvertingCopy, OfASmallTensorIsWarm) {
  Recorder gpu = recorder();
  for (int i = 0; i < 2; ++i) {  // the second finds the C library's heap grown
    gpu.convert_d2h(kCompute, {.elements = 100'000, .from_bytes = 2, .to_bytes = 4}, "gradients");
  }
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  const double copy = 10 + 5 + 40, cast = 25;
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 200 + 2 * (copy + cast), kExact);
}

// --- the drive: 2 GB/s read, 1 GB/s written

TEST(Drive, DoesRequestsOfAQueueOneAfterTheOtherBesideTheHost) {
  Recorder gpu = recorder();
  const Lane queue = gpu.io_queue("aio");
  gpu.read(queue, kTenMegabytes, Bytes(kMiB), "states");
  gpu.write(queue, kTenMegabytes, Bytes(kMiB), "states");
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "meanwhile");
  gpu.sync(queue);
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("meanwhile", Cause::kHostThread), 20, kExact);
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 10 + 5000 + 10'000, kExact);
}

TEST(Drive, NeedsBytesInFlight) {  // 100 kB in 100 us: 1 GB/s
  Recorder gpu = recorder();
  const Lane queue = gpu.io_queue("aio");
  gpu.read(queue, kTenMegabytes, Bytes(100'000), "states");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.end_us(), 10 + 10'000, kExact);
}

// Two queues share the drive's time byte by byte, and a mixture loses half of it here: 1/3 GB/s
// each until the write is done; then the rest of the read is alone, at 2 GB/s.
TEST(Drive, LosesAShareWhileItReadsAndWrites) {
  Recorder gpu = recorder();
  const Lane reads = gpu.io_queue("reads"), writes = gpu.io_queue("writes");
  gpu.read(reads, kTenMegabytes, Bytes(kMiB), "states");
  gpu.write(writes, Bytes(5'000'000), Bytes(kMiB), "states");
  const Simulated run(std::move(gpu), without_calls());
  EXPECT_NEAR(run.end_us(), 15'000 + 2500, kExact);
}

TEST(Drive, LosesNothingToTwoReads) {
  Recorder gpu = recorder();
  const Lane one = gpu.io_queue("one"), other = gpu.io_queue("other");
  gpu.read(one, kTenMegabytes, Bytes(kMiB), "states");
  gpu.read(other, kTenMegabytes, Bytes(kMiB), "states");
  const Simulated run(std::move(gpu), without_calls());
  EXPECT_NEAR(run.end_us(), 10'000, kExact);
}

// A queue that reads and then writes beside one that reads: first two reads, 10 MB in 10 ms; then
// a read and a write, 5 MB each at 1/3 GB/s; then a write, 5 MB at 1 GB/s.
TEST(Drive, LosesItOnAnyTwoQueues) {
  Recorder gpu = recorder();
  const Lane one = gpu.io_queue("one"), other = gpu.io_queue("other");
  gpu.read(one, kTenMegabytes, Bytes(kMiB), "states");
  gpu.write(one, kTenMegabytes, Bytes(kMiB), "states");
  gpu.read(other, Bytes(15'000'000), Bytes(kMiB), "weights");
  const Simulated run(std::move(gpu), without_calls());
  EXPECT_NEAR(run.end_us(), 10'000 + 15'000 + 5000, kExact);
}

// --- unified memory

// A copy reads and writes the one DRAM of 100 GB/s, and holds the host as it does elsewhere.
TEST(UnifiedMemory, CopiesWithinTheOneMemory) {
  Recorder gpu = recorder();
  gpu.copy_h2d(kCompute, Space::kPageable, kTenMegabytes, "weights", {.pieces = 9});
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu), unified_machine());
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 9 * 10 + 200, kExact);
  EXPECT_EQ(run.lowered().totals.front().dram_bytes, 2.0 * 10'000'000);
}

TEST(UnifiedMemory, IsOnePool) {
  Recorder gpu = recorder();
  gpu.allocate_exact(Space::kGpu, Bytes(1000), "parameters");
  gpu.allocate_exact(Space::kPinned, Bytes(100), "slab");
  gpu.allocate_exact(Space::kPageable, Bytes(10), "gradients");
  const Simulated run(std::move(gpu), unified_machine());
  EXPECT_TRUE(run.lowered().unified);
  EXPECT_EQ(run.lowered().gpu, run.lowered().host);
  EXPECT_EQ(run.peak(run.lowered().gpu), 1110);
}

// Whatever is copied when: no resource does more than its capacity, and the copies of one direction
// take no less than alone.
RC_GTEST_PROP(CopyProperty, NothingIsFasterThanTheLink, ()) {
  Recorder gpu = recorder();
  const Lane up = gpu.stream("up");
  const auto sizes = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 10'000'000));
  double down_bytes = 0, up_bytes = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i % 2 == 0) {
      gpu.copy_h2d(kCompute, Space::kPinned, Bytes(sizes[i]), "down");
      down_bytes += sizes[i];
    } else {
      gpu.copy_d2h(up, Space::kPinned, Bytes(sizes[i]), "up");
      up_bytes += sizes[i];
    }
  }
  const Simulated run(std::move(gpu));
  const double least_us =
      std::max({down_bytes / 10e9, up_bytes / 10e9, (down_bytes + up_bytes) / 15e9}) / kMicro;
  RC_ASSERT(run.end_us() >= least_us - kExact);
  const auto used = engine::resource_use(run.lowered().graph, run.timeline());
  for (std::size_t i = 0; i < used.size(); ++i) {
    RC_ASSERT(used[i] <=
              run.lowered().graph.resources()[i].capacity * run.end_us() * kMicro * (1 + 1e-9) +
                  1e-3);
  }
}

}  // namespace
}  // namespace offsim::runtime::copy_test
