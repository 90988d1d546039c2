#include "kernels/measure.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

namespace offsim::kernels {

namespace {

using Json = nlohmann::ordered_json;

// A line is whole or absent: a reader sees an interrupted run by its missing end.
void emit(const Json& record) {
  const std::string line = record.dump() + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

std::string utc_now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json json_of(const At& at) {
  Json out = Json::object();
  for (const auto& [name, value] : at) {
    std::visit([&, &key = name](const auto& v) { out[key] = v; }, value);
  }
  return out;
}

bool wanted(const Bench& bench, const std::vector<std::string>& only) {
  return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& name) {
           return name == bench.name || name == name_of(bench.group);
         });
}

void run(const Bench& bench, const Options& options) {
  if (const auto reason = bench.unavailable ? bench.unavailable(options) : std::nullopt) {
    emit({{"record", "skipped"}, {"bench", bench.name}, {"reason", *reason}});
    return;
  }
  const auto sink = [&](const At& at, const Summary& summary, Unit unit, int samples) {
    emit({{"record", "point"},
           {"bench", bench.name},
           {"at", json_of(at)},
           {"value", summary.median},
           {"unit", name_of(unit)},
           {"spread", summary.spread},
           {"samples", samples}});
  };
  try {
    bench.run(Run(options, sink));
  } catch (const std::exception& error) {
    // One bench that fails (memory, a refused system call) does not take the others with it.
    emit({{"record", "skipped"}, {"bench", bench.name}, {"reason", error.what()}});
  }
}

}  // namespace

int measure(const MeasureOptions& options) {
  std::vector<Bench> benches = all_benches();
  if (options.list) {
    for (const Bench& bench : benches) {
      std::printf("%-8s %-26s %s\n", std::string(name_of(bench.group)).c_str(),
                  std::string(bench.name).c_str(), std::string(bench.sentence).c_str());
    }
    return 0;
  }
  for (const std::string& name : options.only) {
    if (std::none_of(benches.begin(), benches.end(),
                     [&](const Bench& bench) { return wanted(bench, {name}); })) {
      std::fprintf(stderr, "--only %s: no such group or bench; see --list\n", name.c_str());
      return 2;
    }
  }
  std::erase_if(benches, [&](const Bench& bench) { return !wanted(bench, options.only); });
  const double begin = now();
  emit({{"record", "env"},
         {"schema", "offsim.measured/1"},
         {"date", utc_now()},
         {"quick", options.bench.quick},
         {"host", Json::parse(describe_host())},
         {"gpu", Json::parse(describe_gpu())}});
  for (std::size_t i = 0; i < benches.size(); ++i) {
    std::fprintf(stderr, "progress %zu %zu %s\n", i, benches.size(),
                 std::string(benches[i].name).c_str());
    run(benches[i], options.bench);
  }
  emit({{"record", "end"}, {"seconds", now() - begin}});
  if (std::ferror(stdout) != 0) {
    std::fprintf(stderr, "standard output cannot be written\n");
    return 1;
  }
  return 0;
}

}  // namespace offsim::kernels
