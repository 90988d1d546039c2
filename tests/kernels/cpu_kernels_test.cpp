#include "kernels/host/cpu_kernels.h"

#include <atomic>
#include <limits>
#include <stdexcept>

#include "kernels/host/pool.h"

namespace offsim::kernels::cpu_kernels_test {
namespace {

TEST(Pool, RunsEachIndexOnceAndNoOther) {
  Pool pool(4);
  for (const int threads : {1, 3, 4, 2}) {
    std::array<std::atomic<int>, 4> runs{};
    pool.run(threads, [&](int i) { ++runs.at(static_cast<std::size_t>(i)); });
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(runs.at(static_cast<std::size_t>(i)), i < threads ? 1 : 0)
          << i << " of " << threads;
    }
  }
}

TEST(Pool, HandsOnWhatABodyThrowsAndGoesOn) {
  Pool pool(2);
  const auto fail = [](int i) {
    if (i == 1) {
      throw std::runtime_error("second");
    }
  };
  EXPECT_THROW(pool.run(2, fail), std::runtime_error);
  EXPECT_NO_THROW(pool.run(2, [](int) {}));
}

// 130 elements are three lines of 64: two threads get one and two of them.
TEST(Pool, PartsAreWholeLinesAndCoverAll) {
  EXPECT_EQ(part_of(130, 0, 2).end, 64);
  EXPECT_EQ(part_of(130, 1, 2).begin, 64);
  EXPECT_EQ(part_of(130, 1, 2).end, 130);
  EXPECT_EQ(part_of(10, 0, 2).end, 0);  // less than a line: the last does it
}

class CpuKernels : public testing::TestWithParam<CpuKernel> {};

// 1, a vector less one, odd ends behind whole vectors, more than one block of norm.
TEST_P(CpuKernels, OfEveryInstructionSetDoWhatTheScalarLoopDoes) {
  for (const Isa isa : usable_isas()) {
    for (const int elements : {1, 15, 16, 67, 4099}) {
      EXPECT_NO_THROW(check_cpu_kernel(GetParam(), isa, elements));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CpuKernels, testing::ValuesIn(cpu_kernels()),
                         [](const auto& kernel) { return std::string(kernel.param.name); });

// The first step moves each parameter by the rate, whatever its gradient: 1 - 0.5 sign(g).
TEST(CpuKernel, AdamsFirstStepIsTheRateAgainstTheGradient) {
  std::vector<float> p{1, 1, 1}, g{0.25F, -3, 0.5F}, m(3), v(3);
  CpuArguments arguments;
  arguments.adam.rate = 0.5F;
  arguments.adam.decay = 0;
  Pool pool(1);
  run_cpu_kernel(find_cpu_kernel("adam_f32"), {p.data(), g.data(), m.data(), v.data()}, 3, pool, 1,
                 arguments);
  EXPECT_FLOAT_EQ(p[0], 0.5F);
  EXPECT_FLOAT_EQ(p[1], 1.5F);
  EXPECT_FLOAT_EQ(p[2], 0.5F);
  EXPECT_FLOAT_EQ(m[1], -0.3F);
  EXPECT_NEAR(v[1], 0.009F, 1e-6);  // 1 - 0.999 is 1.00004e-3 in fp32
}

// 1 + 2^-8 lies between two bf16 numbers: to the even one, 1. 1 + 3 2^-8: to 1 + 2^-6.
TEST(CpuKernel, Bf16IsRoundedToNearestEvenAndNanStaysNan) {
  const std::vector<float> in{1 + 0x1p-8F, 1 + 0x3p-8F, std::numeric_limits<float>::quiet_NaN()};
  std::vector<std::uint16_t> out(3);
  Pool pool(1);
  run_cpu_kernel(find_cpu_kernel("cast_f32_bf16"), {out.data(), in.data()}, 3, pool, 1);
  EXPECT_EQ(out[0], 0x3f80);
  EXPECT_EQ(out[1], 0x3f82);
  EXPECT_GT(out[2] & 0x7fff, 0x7f80);
}

// 100,000 elements are worth three threads, whose sums are added: 4 x 100,000.
TEST(CpuKernel, ThreadsShareTheElements) {
  std::vector<float> x(100'000, 2);
  Pool pool(3);
  EXPECT_EQ(run_cpu_kernel(find_cpu_kernel("norm_f32"), {nullptr, x.data()}, 100'000, pool, 3),
            400'000);
  CpuArguments arguments;
  arguments.scale = 3;
  run_cpu_kernel(find_cpu_kernel("mul_f32"), {x.data()}, 100'000, pool, 3, arguments);
  EXPECT_EQ(std::count(x.begin(), x.end(), 6.0F), 100'000);
}

TEST(CpuKernel, AnUnknownNameIsAnError) {
  EXPECT_THROW(find_cpu_kernel("adam_f16"), std::runtime_error);
}

}  // namespace
}  // namespace offsim::kernels::cpu_kernels_test
