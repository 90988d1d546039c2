// Are curves, corrections and routes what their definitions say?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sim/machine/correction.h"
#include "sim/machine/figure.h"
#include "sim/machine/topology.h"
#include "tests/machine/test_catalog.h"

namespace offsim::machine::parts_test {
namespace {

TEST(Curve, IsLinearInTheLogarithmAndConstantOutside) {
  const Curve curve{{1, 100}, {10, 30}, kNoFigure};
  EXPECT_DOUBLE_EQ(curve.at(1), 10);
  EXPECT_DOUBLE_EQ(curve.at(10), 20);  // half of the way in log x
  EXPECT_DOUBLE_EQ(curve.at(100), 30);
  EXPECT_DOUBLE_EQ(curve.at(0.01), 10);
  EXPECT_DOUBLE_EQ(curve.at(1e9), 30);
}

TEST(Figure, DefaultSpreadsFollowTheSource) {
  EXPECT_EQ(default_spread(Source::kMeasured), 0.03);
  EXPECT_EQ(default_spread(Source::kDatasheet), 0.05);
  EXPECT_EQ(default_spread(Source::kPublished), 0.10);
  EXPECT_EQ(default_spread(Source::kAssumed), 0.25);
  EXPECT_EQ(source_name(Source::kPublished), "published");
}

// log ratio = 0.5 + 2 x: the fit finds both constants and leaves no residual.
TEST(Correction, FindsALine) {
  std::vector<Sample> samples;
  for (const double x : {0.0, 0.1, 0.2, 0.4}) {
    samples.push_back({{1, x}, {x, 0, 0}, 0.5 + 2 * x});
  }
  const Correction fit = fit_correction(samples);
  EXPECT_NEAR(fit.constants[0], 0.5, 1e-12);
  EXPECT_NEAR(fit.constants[1], 2, 1e-12);
  EXPECT_NEAR(fit.factor({1, 0.3}, {0.3, 0, 0}), std::exp(1.1), 1e-12);
  // Features stop at the largest one measured.
  EXPECT_NEAR(fit.factor({1, 7}, {7, 0, 0}), std::exp(1.3), 1e-12);
}

TEST(Correction, ReturnsAMeasuredPointAndTheMeanBetween) {
  const std::vector<Sample> samples = {{{1}, {0, 0, 0}, 0.1}, {{1}, {2, 0, 0}, -0.1}};
  const Correction fit = fit_correction(samples);
  EXPECT_NEAR(fit.constants[0], 0, 1e-12);
  EXPECT_NEAR(fit.factor({1}, {0, 0, 0}), std::exp(0.1), 1e-6);
  EXPECT_NEAR(fit.factor({1}, {2, 0, 0}), std::exp(-0.1), 1e-6);
  EXPECT_NEAR(fit.factor({1}, {1, 0, 0}), 1, 1e-12);
}

TEST(Correction, WithoutPointsIsItsConstants) {
  const Correction constants{{std::log(2), 1}, {1, 0}, {1, 0.5}, {}};
  EXPECT_DOUBLE_EQ(constants.factor({1, 0.25}, {}), 2 * std::exp(0.25));
}

std::vector<std::string> names(const Topology& topology, const std::vector<Hop>& hops) {
  std::vector<std::string> out;
  for (const Hop& hop : hops) {
    const Edge& edge = topology.edges[static_cast<std::size_t>(hop.edge)];
    out.push_back(fmt::format("{} {}", edge.name, hop.down ? "down" : "up"));
  }
  return out;
}

using Names = std::vector<std::string>;

TEST(Route, FollowsTheLinkDownAndUp) {
  const Topology t = load("h200-16core-vm").topology;
  EXPECT_EQ(names(t, t.route("dram", "gpu0")), (Names{"dram down", "link0 down"}));
  EXPECT_EQ(names(t, t.route("gpu0", "dram")), (Names{"link0 up", "dram up"}));
  EXPECT_EQ(names(t, t.route("drive0", "dram")), (Names{"drive0 up", "dram up"}));
  EXPECT_EQ(names(t, t.route("drive0", "gpu0")), (Names{"drive0 up", "link0 down"}));
  EXPECT_TRUE(t.route("gpu0", "gpu0").empty());
}

TEST(Route, GpusBelowOneSwitchShareItsUplink) {
  const Topology t = load("dgx-a100").topology;
  EXPECT_EQ(names(t, t.route("dram", "gpu0")), (Names{"dram down", "uplink0 down", "link0 down"}));
  EXPECT_EQ(names(t, t.route("dram", "gpu1")), (Names{"dram down", "uplink0 down", "link1 down"}));
  EXPECT_EQ(names(t, t.route("dram", "gpu2")), (Names{"dram down", "uplink1 down", "link2 down"}));
}

TEST(Route, WithoutPeersGoesThroughTheSwitch) {
  Topology t;
  const int socket = t.add_node("socket0");
  const int above = t.add_node("switch0");
  t.edges.push_back({"uplink0", socket, above, {}, {}, {}});
  t.edges.push_back({"link0", above, t.add_node("gpu0"), {}, {}, {}});
  t.edges.push_back({"link1", above, t.add_node("gpu1"), {}, {}, {}});
  EXPECT_EQ(names(t, t.route("gpu0", "gpu1")), (Names{"link0 up", "link1 down"}));
  EXPECT_EQ(t.node("gpu9"), -1);
  EXPECT_EQ(t.add_node("gpu0"), t.node("gpu0"));
}

TEST(Route, AUnifiedGpuReadsTheMemoryItself) {
  const Machine m = load("dgx-spark");
  EXPECT_EQ(m.topology.route("dram", "gpu0").size(), 2U);
  EXPECT_FALSE(m.link.has_value());
}

}  // namespace
}  // namespace offsim::machine::parts_test
