// Does a model with adapters (LoRA) train only these, in every plan that has them?
//
// The tiny model with adapters of rank 8 on q, k, v and o: 8 (64 + 64 + 64 + 32 + 64 + 32 + 64 +
// 64) = 3,584 trained parameters a layer in eight tensors, n = 7,168 of them beside the F = 106,816
// that are frozen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/base/message_of.h"
#include "tests/plans/calls.h"
#include "tests/plans/held.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::adapters_test {
namespace {

constexpr std::int64_t kOfLayer = 3'584, kTrained = 2 * kOfLayer, kFrozen = Tiny::all;
const std::set<std::string_view> kHaveAdapters{"native", "zero2-offload", "zero3-offload",
                                               "fsdp2-offload", "torchao-offload"};

model::Shape adapted(model::AdapterTargets targets = model::AdapterTargets::kAttention,
                     std::int64_t rank = 8) {
  model::Shape shape = tiny_shape();
  shape.adapters = {rank, targets};
  return shape;
}

Job asked(std::string_view plan, const Given& options = {}, Workload w = few_tokens()) {
  return job(plan, w, options, adapted());
}

// Bytes that a program ever allocates under a tag, as asked for before any is freed.
std::int64_t allocated(const Job& of, runtime::Space space, std::string_view tag) {
  std::int64_t sum = 0;
  const runtime::Program program = recorded(of);
  for (const Call& call : program.calls) {
    const auto* allocate = std::get_if<runtime::Allocate>(&call);
    if (allocate != nullptr && allocate->space == space && program.text(allocate->tag) == tag) {
      sum += allocate->bytes;
    }
  }
  return sum;
}

std::pair<double, double> moved(const Job& of) {
  const runtime::StepTotals totals = study::predict(of).totals;
  return {totals.h2d_bytes, totals.d2h_bytes};
}
std::pair<double, double> bytes(std::int64_t to_gpu, std::int64_t to_host) {
  return {static_cast<double>(to_gpu), static_cast<double>(to_host)};
}

TEST(TheAdaptedModel, HasTheParametersOfItsComment) {
  EXPECT_EQ(model::trained_parameters(adapted()), kTrained);
  EXPECT_EQ(model::parameters(adapted()), kFrozen + kTrained);
}

// --- what is held: 2 bytes a frozen parameter, and nothing else of it

TEST(Native, HoldsFrozenParametersIn16Bits) {
  for (const auto& [precision, trained, frozen] :
       {std::tuple{Precision::kBf16Mixed, 4, 2}, std::tuple{Precision::kBf16, 2, 2},
        std::tuple{Precision::kFp32, 4, 4}}) {
    Workload w = few_tokens();
    w.precision = precision;
    const Job of = asked("native", {}, w);
    EXPECT_EQ(allocated(of, runtime::Space::kGpu, "parameters"),
              r(frozen * kFrozen + trained * kTrained));
    EXPECT_EQ(allocated(of, runtime::Space::kGpu, "Adam states"), r(2 * trained * kTrained));
    EXPECT_EQ(allocated(of, runtime::Space::kGpu, "gradients"),
              of.plan->steps * 2 * r(trained * kOfLayer));
  }
}

TEST(Zero2, HasItsHostCopiesOfAdaptersAlone) {
  const Job of = asked("zero2-offload", {{"pin_memory", "true"}});
  EXPECT_EQ(allocated(of, runtime::Space::kGpu, "parameters"), r(2 * (kFrozen + kTrained)));
  EXPECT_EQ(allocated(of, runtime::Space::kPinned, "fp32 master"), p2(4 * kTrained));
  EXPECT_EQ(allocated(of, runtime::Space::kPageable, "Adam states"), 8 * kTrained);
  EXPECT_EQ(allocated(of, runtime::Space::kGpu, "16-bit gradient buffer"), r(2 * 8 * 64));
}

// Frozen parameters are partitioned too, each in a block of its own, outside the one piece.
TEST(Zero3, KeepsFrozenParametersOnTheHostBlockByBlock) {
  const Job of = asked("zero3-offload", {{"pin_memory", "true"}});
  std::int64_t blocks = 0;
  for (const model::Tensor& tensor : model::all_tensors(adapted())) {
    blocks += tensor.trained ? 0 : p2(2 * tensor.numel());
  }
  EXPECT_EQ(allocated(of, runtime::Space::kPinned, "parameters"), p2(2 * kTrained) + blocks);
  EXPECT_EQ(allocated(of, runtime::Space::kPageable, "fp32 master"), 4 * kTrained);
  EXPECT_EQ(allocated(of, runtime::Space::kPinned, "16-bit gradients"), p2(2 * kTrained));
  EXPECT_EQ(allocated(of, runtime::Space::kPageable, "Adam states"), 8 * kTrained);
}

TEST(Fsdp2, HasGradientsAndStatesOfAdaptersAlone) {
  const Job of = asked("fsdp2-offload");
  std::int64_t parameters = 0, gradients = 0;
  for (const model::Tensor& tensor : model::all_tensors(adapted())) {
    parameters += p2((tensor.trained ? 4 : 2) * tensor.numel());
    gradients += tensor.trained ? p2(4 * tensor.numel()) : 0;
  }
  EXPECT_EQ(allocated(of, runtime::Space::kPinned, "parameters"), parameters);
  EXPECT_EQ(allocated(of, runtime::Space::kPinned, "gradients"), gradients);
  EXPECT_EQ(allocated(of, runtime::Space::kPageable, "Adam states"), 8 * kTrained);
}

// --- what crosses the link

TEST(Adapters, CrossAsTheTrainedParametersOfEachSystem) {
  EXPECT_EQ(moved(asked("native")), bytes(0, 0));
  EXPECT_EQ(moved(asked("zero2-offload")), bytes(2 * kTrained, 4 * kTrained));
  EXPECT_EQ(moved(asked("torchao-offload", {{"minimal_size", "1"}})),
            bytes(4 * kTrained, 4 * kTrained));
}

// Layers come twice, the root once; only adapters' gradients leave.
TEST(Fsdp2, StreamsFrozenParametersAs16Bits) {
  EXPECT_EQ(moved(asked("fsdp2-offload")),
            bytes(2 * 2 * (2 * Tiny::layer + 4 * kOfLayer) + 2 * (Tiny::embedding + Tiny::head),
                  4 * kTrained));
}

// Without prefetch and reuse: every parameter comes for the forward, and again for the backward of
// its module if that has one. Nothing below the first adapter has: not the embedding, nor the first
// layer's norm and its frozen q, k and v.
TEST(Zero3, FetchesAFrozenParameterForEveryPassThatNeedsIt) {
  const Given by_hand{{"stage3_prefetch_bucket_size", "0"},
                      {"stage3_param_persistence_threshold", "0"},
                      {"stage3_max_reuse_distance", "0"}};
  const std::int64_t all = kFrozen + kTrained;
  const std::int64_t below = Tiny::embedding + 64 + 64 * 64 + 2 * 64 * 32;
  EXPECT_EQ(moved(asked("zero3-offload", by_hand)),
            bytes(2 * all + 2 * (all - below) + 2 * kTrained, 6 * kTrained));
}

// --- a base of 4 bits (QLoRA): the Linears of a layer, q 4096 + o 4096 + k 2048 + v 2048 + three
// of 8192 = 36,864 numbers, half a byte each, and 4 bytes for 64 of them, which stay on the GPU

constexpr std::int64_t kLinears = 36'864;

Job quantised(std::string_view plan, model::Base base, const Given& options = {}) {
  model::Shape shape = adapted();
  shape.adapters.base = base;
  return job(plan, few_tokens(), options, shape);
}

// Without zero.Init gathered weights wait for their backward; those of the first layer have none.
TEST(Zero3, KeepsNothingMoreWithoutZeroInitWhenTheStepEnds) {
  const auto resident = [](const char* zero_init) {
    return study::predict(asked("zero3-offload", {{"zero_init", zero_init}})).pool("gpu")->resident;
  };
  EXPECT_EQ(resident("false"), resident("true"));
}

TEST(FourBits, AreHeldOnTheGpuBesideTheirConstants) {
  for (const std::string_view plan : {"native", "zero2-offload", "torchao-offload"}) {
    const Job of = quantised(plan, model::Base::kNf4);
    const std::int64_t trained = plan == "zero2-offload" ? 2 : 4;
    EXPECT_EQ(allocated(of, runtime::Space::kGpu, "parameters"),
              r(2 * (kFrozen - 2 * kLinears) + kLinears + trained * kTrained))
        << plan;
    EXPECT_EQ(allocated(of, runtime::Space::kGpu, "constants of quantisation"),
              r(2 * kLinears / 16));
  }
}

TEST(FourBits, StreamAsHalfAByte) {
  const std::int64_t layer = 2 * (Tiny::layer - kLinears) + kLinears / 2;
  EXPECT_EQ(
      moved(quantised("fsdp2-offload", model::Base::kNf4)),
      bytes(2 * 2 * (layer + 4 * kOfLayer) + 2 * (Tiny::embedding + Tiny::head), 4 * kTrained));
  const Given by_hand{{"stage3_prefetch_bucket_size", "0"},
                      {"stage3_param_persistence_threshold", "0"},
                      {"stage3_max_reuse_distance", "0"}};
  const std::int64_t all = 2 * layer + 2 * (Tiny::embedding + Tiny::head + kTrained);
  const std::int64_t below = 2 * (Tiny::embedding + 64) + (64 * 64 + 2 * 64 * 32) / 2;
  EXPECT_EQ(moved(quantised("zero3-offload", model::Base::kNf4, by_hand)),
            bytes(all + all - below + 2 * kTrained, 6 * kTrained));
  for (const std::string_view plan : {"fsdp2-offload", "zero3-offload"}) {
    EXPECT_EQ(allocated(quantised(plan, model::Base::kNf4), runtime::Space::kGpu,
                        "constants of quantisation"),
              r(2 * kLinears / 16));
  }
}

TEST(EightBits, AreNotSharded) {
  for (const std::string_view plan : {"fsdp2-offload", "zero3-offload"}) {
    EXPECT_EQ(message_of([&] {
                const Job of = quantised(plan, model::Base::kInt8);
                of.plan->check(of);
              }),
              std::string(plan) +
                  " does not shard an int8 base; expected base 16-bit, nf4 or nf4-double");
  }
  EXPECT_EQ(allocated(quantised("native", model::Base::kInt8), runtime::Space::kGpu, "parameters"),
            r(2 * (kFrozen - 2 * kLinears) + 2 * kLinears + 4 * kTrained));
}

// --- the step

// Its kernels are the pieces' of the adapted model, the embedding has no backward, and the
// optimizer has 16 tensors.
TEST(Native, StepWithAdaptersIsTheSumOfItsKernels) {
  const Workload w = sixteen_tokens();
  const Job of = job("native", w, {}, adapted(), paper_machine());
  const model::Pieces p = model::pieces(adapted(), w.batch(), model::Numerics::kAutocast);
  const auto kernels = p.embedding.forward.launches() + 2 * p.layers.back().forward.launches() +
                       p.head.forward.launches() + p.head.backward.launches() +
                       p.layers.back().backward.launches() + p.layers.front().backward.launches();
  EXPECT_NEAR(step_us(of), kKernel * static_cast<double>(kernels + 1), kExact);
  Workload synchronised = w;
  synchronised.phase_sync = true;
  const study::Prediction phases =
      study::predict(job("native", synchronised, {}, adapted(), paper_machine()));
  EXPECT_NEAR(phases.phases.at("optimizer").value / runtime::kMicro,
              16 * kTensor + kLaunch + kKernel, kExact);
}

// Two micro-batches add a kernel a trained tensor.
TEST(Native, AccumulatesGradientsOfAdapters) {
  Workload w = few_tokens();
  w.accumulation = 2;
  const Names names = on(recorded(asked("native", {}, w)), "compute");
  EXPECT_EQ(count_of(names, "add gradients"), 2);
  EXPECT_EQ(count_of(names, "embedding backward"), 0);
  EXPECT_EQ(count_of(names, "first layer backward"), 2);
}

// PEFT asks for the input's gradient then, so that the first layer is as the others.
TEST(Native, CheckpointingMakesTheFirstLayersGradients) {
  const Names names =
      on(recorded(asked("native", {}, many_tokens(Checkpointing::kFull))), "compute");
  EXPECT_EQ(count_of(names, "first layer backward"), 0);
  EXPECT_EQ(count_of(names, "layer backward"), 2);
}

// --- who has them

TEST(EveryPlan, HasAdaptersOrSaysWhyNot) {
  for (const Plan& plan : registry()) {
    const auto of = [&](const model::Shape& shape) {
      return job(plan.name, {.precision = usual_precision(plan.name)}, {}, shape,
                 usual_machine(plan.name));
    };
    if (!kHaveAdapters.contains(plan.name)) {
      EXPECT_THAT(message_of([&] { plan.check(of(adapted())); }),
                  testing::HasSubstr(std::string(plan.name) + " does not run with lora_rank: "));
      continue;
    }
    const auto executed = [&](const model::Shape& shape) {
      return study::predict(of(shape)).totals.executed.value;
    };
    const double once = executed(adapted());
    EXPECT_LT(once, executed(tiny_shape())) << plan.name;
    EXPECT_GT(executed(adapted(model::AdapterTargets::kAllLinear)), once) << plan.name;
    EXPECT_GT(executed(adapted(model::AdapterTargets::kAttention, 16)), once) << plan.name;
  }
}

TEST(ADrive, HasNoAdapters) {
  EXPECT_THAT(message_of([] {
                const Job of = asked("zero3-offload", {{"offload_optimizer", "nvme"}});
                of.plan->check(of);
              }),
              testing::HasSubstr("does not run with lora_rank"));
}

}  // namespace
}  // namespace offsim::plans::adapters_test
