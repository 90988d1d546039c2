// Does an interval of ZenFlow move what stage 2 moves, update chosen columns after each micro-batch
// and the rest once, beside the next interval if it is told to?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/message_of.h"
#include "tests/plans/activities.h"
#include "tests/plans/calls.h"
#include "tests/plans/held.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::zenflow_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kMatrices = 16;  // of the tiny model's 21 tensors

Workload interval(std::int64_t k) {
  Workload w = sixteen_tokens();
  w.accumulation = k;
  return w;
}
Job zenflow(const Workload& w, Given options = {},
            const machine::Machine& machine = paper_machine()) {
  options.try_emplace("update_interval", std::to_string(w.accumulation));
  options.try_emplace("reduce_bucket_size", "1e6");
  return on_paper("zenflow", w, options, machine);
}
Job zero2(const Workload& w) {
  return on_paper("zero2-offload", w, {{"reduce_bucket_size", "1e6"}});
}

// --- bytes

class ZenFlowInterval : public testing::TestWithParam<std::int64_t> {
 protected:
  std::int64_t k() const { return GetParam(); }
  double to_host() const { return (k() > 1 ? 2.0 * static_cast<double>(k()) + 4 : 4) * kAll; }
  double step_counts() const { return 2 * 2 * kTensors * static_cast<double>(k()); }
};
INSTANTIATE_TEST_SUITE_P(Intervals, ZenFlowInterval, testing::Values(1, 2, 4));

// And two numbers a tensor, read from the GPU after each micro-batch.
TEST_P(ZenFlowInterval, MovesWhatStage2Moves) {
  for (const char* const beside : {"false", "true"}) {
    const auto totals = study::predict(zenflow(interval(k()), {{"overlap_step", beside}})).totals;
    EXPECT_EQ(totals.h2d_bytes, 2 * static_cast<double>(k()) * kAll);
    EXPECT_EQ(totals.d2h_bytes, to_host() + step_counts());
  }
}

// The 16-bit parameters, for the master.
TEST_P(ZenFlowInterval, SendsTheParametersWhereColumnsAreChosenAnew) {
  const auto totals =
      study::predict(zenflow(interval(k()), {{"select_strategy", "step"},
                                             {"select_interval", std::to_string(k())}}))
          .totals;
  EXPECT_EQ(totals.d2h_bytes, to_host() + step_counts() + 2 * kAll);
}

TEST_P(ZenFlowInterval, UpdatesChosenColumnsAfterEachMicroBatchAndTheRestOnce) {
  const runtime::Program program = recorded(zenflow(interval(k())));
  EXPECT_EQ(count_of(on(program, "compute"), "selective Adam"), k());
  EXPECT_EQ(count_of(on(program, "host"), "Adam"), 1);
}

// --- memory

// Six of 64 columns, of the embedding too: its columns are 64.
constexpr std::int64_t kChosen =
    2 * (6 * (64 + 32 + 32 + 64 + 128 + 128) + 12 * 64 + 2 * 64) + 6 * 256 + 64 + 6 * 256;

TEST(ZenFlowMemory, HoldsStatesOfChosenColumnsOnTheGpu) {
  const auto resident = [](const Job& of) {
    return study::predict(of).pool("gpu")->resident.value;
  };
  EXPECT_EQ(resident(zenflow(interval(2))), resident(zero2(interval(2))) + r(4 * kChosen));
}

TEST(ZenFlowMemory, OfTheHostIsThatOfStage2WithoutOverlap) {
  EXPECT_EQ(peak(zenflow(interval(2)), "host"), peak(zero2(interval(2)), "host"));
}

// Beside stage 2's: a second gradient, a second set of moments, a copy of the master; what was
// pinned stays so, unused.
TEST(ZenFlowMemory, WithOverlapHoldsAllTwiceAndWhatWasPinned) {
  constexpr std::int64_t n = Tiny::all;
  const auto host = [](const char* pinned, const char* beside) {
    const Job of = zenflow(interval(1), {{"pin_memory", pinned}, {"overlap_step", beside}});
    return study::predict(of).pool("host")->resident.value;
  };
  const std::int64_t temporary = 2 * n;  // the cast's, of the C library's heap
  EXPECT_EQ(host("false", "true") - host("false", "false"), (4 + 8 + 4) * n + temporary);
  EXPECT_EQ(host("true", "true") - host("true", "false"), (4 + 8 + 4 + 4 + 4) * n + temporary);
}

// --- time

// Of one micro-batch: every matrix's gradient is turned first; the bucket's chosen gradients are
// taken out (3 kernels) and their old numbers kept (2). After stage 2's step these numbers are
// taken and restored, the step counts are read, one after the other, the host being told to go on,
// and Adam (9) and the way back follow.
TEST(ZenFlowStep, IsStage2sAndTheKernelsOfTheChosen) {
  const double extra = kMatrices + (3 + 2) * kTensors + 2 * kTensors + 9 + kMatrices;
  const double counts = 2 * kTensors * kLatency + pageable(2 * 2 * kTensors);
  EXPECT_NEAR(step_us(zenflow(interval(1))),
              step_us(zero2(interval(1))) + extra * kKernel + counts + kLaunch, kExact);
}

// Column sums, ranking and the rest, 10 kernels a matrix; before that the parameters come to the
// host, blocking.
TEST(ZenFlowStep, TakesLongerWhereColumnsAreChosenAnew) {
  const Given anew{{"select_strategy", "step"}, {"select_interval", "1"}};
  const double copied = kCall + kLatency + pageable(2 * kAll);
  EXPECT_NEAR(step_us(zenflow(interval(1), anew)) - step_us(zenflow(interval(1))),
              10 * kMatrices * kKernel + copied + 2 * cpu(kAll), 10 * kLaunch);
}

// Automatic intervals compare sums, matrix by matrix: 12 kernels, and the host waits.
TEST(ZenFlowStep, TakesLongerWhereTheIntervalIsAutomatic) {
  const double more =
      step_us(zenflow(interval(1), {{"update_interval", "auto"}})) - step_us(zenflow(interval(1)));
  EXPECT_NEAR(more, kMatrices * (12 * kKernel + kLaunch), kExact);
}

machine::Machine slow_adam() {
  machine::Machine m = paper_machine();
  m.framework.kernels["adam_deepspeed_f32"].core_rate = ElementsPerSecond(1e5);
  return m;
}
// On the process's two cores: Adam and the copy of the master.
constexpr double kUpdate = 10 * kAll / 2 + kAll / 2e3;  // us

// Without warm-up the host waits for an update of two intervals ago: the process has its next work
// before it is done with one.
TEST(ZenFlowOverlap, TakesAsLongAsTheProcessDoes) {
  EXPECT_NEAR(step_us(zenflow(interval(1), {{"overlap_step", "true"}}, slow_adam())), kUpdate,
              kExact);
}

// With warm-up it waits for the last one: cast, pageable copy and unscale come between, on the two
// other cores.
TEST(ZenFlowOverlap, WaitsForTheLastUpdateAfterAWarmUp) {
  const double between = 2 * (kAll / 2e3) + kCall + kLatency + pageable(2 * kAll);
  EXPECT_NEAR(step_us(zenflow(interval(1), {{"overlap_step", "true"}, {"full_warm_up_rounds", "1"}},
                              slow_adam())),
              kUpdate + between, kExact);
}

double with_cores(const char* share) {
  return step_us(zenflow(interval(1), {{"overlap_step", "true"}, {"pt_reserved_cores_perc", share}},
                         slow_adam()));
}
double update_on(double threads) { return 10 * kAll / threads + kAll / (threads * 1e3); }

TEST(ZenFlowOverlap, GivesTheProcessTheCoresThatTheOtherDoesNotKeep) {
  EXPECT_NEAR(with_cores("0.2"), update_on(3), kExact);
  EXPECT_NEAR(with_cores("0.25"), update_on(3), kExact);
  EXPECT_NEAR(with_cores("0.6"), update_on(1), kExact);
}

// All of them or none: both processes have all four, and the cast takes its part of them beside
// Adam, which then waits for the blocking copy of what was cast, and for unscale, at most.
TEST(ZenFlowOverlap, SharesTheCoresWhereNothingIsReserved) {
  for (const char* const share : {"0", "1"}) {
    const double work = update_on(4) + 2 * cpu(kAll);
    EXPECT_GT(with_cores(share), work);
    EXPECT_LT(with_cores(share), work + kCall + kLatency + pageable(2 * kAll));
  }
}

// The more micro-batches an interval has, the more of its Adam is hidden.
TEST(ZenFlowOverlap, IsFasterThanStage2WhereTheIntervalIsLong) {
  Workload one = interval(1);
  const double stage2 = step_us(on_paper("zero2-offload", one, {}, slow_adam()));
  const double mean = step_us(zenflow(interval(4), {{"overlap_step", "true"}}, slow_adam())) / 4;
  EXPECT_LT(mean, stage2);
}

// What is shared with a process is pinned no more.
TEST(ZenFlowOverlap, SendsGradientsToPageableMemory) {
  for (const bool beside : {false, true}) {
    const runtime::Program program =
        recorded(zenflow(interval(2), {{"overlap_step", beside ? "true" : "false"}}));
    int sent = 0;
    for (const Call& call : step_of(program)) {
      const auto* copy = std::get_if<runtime::Copy>(&call);
      if (copy != nullptr && program.text(copy->what) == "fp32 gradients") {
        ++sent;
        EXPECT_EQ(copy->to, beside ? runtime::Space::kPageable : runtime::Space::kPinned);
      }
    }
    EXPECT_EQ(sent, kTensors);
  }
}

// --- refusals, as configure_zenflow's

std::string refusal(std::int64_t k, const Given& options) {
  const Job of = on_paper("zenflow", interval(k), options);
  return message_of([&] { of.plan->check(of); });
}

TEST(ZenFlowRefuses, IntervalsThatDeepSpeedRefuses) {
  EXPECT_EQ(
      refusal(4, {{"select_strategy", "step"}, {"select_interval", "2"}, {"update_interval", "4"}}),
      "zenflow.select_interval is 2; expected a multiple of the update_interval, 4");
  EXPECT_EQ(refusal(4, {{"select_interval", "4"}}),
            "zenflow.select_interval is 4; expected auto, or select_strategy step: auto would set "
            "it to 1");
  EXPECT_EQ(refusal(4, {{"select_strategy", "epoch"}}),
            "zenflow.select_interval is auto; expected a number with select_strategy epoch");
}

TEST(ZenFlowRefuses, AnIntervalThatIsNotTheAccumulation) {
  EXPECT_EQ(refusal(1, {{"update_interval", "4"}}),
            "zenflow.update_interval is 4; expected the workload's accumulation, 1: DeepSpeed sets "
            "the one to the other");
  EXPECT_EQ(refusal(4, {{"update_interval", "4"}}), "(nothing was refused)");
}

TEST(ZenFlowWarns, OfWhatTheReportedStepDoesNotShow) {
  const auto warnings = [](const Given& options) {
    const Job of = on_paper("zenflow", interval(2), options);
    return of.plan->check(of);
  };
  EXPECT_THAT(warnings({{"select_strategy", "step"}, {"select_interval", "2"}}), IsEmpty());
  EXPECT_THAT(warnings({{"select_strategy", "step"}, {"select_interval", "8"}}),
              ElementsAre("zenflow.select_strategy has no effect: the step that is reported "
                          "chooses no columns",
                          "zenflow.select_interval has no effect: the step that is reported "
                          "chooses no columns"));
  EXPECT_THAT(warnings({{"full_warm_up_rounds", "8"}}),
              ElementsAre("zenflow.full_warm_up_rounds has no effect: only overlap_step's process "
                          "is affected by it"));
}

}  // namespace
}  // namespace offsim::plans::zenflow_test
