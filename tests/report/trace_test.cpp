// Does a viewer see the step that was predicted?
#include "sim/report/trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "sim/engine/memory.h"
#include "sim/engine/simulate.h"
#include "sim/runtime/recorder.h"
#include "tests/report/fixture.h"

namespace offsim::report::trace_test {
namespace {

using Json = nlohmann::json;
using Spans = std::vector<std::pair<double, double>>;  // from, to, in microseconds

struct Traced {
  study::Run run;
  study::Prediction prediction;
  Json events;

  std::vector<Json> of(const std::string& kind) const {
    std::vector<Json> found;
    std::copy_if(events.begin(), events.end(), std::back_inserter(found),
                 [&](const Json& event) { return event["ph"] == kind; });
    return found;
  }
  std::vector<Json> counter(const std::string& name) const {
    std::vector<Json> found;
    for (const Json& event : of("C")) {
      if (event["name"] == name) {
        found.push_back(event);
      }
    }
    return found;
  }
  double step_us() const { return prediction.step.value * 1e6; }
};

Traced traced_run(const plans::Job& job, study::Run run) {
  Traced traced;
  std::ostringstream out;
  write_trace(out, run, job);
  traced.run = std::move(run);
  traced.events = Json::parse(out.str())["traceEvents"];
  return traced;
}

Traced trace(const plans::Job& job) {
  study::Run run;
  const study::Prediction prediction = study::predict(job, std::nullopt, &run);
  Traced traced = traced_run(job, std::move(run));
  traced.prediction = prediction;
  return traced;
}

Traced small() { return trace(real_job("qwen2.5-0.5b", "gh200-480gb", "megatrain", 4)); }

// Two steps in which everything happens beside everything else.
Traced crowded() {
  const plans::Job job = real_job("qwen2.5-0.5b", "gh200-480gb", "native");
  runtime::Recorder recorder({.gpu = 512, .pinned_power_of_two = true});
  const runtime::Lane reads = recorder.io_queue("reads"), writes = recorder.io_queue("writes");
  for (int step = 0; step < 2; ++step) {
    recorder.read(reads, Bytes(kGiB), Bytes(kGiB), "states");
    recorder.write(writes, Bytes(kGiB), Bytes(kGiB), "states");
    for (int i = 1; i <= 3; ++i) {
      const runtime::Lane stream = recorder.stream(fmt::format("stream {} of {}", i, step));
      const runtime::Lane worker = recorder.worker(fmt::format("worker {} of {}", i, step));
      for (int piece = 0; piece < 5; ++piece) {
        recorder.copy_h2d(stream, runtime::Space::kPinned, Bytes(i * 10'000'019), "weights");
        recorder.copy_d2h(stream, runtime::Space::kPinned, Bytes(i * 20'000'003), "gradients");
        recorder.cpu("add_f32", i * 1'000'003, "add", {.thread = worker, .threads = 4});
      }
    }
    recorder.sync_device();
    recorder.sync(reads);
    recorder.sync(writes);
    recorder.end_step();
  }
  study::Run run;
  run.program = std::move(recorder).finish();
  run.lowered = runtime::lower(run.program, job.machine);
  run.timeline = engine::simulate(run.lowered.graph);
  const auto end = [&](std::size_t step) {
    return run.timeline.finish[engine::index(run.lowered.step_ends[step])];
  };
  run.step = {end(0), end(1)};
  return traced_run(job, std::move(run));
}

constexpr double kTiny = 2e-3;  // microseconds: a viewer keeps nanoseconds

bool on_a_lane(const Json& event) { return event["pid"] == 1; }

TEST(Trace, OfSeveralGpusIsThatOfARank) {
  plans::Job job = real_job("qwen2.5-0.5b", "h200x2-32core-vm", "fsdp2-offload");
  const auto name = [](const Traced& traced) {
    return traced.of("M").front()["args"]["name"].get<std::string>();
  };
  EXPECT_EQ(name(trace(job)), "fsdp2-offload, qwen2.5-0.5b on h200x2-32core-vm");
  job.workload.gpus = 2;
  EXPECT_EQ(name(trace(job)),
            "fsdp2-offload, qwen2.5-0.5b on h200x2-32core-vm, rank 0 of 2 (ranks are alike)");
}

// A begin or a length as Perfetto keeps it: each rounded by itself.
std::int64_t kept_ns(const Json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

// Of the events on each track, in nanoseconds as a viewer keeps them, in order.
using Kept = std::pair<std::int64_t, std::int64_t>;
std::map<int, std::vector<Kept>> kept_tracks(const Traced& traced) {
  std::map<int, std::vector<Kept>> tracks;
  for (const Json& event : traced.of("X")) {
    const std::int64_t from = kept_ns(event["ts"]);
    tracks[event["tid"]].emplace_back(from, from + kept_ns(event["dur"]));
  }
  for (auto& [track, spans] : tracks) {
    std::ranges::sort(spans);
  }
  return tracks;
}

std::map<int, std::string> names_of_tracks(const Traced& traced) {
  std::map<int, std::string> names;
  for (const Json& event : traced.of("M")) {
    if (event["name"] == "thread_name") {
      EXPECT_TRUE(names.emplace(event["tid"], event["args"]["name"]).second) << event;
    }
  }
  return names;
}

TEST(Trace, NamesTheProcessesAndTheirTracks) {
  const Traced traced = small();
  std::vector<std::string> names;
  for (const Json& event : traced.of("M")) {
    if (event["name"] != "thread_sort_index") {
      names.push_back(event["args"]["name"]);
    }
  }
  EXPECT_THAT(names, testing::ElementsAre("megatrain, qwen2.5-0.5b on gh200-480gb", "host",
                                          "stream: compute", "stream: weights", "stream: gradients",
                                          "gradient worker", "resources of gh200-480gb",
                                          "link, to the GPU", "link, to the host", "CPU pool"));
}

TEST(Trace, StaysWithinTheStepAndReachesItsEnd) {
  const Traced traced = small();
  double first = traced.step_us(), last = 0;
  for (const Json& event : traced.of("X")) {
    const double from = event["ts"], length = event["dur"];
    EXPECT_GE(from, 0);
    EXPECT_GT(length, 0);
    first = std::min(first, from);
    last = std::max(last, from + length);
    EXPECT_FALSE(event["name"].get<std::string>().empty());
    EXPECT_TRUE(event["args"]["phase"].is_string());
  }
  EXPECT_EQ(first, 0);
  EXPECT_NEAR(last, traced.step_us(), kTiny);
}

// Perfetto drops a slice that begins within another of its track and ends after it.
void expect_one_at_a_time(const Traced& traced) {
  const auto names = names_of_tracks(traced);
  const auto tracks = kept_tracks(traced);
  EXPECT_EQ(tracks.size(), names.size());
  for (const auto& [track, spans] : tracks) {
    ASSERT_TRUE(names.contains(track));
    for (std::size_t i = 1; i < spans.size(); ++i) {
      EXPECT_GE(spans[i].first, spans[i - 1].second) << names.at(track);
    }
  }
}

TEST(Trace, DoesOneThingAtATimeOnATrack) {
  expect_one_at_a_time(crowded());
  int ran = 0;
  for (const plans::Plan& plan : plans::registry()) {
    SCOPED_TRACE(plan.name);
    try {
      const std::string name(plan.name);
      expect_one_at_a_time(trace(real_job("qwen2.5-0.5b", "gh200-480gb", name, 4)));
      ++ran;
    } catch (const InputError&) {  // this machine is not for every plan
    }
  }
  EXPECT_GE(ran, 6);
}

// Rows of one name are as many as what they show overlaps, and no more.
TEST(Trace, TakesAsFewRowsAsItCan) {
  const Traced traced = crowded();
  const auto names = names_of_tracks(traced);
  std::map<std::string, int> rows;
  std::map<std::string, std::vector<Kept>> changes;  // when, by how many
  for (const auto& [track, spans] : kept_tracks(traced)) {
    ++rows[names.at(track)];
    for (const auto& [from, to] : spans) {
      changes[names.at(track)].emplace_back(from, 1);
      changes[names.at(track)].emplace_back(to, -1);  // sorts before what begins then
    }
  }
  for (auto& [name, list] : changes) {
    std::ranges::sort(list);
    std::int64_t now = 0, most = 0;
    for (const auto& [time, change] : list) {
      now += change;
      most = std::max(most, now);
    }
    EXPECT_EQ(most, rows[name]) << name;
  }
  EXPECT_EQ(rows["link, to the GPU"], 3);
  EXPECT_EQ(rows["drive"], 2);
}

// Everything on a resource is on a lane too, and everything that uses one is there.
TEST(Trace, ShowsTheSameWorkByResource) {
  const std::map<std::string, std::string> kTrackOf{{"h2d", "link, to the GPU"},
                                                    {"d2h", "link, to the host"},
                                                    {"cpu_optimizer", "CPU pool"},
                                                    {"cpu_clip", "CPU pool"},
                                                    {"cpu_copy", "CPU pool"},
                                                    {"page_faults", "CPU pool"},
                                                    {"nvme", "drive"}};
  const Traced traced = crowded();
  const auto names = names_of_tracks(traced);
  std::multiset<std::string> lanes, resources;
  for (Json event : traced.of("X")) {
    const std::string name = names.at(event["tid"]);
    const auto resource = kTrackOf.find(event["cat"].get<std::string>());
    if (!on_a_lane(event)) {
      ASSERT_NE(resource, kTrackOf.end()) << event;
      EXPECT_EQ(name, resource->second);
    }
    event.erase("pid");
    event.erase("tid");
    if (resource != kTrackOf.end()) {
      (name == resource->second ? resources : lanes).insert(event.dump());
    }
  }
  EXPECT_FALSE(lanes.empty());
  EXPECT_EQ(lanes, resources);
}

TEST(Trace, ShowsADrive) {
  const Traced traced = crowded();
  const auto names = names_of_tracks(traced);
  double bytes = 0;
  for (const Json& event : traced.of("X")) {
    if (names.at(event["tid"]) == "drive") {
      bytes += event["args"]["bytes"].get<double>();
      EXPECT_EQ(event["cat"], "nvme");
    }
  }
  EXPECT_EQ(bytes, traced.run.lowered.totals.back().nvme_read_bytes +
                       traced.run.lowered.totals.back().nvme_write_bytes);
  EXPECT_GT(traced.counter("NVMe").size(), 1u);
}

TEST(Trace, ShowsEachCauseAsLongAsItIsBusy) {
  const Traced traced = small();
  for (std::size_t cause = 0; cause < runtime::kCauses; ++cause) {
    Spans spans;
    for (const Json& event : traced.of("X")) {
      if (event["cat"] == std::string(cause_key(runtime::Cause(cause)))) {
        spans.emplace_back(event["ts"], event["ts"].get<double>() + event["dur"].get<double>());
      }
    }
    std::ranges::sort(spans);
    double busy = 0, covered = 0;
    for (const auto& [from, to] : spans) {
      busy += std::max(0.0, to - std::max(from, covered));
      covered = std::max(covered, to);
    }
    EXPECT_NEAR(busy, traced.prediction.busy[cause].value * 1e6, 1) << cause;
  }
}

TEST(Trace, CountsTheBytesOfCopies) {
  const Traced traced = small();
  double bytes = 0;
  for (const Json& event : traced.of("X")) {
    const bool counts = event["cat"] == "h2d" && on_a_lane(event);
    bytes += counts ? event["args"]["bytes"].get<double>() : 0;
  }
  EXPECT_EQ(bytes, traced.prediction.totals.h2d_bytes);
}

// The integral of a rate over the step is what was moved.
TEST(Trace, ShowsTheRateOfCopies) {
  const Traced traced = small();
  for (const auto& [name, bytes] :
       {std::pair{"copies to the GPU", traced.prediction.totals.h2d_bytes},
        std::pair{"copies to the host", traced.prediction.totals.d2h_bytes}}) {
    const std::vector<Json> points = traced.counter(name);
    ASSERT_FALSE(points.empty()) << name;
    double moved = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double until =
          i + 1 < points.size() ? points[i + 1]["ts"].get<double>() : traced.step_us();
      moved +=
          points[i]["args"]["GB/s"].get<double>() * 1e3 * (until - points[i]["ts"].get<double>());
    }
    EXPECT_NEAR(moved, bytes, 1e-5 * bytes) << name;
  }
}

double most(const std::vector<Json>& points) {
  double value = 0;
  for (const Json& point : points) {
    value = std::max(value, point["args"]["bytes"].get<double>());
  }
  return value;
}

TEST(Trace, ReachesThePeaksOfMemory) {
  for (const char* const plan : {"native", "megatrain", "zero2-offload"}) {
    const Traced traced = trace(real_job("qwen2.5-0.5b", "gh200-480gb", plan, 4));
    const std::vector<Json> points = traced.counter("GPU memory");
    ASSERT_GT(points.size(), 2u);
    EXPECT_EQ(points.front()["ts"], 0.0);
    EXPECT_EQ(most(points), static_cast<double>(traced.prediction.pool("gpu")->peak.value)) << plan;
    EXPECT_TRUE(traced.counter("NVMe memory").empty());
  }
}

TEST(Trace, BoundsItsCountersAndKeepsTheirPeaks) {
  plans::Job job = real_job("qwen2.5-0.5b", "gh200-480gb", "zero2-offload", 1);
  job.workload.accumulation = 16;
  const Traced traced = trace(job);
  const auto samples =
      engine::pool_series(traced.run.lowered.graph, traced.run.timeline, traced.run.lowered.gpu);
  ASSERT_GT(samples.size(), std::size_t{2 * kMostCounterPoints});  // of two equal steps
  const std::vector<Json> points = traced.counter("GPU memory");
  EXPECT_LE(points.size(), std::size_t{kMostCounterPoints});
  EXPECT_GT(points.size(), std::size_t{kMostCounterPoints / 10});
  EXPECT_EQ(most(points), static_cast<double>(traced.prediction.pool("gpu")->peak.value));
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_LE(points[i - 1]["ts"].get<double>(), points[i]["ts"].get<double>());
  }
}

TEST(Trace, IsJsonWhateverAFileIsCalled) {
  plans::Job job = real_job("gpt2", "gh200-480gb", "native");
  job.shape.name = "a\"b\\c\n\xff";
  EXPECT_EQ(trace(job).events[0]["ph"], "M");
}

}  // namespace
}  // namespace offsim::report::trace_test
