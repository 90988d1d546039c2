// Does each plan ask for the same things in the same order as the loop that it models?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/engine/critical_path.h"
#include "tests/plans/calls.h"

namespace offsim::plans::sequence_test {
namespace {

using runtime::Call;
using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr Workload kShort{.micro_batch = 1, .sequence = 16};

// --- native

TEST(NativeSequence, IsForwardBackwardAdam) {
  EXPECT_THAT(on(recorded(job("native", kShort)), "compute"),
              ElementsAre("embedding forward", "layer forward", "layer forward",
                          "head and loss forward", "head and loss backward", "layer backward",
                          "layer backward", "embedding backward", "Adam"));
}

TEST(NativeSequence, RecomputesEachLayerBeforeItsBackward) {
  Workload w = kShort;
  w.checkpointing = Checkpointing::kFull;
  EXPECT_THAT(
      on(recorded(job("native", w, {{"gradient_clipping", "true"}})), "compute"),
      ElementsAre("embedding forward", "layer forward", "layer forward", "head and loss forward",
                  "head and loss backward", "layer recompute", "layer backward", "layer recompute",
                  "layer backward", "embedding backward", "clip gradients", "Adam"));
}

TEST(NativeSequence, AddsGradientsFromTheSecondMicroBatchOn) {
  Workload w = kShort;
  w.accumulation = 3;
  const Names names = on(recorded(job("native", w)), "compute");
  EXPECT_EQ(count_of(names, "add gradients"), 2 * 4);  // head with norm, two layers, embedding
  EXPECT_EQ(count_of(names, "Adam"), 1);
}

// Pieces of as many elements but other tensors: a layer's nine, and norm and head of 577 x 64.
TEST(NativeSequence, AddsGradientsOfALayerAsLargeAsTheHead) {
  model::Shape shape = tiny_shape();
  shape.vocabulary = 577;
  ASSERT_EQ(model::layer_parameters(shape, 0), model::head_parameters(shape) + 64);
  Workload w = kShort;
  w.accumulation = 2;
  EXPECT_EQ(count_of(on(recorded(job("native", w, {}, shape)), "compute"), "add gradients"), 4);
}

// --- zero2-offload

const Names kSent{"norm in double and check for infinities", "cast to fp32", "fp32 gradients"};

TEST(Zero2Sequence, FillsABucketThenSendsTensorByTensor) {
  const Names expected = Names{"embedding forward", "layer forward", "layer forward",
                               "head and loss forward", "head and loss backward"} +
                         repeated({"gradient into bucket"}, 2) + Names{"layer backward"} +
                         repeated({"gradient into bucket"}, 9) + Names{"layer backward"} +
                         repeated({"gradient into bucket"}, 9) +
                         Names{"embedding backward", "gradient into bucket", "average"} +
                         repeated(kSent, 21) + Names{"parameters"};
  EXPECT_THAT(on(recorded(job("zero2-offload", kShort)), "compute"), ElementsAreArray(expected));
  EXPECT_THAT(on(recorded(job("zero2-offload", kShort)), "host"),
              ElementsAre("unscale and clip", "Adam", "cast to 16 bits"));
}

TEST(Zero2Sequence, OfOldVersionsCastsOnTheGpu) {
  const runtime::Program program =
      recorded(job("zero2-offload", kShort, {{"deepspeed_version", "0.14.5"}}));
  const Names compute = on(program, "compute");
  EXPECT_THAT(on(program, "host"), ElementsAre("unscale and clip", "Adam"));
  EXPECT_THAT(Names(compute.end() - 2, compute.end()),
              ElementsAre("fp32 parameters", "cast to 16 bits"));
}

// A bucket is flushed when the next gradient would not fit: with one element less it is.
TEST(Zero2Sequence, FlushesWhenTheNextGradientDoesNotFit) {
  const auto flushes = [](std::int64_t elements) {
    return count_of(on(recorded(job("zero2-offload", kShort,
                                    {{"reduce_bucket_size", std::to_string(elements)}})),
                       "compute"),
                    "average");
  };
  const std::int64_t n = model::parameters(tiny_shape());
  EXPECT_EQ(flushes(n), 1);
  EXPECT_EQ(flushes(n - 1), 2);
}

TEST(Zero2Sequence, ATensorLargerThanTheBucketIsNotCopiedIntoIt) {
  const Names names =
      on(recorded(job("zero2-offload", kShort, {{"reduce_bucket_size", "8192"}})), "compute");
  EXPECT_EQ(count_of(names, "gradient into bucket"), 19);  // all but embedding and head of 16,384
  EXPECT_EQ(count_of(names, "cast to fp32"), 21);
}

TEST(Zero2Sequence, OverlapsOnAStreamOfItsOwn) {
  const runtime::Program program =
      recorded(job("zero2-offload", kShort, {{"overlap_comm", "true"}}));
  EXPECT_THAT(on(program, "reduction"), ElementsAreArray(Names{"average"} + repeated(kSent, 21)));
  EXPECT_EQ(count_of(on(program, "compute"), "average"), 0);
  EXPECT_EQ(on(program, "compute").back(), "parameters");
}

// Gradients that accumulate cross the link in 16 bits and are checked with the last micro-batch
// only.
TEST(Zero2Sequence, AccumulatesThroughTheGpu) {
  Workload w = kShort;
  w.accumulation = 3;
  const Names names = on(recorded(job("zero2-offload", w)), "compute");
  EXPECT_EQ(count_of(names, "accumulate"), 2 * 21);
  EXPECT_EQ(count_of(names, "accumulated gradients"),
            (1 + 2 + 2) * 21);  // stored; loaded and stored twice
  EXPECT_EQ(count_of(names, "norm in double and check for infinities"), 21);
}

// The host waits once a tensor for the answer of the check, and for the overflow flag.
TEST(Zero2Sequence, HostWaitsOnceATensor) {
  const runtime::Program program = recorded(job("zero2-offload", kShort));
  std::int64_t waits = 0;
  for (const Call& call : step_of(program)) {
    const auto* wait = std::get_if<runtime::Wait>(&call);
    waits += wait != nullptr && wait->lane == runtime::kHost ? 1 : 0;
  }
  EXPECT_EQ(waits, 21 + 1);
}

// --- megatrain

TEST(MegatrainSequence, OfTwoLayers) {
  const runtime::Program program = recorded(job("megatrain", kShort));
  const Names load{"unflatten", "layer forward"};
  EXPECT_THAT(on(program, "compute"),
              ElementsAreArray(Names{"embedding forward", "unflatten"} + repeated(load, 2) +
                               Names{"norm forward", "norm forward", "head chunk forward",
                                     "head chunk backward", "norm backward"} +
                               repeated(load, 2) + repeated(load + Names{"layer backward"}, 2) +
                               Names{"embedding forward", "embedding backward",
                                     "embedding and head", "embedding and head"}));
  EXPECT_THAT(on(program, "weights"), ElementsAreArray(repeated({"weights"}, 6)));
  EXPECT_THAT(without_repeats(on(program, "gradients")),
              ElementsAre("head gradients", "layer gradients", "embedding gradients"));
  EXPECT_EQ(count_of(on(program, "gradient worker"), "gradients into p.grad"), 21);
  EXPECT_THAT(without_repeats(on(program, "host")),
              ElementsAre("clip", "Adam", "refresh pinned copies", "zero gradients"));
}

// Five layers in blocks of two from the front: the last block is layer 4 alone.
TEST(MegatrainSequence, RecomputesBlockByBlockFromTheLast) {
  const Names names = on(
      recorded(job("megatrain", kShort, {{"checkpoint_interval", "2"}}, tiny_shape(5))), "compute");
  Names layers;
  for (const std::string& name : names) {
    if (name.starts_with("layer")) {
      layers.push_back(name);
    }
  }
  const Names forward{"layer forward"}, with_graph{"layer forward", "layer backward"};
  const Names one = forward + with_graph;
  const Names two = forward + forward + with_graph + with_graph;
  EXPECT_THAT(layers, ElementsAreArray(repeated(forward, 5) + one + two + two));
}

TEST(MegatrainSequence, OfThePaperKeepsTheGraphOfItsRecomputation) {
  const runtime::Program program = recorded(job("megatrain", kShort, {{"variant", "paper"}}));
  const Names names = on(program, "compute");
  EXPECT_EQ(count_of(names, "layer forward"), 4);
  EXPECT_EQ(count_of(names, "layer backward"), 2);
  EXPECT_EQ(count_of(on(program, "weights"), "weights"), 4);
  EXPECT_THAT(on(program, "weight stager"), ElementsAreArray(repeated({"stage weights"}, 4)));
  EXPECT_EQ(count_of(on(program, "host"), "refresh pinned copies"), 0);
}

// Chunks of 128 positions, the last position predicting nothing, each read by the host.
TEST(MegatrainSequence, ReadsEveryChunkOfTheHead) {
  for (const auto& [sequence, chunks] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 1}, {129, 1}, {130, 2}, {1024, 8}}) {
    const runtime::Program program = recorded(job("megatrain", {.sequence = sequence}));
    EXPECT_EQ(count_of(on(program, "compute"), "head chunk forward"), chunks) << sequence;
    EXPECT_EQ(count_of(on(program, "compute"), "head chunk backward"), chunks) << sequence;
  }
}

TEST(MegatrainSequence, AddsGradientsFromTheSecondMicroBatchOnAndStepsOnce) {
  Workload w = kShort;
  w.accumulation = 3;
  const runtime::Program program = recorded(job("megatrain", w));
  EXPECT_EQ(count_of(on(program, "gradient worker"), "gradients into p.grad"), 21);
  EXPECT_EQ(count_of(on(program, "gradient worker"), "add gradients"), 2 * 21);
  EXPECT_EQ(count_of(on(program, "host"), "Adam"),
            9 + 3);  // all layers of a tensor in one call; embedding, norm, head
}

// --- critical paths: what a step waits for, in the order of time

Names critical(const Job& asked) {
  const Predicted done = predicted(asked);
  const auto path = engine::critical_path(done.run.lowered.graph, done.run.timeline, done.run.step,
                                          done.run.end());
  Names causes;
  for (const engine::Segment& segment : path.segments) {
    const std::uint8_t cause = done.run.lowered.graph.activity(segment.activity).cause;
    causes.emplace_back(runtime::cause_key(runtime::Cause(cause)));
  }
  return without_repeats(causes);
}

machine::Machine gpu_bound() {
  machine::Machine m = runtime::synthetic_machine();
  m.accelerator.kernel_floor = runtime::known<Seconds>(1e-3);
  return m;
}

TEST(CriticalPath, OfNativeIsTheGpu) {
  EXPECT_THAT(critical(job("native", kShort, {}, tiny_shape(), gpu_bound())),
              ElementsAre("gpu_compute"));
}

// 21 times norm, check, launch of the cast, cast, copy; the host alone; the
// staging copy.
TEST(CriticalPath, OfZero2EndsWithTheHostAndItsStagingCopy) {
  const Names path = critical(job("zero2-offload", kShort, {}, tiny_shape(), gpu_bound()));
  const Names sent{"gpu_compute", "host", "gpu_compute", "d2h"};
  EXPECT_THAT(path, ElementsAreArray(repeated(sent, 21) + Names{"host", "cpu_clip", "cpu_optimizer",
                                                                "cpu_copy", "host", "h2d"}));
}

TEST(CriticalPath, OfMegatrainEndsWithTheOptimizerOfTheHost) {
  const Names path = critical(job("megatrain", kShort, {}, tiny_shape(), gpu_bound()));
  EXPECT_THAT(
      path, ElementsAre("host", "gpu_compute", "host", "gpu_compute", "d2h", "cpu_copy", "cpu_clip",
                        "cpu_optimizer", "cpu_copy", "host", "h2d", "host", "h2d", "cpu_copy"));
}

}  // namespace
}  // namespace offsim::plans::sequence_test
