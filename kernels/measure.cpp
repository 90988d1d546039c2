#include "kernels/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/records.h"
#include "kernels/storage/scratch_file.h"

namespace offsim::kernels {

namespace {

using Json = nlohmann::ordered_json;

void emit(const Json& record) { write_line(record.dump(), std::cout); }

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
          {"value", summary.value},
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

// The benches that are asked for.
std::vector<Bench> chosen(const MeasureOptions& options) {
  std::vector<Bench> benches = all_benches();
  for (const std::string& name : options.only) {
    if (name.empty()) {
      throw UserError("command line: --only has an empty name; see --list");
    }
    if (std::none_of(benches.begin(), benches.end(),
                     [&](const Bench& bench) { return wanted(bench, {name}); })) {
      throw UserError("command line: --only " + name + ": no such group or bench; see --list");
    }
  }
  std::erase_if(benches, [&](const Bench& bench) { return !wanted(bench, options.only); });
  return benches;
}

// Not after minutes of the other benches.
void require_usable_file(const Options& options, const std::vector<Bench>& benches) {
  if (!options.file.empty()) {
    if (std::none_of(benches.begin(), benches.end(),
                     [](const Bench& bench) { return bench.group == Group::kStorage; })) {
      throw UserError(
          "command line: --file is given, and no bench that is asked for uses a drive; "
          "expected storage among --only");
    }
    if (const auto reason = scratch_refused(options.file, options.file_bytes)) {
      throw UserError(*reason);
    }
  }
}

}  // namespace

void measure(const MeasureOptions& options) {
  if (options.list) {
    for (const Bench& bench : all_benches()) {
      std::printf("%-8s %-26s %s\n", std::string(name_of(bench.group)).c_str(),
                  std::string(bench.name).c_str(), std::string(bench.sentence).c_str());
    }
    return;
  }
  const std::vector<Bench> benches = chosen(options);
  require_usable_file(options.bench, benches);
  const double begin = now();
  emit({{"record", "env"},
        {"schema", "offsim.measured/1"},
        {"date", utc_now()},
        {"quick", options.bench.quick},
        {"host", Json::parse(describe_host())},
        {"gpu", Json::parse(describe_gpu())}});
  Json seconds = Json::object();
  for (std::size_t i = 0; i < benches.size(); ++i) {
    const std::string name(benches[i].name);
    std::fprintf(stderr, "progress %zu %zu %s\n", i, benches.size(), name.c_str());
    const double start = now();
    run(benches[i], options.bench);
    seconds[name] = std::round((now() - start) * 10) / 10;
  }
  emit({{"record", "end"}, {"seconds", now() - begin}, {"benches", seconds}});
}

}  // namespace offsim::kernels
