// What a kernel or a page fault moves: is it no call of the host, and does a fault a page count?
// Microseconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/simulated.h"

namespace offsim::runtime::mover_test {
namespace {

constexpr double kExact = 1e-4;
constexpr Bytes kTenMegabytes{10'000'000};  // 1000 us at 10 GB/s

machine::Machine coherent_machine() {
  machine::Machine m = synthetic_machine();
  m.link->page_fault = known<Seconds>(20 * kMicro);
  return m;
}

TEST(Mover, OfAKernelIsNoCallOfTheHost) {
  Recorder gpu = recorder();
  gpu.copy_h2d(kCompute, Space::kPinned, kTenMegabytes, "states",
               {.pieces = 4, .mover = Mover::kKernel});
  const Simulated run(std::move(gpu), coherent_machine());
  EXPECT_NEAR(run.finish_us("states", Cause::kH2d), 4 * 5 + 1000, kExact);
  EXPECT_EQ(run.count(Cause::kHostThread), 0);
}

TEST(Mover, OfFaultsPaysOneAPieceInPlaceOfTheLatency) {
  Recorder gpu = recorder();
  gpu.copy_h2d(kCompute, Space::kPinned, kTenMegabytes, "states",
               {.pieces = 4, .mover = Mover::kFault});
  const Simulated run(std::move(gpu), coherent_machine());
  EXPECT_NEAR(run.finish_us("states", Cause::kH2d), 4 * 20 + 1000, kExact);
  EXPECT_EQ(run.count(Cause::kHostThread), 0);
}

// It is issued where the host stands all the same.
TEST(Mover, ComesAfterWhatTheHostHasDone) {
  Recorder gpu = recorder();
  gpu.host_busy(HostTask::kCheckpoint, 1, "before");
  gpu.copy_d2h(kCompute, Space::kPinned, kTenMegabytes, "states", {.mover = Mover::kKernel});
  const Simulated run(std::move(gpu), coherent_machine());
  EXPECT_NEAR(run.start_us("states", Cause::kD2h), 1000, kExact);
}

}  // namespace
}  // namespace offsim::runtime::mover_test
