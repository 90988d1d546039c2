// Does the critical path explain every picosecond, once?
#include "sim/engine/critical_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/engine/random_graph.h"

namespace offsim::engine::critical_path_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint8_t kCopy = 1;
constexpr std::uint8_t kKernel = 2;

//   copy 0: 0-10    kernel 2: 10-15 (after 0)    copy 3: 15-40 (after 1 and 2)    kernel 4: 10-30
//   (after 0) copy 1: 0-12
class Path : public testing::Test {
 protected:
  void SetUp() override {
    const auto add = [&](Picoseconds latency, std::uint8_t cause, std::uint8_t phase,
                         std::vector<std::uint32_t> after) {
      const auto id = builder.add({.latency = latency, .cause = cause, .phase = phase});
      for (const std::uint32_t before : after) {
        builder.edge(ActivityId(before), id);
      }
    };
    add(10, kCopy, 0, {});
    add(12, kCopy, 0, {});
    add(5, kKernel, 0, {0});
    add(25, kCopy, 1, {1, 2});
    add(20, kKernel, 1, {0});
    graph = std::move(builder).build();
    timeline = simulate(graph);
  }

  GraphBuilder builder;
  ActivityGraph graph = GraphBuilder().build();
  Timeline timeline;
};

TEST_F(Path, FollowsWhoFinishedLast) {
  const CriticalPath path = critical_path(graph, timeline);
  EXPECT_THAT(path.segments,
              ElementsAre(Segment{ActivityId{0}, 0, 10}, Segment{ActivityId{2}, 10, 15},
                          Segment{ActivityId{3}, 15, 40}));
  EXPECT_THAT(path.shares,
              ElementsAre(Share{kCopy, 0, 10}, Share{kCopy, 1, 25}, Share{kKernel, 0, 5}));
  EXPECT_EQ(path.of_cause(kCopy), 35);
  EXPECT_EQ(path.of_cause(kKernel), 5);
  EXPECT_EQ(path.of_cause(0), 0);
  EXPECT_EQ(path.idle, 0);
}

TEST_F(Path, IsCutByTheWindow) {
  const CriticalPath path = critical_path(graph, timeline, {12, 20});
  EXPECT_THAT(path.segments,
              ElementsAre(Segment{ActivityId{2}, 12, 15}, Segment{ActivityId{3}, 15, 20}));
  EXPECT_EQ(path.idle, 0);
}

TEST_F(Path, ASegmentThatOnlyTouchesTheWindowIsNotInIt) {
  EXPECT_THAT(critical_path(graph, timeline, {10, 15}).segments,
              ElementsAre(Segment{ActivityId{2}, 10, 15}));
}

TEST_F(Path, WhatLiesBeyondItsEndIsIdle) {
  const CriticalPath path = critical_path(graph, timeline, {}, ActivityId{4});
  EXPECT_THAT(path.segments,
              ElementsAre(Segment{ActivityId{0}, 0, 10}, Segment{ActivityId{4}, 10, 30}));
  EXPECT_EQ(path.idle, 10);
}

TEST_F(Path, NothingExplainsAnEmptyWindow) {
  const CriticalPath path = critical_path(graph, timeline, {20, 20});
  EXPECT_THAT(path.segments, IsEmpty());
  EXPECT_EQ(path.idle, 0);
}

TEST(PathTies, OfEqualFinishesTheHighestIdCounts) {
  GraphBuilder builder;
  for (const Picoseconds latency : {5, 5, 3, 5}) {
    builder.add({.latency = latency});
  }
  const auto last = builder.add({.latency = 1});
  for (const std::uint32_t before : {1U, 3U, 0U, 2U}) {
    builder.edge(ActivityId(before), last);
  }
  const ActivityGraph graph = std::move(builder).build();
  const CriticalPath path = critical_path(graph, simulate(graph));
  EXPECT_THAT(path.segments, ElementsAre(Segment{ActivityId{3}, 0, 5}, Segment{last, 5, 6}));
}

TEST(PathTies, AnEmptyGraphHasNone) {
  const ActivityGraph graph = GraphBuilder().build();
  const Timeline timeline = simulate(graph);
  EXPECT_FALSE(last_finisher(graph, timeline));
  EXPECT_THAT(critical_path(graph, timeline).segments, IsEmpty());
}

RC_GTEST_PROP(PathProperty, SegmentsFollowEachOtherAndSumToTheWindow, ()) {
  const ActivityGraph graph = random_plan().build();
  const Timeline timeline = simulate(graph);
  const auto a = *rc::gen::inRange<Picoseconds>(0, timeline.makespan + 2);
  const auto b = *rc::gen::inRange<Picoseconds>(0, timeline.makespan + 2);
  const Window window{std::min(a, b), std::max(a, b)};
  const CriticalPath path = critical_path(graph, timeline, window);
  Picoseconds now = window.from;
  for (const Segment& segment : path.segments) {
    RC_ASSERT(segment.from == now);
    RC_ASSERT(segment.to > now);
    now = segment.to;
  }
  RC_ASSERT(now + path.idle == window.to);
  Picoseconds sum = path.idle;
  for (const Share& share : path.shares) {
    sum += share.time;
  }
  RC_ASSERT(sum == window.to - window.from);
  RC_ASSERT(path.idle ==
            std::max<Picoseconds>(0, window.to - std::max(window.from, timeline.makespan)));
}

}  // namespace
}  // namespace offsim::engine::critical_path_test
