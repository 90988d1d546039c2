#include "sim/machine/topology.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>

namespace offsim::machine {

int Topology::node(std::string_view name) const {
  const auto found = std::ranges::find(nodes, name);
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

int Topology::add_node(std::string_view name) {
  if (const int known = node(name); known >= 0) {
    return known;
  }
  nodes.emplace_back(name);
  return static_cast<int>(nodes.size()) - 1;
}

std::vector<Hop> Topology::route(std::string_view from, std::string_view to) const {
  const int first = node(from);
  const int last = node(to);
  SIM_ASSERT(first >= 0 && last >= 0, "a route goes between nodes of the machine");

  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS>;
  Graph graph(nodes.size());
  for (const Edge& edge : edges) {
    boost::add_edge(static_cast<std::size_t>(edge.a), static_cast<std::size_t>(edge.b), graph);
  }
  std::vector<std::size_t> before(nodes.size());
  boost::dijkstra_shortest_paths(
      graph, static_cast<std::size_t>(first),
      boost::weight_map(boost::static_property_map<int>(1)).predecessor_map(before.data()));

  std::vector<Hop> hops;
  for (int at = last; at != first;) {
    const int previous = static_cast<int>(before[static_cast<std::size_t>(at)]);
    SIM_ASSERT(previous != at, "the machine is one connected graph");
    const auto edge = std::ranges::find_if(edges, [&](const Edge& e) {
      return (e.a == previous && e.b == at) || (e.a == at && e.b == previous);
    });
    hops.push_back({static_cast<int>(edge - edges.begin()), edge->a == previous});
    at = previous;
  }
  std::ranges::reverse(hops);
  return hops;
}

}  // namespace offsim::machine
