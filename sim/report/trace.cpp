#include "sim/report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/time.h"
#include "sim/report/layout.h"

namespace offsim::report {

namespace {

using engine::ActivityId;
using engine::Picoseconds;
using engine::Window;
using runtime::Cause;
using Nanoseconds = std::int64_t;

// Processes, which viewers show as groups of tracks: the program's lanes and the machine's
// resources. Threads count from the id of their process, so that all ids differ.
constexpr int kLanes = 1;
constexpr int kResources = 1000;

// JSON's spelling of a text, quotes included.
std::string json_text(std::string_view text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// Viewers keep whole nanoseconds and round what begins and what lasts each by itself: slices that
// touch would overlap, and Perfetto drops a slice that overlaps another of its track.
Nanoseconds nanoseconds(Picoseconds time) { return (time + 500) / 1000; }

// "1234.567": the format's unit.
std::string microseconds(Nanoseconds time) {
  return fmt::format("{}.{:03}", time / 1000, time % 1000);
}

// Writes the list of events with commas between.
class Events {
 public:
  explicit Events(std::ostream& out) : out_(out) {}

  void metadata(std::string_view what, int process, int track, std::string_view key,
                const std::string& json_value) {
    add(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"{}":{}}}}})", what,
                    process, track, key, json_value));
  }

  void add(const std::string& event) {
    out_ << (first_ ? "" : ",\n") << event;
    first_ = false;
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

// What a unit of the activity's amount is; empty where it says nothing beside the duration.
std::string_view unit_of(Cause cause) {
  switch (cause) {
    case Cause::kH2d:
    case Cause::kD2h:
    case Cause::kNvme:
    case Cause::kCollective:
      return "bytes";
    case Cause::kCpuOptimizer:
    case Cause::kCpuClip:
    case Cause::kCpuCopy:
      return "elements";
    default:
      return "";
  }
}

// The figure with the largest share in an activity's time.
machine::FigureId main_figure(const runtime::FigureShares& shares) {
  const auto most = std::ranges::max_element(
      shares, [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == shares.end() ? machine::kNoFigure : most->first;
}

std::string arguments(const study::Run& run, const machine::Machine& machine, ActivityId id) {
  const engine::Activity activity = run.lowered.graph.activity(id);
  std::string text = fmt::format(R"("phase":"{}")", phase_name(runtime::Phase(activity.phase)));
  const std::string_view unit = unit_of(Cause(activity.cause));
  if (!unit.empty() && activity.amount > 0) {
    text += fmt::format(R"(,"{}":{:.0f})", unit, activity.amount);
  }
  const auto figure =
      main_figure(run.lowered.figure_shares[run.lowered.rests_on[engine::index(id)]]);
  if (figure != machine::kNoFigure) {
    text += fmt::format(R"(,"rests_on":{})", json_text(machine.figure(figure).text()));
  }
  return text;
}

struct Slice {
  Nanoseconds from = 0, to = 0;
  ActivityId activity{};
};
using Slices = std::vector<Slice>;

// What a person looks at: a lane of the program, or a resource of the machine.
struct Track {
  std::string name;
  Slices slices;
};

// The slices of one track may overlap, those of one row of it never do: as few rows as that takes.
std::vector<Slices> rows_of(Slices slices) {
  std::ranges::stable_sort(slices, {}, &Slice::from);
  std::vector<Slices> rows;
  for (const Slice& slice : slices) {
    auto row = std::ranges::find_if(
        rows, [&](const Slices& busy) { return busy.back().to <= slice.from; });
    if (row == rows.end()) {
      row = rows.emplace(row);
    }
    row->push_back(slice);
  }
  return rows;
}

// What several lanes may use at the same time, which nobody sees on the lanes alone.
constexpr std::array<std::string_view, 4> kResourceNames{"link, to the GPU", "link, to the host",
                                                         "CPU pool", "drive"};

// Index into kResourceNames; nothing for a kernel, and for the host thread, which has a core to
// itself.
std::optional<std::size_t> resource_of(Cause cause) {
  switch (cause) {
    case Cause::kH2d:
      return 0;
    case Cause::kD2h:
      return 1;
    case Cause::kCpuOptimizer:
    case Cause::kCpuClip:
    case Cause::kCpuCopy:
    case Cause::kPageFaults:
      return 2;
    case Cause::kNvme:
      return 3;
    default:
      return std::nullopt;
  }
}

struct Tracks {
  std::vector<Track> lanes, resources;
};

// What runs in the step: on its lane, and again on the resource that it uses.
Tracks tracks_of(const study::Run& run) {
  Tracks tracks;
  for (const runtime::LaneInfo& lane : run.program.lanes) {
    const bool stream = lane.kind == runtime::LaneKind::kStream;
    tracks.lanes.push_back({stream ? "stream: " + lane.name : lane.name, {}});
  }
  for (const std::string_view name : kResourceNames) {
    tracks.resources.push_back({std::string(name), {}});
  }
  for (std::size_t i = 0; i < run.lowered.graph.size(); ++i) {
    const Picoseconds from = std::max(run.timeline.start[i], run.step.from);
    const Picoseconds to = std::min(run.timeline.finish[i], run.step.to);
    const Slice slice{nanoseconds(from - run.step.from), nanoseconds(to - run.step.from),
                      ActivityId{static_cast<std::uint32_t>(i)}};
    if (slice.from >= slice.to) {
      continue;
    }
    tracks.lanes[run.lowered.lane[i]].slices.push_back(slice);
    if (const auto resource = resource_of(Cause{run.lowered.graph.causes()[i]})) {
      tracks.resources[*resource].slices.push_back(slice);
    }
  }
  return tracks;
}

// The tracks of a process, each row as a thread of its own.
void add_process(Events& events, int process, const std::string& name,
                 const std::vector<Track>& tracks, const study::Run& run,
                 const machine::Machine& machine) {
  events.metadata("process_name", process, process, "name", json_text(name));
  int thread = process;
  const engine::ActivityGraph& graph = run.lowered.graph;
  for (const Track& track : tracks) {
    for (const Slices& row : rows_of(track.slices)) {
      events.metadata("thread_name", process, thread, "name", json_text(track.name));
      events.metadata("thread_sort_index", process, thread, "sort_index",
                      fmt::format("{}", thread));
      for (const Slice& slice : row) {
        const Cause cause{graph.causes()[engine::index(slice.activity)]};
        const std::string_view label = graph.label(slice.activity);
        events.add(fmt::format(
            R"({{"name":{},"cat":"{}","ph":"X","ts":{},"dur":{},"pid":{},"tid":{},"args":{{{}}}}})",
            json_text(label.empty() ? cause_title(cause) : label), cause_key(cause),
            microseconds(slice.from), microseconds(slice.to - slice.from), process, thread,
            arguments(run, machine, slice.activity)));
      }
      ++thread;
    }
  }
}

// A value that a counter takes on and keeps until its next point.
struct Point {
  Picoseconds time = 0;
  double value = 0;
};

// At most kMostCounterPoints: of each slice of the window the largest value, then the last.
std::vector<Point> thin(const std::vector<Point>& points, const Window& window) {
  if (points.size() <= std::size_t{kMostCounterPoints}) {
    return points;
  }
  const Picoseconds slice = (window.to - window.from) / (kMostCounterPoints / 2) + 1;
  const auto slice_of = [&](const Point& point) { return (point.time - window.from) / slice; };
  std::vector<Point> kept;
  for (std::size_t i = 0; i < points.size();) {
    Point most = points[i];
    const std::size_t first = i;
    for (; i < points.size() && slice_of(points[i]) == slice_of(points[first]); ++i) {
      most.value = std::max(most.value, points[i].value);
    }
    kept.push_back(most);
    if (i - first > 1) {
      kept.push_back(points[i - 1]);
    }
  }
  return kept;
}

// `points` cover the whole run, in the order of time; left out where nothing ever changes from 0.
void add_counter(Events& events, std::string_view name, std::string_view unit,
                 const std::vector<Point>& points, const Window& window) {
  std::vector<Point> within{{window.from, 0}};
  for (const Point& point : points) {
    if (point.time <= window.from) {
      within.front().value = point.value;
    } else if (point.time <= window.to) {
      within.push_back(point);
    }
  }
  if (within.size() == 1 && within.front().value == 0) {
    return;
  }
  for (const Point& point : thin(within, window)) {
    events.add(fmt::format(R"({{"name":{},"ph":"C","ts":{},"pid":{},"args":{{"{}":{}}}}})",
                           json_text(name), microseconds(nanoseconds(point.time - window.from)),
                           kResources, unit, point.value));
  }
}

// At each instant of a change the most that is held from then until the next: an allocator sees
// what is freed again within the instant.
std::vector<Point> pool_points(const study::Run& run, engine::PoolId pool) {
  std::vector<std::pair<Picoseconds, std::int64_t>> changes;
  for (const engine::MemoryChange& change : run.lowered.graph.changes()) {
    if (change.pool == pool) {
      const auto& times =
          change.at == engine::At::kStart ? run.timeline.start : run.timeline.finish;
      changes.emplace_back(times[engine::index(change.activity)], change.delta_bytes);
    }
  }
  std::ranges::stable_sort(changes, {}, &std::pair<Picoseconds, std::int64_t>::first);
  std::vector<Point> points;
  std::int64_t held = 0;
  for (const auto& [time, bytes] : changes) {
    held += bytes;
    const auto value = static_cast<double>(held);
    if (points.empty() || points.back().time < time) {
      points.push_back({time, value});
    } else {
      points.back().value = std::max(points.back().value, value);
    }
  }
  return points;
}

// GB/s of all copies of a cause: each copy's bytes, spread evenly over the time after its
// latency.
std::vector<Point> copy_points(const study::Run& run, Cause cause) {
  struct Change {
    Picoseconds time;
    double gb_per_s;
    int copies;
  };
  const engine::ActivityGraph& graph = run.lowered.graph;
  std::vector<Change> changes;
  for (std::size_t i = 0; i < graph.size(); ++i) {
    const Picoseconds from = run.timeline.start[i] + graph.latencies()[i];
    const Picoseconds to = run.timeline.finish[i];
    if (Cause(graph.causes()[i]) == cause && from < to) {
      const double rate = graph.amounts()[i] / 1e9 / engine::to_seconds(to - from).value;
      changes.push_back({from, rate, 1});
      changes.push_back({to, -rate, -1});
    }
  }
  std::ranges::stable_sort(changes, {}, &Change::time);
  std::vector<Point> points;
  double rate = 0;
  int copies = 0;
  for (const Change& change : changes) {
    copies += change.copies;
    rate = copies == 0 ? 0 : rate + change.gb_per_s;  // no dust of rounding when nothing moves
    if (!points.empty() && points.back().time == change.time) {
      points.back().value = rate;
    } else {
      points.push_back({change.time, rate});
    }
  }
  return points;
}

}  // namespace

void write_trace(std::ostream& out, const study::Run& run, const plans::Job& job) {
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  Events events(out);
  const Tracks tracks = tracks_of(run);
  const std::string rank = job.workload.gpus > 1
                               ? fmt::format(", rank 0 of {} (ranks are alike)", job.workload.gpus)
                               : "";
  add_process(events, kLanes,
              fmt::format("{}, {} on {}{}", job.plan->name, job.shape.name, job.machine.name, rank),
              tracks.lanes, run, job.machine);
  add_process(events, kResources, fmt::format("resources of {}", job.machine.name),
              tracks.resources, run, job.machine);
  const engine::ActivityGraph& graph = run.lowered.graph;
  for (std::size_t i = 0; i < graph.pools().size(); ++i) {
    const std::string name = fmt::format("{} memory", pool_title(graph.pools()[i].name));
    const engine::PoolId pool{static_cast<std::uint32_t>(i)};
    add_counter(events, name, "bytes", pool_points(run, pool), run.step);
  }
  for (const Cause cause : {Cause::kH2d, Cause::kD2h, Cause::kNvme}) {
    add_counter(events, cause_title(cause), "GB/s", copy_points(run, cause), run.step);
  }
  out << "\n]}\n";
}

}  // namespace offsim::report
