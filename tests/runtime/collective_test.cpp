// How long does a collective take, and who waits? Microseconds; NCCL reaches 10 GB/s there.
#include <gtest/gtest.h>

#include "tests/runtime/simulated.h"

namespace offsim::runtime::collective_test {
namespace {

constexpr double kExact = 1e-4;
constexpr Bytes kWhole{400'000};

Simulated run(Recorder gpu, int gpus = 2) {
  return Simulated(std::move(gpu), joined_machine(gpus));
}

// Each of two ranks lacks half: 200,000 bytes. The host goes on after its call.
TEST(Collective, MovesWhatARankLacks) {
  for (const bool gather : {true, false}) {
    Recorder gpu = recorder();
    if (gather) {
      gpu.all_gather(kCompute, kWhole, 2, "weights");
    } else {
      gpu.reduce_scatter(kCompute, kWhole, 2, "weights");
    }
    gpu.host_busy(HostTask::kOptimizerTensor, 1, "later");
    const Simulated of = run(std::move(gpu));
    EXPECT_NEAR(of.start_us("later", Cause::kHostThread), 10, kExact);
    EXPECT_NEAR(of.finish_us("weights", Cause::kCollective), 10 + 5 + 20, kExact);
    EXPECT_EQ(of.lowered().totals.back().peer_bytes, 200'000);
  }
}

TEST(Collective, OfFourRanksMovesThreeQuarters) {
  Recorder gpu = recorder();
  gpu.all_gather(kCompute, kWhole, 4, "weights");
  const Simulated of = run(std::move(gpu), 4);
  EXPECT_NEAR(of.finish_us("weights", Cause::kCollective), 10 + 5 + 30, kExact);
}

// Two at once share the way between the GPUs: the second has half of it from its start (20 + 5) to
// the end of the first. Alone the first would end at 35; by 25 it has moved half.
TEST(Collective, SharesTheWayToTheOthers) {
  Recorder gpu = recorder();
  const Lane other = gpu.stream("other");
  gpu.all_gather(kCompute, kWhole, 2, "weights");
  gpu.reduce_scatter(other, kWhole, 2, "gradients");
  const Simulated of = run(std::move(gpu));
  EXPECT_NEAR(of.finish_us("weights", Cause::kCollective), 25 + 20, kExact);
  EXPECT_NEAR(of.finish_us("gradients", Cause::kCollective), 55, kExact);
}

// The links to the host are others.
TEST(Collective, LeavesTheLinkAlone) {
  Recorder gpu = recorder();
  const Lane copies = gpu.stream("copies");
  gpu.copy_h2d(copies, Space::kPinned, Bytes(1'000'000), "batch");
  gpu.all_gather(kCompute, Bytes(100'000'000), 2, "weights");
  const Simulated of = run(std::move(gpu));
  EXPECT_NEAR(of.finish_us("batch", Cause::kH2d), 10 + 5 + 100, kExact);
}

}  // namespace
}  // namespace offsim::runtime::collective_test
