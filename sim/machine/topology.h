// The machine as a small graph: GPUs, switches, sockets, memory, drives; a transfer follows a route
// through it.
//
// Each edge has a capacity in each direction and one for both together. The edges of a route are
// the resources that a transfer uses, so GPUs below one switch share its uplink without a special
// case. A route has the fewest edges; of equal ones, those that were added first. Source of the
// shape: the system file's link, uplink and drives.
// Left out: the GPUs' own network (Machine::peer), network cards, remote sockets' memory, packets,
// the inner limits of a switch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "sim/machine/figure.h"

namespace offsim::machine {

struct Edge {
  std::string name;  // "link0", "uplink0", "dram", "drive0"
  int a = 0;         // nodes; "down" is from a to b, away from the host's memory (of a link: h2d)
  int b = 0;
  Known<BytesPerSecond> down, up, total;
};

struct Hop {
  int edge = 0;
  bool down = true;
  friend bool operator==(const Hop&, const Hop&) = default;
};

struct Topology {
  std::vector<std::string> nodes;  // "dram", "socket0", "switch0", "gpu0", "drive0"
  std::vector<Edge> edges;

  int node(std::string_view name) const;  // -1 when there is none
  int add_node(std::string_view name);    // or the one that is there
  // The hops from one node to another; empty when they are the same.
  // Requires: both exist and are connected.
  std::vector<Hop> route(std::string_view from, std::string_view to) const;
};

}  // namespace offsim::machine
