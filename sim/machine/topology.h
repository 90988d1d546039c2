// The machine as a small graph: GPUs, switches, sockets, memory, drives; a transfer follows a route through it.
//
// Each edge has a capacity in each direction and one for both together. The edges of a route are the resources that a transfer uses,
// so GPUs below one switch share its uplink without a special case. Routes have the fewest edges (Dijkstra); of equal ones the
// edges that were added first. Source of the shape: the system file's link, uplink, peer and drives.
// Left out: remote sockets' memory, packets, and a switch's inner limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"

namespace offsim::machine {

enum class FigureId : std::int32_t {};
inline constexpr FigureId kNoFigure{-1};

struct Edge {
  std::string name;            // "link0", "uplink0", "dram", "drive0", "peer01"
  int a = 0, b = 0;            // nodes; "down" is from a to b, away from memory (for a link: h2d)
  BytesPerSecond down, up, total;
  FigureId down_figure = kNoFigure, up_figure = kNoFigure, total_figure = kNoFigure;
};

struct Hop {
  int edge = 0;
  bool down = true;
  friend bool operator==(const Hop&, const Hop&) = default;
};

struct Topology {
  std::vector<std::string> nodes;   // "gpu0", "switch0", "socket0", "dram0", "drive0"
  std::vector<Edge> edges;

  int node(std::string_view name) const;                               // -1 when there is none
  int add_node(const std::string& name);
  void add_edge(const Edge& edge);
  // The hops from one node to another; empty when they are the same. Requires: both exist and are connected.
  std::vector<Hop> route(std::string_view from, std::string_view to) const;
};

}  // namespace offsim::machine
