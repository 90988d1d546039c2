// Does a step of stage 3 take as long as on paper, ask for the same in the same order as DeepSpeed,
// and wait where it does?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plans/activities.h"
#include "tests/plans/calls.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::zero3_test {
namespace {

using testing::ElementsAreArray;

constexpr Workload kShort{.micro_batch = 1, .sequence = 16};
constexpr int kOfLayer = 9, kOfModel = 21;  // tensors; each is a module's only one

// Every use is a fetch of its own.
Given by_use(Given options = {}) {
  options.insert({{"stage3_prefetch_bucket_size", "0"},
                  {"stage3_param_persistence_threshold", "0"},
                  {"stage3_max_reuse_distance", "0"}});
  return options;
}

// --- on paper

// All gradients are in one bucket: a kernel each into it, one that joins them, one that averages.
double into_bucket() { return kTensors * kKernel + 2 * kKernel; }
// Then tensor by tensor there and back in 16 bits, the norm (3 kernels), a cast, 4 B there.
double sent() { return kTensors * (4 * kKernel + 3 * kLatency) + link((2 + 2 + 4) * kAll); }
double optimizer() { return kTensors * kTensor + 3 * cpu(kAll); }

// The host waits for the embedding; from then on a module's parameters come while the one before is
// computed. Kernels of both streams share the GPU, so that all of them add up.
TEST(Zero3, OnPaperIsAllKernelsThenGradientsThenTheHost) {
  const Times t(model::Numerics::kPure16);
  const double first = kCall + kLatency + link(2 * kEmbedding) + kLaunch;
  EXPECT_NEAR(step_us(on_paper("zero3-offload", sixteen_tokens(), by_use())),
              first + t.forward() + t.backward() + into_bucket() + sent() + optimizer(), kExact);
}

// Before 0.15.4: no cast on the GPU; the host waits for a pageable copy of 2 B and casts before it
// asks for the next tensor's copies.
TEST(Zero3, OnPaperOfOldVersionsWaitsForEveryGradient) {
  const Times t(model::Numerics::kPure16);
  const double first = kCall + kLatency + link(2 * kEmbedding) + kLaunch;
  const double sent_old = kTensors * (3 * kKernel + 3 * kLatency) + link((2 + 2) * kAll) +
                          pageable(2 * kAll) + cpu(kAll) + (kTensors - 1) * kCall;
  EXPECT_NEAR(step_us(on_paper("zero3-offload", sixteen_tokens(),
                               by_use({{"deepspeed_version", "0.14.5"}, {"pin_memory", "true"}}))),
              first + t.forward() + t.backward() + into_bucket() + sent_old + optimizer(), kExact);
}

// On one stream a module's parameters stand behind the kernels of the one before, and its first
// launch waits for them, forward and backward.
TEST(Zero3, OnPaperWithoutOverlapPutsCopiesBetweenModules) {
  const Times t(model::Numerics::kPure16);
  const double copies = 2 * (kTensors * (kLatency + kLaunch) + link(2 * kAll));
  EXPECT_NEAR(
      step_us(on_paper("zero3-offload", sixteen_tokens(), by_use({{"overlap_comm", "false"}}))),
      kCall + copies + t.forward() + t.backward() + into_bucket() + sent() + optimizer(), kExact);
}

// With everything on the GPU: a module costs nothing to gather; 16-bit gradients are kept, joined
// and cast, then Adam. Norms are two kernels less a sum of each tensor.
TEST(Zero3, OnPaperOfTheGpuAloneIsItsKernels) {
  const Times t(model::Numerics::kPure16);
  const double kept = kTensors * kKernel;  // into the 16-bit partition
  const double norms = kTensors * kTensor + kTensors * 3 * kKernel;
  const double step = 5 * kKernel;  // join, cast, unscale, Adam, cast back
  // The host waits for the reductions, then for the norms; a launch is exposed after each.
  EXPECT_NEAR(step_us(on_paper("zero3-offload", sixteen_tokens(),
                               {{"offload_optimizer", "none"}, {"offload_param", "none"}})),
              t.forward() + t.backward() + into_bucket() + kept + norms + kLaunch + kLaunch + step,
              kExact);
}

// --- sequences

TEST(Zero3Sequence, OfTheReduction) {
  const Names bucket =
      repeated({"gradient into bucket"}, kOfModel) + Names{"join gradients", "average"};
  const Names there_and_back{"16-bit gradients", "16-bit gradients back"};
  const Names fp32{"norm in double", "cast to fp32", "fp32 gradients"};
  EXPECT_THAT(on(recorded(job("zero3-offload", kShort)), "reduction"),
              ElementsAreArray(bucket + repeated(there_and_back + fp32, kOfModel)));
  Workload twice = kShort;
  twice.accumulation = 2;
  const Names added{"16-bit gradients back", "add gradient", "16-bit gradients"};
  EXPECT_THAT(on(recorded(job("zero3-offload", twice)), "reduction"),
              ElementsAreArray(bucket + repeated(there_and_back, kOfModel) + bucket +
                               repeated(added + fp32, kOfModel)));
}

TEST(Zero3Sequence, OfTheHostIsASubGroupAfterTheOther) {
  const Names update{"unscale and clip", "Adam", "cast to 16 bits"};
  EXPECT_THAT(on(recorded(job("zero3-offload", kShort, {{"sub_group_size", "40000"}})), "host"),
              ElementsAreArray(repeated(update, 3)));
  EXPECT_THAT(on(recorded(job("zero3-offload", kShort,
                              {{"sub_group_size", "40000"}, {"offload_param", "none"}})),
                 "host"),
              ElementsAreArray(repeated({"unscale and clip", "Adam", "write parameters back"}, 3)));
}

// Each of a module's parameters, forward and backward; with checkpointing the recomputation too.
TEST(Zero3Sequence, OfTheGatherIsAFetchAUse) {
  Workload w = kShort;
  EXPECT_EQ(on(recorded(job("zero3-offload", w, by_use())), "gather").size(), 2 * kOfModel);
  w.checkpointing = Checkpointing::kFull;
  EXPECT_EQ(on(recorded(job("zero3-offload", w, by_use())), "gather").size(),
            2 * kOfModel + 2 * kOfLayer);
}

// Sub-groups of as many elements but other tensors: the embedding, and the matrices of half a
// layer.
TEST(Zero3Sequence, ReadsNormsOfSubGroupsOfOneSize) {
  const Job of =
      job("zero3-offload", kShort, {{"offload_optimizer", "none"}, {"sub_group_size", "8388608"}},
          shape_of_large_matrices());
  EXPECT_EQ(count_of(on(recorded(of), "compute"), "norms in double"), 6);
}

// What the head adds to a tied embedding's gradient is there before it enters the bucket.
TEST(Zero3Sequence, OfATiedHeadReducesTheSum) {
  model::Shape shape = tiny_shape();
  shape.tied = true;
  const runtime::Program program = recorded(job("zero3-offload", kShort, {}, shape));
  Names launched;
  for (const Call& call : step_of(program)) {
    if (const auto* launch = std::get_if<runtime::Launch>(&call)) {
      const std::string& name = program.works[static_cast<std::size_t>(launch->work)].name;
      launched.push_back(name.substr(0, name.find(" (")));
    }
  }
  EXPECT_EQ(count_of(launched, "gradient into bucket"), kOfModel - 1);
  const auto last = std::find(launched.rbegin(), launched.rend(), "gradient into bucket");
  EXPECT_GT(last.base(), std::ranges::find(launched, "add tied gradient"));
}

// --- who waits for whom

machine::Machine slow_link(double h2d, double d2h) {
  machine::Machine m = paper_machine();
  m.link->h2d = runtime::known<BytesPerSecond>(h2d);
  m.link->d2h = runtime::known<BytesPerSecond>(d2h);
  m.link->pageable_d2h = {{1}, {d2h}, machine::kNoFigure};
  runtime::connect(m);
  return m;
}

// The host between a gradient's fp32 copy and the next gradient's copies.
class Zero3Store : public testing::TestWithParam<std::pair<const char*, bool>> {};
INSTANTIATE_TEST_SUITE_P(Versions, Zero3Store,
                         testing::Values(std::pair{"0.14.5", true}, std::pair{"0.15.4", true},
                                         std::pair{"0.19.4", true}, std::pair{"0.19.5", false}));

TEST_P(Zero3Store, HoldsTheHostBefore0_19_5) {
  const auto [version, holds] = GetParam();
  const Activities of(job("zero3-offload", kShort,
                          {{"deepspeed_version", version}, {"pin_memory", "true"}}, tiny_shape(),
                          slow_link(10e9, 1e7)));
  for (int i = 0; i + 1 < kOfModel; ++i) {
    const auto landed = of.finish(of.nth("fp32 gradients", Cause::kD2h, i));
    const auto next = of.start(of.nth("16-bit gradients", Cause::kHostThread, i + 1));
    EXPECT_EQ(next >= landed, holds) << i;
  }
}

// Where it converts, the host casts too.
TEST(Zero3Waits, AConvertingStoreCastsOnTheHost) {
  const Activities of(
      job("zero3-offload", kShort, {{"deepspeed_version", "0.14.5"}, {"pin_memory", "true"}}));
  for (int i = 0; i + 1 < kOfModel; ++i) {
    const std::size_t cast = of.nth("fp32 gradients", Cause::kCpuCopy, i);
    EXPECT_GE(of.start(cast), of.finish(of.nth("fp32 gradients", Cause::kD2h, i)));
    EXPECT_GE(of.start(of.nth("16-bit gradients", Cause::kHostThread, i + 1)), of.finish(cast));
  }
}

// Without pinned memory every copy of a gradient keeps the host.
TEST(Zero3Waits, PageableGradientsKeepTheHostEveryTime) {
  const Activities of(
      job("zero3-offload", kShort, {{"pin_memory", "false"}}, tiny_shape(), slow_link(10e9, 1e7)));
  for (int i = 0; i < kOfModel; ++i) {
    EXPECT_GE(of.start(of.nth("16-bit gradients back", Cause::kHostThread, i)),
              of.finish(of.nth("16-bit gradients", Cause::kD2h, i)));
  }
}

// In a complete trace the next parameter is prefetched at every hook, of containers too: at the two
// around the embedding itself and the norm of layer 0, at its own q, at the layer's k, at the
// norm's v. The wait for the norm is one for q and k too, which were asked for before; not for v.
TEST(Zero3Waits, AWaitIsForAllThatWasAskedFor) {
  Given options = by_use();
  options["stage3_prefetch_bucket_size"] = "1";
  const Activities of(job("zero3-offload", kShort, options, tiny_shape(), slow_link(1e6, 10e9)));
  constexpr int kFirstStep = 2 * kOfModel;  // in which nothing is prefetched
  const auto came = [&](int parameter) {    // embedding, norm, q, k, v
    return of.finish(of.nth("parameters", Cause::kH2d, kFirstStep + parameter));
  };
  const auto norm = of.start(of.nth("input_layernorm forward", Cause::kGpuCompute, 2));
  EXPECT_GE(norm, came(3));
  EXPECT_LT(norm, came(4));
}

// A module's parameters come while the one before is computed, for which the host does not wait.
TEST(Zero3Waits, ParametersComeBesideCompute) {
  const Activities of(job("zero3-offload", kShort, by_use(), tiny_shape(), paper_machine()));
  EXPECT_LT(of.finish(of.nth("parameters", Cause::kH2d, 1)),
            of.finish(of.nth("embed_tokens forward", Cause::kGpuCompute, 0)));
}

// At most two buckets are on their way when the next is reduced.
TEST(Zero3Waits, TheHostWaitsForTheBucketBeforeTheLastTwo) {
  const Activities of(job("zero3-offload", kShort, {{"reduce_bucket_size", "20000"}}, tiny_shape(4),
                          slow_link(10e9, 1e6)));
  // Buckets in issue order: the host's first launch for each, and when the last copy landed.
  std::vector<Picoseconds> begun, landed;
  for (std::size_t i = 0; begun.size() < 6; ++i) {
    if (of.cause_of(i) == Cause::kHostThread && of.label_of(i).starts_with("average")) {
      begun.push_back(of.start(i));
      landed.push_back(0);
    } else if (of.cause_of(i) == Cause::kD2h && !landed.empty()) {
      landed.back() = std::max(landed.back(), of.finish(i));
    }
  }
  for (std::size_t i = 0; i + 1 < begun.size(); ++i) {
    if (i >= 3) {
      EXPECT_GE(begun[i], landed[i - 3]) << i;
    }
    if (i >= 2) {
      EXPECT_LT(begun[i], landed[i - 2]) << i;
    }
  }
}

TEST(Zero3Waits, TheStepBeginsWhenAllGradientsHaveLanded) {
  const Activities of(job("zero3-offload", kShort, {}, tiny_shape(), slow_link(10e9, 1e7)));
  EXPECT_GE(of.start(of.nth("unscale and clip", Cause::kCpuClip, 0)),
            of.finish(of.nth("fp32 gradients", Cause::kD2h, kOfModel - 1)));
}

// Nothing of a sub-group's write-back is beside the next one's Adam.
TEST(Zero3Waits, WriteBackIsNotBesideTheNextAdam) {
  const Activities of(
      job("zero3-offload", kShort, {{"offload_param", "none"}, {"sub_group_size", "40000"}}));
  for (int s = 0; s + 1 < 3; ++s) {
    EXPECT_GE(of.start(of.nth("unscale and clip", Cause::kCpuClip, s + 1)),
              of.finish(of.nth("write parameters back", Cause::kH2d, s)));
  }
}

// Twin-Flow: sub-groups on the GPU, asked for first, run beside Adam on the CPU.
TEST(Zero3Waits, TwinFlowsGpuIsBesideTheCpu) {
  machine::Machine m = paper_machine();
  m.accelerator.kernel_floor = runtime::known<Seconds>(1e-2);
  const Activities of(job(
      "zero3-offload", kShort,
      {{"offload_param", "none"}, {"sub_group_size", "40000"}, {"ratio", "0.5"}}, tiny_shape(), m));
  EXPECT_LT(of.start(of.nth("unscale and clip", Cause::kCpuClip, 0)),
            of.finish(of.nth("Adam (45056 elements)", Cause::kGpuCompute, 0)));
}

}  // namespace
}  // namespace offsim::plans::zero3_test
