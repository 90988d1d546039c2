// Why did it take so long: a chain of activities, each started by the end of the one before, that
// explains every picosecond.
//
// Walk back from an activity: it started when its critical predecessor finished (the one with the
// latest finish; of equals the one with the highest id), which started when its own did, and so on
// to time 0. Every picosecond of the window then belongs to exactly one activity of the chain, or
// to `idle` where the window reaches beyond the chain's end:
//
//   idle + sum of shares = window.to - window.from      exactly, in integers
//
// A segment spans latency and work. How much of it is waiting for a share of a busy resource is not
// told apart.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/engine/graph.h"
#include "sim/engine/simulate.h"

namespace offsim::engine {

struct Segment {
  ActivityId activity{};
  Picoseconds from = 0;
  Picoseconds to = 0;

  friend bool operator==(const Segment&, const Segment&) = default;
};

struct Share {
  std::uint8_t cause = 0;
  std::uint8_t phase = 0;
  Picoseconds time = 0;

  friend bool operator==(const Share&, const Share&) = default;
};

struct CriticalPath {
  std::vector<Segment> segments;  // in the order of time, clipped to the window; none is empty
  std::vector<Share> shares;      // sums of segments by (cause, phase), in that order
  Picoseconds idle = 0;

  Picoseconds of_cause(std::uint8_t cause) const;
};

// The activity that finishes last; of equals the one with the highest id; nothing for an empty
// graph.
std::optional<ActivityId> last_finisher(const ActivityGraph& graph, const Timeline& timeline);

// `from`: where the walk begins; by default last_finisher(). A window that ends at kEndOfTime ends
// at the makespan. Requires: window.from <= window.to.
CriticalPath critical_path(const ActivityGraph& graph, const Timeline& timeline, Window window = {},
                           std::optional<ActivityId> from = std::nullopt);

}  // namespace offsim::engine
