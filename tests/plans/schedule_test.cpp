// Is a step exactly as long as its schedule on paper? Two layers, microseconds.
//
// The machine is that of on_paper.h. Times below are counted from the end of the step before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plans/on_paper.h"

namespace offsim::plans::schedule_test {
namespace {

// --- native

// The host is ahead, across steps too: the GPU never stops. Adam is one kernel for 21 tensors.
TEST(Native, BoundByTheGpuIsTheSumOfItsKernels) {
  const Times t(model::Numerics::kAutocast);
  EXPECT_NEAR(step_us(on_paper("native", sixteen_tokens())), t.forward() + t.backward() + kKernel,
              kExact);
}

TEST(Native, AccumulationAddsAKernelATensor) {
  const Times t(model::Numerics::kAutocast);
  Workload w = sixteen_tokens();
  w.accumulation = 3;
  EXPECT_NEAR(step_us(on_paper("native", w)),
              3 * (t.forward() + t.backward()) + 2 * kTensors * kKernel + kKernel, kExact);
}

TEST(Native, CheckpointingAddsTheRecomputedLayers) {
  const Times t(model::Numerics::kAutocast);
  Workload w = sixteen_tokens();
  w.checkpointing = Checkpointing::kFull;
  EXPECT_NEAR(step_us(on_paper("native", w)),
              t.forward() + 2 * t.recompute + t.backward() + kKernel, kExact);
}

// Clipping: four kernels that read the gradients for their norm and scale them.
TEST(Native, ClippingAddsFourKernels) {
  const Times t(model::Numerics::kAutocast);
  EXPECT_NEAR(step_us(on_paper("native", sixteen_tokens(), {{"gradient_clipping", "true"}})),
              t.forward() + t.backward() + 4 * kKernel + kKernel, kExact);
}

// Launches that take twice as long as kernels: the step is what the host does. It waits for
// nothing.
TEST(Native, BoundByTheHostIsTheSumOfItsLaunches) {
  machine::Machine m = paper_machine();
  m.framework.launch = m.framework.launch_forward = m.framework.launch_backward =
      runtime::known<Seconds>(200 * runtime::kMicro);
  const Times t(model::Numerics::kAutocast);
  EXPECT_NEAR(step_us(on_paper("native", sixteen_tokens(), {}, m)),
              200 * (t.launches + 1) + kTensors * kTensor, kExact);
}

// A loop that synchronises between its phases sees the first launch of each.
TEST(Native, PhaseSyncExposesTheFirstLaunchOfEachPhase) {
  const Times t(model::Numerics::kAutocast);
  Workload w = sixteen_tokens();
  w.phase_sync = true;
  const study::Prediction p = study::predict(on_paper("native", w));
  EXPECT_NEAR(p.phases.at("forward").value / runtime::kMicro, kLaunch + t.forward(), kExact);
  EXPECT_NEAR(p.phases.at("backward").value / runtime::kMicro, kLaunch + t.backward(), kExact);
  EXPECT_NEAR(p.phases.at("optimizer").value / runtime::kMicro,
              kTensors * kTensor + kLaunch + kKernel, kExact);
}

// --- zero2-offload
//
// Forward and backward on the GPU, with one kernel a tensor into the bucket, then one that averages
// it. Then tensor by tensor, on the same stream: norm (3 kernels) and check (7), whose answer the
// host waits for; after its launch the cast (1 kernel), then the copy of 4 B a parameter. While
// that runs the host has launched the next tensor's norm.

double on_gpu(const Times& t) { return t.forward() + t.backward() + kTensors * kKernel + kKernel; }
double sent(double copies) {
  return kTensors * (10 * kKernel + kLaunch + kKernel + kLatency) + copies;
}

// In the end the host waits for the parameters (4 B) and launches their cast, behind which the next
// forward is launched.
double old_optimizer() {
  return kTensors * kTensor + 2 * cpu(kAll) + kCall + kLatency + link(4 * kAll) + kLaunch + kKernel;
}

TEST(Zero2, OfOldPinnedWritesBackFp32) {
  const Times t(model::Numerics::kPure16);
  EXPECT_NEAR(step_us(on_paper("zero2-offload", sixteen_tokens(),
                               {{"deepspeed_version", "0.14.5"}, {"pin_memory", "true"}})),
              on_gpu(t) + sent(link(4 * kAll)) + old_optimizer(), kExact);
}

// Pageable gradients: the host waits for every copy, so each next norm waits for its launch. The
// master is pinned still.
TEST(Zero2, OfOldPageableWaitsForEveryCopy) {
  const Times t(model::Numerics::kPure16);
  EXPECT_NEAR(step_us(on_paper("zero2-offload", sixteen_tokens(),
                               {{"deepspeed_version", "0.14.5"}, {"pin_memory", "false"}})),
              on_gpu(t) + sent(pageable(4 * kAll)) + (kTensors - 1) * kLaunch + old_optimizer(),
              kExact);
}

// The staging copy is cast on the CPU and sent without waiting: the next forward is launched
// meanwhile.
TEST(Zero2, OfNewSendsAStagingCopy) {
  const Times t(model::Numerics::kPure16);
  const double optimizer = kTensors * kTensor + 3 * cpu(kAll) + kCall + kLatency + link(2 * kAll);
  for (const char* const overlap : {"false", "true"}) {  // one bucket: nothing to overlap with
    EXPECT_NEAR(step_us(on_paper("zero2-offload", sixteen_tokens(),
                                 {{"deepspeed_version", "0.19.6"}, {"overlap_comm", overlap}})),
                on_gpu(t) + sent(link(4 * kAll)) + optimizer, kExact);
  }
}

// A micro-batch that is not the last sends its gradients in 16 bits and nobody waits; the last
// brings them back, adds (1 kernel) and stores them before it checks the sum. All on the compute
// stream.
TEST(Zero2, OfTwoMicroBatchesAccumulatesThroughTheGpu) {
  const Times t(model::Numerics::kPure16);
  Workload w = sixteen_tokens();
  w.accumulation = 2;
  const double stored = kTensors * kLatency + link(2 * kAll);  // to the host
  const double added = stored + kTensors * kKernel + stored;   // back, summed, to the host
  const double optimizer = kTensors * kTensor + 3 * cpu(kAll) + kCall + kLatency + link(2 * kAll);
  EXPECT_NEAR(step_us(on_paper("zero2-offload", w, {{"deepspeed_version", "0.19.6"}})),
              2 * on_gpu(t) + stored + added + sent(link(4 * kAll)) + optimizer, kExact);
}

// --- megatrain

// Of the head, in one chunk of 15 positions: norm (8 kernels, twice), product and loss (11), their
// backward (14), the norm's (17).
constexpr double kHeadForward = (16 + 11) * kKernel, kHeadBackward = (14 + 17) * kKernel;
constexpr double kUnflatten = 9 * kKernel;  // a copy a tensor

// After the GPU is done: gradients of the embedding to the host, and into p.grad; norms, scaling,
// Adam; the refresh of the pinned copies; embedding and head back to the GPU, pageable; zeroing.
double megatrain_tail(bool refresh, double up_bytes_per_us = 5e3) {
  return kLatency + link(2 * kEmbedding) + cpu(kEmbedding) + one_core(kAll) + 2 * cpu(kAll) +
         (refresh ? cpu(2 * kLayer) : 0) + 2 * (kCall + kLatency) +
         2 * (kEmbedding + kHead) / up_bytes_per_us + cpu(kAll);
}

// Copies of 12.4 us hide behind layers of half a millisecond. The host blocks at the loss, so the
// head's backward begins with its launch; layer 0 is unflattened twice.
TEST(Megatrain, BoundByTheGpuIsFiveForwards) {
  const Times t(model::Numerics::kPure16);
  const double forward = t.embedding + 3 * kUnflatten + 2 * t.layer + kHeadForward;
  const double block = 2 * (kUnflatten + t.layer) + 2 * (kUnflatten + t.layer + t.layer_backward);
  const double backward = kHeadBackward + block + t.embedding + t.embedding_backward;
  EXPECT_NEAR(step_us(on_paper("megatrain", sixteen_tokens())),
              kLaunch + forward + kLaunch + backward + megatrain_tail(true), kExact);
}

TEST(Megatrain, OfThePaperBoundByTheGpuIsFourForwards) {
  const Times t(model::Numerics::kPure16);
  const double forward = t.embedding + 3 * kUnflatten + 2 * t.layer + kHeadForward;
  const double block = 2 * (kUnflatten + t.layer + t.layer_backward);
  const double backward = kHeadBackward + block + t.embedding + t.embedding_backward;
  EXPECT_NEAR(step_us(on_paper("megatrain", sixteen_tokens(), {{"variant", "paper"}})),
              kLaunch + forward + kLaunch + backward + megatrain_tail(false), kExact);
}

// A link of 1 MB/s to the GPU: every layer's 2 B a parameter take 74 ms and hide all kernels but
// those between copies.
TEST(Megatrain, BoundByTheLinkIsSixCopies) {
  machine::Machine m = paper_machine();
  m.link->h2d = runtime::known<BytesPerSecond>(1e6);
  runtime::connect(m);
  const Times t(model::Numerics::kPure16);
  const double copy = kLatency + 2 * kLayer;
  // Forward: the embedding's launches, then the first copy, for which the host waits; 9 launches
  // later the second.
  const double forward = (t.embedding / kKernel) * kLaunch + kCall + copy + 9 * kLaunch + kCall +
                         copy + kUnflatten + t.layer + kHeadForward;
  // The host has waited for the loss; it launches the head's backward and two copies of its
  // gradients before it loads. The block's two layers follow each other; the second copy of layer 1
  // waits until its first is out of the slot; the last layer's backward follows its copy.
  const double block = 31 * kLaunch + 2 * kCall + kCall + copy + copy + kUnflatten + copy + copy +
                       kUnflatten + t.layer + t.layer_backward;
  EXPECT_NEAR(step_us(on_paper("megatrain", sixteen_tokens(), {}, m)),
              forward + block + t.embedding + t.embedding_backward + megatrain_tail(true, 1),
              kExact);
}

}  // namespace
}  // namespace offsim::plans::schedule_test
