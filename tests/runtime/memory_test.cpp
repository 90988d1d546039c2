// When is memory taken and given back, and who pays for new pages? Times in microseconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/simulated.h"

namespace offsim::runtime::memory_test {
namespace {

constexpr double kExact = 1e-4;         // us: what rounding to picoseconds may add up to
constexpr std::int64_t kMapped = kMiB;  // the synthetic framework's threshold

std::int64_t held_at_the_end(const Simulated& run, engine::PoolId pool) {
  return run.series(pool).empty() ? 0 : run.series(pool).back().bytes;
}

// A stream-ordered allocator gives memory back in the host's order: the kernel that uses it may
// still run.
TEST(Free, TakesEffectWhereTheHostStands) {
  Recorder gpu = recorder();
  const Buffer buffer = gpu.allocate(Space::kGpu, Bytes(512), "activations");
  gpu.launch(kernels("layer", 1, 1000));
  gpu.free(buffer);
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.last_change_us(run.lowered().gpu), 10, kExact);
  EXPECT_EQ(held_at_the_end(run, run.lowered().gpu), 0);
}

TEST(FreeAfterUse, WaitsForTheUsingWork) {
  Recorder gpu = recorder();
  const Lane side = gpu.stream("side");
  const Buffer buffer = gpu.allocate(Space::kGpu, Bytes(512), "gradients");
  gpu.launch(kernels("send", 1, 1000), side);
  gpu.free_after(buffer, side);
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.last_change_us(run.lowered().gpu), 1010, kExact);
}

TEST(FreeAfterUse, WaitsForTheHostWhenThatIsLater) {
  Recorder gpu = recorder();
  const Lane side = gpu.stream("side");
  const Buffer buffer = gpu.allocate(Space::kGpu, Bytes(512), "gradients");
  gpu.launch(kernels("send", 1, 1000), side);
  gpu.host_busy(HostTask::kOptimizerTensor, 2000, "host");
  gpu.free_after(buffer, side);
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.last_change_us(run.lowered().gpu), 2010, kExact);
}

TEST(FreeAfterUse, DoesNotWaitForWorkIssuedLater) {
  Recorder gpu = recorder();
  const Lane side = gpu.stream("side");
  const Buffer buffer = gpu.allocate(Space::kGpu, Bytes(512), "gradients");
  gpu.launch(kernels("send", 1, 1000), side);
  gpu.free_after(buffer, side);
  gpu.launch(kernels("another", 1, 1000), side);
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.last_change_us(run.lowered().gpu), 1010, kExact);
}

TEST(FreeAfterUse, DoesNotHoldTheHost) {
  Recorder gpu = recorder();
  const Lane side = gpu.stream("side");
  const Buffer buffer = gpu.allocate(Space::kGpu, Bytes(512), "gradients");
  gpu.launch(kernels("send", 1, 1000), side);
  gpu.free_after(buffer, side);
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 10, kExact);
}

// The peak is in issue order: what is freed before the next allocation does not add to it.
TEST(Peak, IsInIssueOrder) {
  Recorder gpu = recorder();
  gpu.free(gpu.allocate(Space::kGpu, Bytes(1024), "a"));
  gpu.allocate(Space::kGpu, Bytes(2048), "b");
  const Simulated run(std::move(gpu));
  EXPECT_EQ(run.peak(run.lowered().gpu), 2048);
}

TEST(Pools, PinnedMemoryIsHostMemoryToo) {
  Recorder gpu = recorder();
  gpu.allocate(Space::kPinned, Bytes(1000), "slab");
  gpu.allocate(Space::kPageable, Bytes(1000), "states");
  gpu.allocate(Space::kGpu, Bytes(1000), "parameters");
  gpu.allocate(Space::kNvme, Bytes(1000), "swapped");
  const Simulated run(std::move(gpu));
  EXPECT_EQ(run.peak(run.lowered().host_pinned), 1024);
  EXPECT_EQ(run.peak(run.lowered().host), 1024 + 1000);
  EXPECT_EQ(run.peak(run.lowered().gpu), 1024);
  EXPECT_EQ(run.peak(run.lowered().nvme), 1000);
}

// --- pages

// Writes `bytes` of a pageable block, twice over, and frees it; `times` times.
Recorder write_blocks(std::int64_t bytes, int times, std::int32_t threads = 1) {
  Recorder gpu = recorder();
  for (int i = 0; i < times; ++i) {
    const Buffer block = gpu.allocate(Space::kPageable, Bytes(bytes), "temporary");
    for (int touch = 0; touch < 2; ++touch) {
      gpu.cpu("copy_bf16", 1000, "write", {.threads = threads, .into = block});
    }
    gpu.free(block);
  }
  return gpu;
}

TEST(FreshPages, OfAMappedBlockAreFaultedByItsFirstWriterEachTime) {
  const Simulated run(write_blocks(kMapped, 2));
  // 1 MiB at 1 GB/s are 1048.576 us, the kernel 1 us, once more without faults; given back at 10
  // GB/s.
  const double fault = 1048.576, write = 1, release = 104.8576;
  EXPECT_EQ(run.count(Cause::kPageFaults), 4);  // two faults, two releases
  EXPECT_NEAR(run.finish_us("write", Cause::kPageFaults, 0), fault, kExact);
  EXPECT_NEAR(run.finish_us("write", Cause::kCpuCopy, 1), fault + 2 * write, kExact);
  EXPECT_NEAR(run.finish_us("give pages back", Cause::kPageFaults), fault + 2 * write + release,
              kExact);
  EXPECT_NEAR(run.end_us(), 2 * (fault + 2 * write + release), kExact);
  EXPECT_EQ(held_at_the_end(run, run.lowered().host), 0);
}

TEST(FreshPages, AreFaultedByAllThreadsOfTheirWriter) {
  const Simulated run(write_blocks(kMapped, 1, 4));
  EXPECT_NEAR(run.finish_us("write", Cause::kPageFaults), 1048.576 / 4, kExact);
}

// One byte below the threshold the block is of the heap: its pages are faulted once, and stay.
TEST(Heap, GrowsOnceAndStaysResident) {
  const Simulated run(write_blocks(kMapped - 1, 3));
  EXPECT_EQ(run.count(Cause::kPageFaults), 1);
  EXPECT_NEAR(run.end_us(), 1048.575 + 3 * 2 * 1, kExact);
  EXPECT_EQ(run.peak(run.lowered().host), kMapped - 1);
  EXPECT_EQ(held_at_the_end(run, run.lowered().host), kMapped - 1);
}

TEST(Heap, FaultsOnlyWhatIsNew) {
  Recorder gpu = recorder();
  gpu.free(gpu.allocate(Space::kPageable, Bytes(400'000), "small"));
  const Buffer larger = gpu.allocate(Space::kPageable, Bytes(1'000'000), "larger");
  gpu.cpu("copy_bf16", 1000, "write", {.threads = 1, .into = larger});
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.finish_us("write", Cause::kPageFaults), 600, kExact);
  EXPECT_EQ(run.peak(run.lowered().host), 1'000'000);
}

TEST(Heap, BlocksThatLiveTogetherAddUp) {
  Recorder gpu = recorder();
  const Buffer a = gpu.allocate(Space::kPageable, Bytes(300'000), "a");
  const Buffer b = gpu.allocate(Space::kPageable, Bytes(500'000), "b");
  gpu.free(a);
  gpu.free(b);
  gpu.allocate(Space::kPageable, Bytes(800'000), "both");
  const Simulated run(std::move(gpu));
  EXPECT_EQ(run.peak(run.lowered().host), 800'000);
}

TEST(Heap, PinnedMemoryHasItsPagesFromTheStart) {
  Recorder gpu = recorder();
  const Buffer slab = gpu.allocate(Space::kPinned, Bytes(2 * kMapped), "slab");
  gpu.cpu("copy_bf16", 1000, "write", {.threads = 1, .into = slab});
  gpu.free(slab);
  const Simulated run(std::move(gpu));
  EXPECT_EQ(run.count(Cause::kPageFaults), 0);
}

// A worker that frees or touches does it in its own time, not in the host's.
TEST(FreshPages, OfAWorkerDoNotHoldTheHost) {
  Recorder gpu = recorder();
  const Lane worker = gpu.worker("worker");
  const Buffer block = gpu.allocate(Space::kPageable, Bytes(kMapped), "gradients", worker);
  gpu.cpu("copy_bf16", 1000, "write", {.thread = worker, .threads = 1, .into = block});
  gpu.free(block, worker);
  gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
  const Simulated run(std::move(gpu));
  EXPECT_NEAR(run.start_us("later", Cause::kHostThread), 0, kExact);
  EXPECT_NEAR(run.end_us(), 1048.576 + 1 + 104.8576, kExact);
}

}  // namespace
}  // namespace offsim::runtime::memory_test
