#include "predictions.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "sim/study/predict.h"
#include "sim/study/scenario.h"

namespace {

using namespace offsim;

plans::Job job_of(const char* plan) {
  study::Scenario s;
  s.models = {study::on_command_line("qwen2.5-72b")};
  s.machines = {study::on_command_line("gh200-480gb")};
  s.plans = {{study::on_command_line(plan), {}, {}}};
  return study::cases(study::Catalog::embedded(), s).front().job;
}

void BM_Predict(benchmark::State& state, const char* plan) {
  const plans::Job job = job_of(plan);
  std::size_t activities = 0;
  for (auto _ : state) {
    activities = study::predict(job).activities;
  }
  state.counters["activities"] = static_cast<double>(activities);
}

void BM_Command(benchmark::State& state, const char* plan) {
  const std::string command = std::string(OFFSIM_PROGRAM
                                          " predict --model qwen2.5-72b --hardware gh200-480gb"
                                          " --plan ") +
                              plan + " > /dev/null";
  for (auto _ : state) {
    if (std::system(command.c_str()) != 0) {
      state.SkipWithError("the command failed");
      break;
    }
  }
}

}  // namespace

void register_predictions() {
  for (const char* plan : {"native", "zero2-offload", "megatrain"}) {
    benchmark::RegisterBenchmark((std::string("predict/72b/") + plan).c_str(), BM_Predict, plan)
        ->Unit(benchmark::kMillisecond);
  }
  for (const char* plan : {"zero2-offload", "megatrain"}) {
    benchmark::RegisterBenchmark((std::string("command/72b/") + plan).c_str(), BM_Command, plan)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}
