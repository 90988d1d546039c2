// Is it said when memory is nearly full or a drive too small, and where that begins? Each limit is
// tight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plans/jobs.h"

namespace offsim::study::swap_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A job whose host memory holds `share` of what it needs.
Prediction with_host(std::int64_t need, double factor) {
  plans::Job job = plans::job("zero2-offload");
  job.machine.host.memory =
      runtime::known_bytes(static_cast<std::int64_t>(static_cast<double>(need) * factor));
  return predict(job);
}

TEST(Swap, MayHappenInTheLastTwentiethOfHostMemory) {
  const std::int64_t need = predict(plans::job("zero2-offload")).pool("host")->needed().value;
  const Prediction roomy = with_host(need, 1.0001 / kSwapsFrom);
  EXPECT_FALSE(roomy.may_swap());
  EXPECT_THAT(roomy.warnings, IsEmpty());
  const Prediction tight = with_host(need, 0.9999 / kSwapsFrom);
  EXPECT_TRUE(tight.may_swap() && tight.feasible());
  EXPECT_THAT(tight.warnings,
              ElementsAre(HasSubstr(
                  "zero2-offload: host memory is within 5 % of its capacity: the machine may")));
}

// What does not fit is an answer of its own.
TEST(Swap, IsNotSaidOfWhatDoesNotFit) {
  const std::int64_t need = predict(plans::job("zero2-offload")).pool("host")->needed().value;
  const Prediction p = with_host(need, 0.9999);
  EXPECT_FALSE(p.feasible());
  EXPECT_FALSE(p.may_swap());
  EXPECT_THAT(p.warnings, IsEmpty());
}

TEST(Drive, HoldsItsCapacityAndNotAByteMore) {
  plans::Job job = plans::job("zero-infinity", {}, {}, plans::shape_of_large_matrices());
  const Bytes need = predict(job).pool("nvme")->needed();
  job.machine.drives.front().capacity.value = need;
  EXPECT_TRUE(predict(job).feasible());
  EXPECT_EQ(predict(job).pool("nvme")->capacity, need);
  job.machine.drives.front().capacity.value = need - Bytes(1);
  EXPECT_FALSE(predict(job).feasible());
  EXPECT_FALSE(predict(job).pool("nvme")->fits());
}

TEST(Swap, IsNoMatterOfGpuMemory) {
  plans::Job job = plans::job("native");
  const std::int64_t need = predict(job).pool("gpu")->needed().value;
  job.machine.accelerator.memory = runtime::known_bytes(need);
  EXPECT_TRUE(predict(job).feasible());
  EXPECT_FALSE(predict(job).may_swap());
}

// One memory: the GPU's recommended working set first, then all of it.
TEST(Swap, OfUnifiedMemoryBeginsAtTheRecommendedWorkingSet) {
  plans::Job job = plans::job("native", {}, {}, plans::tiny_shape(), runtime::unified_machine());
  const std::int64_t need = predict(job).pool("unified")->needed().value;
  job.machine.host.memory = runtime::known_bytes(2 * need);
  job.machine.accelerator.memory = runtime::known_bytes(need);
  EXPECT_FALSE(predict(job).may_swap());
  job.machine.accelerator.memory = runtime::known_bytes(need - 1);
  EXPECT_TRUE(predict(job).may_swap() && predict(job).feasible());
  EXPECT_THAT(predict(job).warnings, ElementsAre(HasSubstr("beyond the working set")));
  job.machine.host.memory = runtime::known_bytes(need - 1);
  EXPECT_FALSE(predict(job).feasible());
}

TEST(Swap, IsAvoidedByTheLargestMicroBatch) {
  plans::Job job = plans::job("native", {}, {}, plans::tiny_shape(), runtime::unified_machine());
  job.workload.micro_batch = 7;
  const Bytes of_seven = predict(job).pool("unified")->needed();
  job.machine.host.memory = runtime::known_bytes(100 * of_seven.value);
  job.machine.accelerator.memory = runtime::known_bytes(of_seven.value);
  EXPECT_EQ(largest_micro_batch(job, 100), 7);
}

}  // namespace
}  // namespace offsim::study::swap_test
