// Do all experts travel, although a token passes a few of them?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/message_of.h"
#include "tests/plans/jobs.h"

namespace offsim::plans {
namespace {

model::Shape mixture() {
  model::Shape s = tiny_shape();
  s.architecture = model::Architecture::kMixtral;
  s.kinds.front().experts =
      model::Experts{.count = 8, .per_token = 2, .width = 32, .normalized = true};
  s.kinds.front().ffn = 2 * 32;
  return s;
}

constexpr Workload kWork{.micro_batch = 2, .sequence = 128};

TEST(Experts, AllOfThemCrossTheLinkWithEveryPass) {
  const model::Shape shape = mixture();
  const double n = static_cast<double>(model::parameters(shape));
  const double layers = 2.0 * static_cast<double>(model::layer_parameters(shape, 0));
  const runtime::StepTotals streamed = study::predict(job("megatrain", kWork, {}, shape)).totals;
  EXPECT_EQ(streamed.h2d_bytes, 6 * layers + 2 * (n - layers));
  EXPECT_EQ(streamed.d2h_bytes, 2 * n);
  const Job offloading = job("zero2-offload", kWork, {}, shape);
  const runtime::StepTotals offloaded = study::predict(offloading).totals;
  EXPECT_EQ(offloaded.d2h_bytes, 4 * n);
}

TEST(Experts, HaveStatesOnTheGpuAllOfThem) {
  Workload work = kWork;
  work.precision = Precision::kBf16;
  const study::Prediction p = study::predict(job("native", work, {}, mixture()));
  std::int64_t states = 0;
  for (const study::Tagged& tagged : p.pools.front().by_tag) {
    states += tagged.tag == "Adam states" ? tagged.bytes.value : 0;
  }
  const std::int64_t m_and_v = 2 * 2 * model::parameters(mixture());
  EXPECT_EQ(states, (m_and_v + 511) / 512 * 512);
}

// 6 N T counts what a token uses.
TEST(Experts, PublishedTflopsCountThoseOfAToken) {
  const study::Prediction p = study::predict(job("native", kWork, {}, mixture()));
  const double tokens = 2 * 128;
  const double operations = 6 * static_cast<double>(model::active_parameters(mixture())) * tokens;
  EXPECT_NEAR(p.tflops_six_nd * 1e12 * p.step.value / operations, 1, 1e-9);
}

TEST(Experts, AreRefusedWhereNoSystemRunsThem) {
  for (const char* const plan : {"ratel", "zenflow", "mlx"}) {
    const Job of = job(plan, kWork, {}, mixture(), usual_machine(plan));
    EXPECT_THAT(message_of([&] { of.plan->check(of); }),
                testing::HasSubstr("does not run a mixture of experts"))
        << plan;
  }
}

}  // namespace
}  // namespace offsim::plans
