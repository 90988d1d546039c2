// What Boost.Graph does for a graph: an order of its activities, and a drawing.
#pragma once

#include <iosfwd>
#include <vector>

#include "sim/engine/graph.h"
#include "sim/engine/simulate.h"

namespace offsim::engine {

// All activities, so that every edge leads forward. Throws InternalError, naming one, when some
// wait for themselves.
std::vector<ActivityId> topological_order(const ActivityGraph& graph);

// A small graph as text for Graphviz: one box an activity, one arrow an edge; its times when there
// is a timeline.
void write_dot(std::ostream& out, const ActivityGraph& graph, const Timeline* timeline = nullptr);

}  // namespace offsim::engine
