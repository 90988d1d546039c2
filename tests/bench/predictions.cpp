#include "predictions.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "sim/base/error.h"
#include "sim/plans/plan.h"
#include "sim/study/predict.h"
#include "sim/study/scenario.h"

namespace {

using namespace offsim;

constexpr const char* kModel = "qwen2.5-72b";
constexpr const char* kMachine = "h100-pcie";

// Of every plan with its default options, and of the largest.
std::vector<study::Case> questions() {
  study::Scenario s;
  s.models = {study::on_command_line(kModel)};
  s.machines = {study::on_command_line(kMachine)};
  for (const plans::Plan& plan : plans::registry()) {
    s.plans.push_back({study::on_command_line(std::string(plan.name)), {}, {}});
  }
  // What records most: Adam of two intervals under way.
  s.plans.push_back({study::on_command_line("zenflow"),
                     {{study::on_command_line("overlap_step"), study::on_command_line("true")}},
                     {}});
  return study::cases(study::Catalog::embedded(), s);
}

bool refused(const plans::Job& job) {
  try {
    job.plan->check(job);
    return false;
  } catch (const InputError&) {
    return true;
  }
}

void BM_Predict(benchmark::State& state, const plans::Job& job) {
  std::size_t activities = 0;
  for (auto _ : state) {
    activities = study::predict(job).activities;
  }
  state.counters["activities"] = static_cast<double>(activities);
}

void BM_Command(benchmark::State& state, const std::string& plan) {
  const std::string command = std::string(OFFSIM_PROGRAM " predict --model ") + kModel +
                              " --hardware " + kMachine + " --plan " + plan + " > /dev/null";
  for (auto _ : state) {
    if (std::system(command.c_str()) != 0) {
      state.SkipWithError("the command failed");
      break;
    }
  }
}

}  // namespace

void register_predictions() {
  study::keep_freed_memory();
  for (const study::Case& question : questions()) {
    if (!refused(question.job)) {
      std::string name = "predict/72b/" + std::string(question.job.plan->name);
      if (name.ends_with("zenflow") && question.job.options.flag("overlap_step")) {
        name += " overlap_step";
      }
      benchmark::RegisterBenchmark(name.c_str(), BM_Predict, question.job)
          ->Unit(benchmark::kMillisecond);
    }
  }
  for (const char* plan : {"zero2-offload", "megatrain"}) {
    benchmark::RegisterBenchmark((std::string("command/72b/") + plan).c_str(), BM_Command, plan)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}
