// Runs a graph: when does each activity start and finish when all running activities share the
// resources?
//
//   ready   start(a) = latest finish of its predecessors, 0 without any
//   work    begins at start(a) + latency(a); done when the integral of rate(a) reaches amount(a)
//   rates   weighted max-min over what is running at each moment (sharing.h)
//
// Times are picoseconds; the end of work is rounded to the nearest one, and the work received up to
// the rounded instant counts, so rounding does not add up over a chain by more than half a
// picosecond an activity. Deterministic to the bit: events at one instant are taken in the order
// (time, priority, id), see simulate.cpp.
//
// Cost: proportional to activities and edges; an event touches the running demands that share a
// resource, directly or through others, with what changed, and a heap of the members of one demand.
// Memory: 20 bytes an activity, and 16 for each that is running.
#pragma once

#include <vector>

#include "sim/engine/graph.h"

namespace offsim::engine {

struct Timeline {
  std::vector<Picoseconds> start;  // by ActivityId
  std::vector<Picoseconds> finish;
  Picoseconds makespan = 0;       // the latest finish
  std::vector<Picoseconds> busy;  // by ResourceId: how long at least one working activity used it
};

// Throws InputError when the run would pass kEndOfTime (106 days).
Timeline simulate(const ActivityGraph& graph);

// Units of each resource used within the window, by ResourceId: each activity's amount * per_unit,
// spread evenly over the time it worked (exact for a window that cuts no activity). used /
// (capacity * window) is the utilisation.
std::vector<double> resource_use(const ActivityGraph& graph, const Timeline& timeline,
                                 Window window = {});

}  // namespace offsim::engine
