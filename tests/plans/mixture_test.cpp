// Do all experts travel, although a token passes a few of them?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/study/catalog.h"
#include "tests/base/message_of.h"
#include "tests/plans/invariants.h"

namespace offsim::plans::mixture_test {
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

// --- adapters on the attention, rank 8: 8 (64 + 64 + 2 (64 + 32) + 64 + 64) = 3,584 a layer

model::Shape adapted(model::Base base = model::Base::k16Bit) {
  model::Shape s = mixture();
  s.adapters = {8, model::AdapterTargets::kAttention, base};
  return s;
}
constexpr std::int64_t kTrained = 2 * 3'584;

TEST(FrozenExperts, AreHeldAndBroughtAndNothingElse) {
  const double n = static_cast<double>(kTrained);
  const double frozen = static_cast<double>(model::parameters(mixture()));
  const auto moved = [](const char* plan, const Given& options = {}) {
    const runtime::StepTotals t = study::predict(job(plan, kWork, options, adapted())).totals;
    return std::pair(t.h2d_bytes, t.d2h_bytes);
  };
  EXPECT_EQ(moved("native"), std::pair(0.0, 0.0));
  EXPECT_EQ(moved("zero2-offload"), std::pair(2 * n, 4 * n));
  EXPECT_EQ(moved("torchao-offload", {{"minimal_size", "1"}}), std::pair(4 * n, 4 * n));
  // The root's embedding, norm and head come once, layers twice.
  const double root = 2 * 256.0 * 64 + 64;
  EXPECT_EQ(moved("fsdp2-offload"), std::pair(2 * (2 * (frozen - root) + root) + 2 * 4 * n, 4 * n));
}

// As without experts in the same model, all that is not the MLP: as many kernels of the optimizer.
TEST(FrozenExperts, HaveNoStates) {
  for (const char* const plan : {"native", "zero2-offload", "zero3-offload"}) {
    const study::Prediction p = study::predict(job(plan, kWork, {}, adapted()));
    std::int64_t states = 0;
    for (const study::PoolReport& pool : p.pools) {
      for (const study::Tagged& tagged : pool.by_tag) {
        states += tagged.tag == "Adam states" ? tagged.bytes.value : 0;
      }
    }
    EXPECT_EQ(states, 8 * kTrained) << plan;
  }
}

// Four-bit Linears of 2 (64 x 64 + 64 x 32) numbers a layer; the experts stay as they are.
TEST(FrozenExperts, StayIn16BitsBesideAQuantisedAttention) {
  const Job of = job("native", kWork, {}, adapted(model::Base::kNf4));
  EXPECT_THAT(study::predict(of).warnings,
              testing::Contains("the experts of mixtral stay 16-bit: bitsandbytes quantises "
                                "Linears alone"));
  const auto parameters = [](const Job& asked) {
    const study::Prediction p = study::predict(asked);
    for (const study::Tagged& tagged : p.pools.front().by_tag) {
      if (tagged.tag == "parameters") {
        return tagged.bytes.value;
      }
    }
    return std::int64_t{0};
  };
  EXPECT_EQ(parameters(job("native", kWork, {}, adapted())) - parameters(of),
            2 * 2 * (64 * 64 + 64 * 32) * 3 / 2);
}

// In 16 bits: autocast runs trained experts one by one, frozen ones in tiles.
TEST(AdaptedMixtures, RunInEveryPlanThatHasAdapters) {
  const study::Catalog catalog = study::Catalog::folder(OFFSIM_SOURCE_DIR);
  for (const char* const name :
       {"qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v3", "gpt-oss-20b"}) {
    model::Shape shape = catalog.model(name, {});
    shape.layers = 4;
    shape.adapters = {16, model::AdapterTargets::kAttention};
    for (const char* const plan :
         {"native", "zero2-offload", "zero3-offload", "fsdp2-offload", "torchao-offload"}) {
      for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
        Workload w = kWork;
        w.checkpointing = checkpointing;
        if (plan == std::string_view("native") || plan == std::string_view("torchao-offload")) {
          w.precision = Precision::kBf16;
        }
        const Job of = job(plan, w, {}, shape);
        EXPECT_EQ(broken_rule(of, predicted(of)), "") << plan << " " << name;
        Job trained = of;
        trained.shape.adapters = {};
        EXPECT_LT(study::predict(of).totals.executed.value,
                  0.9 * study::predict(trained).totals.executed.value)
            << plan << " " << name;
      }
    }
  }
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
}  // namespace offsim::plans::mixture_test
