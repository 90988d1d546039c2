// Do activities start and finish when a person with a pencil says they do?
#include "sim/engine/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace offsim::engine::simulate_test {
namespace {

using testing::ElementsAre;

constexpr Picoseconds kSecond = 1'000'000'000'000;
constexpr Picoseconds kMicrosecond = 1'000'000;

// One link of 10 units/s.
class Simulate : public testing::Test {
 protected:
  ActivityId send(double amount, Picoseconds latency = 0) {
    return builder.add({amount, on_link, latency});
  }
  Timeline run() { return simulate(graph = std::move(builder).build()); }

  GraphBuilder builder;
  ResourceId link = builder.add_resource("link", 10);
  DemandId on_link = builder.demand(kUnlimitedRate, 1, std::vector<Use>{{link, 1}});
  ActivityGraph graph = GraphBuilder().build();
};

// 10 units/s, of which a mixture leaves half: 2.5 each until 5 units are back after 2 s; what is
// left of the other then has all 10.
TEST(Mixture, LeavesLessWhileBothWaysAreUsed) {
  GraphBuilder builder;
  const ResourceId drive = builder.add_resource("drive", 10, 0.5);
  const auto demand = [&](Way way) {
    return builder.demand(kUnlimitedRate, 1, std::vector<Use>{{drive, 1, way}});
  };
  builder.add({.amount = 10, .demand = demand(Way::kForth)});
  builder.add({.amount = 5, .demand = demand(Way::kBack)});
  const ActivityGraph graph = std::move(builder).build();
  EXPECT_THAT(simulate(graph).finish, ElementsAre(kSecond * 5 / 2, kSecond * 2));
}

TEST(Mixture, OfDemandsOneWayIsNone) {
  for (const Way way : {Way::kForth, Way::kBack}) {
    GraphBuilder builder;
    const ResourceId drive = builder.add_resource("drive", 10, 0.5);
    builder.add({.amount = 10,
                 .demand = builder.demand(kUnlimitedRate, 1, std::vector<Use>{{drive, 1, way}})});
    builder.add({.amount = 10, .demand = builder.demand(4, 1, std::vector<Use>{{drive, 1, way}})});
    const ActivityGraph graph = std::move(builder).build();
    // 6 and 4 units a second, and then 10.
    EXPECT_EQ(simulate(graph).finish[0], 1'666'666'666'667);
  }
}

TEST_F(Simulate, NothingTakesNoTime) {
  const Timeline timeline = run();
  EXPECT_EQ(timeline.makespan, 0);
  EXPECT_THAT(timeline.busy, ElementsAre(0));
}

// The first run in sim/engine/README.md.
TEST(Readme, TheFirstRunTakesWhatItSays) {
  GraphBuilder builder;
  const ResourceId link = builder.add_resource("link", 50e9);  // bytes a second
  const DemandId copy = builder.demand(kUnlimitedRate, 1, std::vector<Use>{{link, 1}});
  const ActivityId first = builder.add({.amount = 1e9, .demand = copy});
  const ActivityId second = builder.add({.amount = 2e9, .demand = copy, .latency = 9'000'000});
  builder.edge(first, second);
  const ActivityGraph graph = std::move(builder).build();
  EXPECT_EQ(simulate(graph).makespan, 60'000 * kMicrosecond + 9 * kMicrosecond);
}

TEST_F(Simulate, LatencyComesBeforeWorkAndUsesNothing) {
  send(10, 3 * kMicrosecond);
  const Timeline timeline = run();
  EXPECT_THAT(timeline.start, ElementsAre(0));
  EXPECT_THAT(timeline.finish, ElementsAre(kSecond + 3 * kMicrosecond));
  EXPECT_THAT(timeline.busy, ElementsAre(kSecond));
}

TEST_F(Simulate, AnActivityOfAmountZeroTakesItsLatencyOnly) {
  const auto host = builder.add({.latency = 9 * kMicrosecond});
  const auto join = builder.add({});
  const auto after = builder.add({.latency = 1});
  builder.edge(host, join);
  builder.edge(join, after);
  const Timeline timeline = run();
  EXPECT_THAT(timeline.start, ElementsAre(0, 9 * kMicrosecond, 9 * kMicrosecond));
  EXPECT_THAT(timeline.finish,
              ElementsAre(9 * kMicrosecond, 9 * kMicrosecond, 9 * kMicrosecond + 1));
}

TEST_F(Simulate, ASuccessorStartsAtTheLatestFinish) {
  const auto a = builder.add({.latency = 5});
  const auto b = builder.add({.latency = 7});
  const auto c = builder.add({.latency = 1});
  builder.edge(a, c);
  builder.edge(b, c);
  builder.edge(b, c);  // said twice, meant once
  EXPECT_THAT(run().start, ElementsAre(0, 0, 7));
}

TEST_F(Simulate, EdgesMayLeadToSmallerIds) {
  const auto second = builder.add({.latency = 5});
  const auto first = builder.add({.latency = 7});
  builder.edge(first, second);
  EXPECT_THAT(run().start, ElementsAre(7, 0));
}

TEST_F(Simulate, WhoComesLaterSharesFromThenOn) {
  send(10);
  send(10, kSecond / 2);
  // Half a second alone: 5 of 10 done. Then 5 each a second: the first is done at 1.5 s, the second
  // has 5 left.
  EXPECT_THAT(run().finish, ElementsAre(kSecond * 3 / 2, kSecond * 2));
}

TEST_F(Simulate, WeightsAndLimitsHold) {
  const std::vector<Use> uses{{link, 1}};
  builder.add({4, builder.demand(2, 1, uses)});                // limited to 2 a second
  builder.add({12, builder.demand(kUnlimitedRate, 3, uses)});  // three parts of the other 8
  builder.add({6, builder.demand(kUnlimitedRate, 1, uses)});   // one part
  // 2 s: 0 is done; 1 has done 12; 2 has done 4. Then 2 has all of the link: 2 more units in 0.2 s.
  EXPECT_THAT(run().finish, ElementsAre(2 * kSecond, 2 * kSecond, kSecond * 22 / 10));
}

TEST_F(Simulate, TwoKernelsOnOneGpuTakeTurnsInEffect) {
  const auto gpu = builder.add_resource("gpu", 1);
  const auto kernel = builder.demand(1, 1, std::vector<Use>{{gpu, 1}});
  builder.add({2, kernel});
  builder.add({3, kernel});
  const Timeline timeline = run();
  EXPECT_THAT(timeline.finish, ElementsAre(4 * kSecond, 5 * kSecond));
  EXPECT_THAT(timeline.busy, ElementsAre(0, 5 * kSecond));
}

TEST_F(Simulate, EqualWorkThatStartsTogetherEndsTogether) {
  send(10);
  send(10);
  send(10);
  EXPECT_THAT(run().finish, ElementsAre(3 * kSecond, 3 * kSecond, 3 * kSecond));
}

TEST_F(Simulate, WorkBelowHalfAPicosecondTakesNone) {
  send(4e-12);  // 0.4 ps
  EXPECT_EQ(run().makespan, 0);
}

TEST_F(Simulate, EndsAreRoundedToTheNearestPicosecond) {
  const auto cpu = builder.add_resource("cpu", 3);
  const auto on_cpu = builder.demand(kUnlimitedRate, 1, std::vector<Use>{{cpu, 1}});
  builder.add({1, on_cpu});
  builder.add({1, on_cpu});
  builder.add({5, on_cpu});
  // A third each: 0 and 1 are done at 1 s exactly, with 1 of the 5 done; the other 4 take 4/3 s.
  EXPECT_THAT(run().finish, ElementsAre(kSecond, kSecond, 2'333'333'333'333));
}

TEST_F(Simulate, ALongChainIsAsLongAsItsWork) {
  ActivityId last = send(1e-6);
  for (int i = 1; i < 100'000; ++i) {
    const auto next = send(1e-6);  // a tenth of a microsecond each
    builder.edge(last, next);
    last = next;
  }
  const Timeline timeline = run();
  EXPECT_EQ(timeline.makespan, 100'000 * kMicrosecond / 10);
  EXPECT_THAT(timeline.busy, ElementsAre(timeline.makespan));
}

TEST_F(Simulate, BusyCountsOnlyTimeInUse) {
  const auto a = send(10);
  const auto pause = builder.add({.latency = 4 * kSecond});
  const auto b = send(20);
  builder.edge(a, pause);
  builder.edge(pause, b);
  const Timeline timeline = run();
  EXPECT_EQ(timeline.makespan, 7 * kSecond);
  EXPECT_THAT(timeline.busy, ElementsAre(3 * kSecond));
}

TEST_F(Simulate, ARunBeyondTheClockIsRefused) {
  const auto a = builder.add({.latency = kEndOfTime - 5});
  const auto b = builder.add({.latency = 5});
  builder.edge(a, b);
  EXPECT_THROW(run(), InputError);
}

TEST_F(Simulate, ARunUpToTheClockIsNot) {
  const auto a = builder.add({.latency = kEndOfTime - 5});
  const auto b = builder.add({.latency = 4});
  builder.edge(a, b);
  EXPECT_EQ(run().makespan, kEndOfTime - 1);
}

TEST_F(Simulate, WorkBeyondTheClockIsRefused) {
  send(1e30);
  EXPECT_THROW(run(), InputError);
}

TEST_F(Simulate, WorkThatLooksEndlessWhileItSharesMayStillEnd) {
  // Alone 100 days; while the other runs twice that, which the clock cannot hold, but that is over
  // after a second.
  const double hundred_days = 100.0 * 86'400;
  send(10 * hundred_days);
  send(5);
  EXPECT_EQ(run().makespan, static_cast<Picoseconds>(hundred_days) * kSecond + kSecond / 2);
}

TEST_F(Simulate, LateInALongRunTimeStillOnlyGoesForward) {
  // After 90 days of work at one rate a double resolves only a nanosecond of it.
  const auto core = builder.demand(1, 1, {});
  const Picoseconds late = 90 * 86'400 * kSecond;
  builder.add({100.0 * 86'400, core});
  for (int i = 0; i < 100; ++i) {
    builder.add({1e-10, core, late + 977 * i});
  }
  const Timeline timeline = run();
  for (std::size_t i = 1; i < graph.size(); ++i) {
    EXPECT_GE(timeline.finish[i], timeline.start[i] + graph.latencies()[i]);
    EXPECT_LE(timeline.finish[i], timeline.start[i] + graph.latencies()[i] + 3000);
  }
  EXPECT_EQ(timeline.makespan, 100 * 86'400 * kSecond);
}

TEST(ToPicoseconds, RoundsToTheNearest) {
  EXPECT_EQ(to_picoseconds(Seconds(1)), 1'000'000'000'000);
  EXPECT_EQ(to_picoseconds(Seconds(0.4e-12)), 0);
  EXPECT_EQ(to_picoseconds(Seconds(0.6e-12)), 1);
  EXPECT_EQ(to_picoseconds(Seconds(9.3e6)), kEndOfTime);
  EXPECT_EQ(to_picoseconds(Seconds(kUnlimitedRate)), kEndOfTime);
}

class ResourceUse : public Simulate {};

TEST_F(ResourceUse, IsAmountTimesUseOverTheWholeRun) {
  const auto dram = builder.add_resource("dram", 1000);
  builder.add({7, builder.demand(1, 1, std::vector<Use>{{link, 2}, {dram, 28}})});
  send(3);
  const Timeline timeline = run();
  EXPECT_THAT(resource_use(graph, timeline), ElementsAre(7 * 2 + 3, 7 * 28));
}

TEST_F(ResourceUse, IsSpreadOverTheWorkAndNotTheLatency) {
  send(10, kSecond);  // works from 1 s to 2 s
  const Timeline timeline = run();
  EXPECT_THAT(resource_use(graph, timeline, {0, kSecond}), ElementsAre(0));
  EXPECT_THAT(resource_use(graph, timeline, {kSecond, kSecond * 5 / 4}), ElementsAre(2.5));
  EXPECT_THAT(resource_use(graph, timeline, {kSecond * 7 / 4, kEndOfTime}), ElementsAre(2.5));
}

}  // namespace
}  // namespace offsim::engine::simulate_test
