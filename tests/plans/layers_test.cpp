// Does each plan hold and move layers that differ as what they are, and size what they share by the
// largest?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/plans/gpu_model.h"
#include "sim/plans/tensor_lifetimes.h"
#include "tests/model/small_mixtures.h"
#include "tests/plans/held.h"
#include "tests/plans/invariants.h"

namespace offsim::plans::layers_test {
namespace {

constexpr std::int64_t kDense = 25'768, kSparse = 41'640;  // parameters of a layer
constexpr std::int64_t kLayers = kDense + 3 * kSparse;
constexpr std::int64_t kAll = kLayers + 2 * 64'000 + 64;
constexpr Workload kWork{.micro_batch = 2, .sequence = 64};

std::int64_t tagged(const study::Prediction& p, std::string_view pool, std::string_view tag) {
  std::int64_t sum = 0;
  for (const study::Tagged& held : p.pool(pool)->by_tag) {
    sum += held.tag == tag ? held.bytes.value : 0;
  }
  return sum;
}

Job asked(const char* plan, const Given& options = {}, const Workload& w = kWork) {
  return job(plan, w, options, model::small_deepseek());
}

TEST(DifferentLayers, HaveTheirOwnTensorsByPiece) {
  const Job of = asked("native");
  runtime::Recorder gpu({.gpu = 512, .pinned_power_of_two = true});
  const GpuModel model(of, gpu, model::Numerics::kPure16);
  EXPECT_EQ(count(model.tensors(1)), kDense);
  for (const std::int64_t piece : {2, 3, 4}) {
    EXPECT_EQ(count(model.tensors(piece)), kSparse);
  }
  EXPECT_NE(model.modules(1).size(), model.modules(2).size());
}

// Weights three times, gradients once; embedding and head once each.
TEST(DifferentLayers, CrossMegatrainsLinkAsLargeAsTheyAre) {
  const runtime::StepTotals totals = study::predict(asked("megatrain")).totals;
  EXPECT_EQ(totals.h2d_bytes, 6.0 * kLayers + 2.0 * (kAll - kLayers));
  EXPECT_EQ(totals.d2h_bytes, 2.0 * kAll);
}

TEST(DifferentLayers, ShareMegatrainsSlotsOfTheLargest) {
  const study::Prediction p = study::predict(asked("megatrain"));
  EXPECT_EQ(tagged(p, "gpu", "flat layer slots"), r(4 * kSparse));
  // Two templates of each structure.
  EXPECT_EQ(tagged(p, "gpu", "layer templates"), r(4 * kDense) + r(4 * kSparse));
  EXPECT_EQ(tagged(p, "host_pinned", "pinned layer copies"), 2 * kDense + 3 * 2 * kSparse);
}

// 16-bit parameters forward and backward, as nothing stays; and gradients from the host that were
// sent there, or updated parameters.
TEST(DifferentLayers, CrossStage3sLinkAsLargeAsTheyAre) {
  const Given nothing_stays{{"offload_param", "cpu"},
                            {"stage3_param_persistence_threshold", "0"},
                            {"stage3_max_reuse_distance", "0"},
                            {"stage3_max_live_parameters", "1"}};
  const runtime::StepTotals totals = study::predict(asked("zero3-offload", nothing_stays)).totals;
  EXPECT_EQ(totals.h2d_bytes, 2.0 * (2 * kAll) + 2.0 * kAll);
}

// fp32 parameters to the GPU forward and backward, embedding and head once.
TEST(DifferentLayers, CrossFsdpsLinkAsLargeAsTheyAre) {
  const runtime::StepTotals totals = study::predict(asked("fsdp2-offload")).totals;
  EXPECT_EQ(totals.h2d_bytes, 8.0 * kLayers + 4.0 * (kAll - kLayers));
  EXPECT_EQ(totals.d2h_bytes, 4.0 * kAll);
}

TEST(DifferentLayers, LiveAsLongAsTheirOwnTensors) {
  Workload w = kWork;
  w.precision = Precision::kBf16;
  std::vector<std::int64_t> parameters;
  for (const TensorLife& life : step_lifetimes(asked("teraio", {}, w)).tensors) {
    if (life.tag == "parameters") {
      parameters.push_back(life.size.value);
    }
  }
  EXPECT_THAT(parameters, testing::ElementsAre(r(2 * 64'000), r(2 * kDense), r(2 * kSparse),
                                               r(2 * kSparse), r(2 * kSparse), r(2 * 64'064)));
}

// What a step executes is the sum of its layers, each its own work.
TEST(DifferentLayers, ExecuteTheWorkOfTheirKind) {
  Workload w = kWork;
  w.precision = Precision::kBf16;
  const model::Pieces p =
      model::pieces(model::small_deepseek(), w.batch(), model::Numerics::kPure16);
  double flops = p.head.forward.flops().value + p.head.backward.flops().value;
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    flops += p.layer(layer).forward.flops().value + p.layer(layer).backward.flops().value;
  }
  EXPECT_NEAR(study::predict(asked("native", {}, w)).totals.executed.value / flops, 1, 1e-12);
}

TEST(DifferentLayers, KeepTheRulesUnderEveryPlanThatRunsThem) {
  std::vector<std::string_view> ran;
  for (const model::Shape& shape : {model::small_deepseek(), model::small_gpt_oss()}) {
    for (const Plan& plan : registry()) {
      for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
        Workload w = kWork;
        w.accumulation = 2;
        w.checkpointing = checkpointing;
        w.precision = usual_precision(plan.name);
        const Job of = job(plan.name, w, {}, shape, usual_machine(plan.name));
        try {
          EXPECT_EQ(broken_rule(of, predicted(of)), "") << plan.name << " " << shape.name;
          ran.push_back(plan.name);
        } catch (const InputError& refused) {
          EXPECT_THAT(refused.what(), testing::HasSubstr("does not run a mixture of experts"))
              << plan.name;
        }
      }
    }
  }
  EXPECT_EQ(ran.size(), 4 * (registry().size() - 3));  // but ratel, zenflow, mlx
}

// Nothing is saved by a window that eager attention masks: no word about it.
TEST(Sinks, NeedNoWarningAboutTheirWindows) {
  Workload w = kWork;
  w.sequence = 512;
  EXPECT_THAT(study::predict(job("native", w, {}, model::small_gpt_oss())).warnings,
              testing::Not(testing::Contains(testing::HasSubstr("window"))));
}

}  // namespace
}  // namespace offsim::plans::layers_test
