// How fast is the engine, and how fast beside SimGrid on the same DAG files?
//
//   bench                          Google Benchmark's table, then the comparison with other
//   programs bench --benchmark_filter=...   with any argument: Google Benchmark's own only
//
// The DAG files are written by gen_dag.py when the benchmark is built. The comparison runs each
// program on each file in turn, kRepeats times, and prints medians of the run phase (no parsing).
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "predictions.h"
#include "sim/cli/dag.h"
#include "sim/engine/critical_path.h"
#include "sim/engine/dag_file.h"
#include "sim/engine/sharing.h"
#include "sim/engine/simulate.h"

namespace {

using namespace offsim::engine;

constexpr int kRepeats = 5;

struct Case {
  const char* file;  // in the folder of DAG files
  const char* title;
};
constexpr Case kCases[] = {
    {"offload_100k", "offload, 100 k"},
    {"offload_1m", "offload, 1 M"},
    {"offload_in_order_100k", "offload in order, 100 k"},
    {"random_64_100k", "random, window 64, 100 k"},
    {"random_1024_100k", "random, window 1024, 100 k"},
    {"random_16384_100k", "random, window 16384, 100 k"},
};

std::string path_of(const char* file) { return std::string(OFFSIM_DAGS "/") + file + ".dag"; }

ActivityGraph load(const char* file) { return std::move(read_dag(path_of(file)).builder).build(); }

void count_activities(benchmark::State& state, std::size_t activities) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(activities));
}

void BM_Read(benchmark::State& state, const char* file) {
  std::size_t activities = 0;
  for (auto _ : state) {
    activities = load(file).size();
  }
  count_activities(state, activities);
}

void BM_Simulate(benchmark::State& state, const char* file) {
  const ActivityGraph graph = load(file);
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(graph).makespan);
  }
  count_activities(state, graph.size());
}

void BM_CriticalPath(benchmark::State& state, const char* file) {
  const ActivityGraph graph = load(file);
  const Timeline timeline = simulate(graph);
  for (auto _ : state) {
    benchmark::DoNotOptimize(critical_path(graph, timeline).idle);
  }
  count_activities(state, graph.size());
}

// One more and one fewer member of one demand, among so many that share two resources.
void BM_Sharing(benchmark::State& state) {
  GraphBuilder builder;
  const std::vector<Use> uses{{builder.add_resource("a", 1e9), 1},
                              {builder.add_resource("b", 2e9), 2}};
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    builder.demand(1e8 * static_cast<double>(1 + i), 1, uses);
  }
  const ActivityGraph graph = std::move(builder).build();
  Sharing sharing(graph.resources(), graph.demand_list(), graph.use_list());
  for (std::uint32_t i = 0; i < graph.demand_list().size(); ++i) {
    sharing.add(DemandId(i));
  }
  for (auto _ : state) {
    sharing.add(DemandId{0});
    benchmark::DoNotOptimize(sharing.solve());
    sharing.remove(DemandId{0});
    benchmark::DoNotOptimize(sharing.solve());
  }
  state.SetItemsProcessed(2 * state.iterations());
}

// What a program says of one run.
struct Measured {
  double run_s = 0;
  double peak_rss_mib = 0;
};

// Programs print one JSON line, on standard error.
std::optional<Measured> run(const std::string& program, const std::string& file) {
  const std::string command = fmt::format("{} '{}' 2>&1 >/dev/null", program, file);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string said;
  for (char block[4096]; const std::size_t got = std::fread(block, 1, sizeof block, pipe.get());) {
    said.append(block, got);
  }
  const auto said_json = nlohmann::json::parse(said, nullptr, false);
  if (said_json.is_discarded()) {
    return std::nullopt;
  }
  return Measured{said_json.at("run_s"), said_json.at("peak_rss_mib")};
}

struct Program {
  std::string command;  // empty when it is not there
  std::vector<double> seconds;
  double rss_mib = 0;

  void measure(const std::string& file) {
    if (const auto measured = command.empty() ? std::nullopt : run(command, file)) {
      seconds.push_back(measured->run_s);
      rss_mib = measured->peak_rss_mib;
    }
  }
  double median() {
    std::ranges::sort(seconds);
    return seconds.empty() ? 0 : seconds[seconds.size() / 2];
  }
};

std::string rate(double activities, double seconds) {
  return seconds > 0 ? fmt::format("{:.3f} M/s", activities / seconds / 1e6) : "-";
}

std::string ratio(double ours, double theirs) {
  return ours > 0 && theirs > 0 ? fmt::format("{:.2f}", theirs / ours) : "-";
}

void compare(const std::string& self) {
  const double empty_mib = run(self + " --dag", OFFSIM_SMALLEST).value_or(Measured{}).peak_rss_mib;
  fmt::print("\n{:<29}{:>14}{:>14}{:>14}{:>16}{:>14}{:>18}\n", "DAG", "offsim", "SimGrid lazy",
             "bare floor", "times SimGrid", "times floor", "bytes/activity");
  for (const Case& one : kCases) {
    Program offsim{self + " --dag", {}, 0};
    Program floor{OFFSIM_FLOOR, {}, 0};
    Program simgrid{*OFFSIM_SIMGRID != 0 ? OFFSIM_SIMGRID " --lazy" : "", {}, 0};
    for (int i = 0; i < kRepeats; ++i) {  // in turn, so that a busy machine is fair to all
      offsim.measure(path_of(one.file));
      floor.measure(path_of(one.file));
      simgrid.measure(path_of(one.file));
    }
    const auto activities = static_cast<double>(load(one.file).size());
    const double bytes = (offsim.rss_mib - empty_mib) * 1024 * 1024 / activities;
    fmt::print("{:<29}{:>14}{:>14}{:>14}{:>16}{:>14}{:>18.0f}\n", one.title,
               rate(activities, offsim.median()), rate(activities, simgrid.median()),
               rate(activities, floor.median()), ratio(offsim.median(), simgrid.median()),
               ratio(offsim.median(), floor.median()), bytes);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--dag") {
    return offsim::cli::run_dag({argv[2], ""}, std::cout, std::cerr);
  }
  const bool only_own = argc > 1;
  for (const Case& one : kCases) {
    benchmark::RegisterBenchmark(fmt::format("simulate/{}", one.file).c_str(), BM_Simulate,
                                 one.file)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("read/offload_100k", BM_Read, "offload_100k")
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("critical_path/offload_100k", BM_CriticalPath, "offload_100k")
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("sharing", BM_Sharing)->RangeMultiplier(4)->Range(1, 256);
  register_predictions();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
  if (!only_own) {
    compare(argv[0]);
  }
  return 0;
}
