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

// Measured rates are those of all cores, whether a formula or a measurement says them; one core's
// work is done by each rank on a core of its own.
TEST(Share, MeasuredKernelsAreThoseOfAllCores) {
  Machine whole = load("dgx-a100");
  whole.host.kernels["mul_f32"] = {{1e6, 1e9}, {8e9, 16e9}, kNoFigure};
  whole.host.kernels["norm_bf16"] = {{1e6}, {3e9}, kNoFigure};
  ASSERT_TRUE(whole.framework.kernels.at("norm_bf16").single_core);
  for (const int ranks : {1, 2, 8}) {
    const Machine rank = share_of(whole, ranks);
    const auto rate = [](const Machine& machine, const char* kernel) {
      return cpu_kernel(machine, kernel, 1e6, machine.host.cores).rate.value;
    };
    EXPECT_DOUBLE_EQ(rate(rank, "mul_f32"), rate(whole, "mul_f32") / ranks) << ranks;
    EXPECT_DOUBLE_EQ(rate(rank, "norm_bf16"), rate(whole, "norm_bf16")) << ranks;
    EXPECT_NEAR(rate(rank, "add_f32"), rate(whole, "add_f32") / ranks, 1e3) << ranks;
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
