// Do DeepSpeed's checkpoints go to host memory and come back as its releases send them?
//
// A checkpoint of T tokens has 2 T h bytes: h = 64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/message_of.h"
#include "tests/plans/activities.h"
#include "tests/plans/calls.h"
#include "tests/plans/held.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::checkpoint_offload_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

const Given kOn{{"cpu_checkpointing", "true"}};
const Given kOff{};
const Given kBefore{{"cpu_checkpointing", "true"}, {"deepspeed_version", "0.19.5"}};
const Given kPartitioned{{"cpu_checkpointing", "true"}, {"partition_activations", "true"}};

constexpr const char* kPlans[] = {"zero2-offload", "zenflow",   "zero3-offload",
                                  "zero-infinity", "memascend", "superoffload"};

Workload full(std::int64_t sequence = 128) {
  return {.micro_batch = 1, .sequence = sequence, .checkpointing = Checkpointing::kFull};
}
constexpr std::int64_t checkpoint(std::int64_t tokens) { return 2 * tokens * 64; }

Job asked(std::string_view plan, const Given& options, std::int64_t layers,
          const Workload& w = full()) {
  return job(plan, w, options, tiny_shape(layers));
}

// Down and up, in checkpoints: what the option adds to a step.
std::pair<double, double> moved(std::string_view plan, const Given& options, std::int64_t layers,
                                Workload w = full()) {
  Given without = options;
  without["cpu_checkpointing"] = "false";
  const runtime::StepTotals on = study::predict(asked(plan, options, layers, w)).totals;
  const runtime::StepTotals off = study::predict(asked(plan, without, layers, w)).totals;
  const auto bytes = static_cast<double>(checkpoint(w.batch().tokens()));
  return {(on.d2h_bytes - off.d2h_bytes) / bytes, (on.h2d_bytes - off.h2d_bytes) / bytes};
}

// --- what crosses

// The newest stays, and the one before has not been dropped when the backward asks for it.
TEST(CheckpointOffload, SendsAllButTheNewestAndFetchesAllButTwo) {
  for (const char* const plan : kPlans) {
    EXPECT_EQ(moved(plan, kOn, 5), std::pair(4.0, 3.0)) << plan;
  }
  EXPECT_EQ(moved("zero2-offload", kOn, 1), std::pair(0.0, 0.0));
  EXPECT_EQ(moved("zero2-offload", kOn, 2), std::pair(1.0, 0.0));
  EXPECT_EQ(moved("zero2-offload", kOn, 3), std::pair(2.0, 1.0));
  Workload w = full();
  w.accumulation = 3;
  EXPECT_EQ(moved("zero2-offload", kOn, 5, w), std::pair(12.0, 9.0));
}

TEST(CheckpointOffload, OfOlderReleasesAndPartitionsMovesAll) {
  for (const char* const plan : {"zero2-offload", "zero3-offload", "zero-infinity"}) {
    EXPECT_EQ(moved(plan, kBefore, 5), std::pair(5.0, 5.0)) << plan;
    EXPECT_EQ(moved(plan, kPartitioned, 5), std::pair(5.0, 5.0)) << plan;
  }
  EXPECT_EQ(moved("zenflow", kPartitioned, 5), std::pair(5.0, 5.0));
}

// --- what is held

// A pinned block for each that leaves, rounded to a power of two: 96 tokens' 12,288 B to 16,384;
// taken once, whatever the micro-batches. MemAscend's blocks are to the byte.
TEST(CheckpointOffload, PinsABlockForEachThatLeaves) {
  Workload w = full(96);
  const auto host = [&w](const char* plan, const Given& options) {
    const study::Prediction p = study::predict(asked(plan, options, 5, w));
    return p.pool("host_pinned")->peak.value;
  };
  EXPECT_EQ(host("zero2-offload", kOn) - host("zero2-offload", kOff), 4 * 16'384);
  EXPECT_EQ(host("memascend", kOn) - host("memascend", kOff), 4 * 12'288);
  w.accumulation = 3;
  EXPECT_EQ(host("zero2-offload", kOn) - host("zero2-offload", kOff), 4 * 16'384);
}

// Pageable ones come and go. So many tokens that they decide the host's peak, in the forward.
TEST(CheckpointOffload, OfOlderReleasesHoldsPageableMemoryMeanwhile) {
  const Workload w = full(65'536);
  for (const Given& options : {kBefore, kPartitioned}) {
    Given without = options;
    without["cpu_checkpointing"] = "false";
    EXPECT_EQ(peak(asked("zero2-offload", options, 5, w), "host") -
                  peak(asked("zero2-offload", without, 5, w), "host"),
              5 * checkpoint(65'536));
  }
}

// DeepSpeed keeps 64 blocks; 70 layers send 69 checkpoints, of which five are made anew.
TEST(CheckpointOffload, MakesBlocksBeyondSixtyFourAnewInEveryStep) {
  const auto made = [](std::int64_t layers) {
    return count_of(on(recorded(asked("zero2-offload", kOn, layers)), "host"),
                    "pin a checkpoint's block");
  };
  EXPECT_EQ(made(65), 0);
  EXPECT_EQ(made(70), 5);
}

// Of eight layers, a host that is never ahead, and copies that are faster than layers. The peak is
// the backward of a large head, before the bucket is made: there are the last two, or none.
TEST(CheckpointOffload, FreesTheGpu) {
  machine::Machine m = paper_machine();
  m.framework.launch_queue = 1;
  model::Shape shape = tiny_shape(8);
  shape.vocabulary = 2048;
  const auto gpu = [&](Given options) {
    options["reduce_bucket_size"] = "20000";
    return peak(job("zero2-offload", full(2048), options, shape, m), "gpu");
  };
  const std::int64_t without = gpu(kOff);
  EXPECT_EQ(without - gpu(kOn), 6 * checkpoint(2048));
  EXPECT_EQ(without - gpu(kBefore), 8 * checkpoint(2048));
  EXPECT_EQ(without - gpu(kPartitioned), 8 * checkpoint(2048));
}

// --- when

// Three layers, copies of X = 20,485 us that take longer than everything else. Layer 1's checkpoint
// leaves behind layer 2's forward, layer 2's behind it on the same stream. In the backward layer 3
// finds its own; layer 2 waits until the copy of its own is done, and keeps the tensor; the copy of
// layer 1's begins then, and layer 1 waits for it.
TEST(CheckpointSchedule, OfThreeLayersIsThatOfOneStream) {
  machine::Machine m = paper_machine();
  m.link->h2d = m.link->d2h = runtime::known<BytesPerSecond>(0.1e6);
  runtime::connect(m);
  const Activities of(job("zero2-offload", full(16), kOn, tiny_shape(3), m));
  const Times t(model::Numerics::kPure16);
  const double X = kLatency + static_cast<double>(checkpoint(16)) / 0.1;
  const Picoseconds begin = of.start(of.nth("embedding forward", Cause::kGpuCompute, 0));
  const auto us = [begin](Picoseconds at) { return static_cast<double>(at - begin) / 1e6; };
  const auto down = [&](int n) { return of.nth("checkpoints", Cause::kD2h, n); };
  const std::size_t up = of.nth("checkpoints", Cause::kH2d, 0);
  const auto recompute = [&](int n) { return of.nth("layer recompute", Cause::kGpuCompute, n); };
  const double two = t.embedding + 2 * t.layer;
  EXPECT_NEAR(us(of.start(down(0))), two, kExact);
  EXPECT_NEAR(us(of.start(down(1))), two + X, kExact);
  // Two gradients of the head go into the bucket before.
  EXPECT_NEAR(us(of.start(recompute(0))), two + t.layer + t.head + t.head_backward + 2 * kKernel,
              kExact);
  EXPECT_NEAR(us(of.start(recompute(1))), two + 2 * X, kExact);
  EXPECT_NEAR(us(of.start(up)), two + 2 * X, kExact);
  EXPECT_NEAR(us(of.start(recompute(2))), two + 3 * X, kExact);
}

// A whole layer again, with its last product.
TEST(CheckpointSchedule, RecomputesWholeLayers) {
  const auto executed = [](const Given& options) {
    return study::predict(asked("zero3-offload", options, 2)).totals.executed.value;
  };
  EXPECT_EQ(executed(kOn) - executed(kOff), 2 * 2.0 * 128 * 128 * 64);  // T f h in each layer
}

// The host is kept until its copy is done, then launches the layer. What it does meanwhile is
// hidden behind the kernels before.
TEST(CheckpointSchedule, OfOlderReleasesKeepsTheHostBeforeEveryLayer) {
  Workload w = full(16);
  w.phase_sync = true;
  const Times t(model::Numerics::kPure16);
  const double copy = kLatency + pageable(checkpoint(16));
  const auto forward = [&w](const Given& options) {
    return study::predict(on_paper("zero2-offload", w, options)).phases.at("forward").value /
           runtime::kMicro;
  };
  const double blocked = kLaunch + t.forward() + 2 * (copy + kLaunch);
  EXPECT_NEAR(forward(kBefore), blocked, kExact);
  EXPECT_NEAR(forward(kPartitioned), blocked + 2 * kKernel, kExact);  // their copies on the GPU
}

TEST(CheckpointSchedule, OfOlderReleasesFetchesBeforeEachRecomputation) {
  const Names names = on(recorded(asked("zero2-offload", kBefore, 2)), "compute");
  const Names forward{"embedding forward", "checkpoints",   "layer forward",
                      "checkpoints",       "layer forward", "head and loss forward"};
  EXPECT_EQ(Names(names.begin(), names.begin() + 6), forward);
  const auto first = std::ranges::find(names, "layer recompute");
  ASSERT_NE(first, names.end());
  EXPECT_EQ(*std::prev(first), "checkpoints");
  EXPECT_EQ(count_of(names, "checkpoints"), 4);
}

// --- who has it

std::vector<std::string> warnings(std::string_view plan, const Given& options,
                                  const Workload& w = full()) {
  const Job of = job(plan, w, options);
  return of.plan->check(of);
}

TEST(CpuCheckpointing, SaysOfWhichModelsItIs) {
  for (const char* const plan : kPlans) {
    EXPECT_THAT(warnings(plan, kOn),
                Contains(HasSubstr("layers that call deepspeed.checkpointing.checkpoint: Hugging "
                                   "Face's own gradient_checkpointing ignores it")))
        << plan;
    EXPECT_THAT(warnings(plan, kOff), Not(Contains(HasSubstr("cpu_checkpointing"))));
  }
}

TEST(CpuCheckpointing, HasNoEffectWithoutCheckpoints) {
  EXPECT_THAT(warnings("zero2-offload", kOn, {}),
              Contains("zero2-offload.cpu_checkpointing has no effect: checkpointing is none"));
  EXPECT_THAT(warnings("zero2-offload", {{"partition_activations", "true"}}),
              Contains("zero2-offload.partition_activations has no effect: one GPU has one "
                       "partition"));
  EXPECT_THAT(
      warnings("zero2-offload", {{"cpu_checkpointing", "true"}, {"variant", "paper"}}),
      Contains(HasSubstr("has no effect: the paper's variant has no checkpoints in host memory")));
}

TEST(CpuCheckpointing, IsNotBesideActivationOffload) {
  Workload w = full();
  w.activation_offload = ActivationOffload::kStreamed;
  EXPECT_THAT(message_of([&] { warnings("zero2-offload", kOn, w); }),
              HasSubstr("cpu_checkpointing and activation_offload would both move checkpoints; "
                        "expected one of them"));
}

TEST(CpuCheckpointing, FreesNothingOfOneMemory) {
  const Job of = job("zero2-offload", full(), kOn, tiny_shape(), runtime::unified_machine());
  EXPECT_THAT(of.plan->check(of), Contains(HasSubstr("cpu_checkpointing frees nothing")));
}

}  // namespace
}  // namespace offsim::plans::checkpoint_offload_test
