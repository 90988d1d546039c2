// Does a viewer see the step that was predicted?
#include "sim/report/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sim/engine/memory.h"
#include "tests/report/fixture.h"

namespace offsim::report {
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

Traced trace(const plans::Job& job) {
  Traced traced;
  traced.prediction = study::predict(job, std::nullopt, &traced.run);
  std::ostringstream out;
  write_trace(out, traced.run, job);
  traced.events = Json::parse(out.str())["traceEvents"];
  return traced;
}

Traced small() { return trace(real_job("qwen2.5-0.5b", "gh200-480gb", "megatrain", 4)); }

constexpr double kTiny = 1e-3;  // microseconds: digits that a double of this size cannot hold

TEST(Trace, NamesTheProcessAndATrackForEachLane) {
  const Traced traced = small();
  std::vector<std::string> names;
  for (const Json& event : traced.of("M")) {
    if (event["name"] != "thread_sort_index") {
      names.push_back(event["args"]["name"]);
    }
  }
  EXPECT_THAT(names, testing::ElementsAre("megatrain, qwen2.5-0.5b on gh200-480gb", "host",
                                          "stream: compute", "stream: weights", "stream: gradients",
                                          "gradient worker"));
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

TEST(Trace, DoesOneThingAtATimeOnATrack) {
  const Traced traced = small();
  std::map<int, Spans> tracks;
  for (const Json& event : traced.of("X")) {
    tracks[event["tid"]].emplace_back(event["ts"],
                                      event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(tracks.size(), 5u);
  for (auto& [track, spans] : tracks) {
    std::ranges::sort(spans);
    for (std::size_t i = 1; i < spans.size(); ++i) {
      EXPECT_GE(spans[i].first, spans[i - 1].second - kTiny) << "track " << track;
    }
  }
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
    bytes += event["cat"] == "h2d" ? event["args"]["bytes"].get<double>() : 0;
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
    EXPECT_NEAR(moved, bytes, 1e-6 * bytes) << name;
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
  EXPECT_EQ(trace(job).events[0]["ph"], "X");
}

}  // namespace
}  // namespace offsim::report
