// A data loader beside the loop: what does it cost whom, and is it refused when nothing is left?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/message_of.h"
#include "tests/plans/jobs.h"

namespace offsim::study::loader_test {
namespace {

plans::Job with_loader(std::string_view plan, std::int64_t workers, double bandwidth = 0) {
  plans::Job job = plans::job(plan);
  job.workload.loader_workers = workers;
  job.workload.loader_bandwidth = BytesPerSecond(bandwidth);
  return job;
}

// Casts, scaling and Adam on all four cores take 4/3 as long with one of them gone; the rest of the
// step is of the GPU and the link.
TEST(Loader, SlowsTheOptimizerOnTheCpuAndNotTheGpu) {
  const Prediction alone = predict(with_loader("zero2-offload", 0));
  const Prediction beside = predict(with_loader("zero2-offload", 1));
  const auto adam = static_cast<std::size_t>(runtime::Cause::kCpuOptimizer);
  EXPECT_NEAR(beside.busy[adam].value / alone.busy[adam].value, 4.0 / 3, 1e-6);
  EXPECT_GT(beside.step, alone.step);
  EXPECT_EQ(predict(with_loader("native", 3, 90e9)).step, predict(with_loader("native", 0)).step);
}

TEST(Loader, IsRefusedWhereNothingIsLeft) {
  EXPECT_EQ(message_of([] { predict(with_loader("native", 4)); }),
            "loader_workers is 4, and a process on synthetic has 4 cores; expected fewer: the loop "
            "needs a core");
  EXPECT_EQ(message_of([] { predict(with_loader("native", 0, 100e9)); }),
            "loader_bandwidth is 100 GB/s, and the DRAM that a process on synthetic has moves 100 "
            "GB/s; expected less");
  EXPECT_EQ(message_of([] { predict(with_loader("native", 3, 99e9)); }), "(nothing was refused)");
}

}  // namespace
}  // namespace offsim::study::loader_test
