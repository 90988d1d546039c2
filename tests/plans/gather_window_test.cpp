// Does the window of gathered parameters fetch, prefetch, keep and release what DeepSpeed's
// coordinator does, in its order?
//
// Visits are written as in visits.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plans/visits.h"

namespace offsim::plans::gather_window_test {
namespace {

using runtime::HostTask;
using runtime::Lane;
using runtime::Recorder;
using runtime::Space;
using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr std::int64_t kMany = 1'000'000;

// Three modules with a parameter each, of 10, 20 and 40 elements: forward, then backward.
const std::vector<GatherWindow::Parameter> kThree{{10}, {20}, {40}};
const std::vector<Module> kThereAndBack{{0}, {1}, {2}, {2}, {1}, {0}};

Lines second_micro_step(GatherWindow::Limits limits,
                        std::vector<GatherWindow::Parameter> parameters = kThree) {
  Window of(limits, std::move(parameters));
  of.micro_step(kThereAndBack);
  of.micro_step(kThereAndBack);
  return of.last(kThereAndBack.size());
}

// The first micro-step learns the order: nothing is prefetched and nothing kept, whatever may be.
TEST(WindowFirstMicroStep, FetchesEachParameterForEachUse) {
  Window of({kMany, kMany, kMany}, {{10, true}, {20}, {40}});
  of.micro_step(kThereAndBack);
  EXPECT_THAT(of.last(6), ElementsAre("10 s | -10", "20 s | -20", "40 s | -40", "40 s | -40",
                                      "20 s | -20", "10 s | -10"));
}

// Without prefetch and reuse so does every other.
TEST(WindowWithoutLimits, OfAnythingItStaysSo) {
  EXPECT_THAT(second_micro_step({0, kMany, 0}),
              ElementsAre("10 s | -10", "20 s | -20", "40 s | -40", "40 s | -40", "20 s | -20",
                          "10 s | -10"));
}

// Distances are what other modules use in between: of the third parameter 0, of the second 40 + 40,
// of the first 20 + 40 + 40 + 20.
TEST(WindowReuse, KeepsWhatIsUsedAgainWithinItsDistance) {
  EXPECT_THAT(second_micro_step({0, kMany, 1}), ElementsAre("10 s | -10", "20 s | -20", "40 s |",
                                                            "| -40", "20 s | -20", "10 s | -10"));
  EXPECT_EQ(second_micro_step({0, kMany, 80})[1], "20 s | -20");
  EXPECT_EQ(second_micro_step({0, kMany, 81})[1], "20 s |");
  EXPECT_EQ(second_micro_step({0, kMany, 120})[0], "10 s | -10");
  EXPECT_THAT(second_micro_step({0, kMany, 121}),
              ElementsAre("10 s |", "20 s |", "40 s |", "| -40", "| -20", "| -10"));
}

// What is used twice in a row (recomputation and backward) is fetched once.
TEST(WindowReuse, OfARecomputedLayerIsBetweenItsRecomputationAndItsBackward) {
  Window of({0, kMany, 41}, {{10}, {10}, {500}});
  const std::vector<Module> checkpointed{{0}, {1}, {2}, {2}, {0}, {1}, {1}, {0}};
  of.micro_step(checkpointed);
  of.micro_step(checkpointed);
  EXPECT_THAT(of.last(8), ElementsAre("10 s | -10", "10 s | -10", "500 s |", "| -500", "10 s |",
                                      "10 s |", "| -10", "| -10"));
}

// Saved by autograd, what was gathered for the forward stays until the backward, which fetches anew
// all the same. What is kept for reuse is there once.
TEST(WindowSaved, KeepsWhatForwardGatheredUntilItsBackward) {
  for (const auto& [reuse, lines] :
       {std::pair(0, Lines{"10 s |", "20 s |", "20 s | -20 -20", "10 s | -10 -10"}),
        std::pair(1000, Lines{"10 s |", "20 s |", "| -20", "| -10"})}) {
    Window of({0, kMany, reuse}, {{10}, {20}});
    for (int step = 0; step < 2; ++step) {
      of.window().begin_micro_step();
      of.visit({0}, 1, true);
      of.visit({1}, 1, true);
      of.visit({1});
      of.visit({0});
    }
    EXPECT_EQ(of.last(4), lines);
  }
}

// A prefetch goes on until it has the bucket's elements: the last parameter may overshoot.
TEST(WindowPrefetch, OvershootsItsBucketByTheLastParameter) {
  // 1 element: the next parameter. 20: that is enough. 21: the one after it too.
  for (const std::int64_t bucket : {1, 20}) {
    EXPECT_EQ(second_micro_step({bucket, kMany, 0})[0], "10 s | 20 -10") << bucket;
  }
  EXPECT_EQ(second_micro_step({21, kMany, 0})[0], "10 s | 20 40 -10");
}

// A parameter that was prefetched is waited for by the first module that uses it: the host
// synchronises the stream once a fetch, even when an earlier wait has covered it.
TEST(WindowPrefetch, IsWaitedForOnceAFetch) {
  EXPECT_THAT(second_micro_step({1, kMany, 1}), ElementsAre("10 s | 20 -10", "s | 40 -20", "s | 20",
                                                            "| 10 -40", "s | -20", "s | -10"));
  // Both came with one fetch.
  EXPECT_THAT(second_micro_step({60, kMany, 1}),
              ElementsAre("10 s | 20 40 -10", "s | 10", "|", "| -40", "| -20", "s | -10"));
}

// The prefetcher that finds a parameter in place counts on it: it is kept for that use, however
// far. Above, the second module's; with room for more, the first's too.
TEST(WindowPrefetch, KeepsWhatItHasCountedOn) {
  EXPECT_THAT(second_micro_step({kMany, kMany, 1}),
              ElementsAre("10 s | 20 40", "s |", "|", "| -40", "| -20", "| -10"));
}

// But for the very next visit only the distance counts, which 0 excludes.
TEST(WindowPrefetch, DoesNotCountOnTheNextVisit) {
  EXPECT_THAT(second_micro_step({kMany, kMany, 0}),
              ElementsAre("10 s | 20 40", "s |", "| -40", "40 s | -40", "| -20", "| -10"));
}

// Gathered elements, in flight included, are never more than max_live because of a prefetch: with
// 10 gathered there is room for one element or none.
TEST(WindowMaxLive, LimitsThePrefetchOnly) {
  EXPECT_EQ(second_micro_step({kMany, 10, 0})[0], "10 s | -10");
  EXPECT_EQ(second_micro_step({kMany, 11, 0})[0], "10 s | 20 -10");
  EXPECT_EQ(second_micro_step({kMany, 30, 0})[0], "10 s | 20 -10");
  EXPECT_EQ(second_micro_step({kMany, 31, 0})[0], "10 s | 20 40 -10");
  // 40 alone is more than may live, and is fetched.
  EXPECT_EQ(second_micro_step({kMany, 1, 0})[2], "40 s | -40");
}

// Kept parameters take room from the prefetch: when the first, of 10, is kept, none is left.
TEST(WindowMaxLive, CountsWhatIsKept) {
  EXPECT_EQ(second_micro_step({kMany, 30, 0})[1], "s | 40 -20");
  EXPECT_EQ(second_micro_step({kMany, 30, kMany})[1], "s |");
}

// Modules without parameters, containers, prefetch too.
TEST(WindowContainers, PrefetchAtTheirBorders) {
  Window of({1, kMany, 0}, kThree);
  for (int micro = 0; micro < 2; ++micro) {
    of.window().begin_micro_step();
    of.visit({0}, 3);
    of.visit({1});
    of.visit({2});
  }
  EXPECT_THAT(of.last(5), ElementsAre("10", "20", "s | 40 -10", "s | -20", "s | -40"));
}

TEST(WindowPersistent, ParametersStayFromStepToStep) {
  Window of({0, kMany, 0}, {{10, true}, {20}, {40, true}});
  for (int micro = 0; micro < 2; ++micro) {
    of.micro_step(kThereAndBack);
    of.window().release_all();
    of.window().gather_persistent();
  }
  of.micro_step(kThereAndBack);
  EXPECT_THAT(of.last(6), ElementsAre("|", "20 s | -20", "|", "|", "20 s | -20", "|"));
}

// They leave for the optimizer, and come back with one synchronisation.
TEST(WindowPersistent, ParametersAreGatheredAgainAfterTheStep) {
  Window of({0, kMany, 0}, {{10, true}, {20}, {40, true}});
  of.micro_step(kThereAndBack);
  of.micro_step({{0}, {1}, {2}});
  of.window().release_all();
  of.window().gather_persistent();
  EXPECT_THAT(of.last(1), ElementsAre("40 s | -10 -40 10 40 s |"));
}

// One copy a parameter in the order of registration, one synchronisation a module.
TEST(WindowAModule, OfSeveralParametersIsOneFetch) {
  Window of({0, kMany, 0}, kThree);
  of.micro_step({{2, 0, 1}});
  EXPECT_THAT(of.last(1), ElementsAre("10 20 40 s | -40 -10 -20"));
}

// Where parameters are on the GPU nothing moves and nobody waits; without a stream of their own the
// host waits for compute.
TEST(WindowOnTheGpu, NothingMoves) {
  const std::vector<GatherWindow::Parameter> here{
      {10, false, Space::kGpu}, {20, false, Space::kGpu}, {40, false, Space::kGpu}};
  for (const bool own_stream : {true, false}) {
    Window of({1, kMany, 0}, here, own_stream);
    of.micro_step(kThereAndBack);
    of.micro_step({{0}, {1}});
    EXPECT_THAT(of.last(2), ElementsAreArray(own_stream ? Lines{"|", "|"} : Lines{"s |", "s |"}));
  }
}

// record_stream: what compute uses is free when compute has come so far, but for blocks of its own.
TEST(WindowRelease, WaitsForTheStreamThatUsesTheParameter) {
  for (const bool own_stream : {true, false}) {
    Recorder gpu({.gpu = 1});
    GatherWindow window(gpu, own_stream ? gpu.stream("gather") : runtime::kCompute,
                        HostTask::kModuleHook, {0, kMany, 0}, {{10}}, nullptr);
    window.begin_micro_step();
    window.enter({0}, 1);
    window.leave({0});
    const runtime::Program program = std::move(gpu).finish();
    const auto& freed = std::get<runtime::Free>(program.calls.back());
    EXPECT_EQ(freed.used_by, own_stream ? std::optional(runtime::kCompute) : std::nullopt);
  }
}

}  // namespace
}  // namespace offsim::plans::gather_window_test
