#include "sim/cli/dag.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <ostream>

#include "sim/base/error.h"
#include "sim/cli/output.h"
#include "sim/engine/dag_file.h"
#include "sim/engine/simulate.h"

namespace offsim::cli {

namespace {

using Clock = std::chrono::steady_clock;
using engine::Picoseconds;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// All twelve decimals, without passing through a double.
std::string exact_seconds(Picoseconds t) {
  constexpr Picoseconds kSecond = 1'000'000'000'000;
  return fmt::format("{}.{:012}", t / kSecond, t % kSecond);
}

// What this process had in memory at most; 0 where the system does not say.
double peak_rss_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    if (double kib = 0; key == "VmHWM:" && status >> kib) {
      return kib / 1024.0;
    }
  }
  return 0;
}

// What the engine refuses has no place of its own.
engine::Timeline simulate(const engine::ActivityGraph& graph, const std::string& file) {
  try {
    return engine::simulate(graph);
  } catch (const InputError& error) {
    throw error.place().file.empty() ? InputError({file}, error.what()) : error;
  }
}

void write_finish(std::ostream& out, const std::vector<std::int64_t>& ids,
                  const engine::Timeline& timeline) {
  std::string block;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    fmt::format_to(std::back_inserter(block), "{} {}\n", ids[i], exact_seconds(timeline.finish[i]));
    if (block.size() > (1U << 16)) {
      out << block;
      block.clear();
    }
  }
  out << block << std::flush;
}

}  // namespace

int run_dag(const DagOptions& options, std::ostream& out, std::ostream& err) {
  const auto begin = Clock::now();
  engine::Dag dag = engine::read_dag(options.file);
  const auto parsed = Clock::now();
  if (dag.ids.empty()) {
    throw InputError({options.file}, "there is no activity in this file",
                     "expected lines of ID KIND RESOURCE AMOUNT [DEP ...]");
  }
  const engine::ActivityGraph graph = std::move(dag.builder).build();
  const auto built = Clock::now();
  const engine::Timeline timeline = simulate(graph, options.file);
  const auto done = Clock::now();

  write_all({{"--finish", options.finish,
              [&](std::ostream& to) { write_finish(to, dag.ids, timeline); }}},
            out);
  const double run_s = seconds_between(built, done);
  const auto count = static_cast<double>(graph.size());
  err << fmt::format(R"({{"activities": {}, "edges": {}, "finished": {}, "makespan_s": {}, )"
                     R"("parse_s": {:.6f}, "build_s": {:.6f}, )"
                     R"("run_s": {:.6f}, "activities_per_s": {:.0f}, "peak_rss_mib": {:.1f}}})",
                     graph.size(), graph.edge_count(), timeline.finish.size(),
                     exact_seconds(timeline.makespan), seconds_between(begin, parsed),
                     seconds_between(parsed, built), run_s, run_s > 0 ? count / run_s : 0.0,
                     peak_rss_mib());
  err << "\n";
  return 0;
}

}  // namespace offsim::cli
