// Jobs and predictions to report on: real ones of the catalog, and one whose numbers are made up.
#pragma once

#include <string>
#include <vector>

#include "sim/plans/job.h"
#include "sim/plans/plan.h"
#include "sim/study/predict.h"

namespace offsim::report {

inline plans::Job make_job(const std::string& model, machine::Machine machine,
                           const std::string& plan, std::int64_t micro_batch = 1) {
  const plans::Plan& found = plans::find_plan(plan, {});
  plans::Job job{model::read_config(OFFSIM_SOURCE_DIR "/models/" + model + ".json"),
                 {},
                 std::move(machine),
                 &found,
                 plans::Options(found.options, found.name)};
  job.workload.micro_batch = micro_batch;
  return job;
}

inline plans::Job real_job(const std::string& model, const std::string& machine,
                           const std::string& plan, std::int64_t micro_batch = 1) {
  const auto catalog = machine::folder_catalog(OFFSIM_SOURCE_DIR "/hardware");
  return make_job(model, machine::load_machine(catalog, machine), plan, micro_batch);
}

// A machine of two figures and nothing else: enough for a report.
inline plans::Job made_up_job() {
  machine::Machine machine;
  machine.name = "box";
  machine.title = "one GPU in a box";
  machine.figures = {{.value = 55e9,
                      .source = machine::Source::kMeasured,
                      .spread = 0.03,
                      .name = "link.h2d",
                      .title = "",
                      .from = "raw/a.jsonl",
                      .place = {"hardware/systems/box.yaml", 3, 8}},
                     {.value = 1e9,
                      .source = machine::Source::kAssumed,
                      .spread = 0.25,
                      .name = "host.page_release",
                      .title = "",
                      .from = "a guess",
                      .place = {"hardware/hosts/box.yaml", 5, 8}}};
  return make_job("gpt2", machine, "megatrain", 64);
}

inline study::Prediction made_up_prediction() {
  constexpr std::int64_t kGib = kGiB;
  study::Prediction p;
  p.step = Seconds(20);
  p.step_low = Seconds(18.04);
  p.step_high = Seconds(21.96);
  p.tokens_per_s = 3276.8;
  p.tflops_model = 2.5;
  p.tflops_hardware = 4.25;
  p.tflops_six_nd = 2.444;
  p.phases = {{"forward", Seconds(4)}, {"backward", Seconds(10)}, {"optimizer", Seconds(6)}};
  const auto at = [](runtime::Cause cause) { return static_cast<std::size_t>(cause); };
  p.critical_path[at(runtime::Cause::kGpuCompute)] = Seconds(14);
  p.critical_path[at(runtime::Cause::kCpuOptimizer)] = Seconds(5.5);
  p.idle = Seconds(0.5);
  p.busy[at(runtime::Cause::kGpuCompute)] = Seconds(15);
  p.busy[at(runtime::Cause::kCpuOptimizer)] = Seconds(5.5);
  p.busy[at(runtime::Cause::kH2d)] = Seconds(2);
  p.spent = {{runtime::Cause::kGpuCompute, "layer backward", Seconds(9.5)},
             {runtime::Cause::kCpuOptimizer, "Adam", Seconds(5.5)},
             {runtime::Cause::kGpuCompute, "layer forward", Seconds(4)},
             {runtime::Cause::kGpuCompute, "norm (512 elements)", Seconds(0.15)},
             {runtime::Cause::kGpuCompute, "norm (768 elements)", Seconds(0.15)},
             {runtime::Cause::kGpuCompute, "embedding", Seconds(0.11)},
             {runtime::Cause::kGpuCompute, "loss", Seconds(0.09)}};
  p.utilization = {{"gpu.sm", 0.75}};
  p.totals.h2d_bytes = 3e9;
  p.pools = {
      {"gpu",
       Bytes(10 * kGib),
       Bytes(2 * kGib),
       Bytes(kGib / 2),
       Bytes(16 * kGib),
       "backward",
       {{"logits", Bytes(6 * kGib)}, {"weights", Bytes(4 * kGib)}}},
      {"host",
       Bytes(100 * kGib),
       Bytes(90 * kGib),
       Bytes(kGib),
       Bytes(1000 * kGib),
       "optimizer",
       {{"Adam states", Bytes(100 * kGib)}}},
      {"host_pinned", Bytes(64 * kGib), Bytes(64 * kGib), Bytes(0), std::nullopt, "setup", {}}};
  p.cost = study::Cost{UsdPerHour(2.5), Usd(0.0139), Usd(0.212)};
  p.sources = {0.75, 0, 0, 0.25};
  p.supports = {{machine::FigureId(0), 0.75}, {machine::FigureId(1), 0.25}};
  p.warnings = {"megatrain.num_grad_slabs has no effect here"};
  p.activities = 1234;
  p.simulate = Seconds(0.002);
  return p;
}

// Of a line, without escape codes: "\x1b[...m".
inline std::string without_colour(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace offsim::report
