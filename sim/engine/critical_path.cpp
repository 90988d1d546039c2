#include "sim/engine/critical_path.h"

#include <algorithm>
#include <map>

#include "sim/base/error.h"

namespace offsim::engine {

namespace {

constexpr ActivityId kNone{std::numeric_limits<std::uint32_t>::max()};

// By activity: the predecessor that finished last, of equals the one with the highest id; kNone for
// a root.
std::vector<ActivityId> critical_predecessors(const ActivityGraph& graph,
                                              const Timeline& timeline) {
  std::vector<ActivityId> critical(graph.size(), kNone);
  for (std::size_t i = 0; i < graph.size(); ++i) {  // ids rise, so an equal finish replaces
    for (const ActivityId after : graph.successors(ActivityId(i))) {
      ActivityId& last = critical[index(after)];
      if (last == kNone || timeline.finish[i] >= timeline.finish[index(last)]) {
        last = ActivityId(i);
      }
    }
  }
  return critical;
}

std::vector<Share> sum_by_cause_and_phase(const ActivityGraph& graph,
                                          const std::vector<Segment>& segments) {
  std::map<std::pair<std::uint8_t, std::uint8_t>, Picoseconds> sums;
  for (const Segment& segment : segments) {
    const std::size_t i = index(segment.activity);
    sums[{graph.causes()[i], graph.phases()[i]}] += segment.to - segment.from;
  }
  std::vector<Share> shares;
  shares.reserve(sums.size());
  for (const auto& [key, time] : sums) {
    shares.push_back({key.first, key.second, time});
  }
  return shares;
}

}  // namespace

Picoseconds CriticalPath::of_cause(std::uint8_t cause) const {
  Picoseconds time = 0;
  for (const Share& share : shares) {
    time += share.cause == cause ? share.time : 0;
  }
  return time;
}

std::optional<ActivityId> last_finisher(const ActivityGraph& graph, const Timeline& timeline) {
  std::optional<ActivityId> last;
  for (std::size_t i = 0; i < graph.size(); ++i) {
    if (!last || timeline.finish[i] >= timeline.finish[index(*last)]) {
      last = ActivityId(i);
    }
  }
  return last;
}

CriticalPath critical_path(const ActivityGraph& graph, const Timeline& timeline, Window window,
                           std::optional<ActivityId> from) {
  if (window.to == kEndOfTime) {
    window.to = timeline.makespan;
  }
  SIM_ASSERT(window.from <= window.to, "a window does not end before it begins");
  CriticalPath path;
  path.idle = window.to - window.from;
  const auto begin = from ? from : last_finisher(graph, timeline);
  if (!begin) {
    return path;
  }
  const std::vector<ActivityId> critical = critical_predecessors(graph, timeline);
  for (ActivityId a = *begin; a != kNone; a = critical[index(a)]) {
    const Picoseconds start = std::max(timeline.start[index(a)], window.from);
    const Picoseconds finish = std::min(timeline.finish[index(a)], window.to);
    if (start < finish) {
      path.segments.push_back({a, start, finish});
      path.idle -= finish - start;
    }
    if (timeline.start[index(a)] <= window.from) {
      break;
    }
  }
  std::ranges::reverse(path.segments);
  path.shares = sum_by_cause_and_phase(graph, path.segments);
  return path;
}

}  // namespace offsim::engine
