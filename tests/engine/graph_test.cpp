// Is a graph what its builder was told, and is nonsense refused where it is said?
#include "sim/engine/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "sim/base/error.h"
#include "sim/engine/graph_tools.h"

namespace offsim::engine::graph_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Graph : public testing::Test {
 protected:
  std::string refusal() {
    try {
      std::move(builder).build();
      return "";
    } catch (const InternalError& error) {
      return error.what();
    }
  }

  GraphBuilder builder;
  ResourceId a = builder.add_resource("a", 10);
  ResourceId b = builder.add_resource("b", 20);
};

TEST_F(Graph, KeepsWhatItWasTold) {
  const auto demand = builder.demand(7, 2, std::vector<Use>{{b, 1}, {a, 28}});
  const auto pool = builder.add_pool("gpu", 80);
  const auto first = builder.add({5, demand, 3, builder.label("copy"), 4, 6});
  const auto second = builder.add({.latency = 1});
  builder.edge(first, second);
  builder.change(second, At::kFinish, pool, builder.tag("weights"), -8);
  const ActivityGraph graph = std::move(builder).build();

  EXPECT_EQ(graph.size(), 2);
  const Activity activity = graph.activity(first);
  EXPECT_EQ(activity.amount, 5);
  EXPECT_EQ(activity.latency, 3);
  EXPECT_EQ(activity.cause, 4);
  EXPECT_EQ(activity.phase, 6);
  EXPECT_EQ(graph.label(first), "copy");
  EXPECT_EQ(graph.label(second), "");
  EXPECT_EQ(graph.demand_list()[index(demand)].rate_limit, 7);
  EXPECT_EQ(graph.demand_list()[index(demand)].weight, 2);
  EXPECT_THAT(graph.uses(demand), ElementsAre(Use{a, 28}, Use{b, 1}));
  EXPECT_THAT(graph.successors(first), ElementsAre(second));
  EXPECT_THAT(graph.successors(second), ElementsAre());
  EXPECT_EQ(graph.pools()[index(pool)].capacity_bytes, 80);
  EXPECT_EQ(graph.changes()[0].delta_bytes, -8);
  EXPECT_EQ(graph.changes()[0].activity, second);
  EXPECT_EQ(graph.tag(graph.changes()[0].tag), "weights");
}

TEST_F(Graph, EqualDemandsAreOne) {
  const auto demand = [&](double limit, double weight, std::vector<Use> uses) {
    return builder.demand(limit, weight, uses);
  };
  const auto one = demand(7, 1, {{a, 1}, {b, 2}});
  EXPECT_EQ(demand(7, 1, {{b, 2}, {a, 1}}), one);
  EXPECT_NE(demand(8, 1, {{a, 1}, {b, 2}}), one);
  EXPECT_NE(demand(7, 2, {{a, 1}, {b, 2}}), one);
  EXPECT_NE(demand(7, 1, {{a, 1}, {b, 3}}), one);
  EXPECT_NE(demand(7, 1, {{a, 1}}), one);
  EXPECT_EQ(demand(7, 1, {{a, 1}, {b, 2}}), one);
  EXPECT_EQ(std::move(builder).build().use_list().size(), 2 + 2 + 2 + 2 + 1);
}

TEST_F(Graph, EqualTextsAreOne) {
  EXPECT_EQ(builder.label("x"), builder.label("x"));
  EXPECT_NE(builder.label("x"), builder.label("y"));
  EXPECT_EQ(builder.label(""), LabelId{0});
}

TEST_F(Graph, WhatNeverEndsIsRefused) {
  EXPECT_THROW(builder.add_resource("stopped", 0), InternalError);
  EXPECT_THROW(builder.add_resource("backwards", -1), InternalError);
  EXPECT_THROW(builder.add_resource("endless", kUnlimitedRate), InternalError);
  EXPECT_THROW(builder.demand(0, 1, {}), InternalError);
  EXPECT_THROW(builder.demand(1, 0, {}), InternalError);
  EXPECT_THROW(builder.demand(kUnlimitedRate, 1, {}),
               InternalError);                              // nothing would bound its rate
  EXPECT_THROW(builder.add({.amount = 1}), InternalError);  // work without a demand
  EXPECT_THROW(builder.add({.amount = -1}), InternalError);
  EXPECT_THROW(builder.add({.amount = kUnlimitedRate, .demand = builder.demand(1, 1, {})}),
               InternalError);
  EXPECT_THROW(builder.add({.latency = -1}), InternalError);
}

TEST_F(Graph, WhatDoesNotExistIsRefused) {
  EXPECT_THROW(builder.demand(1, 1, std::vector<Use>{{ResourceId{2}, 1}}), InternalError);
  EXPECT_THROW(builder.demand(1, 1, std::vector<Use>{{a, 0}}), InternalError);
  EXPECT_THROW(builder.demand(1, 1, std::vector<Use>{{a, 1}, {a, 1}}), InternalError);
  const auto activity = builder.add({});
  EXPECT_THROW(builder.edge(activity, ActivityId{1}), InternalError);
  EXPECT_THROW(builder.change(activity, At::kStart, PoolId{0}, builder.tag("t"), 1), InternalError);
}

TEST_F(Graph, ACycleIsRefusedByName) {
  const auto before = builder.add({});
  const auto first = builder.add({.label = builder.label("hen")});
  const auto second = builder.add({.label = builder.label("egg")});
  builder.edge(before, first);
  builder.edge(first, second);
  builder.edge(second, first);
  EXPECT_EQ(refusal(), "activity 1 ('hen') waits for itself");
}

TEST_F(Graph, AnEdgeToItselfIsACycle) {
  const auto only = builder.add({});
  builder.edge(only, only);
  EXPECT_EQ(refusal(), "activity 0 ('') waits for itself");
}

TEST_F(Graph, IsDrawnWithItsTimes) {
  const auto second =
      builder.add({.latency = 500'000'000'000, .label = builder.label("say \"b\"")});
  const auto first = builder.add({.latency = 1'000'000'000'000, .label = builder.label("a")});
  builder.edge(first, second);
  const ActivityGraph graph = std::move(builder).build();
  const Timeline timeline = simulate(graph);
  std::ostringstream out;
  write_dot(out, graph, &timeline);
  EXPECT_EQ(out.str(), R"(digraph G {
0[shape=box, label="0 say \"b\"
1 to 1.5 s"];
1[shape=box, label="1 a
0 to 1 s"];
1->0 ;
}
)");
}

}  // namespace
}  // namespace offsim::engine::graph_test
