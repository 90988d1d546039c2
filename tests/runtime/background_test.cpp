// What something else takes of the host: do CPU kernels and copies get the rest, and kernels of the
// GPU all? Microseconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/simulated.h"

namespace offsim::runtime::background_test {
namespace {

constexpr double kExact = 1e-3;

double end_us(Recorder recorded, const Background& background) {
  recorded.end_step();
  const Program program = std::move(recorded).finish();
  const Lowered lowered = lower(program, synthetic_machine(), background);
  const engine::Timeline timeline = engine::simulate(lowered.graph);
  return static_cast<double>(timeline.finish[engine::index(lowered.step_ends.back())]) * 1e-6;
}

// 4 M elements at 1 G a core and second, 10 B each: alone 1000 us, at 40 of 100 GB/s.
double adam_us(const Background& background) {
  Recorder gpu = recorder();
  gpu.cpu("adam_deepspeed_f32", 4'000'000, "Adam");
  return end_us(std::move(gpu), background);
}

TEST(Background, TakesCoresFromAKernelOfAllCores) {
  EXPECT_NEAR(adam_us({}), 1000, kExact);
  EXPECT_NEAR(adam_us({1, {}}), 4000.0 / 3, kExact);
  EXPECT_NEAR(adam_us({3, {}}), 4000, kExact);
}

TEST(Background, TakesNothingFromAKernelOfFewerCoresThanAreLeft) {
  const auto norm = [](const Background& background) {
    Recorder gpu = recorder();
    gpu.cpu("norm_f32", 1'000'000, "norm");
    return end_us(std::move(gpu), background);
  };
  EXPECT_EQ(norm({3, {}}), norm({}));
}

TEST(Background, TakesDramOnceTheRestIsTooLittle) {
  EXPECT_NEAR(adam_us({0, BytesPerSecond(59e9)}), 1000, kExact);
  EXPECT_NEAR(adam_us({0, BytesPerSecond(80e9)}), 2000, kExact);
}

TEST(Background, TakesDramFromCopiesAndNothingFromTheGpu) {
  const Background most{0, BytesPerSecond(95e9)};
  Recorder copies = recorder();
  copies.copy_h2d(kCompute, Space::kPinned, Bytes(10'000'000), "weights");
  EXPECT_NEAR(end_us(std::move(copies), most), 10 + 5 + 2000, kExact);
  Recorder launches = recorder();
  launches.launch(kernels("layer", 1, 3000));
  EXPECT_NEAR(end_us(std::move(launches), most), 10 + 3000, kExact);
}

}  // namespace
}  // namespace offsim::runtime::background_test
