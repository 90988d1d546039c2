#include "sim/engine/graph_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/depth_first_search.hpp>
#include <boost/graph/graphviz.hpp>
#include <ostream>
#include <utility>

#include "sim/base/error.h"

namespace offsim::engine {

namespace {

using Csr =
    boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                       boost::no_property, std::uint32_t, std::uint32_t>;

Csr to_boost(const ActivityGraph& graph) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  edges.reserve(graph.edge_count());
  for (std::uint32_t i = 0; i < graph.size(); ++i) {
    for (const ActivityId after : graph.successors(ActivityId(i))) {
      edges.emplace_back(i, static_cast<std::uint32_t>(after));
    }
  }
  return {boost::edges_are_sorted, edges.begin(), edges.end(),
          static_cast<std::uint32_t>(graph.size())};
}

// boost::topological_sort says that there is a cycle; this says where.
class OrderVisitor : public boost::default_dfs_visitor {
 public:
  OrderVisitor(const ActivityGraph& graph, std::vector<ActivityId>& backwards)
      : graph_(graph), backwards_(backwards) {}

  void back_edge(Csr::edge_descriptor edge, const Csr& csr) const {
    const auto id = ActivityId(boost::target(edge, csr));
    throw InternalError(
        fmt::format("activity {} ('{}') waits for itself", index(id), graph_.label(id)));
  }
  void finish_vertex(std::uint32_t vertex, const Csr& /*csr*/) const {
    backwards_.push_back(ActivityId(vertex));
  }

 private:
  const ActivityGraph& graph_;
  std::vector<ActivityId>& backwards_;
};

}  // namespace

std::vector<ActivityId> topological_order(const ActivityGraph& graph) {
  std::vector<ActivityId> order;
  order.reserve(graph.size());
  boost::depth_first_search(to_boost(graph), boost::visitor(OrderVisitor(graph, order)));
  std::ranges::reverse(order);
  return order;
}

void write_dot(std::ostream& out, const ActivityGraph& graph, const Timeline* timeline) {
  const auto write_activity = [&](std::ostream& stream, std::uint32_t i) {
    std::string text = fmt::format("{} {}", i, graph.label(ActivityId(i)));
    if (timeline != nullptr) {
      text += fmt::format("\n{:.9g} to {:.9g} s", to_seconds(timeline->start[i]).value,
                          to_seconds(timeline->finish[i]).value);
    }
    stream << "[shape=box, label=" << boost::escape_dot_string(text) << "]";
  };
  boost::write_graphviz(out, to_boost(graph), write_activity);
}

}  // namespace offsim::engine
