// Does the GPU's optimizer on states in CPU memory move what its comment says, and take as long as
// that takes on the link?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/base/message_of.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::coherent_offload_test {
namespace {

using testing::HasSubstr;

constexpr double kFault = 20;

machine::Machine coherent(machine::Machine m) {
  m.link->page_fault = runtime::known<Seconds>(kFault * runtime::kMicro);
  return m;
}
Job coherent_job(const Workload& w, const Given& options = {}) {
  return on_paper("coherent-offload", w, options, coherent(paper_machine()));
}

// --- schedule. A kernel a tensor stores its gradient, longer than its bytes take; then Adam: 12
// B out while as much comes in, both at half of what the link carries both ways, then 4 B more.

TEST(CoherentOffload, IsAsLongAsItsKernelsAndAdamsBytes) {
  const Times t(model::Numerics::kPure16);
  EXPECT_NEAR(step_us(coherent_job(sixteen_tokens())),
              t.forward() + t.backward() + kTensors * kKernel + kLatency + 12 * kAll / 7.5e3 +
                  4 * kAll / 10e3,
              kExact);
}

TEST(CoherentOffload, OfGradientsOnTheGpuMovesTwelveEachWay) {
  const Times t(model::Numerics::kPure16);
  EXPECT_NEAR(step_us(coherent_job(sixteen_tokens(), {{"gradients", "gpu"}})),
              t.forward() + t.backward() + kLatency + 12 * kAll / 7.5e3, kExact);
}

// One page: its fault, 15 us longer than a latency, in which 150,000 bytes leave alone; they are
// also what comes alone in the end.
TEST(CoherentOffload, OfManagedMemoryWaitsForFaults) {
  const Times t(model::Numerics::kPure16);
  const double alone = 15 * 10e3;
  EXPECT_NEAR(step_us(coherent_job(sixteen_tokens(), {{"access", "managed"}})),
              t.forward() + t.backward() + kTensors * kKernel + kFault +
                  (16 * kAll - alone) / 7.5e3 + alone / 10e3,
              kExact);
}

// A link of 1 MB/s from the GPU: every piece's backward waits for its gradients to be stored.
TEST(CoherentOffload, HoldsTheComputeStreamWhileGradientsAreStored) {
  machine::Machine m = coherent(paper_machine());
  m.link->d2h = runtime::known<BytesPerSecond>(1e6);
  runtime::connect(m);
  const Times t(model::Numerics::kPure16);
  EXPECT_NEAR(step_us(on_paper("coherent-offload", sixteen_tokens(), {}, m)),
              t.forward() + t.backward() + 4 * (kLatency) + 4 * kAll + kLatency + 12 * kAll,
              kExact);
}

// --- bytes a parameter, in and out

struct BytesCase {
  std::int64_t micro_batches;
  Given options;
  double in, out;
};
class CoherentBytes : public testing::TestWithParam<BytesCase> {};
INSTANTIATE_TEST_SUITE_P(
    Placements, CoherentBytes,
    testing::Values(BytesCase{1, {}, 16, 16}, BytesCase{2, {}, 20, 20}, BytesCase{4, {}, 28, 28},
                    BytesCase{1, {{"gradients", "gpu"}}, 12, 12},
                    BytesCase{4, {{"gradients", "gpu"}}, 12, 12},
                    BytesCase{1, {{"access", "managed"}}, 20, 20},
                    BytesCase{4, {{"access", "managed"}}, 32, 32},
                    BytesCase{4, {{"access", "managed"}, {"gradients", "gpu"}}, 12, 12}));

// And nothing else in DRAM: no CPU work.
TEST_P(CoherentBytes, CrossTheLinkAndNothingElseIsInDram) {
  Workload w = sixteen_tokens();
  w.accumulation = GetParam().micro_batches;
  const study::Prediction p = study::predict(coherent_job(w, GetParam().options));
  EXPECT_EQ(p.totals.h2d_bytes, GetParam().in * kAll);
  EXPECT_EQ(p.totals.d2h_bytes, GetParam().out * kAll);
  EXPECT_EQ(p.totals.dram_bytes, (GetParam().in + GetParam().out) * kAll);
}

// --- memory

std::int64_t r(std::int64_t bytes) { return round_up(Bytes(bytes), 512).value; }

TEST(CoherentMemory, HoldsSixteenBytesOnTheHostAndSixteenBitsOnTheGpu) {
  const auto all = static_cast<std::int64_t>(kAll), head = static_cast<std::int64_t>(kHead),
             layer = static_cast<std::int64_t>(kLayer),
             embedding = static_cast<std::int64_t>(kEmbedding);
  const Workload w{.micro_batch = 1, .sequence = 2};
  const study::Prediction cpu = study::predict(coherent_job(w));
  EXPECT_EQ(cpu.pool("host")->peak.value, 16 * all);
  const study::Prediction gpu = study::predict(coherent_job(w, {{"gradients", "gpu"}}));
  EXPECT_EQ(gpu.pool("host")->peak.value, 12 * all);
  // The step is the peak of two tokens: all gradients.
  EXPECT_EQ(gpu.pool("gpu")->peak.value,
            r(2 * all) + kMiB + r(2 * head) + 2 * r(2 * layer) + r(2 * embedding));
  EXPECT_LT(cpu.pool("gpu")->peak, gpu.pool("gpu")->peak);
}

// --- refusals

std::string refusal(const Job& job) {
  return message_of([&] { job.plan->check(job); });
}

TEST(CoherentRefuses, LinksThatAreNotCoherentAndMachinesWithout) {
  EXPECT_EQ(refusal(on_paper("coherent-offload", sixteen_tokens())),
            "coherent-offload needs a coherent link: over synthetic link kernels do not reach the "
            "memory of processes; expected a machine such as gh200-480gb");
  EXPECT_THAT(refusal(job("coherent-offload", {}, {}, tiny_shape(), runtime::unified_machine())),
              HasSubstr("needs a coherent link, and synthetic has one memory"));
  EXPECT_EQ(refusal(coherent_job(sixteen_tokens())), "(nothing was refused)");
}

TEST(CoherentRefuses, StatesThatAreNotFp32OverSixteenBits) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
    Workload w = sixteen_tokens();
    w.precision = precision;
    EXPECT_THAT(refusal(coherent_job(w)), HasSubstr("coherent-offload does not run in"));
  }
}

}  // namespace
}  // namespace offsim::plans::coherent_offload_test
