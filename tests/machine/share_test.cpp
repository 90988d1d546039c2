// What has one of several ranks of its host?
#include "sim/machine/share.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/machine/test_catalog.h"

namespace offsim::machine::share_test {
namespace {

const Edge& edge(const Machine& m, std::string_view name) {
  for (const Edge& e : m.topology.edges) {
    if (e.name == name) {
      return e;
    }
  }
  throw InternalError(fmt::format("no edge {}", name));
}

// Of a DGX A100 two GPUs share an uplink; all eight share the host.
TEST(Share, OfAnUplinkIsDividedByThoseBelowIt) {
  const Machine whole = load("dgx-a100");
  ASSERT_EQ(whole.uplink->gpus, 2);
  for (const int ranks : {1, 2, 4, 8}) {
    const Machine rank = share_of(whole, ranks);
    const int below = std::min(ranks, 2);
    EXPECT_EQ(edge(rank, "uplink0").down.value.value,
              edge(whole, "uplink0").down.value.value / below);
    EXPECT_EQ(edge(rank, "uplink0").total.value.value,
              edge(whole, "uplink0").total.value.value / below);
    EXPECT_EQ(edge(rank, "link0").up.value.value, edge(whole, "link0").up.value.value);
    EXPECT_EQ(edge(rank, "dram").total.value.value, edge(whole, "dram").total.value.value / ranks);
    EXPECT_EQ(rank.host.cores, whole.host.cores / ranks);
    EXPECT_EQ(rank.host.memory.value.value, whole.host.memory.value.value / ranks);
    EXPECT_EQ(rank.accelerator.memory.value.value, whole.accelerator.memory.value.value);
  }
}

TEST(Share, OfOneRankIsTheWholeMachine) {
  for (const std::string& name : machine_names(test_catalog())) {
    const Machine whole = load(name), rank = share_of(whole, 1);
    EXPECT_EQ(rank.host.cores, whole.host.cores);
    EXPECT_EQ(rank.host.dram.value.value, whole.host.dram.value.value);
    for (std::size_t i = 0; i < whole.topology.edges.size(); ++i) {
      EXPECT_EQ(rank.topology.edges[i].total.value.value,
                whole.topology.edges[i].total.value.value);
    }
  }
}

}  // namespace
}  // namespace offsim::machine::share_test
