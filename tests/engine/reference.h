// Plain versions of what the engine does fast, written for clarity and sharing no code with it.
#pragma once

#include <span>
#include <vector>

#include "sim/engine/graph.h"

namespace offsim::engine::reference {

// The rate of one activity of each demand; members[d] of them run. Weighted max-min as stated in
// sharing.h, one demand frozen at a time: the one whose bound, were all others raised with it, is
// the lowest.
std::vector<double> rates(std::span<const Resource> resources, std::span<const Demand> demands,
                          std::span<const Use> uses, std::span<const std::uint32_t> members);

// Finish times in seconds, in doubles: all rates anew at every event.
std::vector<double> finish_times(const ActivityGraph& graph);

}  // namespace offsim::engine::reference
