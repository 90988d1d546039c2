// What is asked for: from the command line or from a scenario file, to jobs.
//
// A scenario names models, machines and plans, the work, and perhaps a sweep; every combination is
// a case. In a file:
//
//   title: which plan for 14B on one GH200?
//   model: qwen2.5-14b                       # or a list
//   hardware: gh200-480gb                    # or a list
//   plans: {megatrain: {checkpoint_interval: 4}, zero2-offload: {}}   # options as the system's own
//   plans: [{plan: megatrain, variant: paper, workload: {micro_batch: 8}}]   # or a list: a plan
//                                            # may come twice, with work of its own
//   workload: {micro_batch: 64, sequence: 1024}   # micro_batch: largest takes what fits, up to
//                                                 # micro_batch_limit; lora_rank: adapters
//   sweep: {micro_batch: [8, 16, 32]}        # any workload key with numbers
//   published: [{model: qwen2.5-14b, plan: megatrain, tflops: 264, from: "https://..."}]
//
// Every effective value is noted with its origin. Throws InputError for anything unknown, repeated,
// out of range or without effect, and for more work than some minutes of simulation.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/plans/job.h"
#include "sim/study/catalog.h"

namespace offsim::study {

// A value as given, with its place: a file's or the command line's.
struct Given {
  std::string text;
  Place place;
  bool quoted = false;  // "8" is a text and no number
};

// The work as given; what is absent keeps its default.
struct GivenWorkload {
  std::optional<Given> micro_batch, micro_batch_limit, sequence, accumulation, checkpointing,
      precision, phase_sync, loader_workers, loader_bandwidth, lora_rank, lora_targets, base,
      activation_offload, gpus;
};

// The keys of a workload, and where each is kept.
using WorkloadField = std::optional<Given> GivenWorkload::*;
const std::vector<std::pair<std::string, WorkloadField>>& workload_fields();

struct GivenPlan {
  Given name;
  std::vector<std::pair<Given, Given>> options;  // name, value
  GivenWorkload workload;
};

struct Published {
  std::string model, plan,
      variant;  // variant: empty, or the value of the plan's option of that name
  double tflops = 0;
  std::string from;
  Place place;
};

struct Scenario {
  std::string title;
  std::vector<Given> models, machines;
  std::vector<GivenPlan> plans;
  GivenWorkload workload;
  std::vector<std::pair<Given, std::vector<Given>>> sweep;  // workload key, values
  std::vector<Published> published;
};

// Requires: the document outlives nothing; all is copied.
Scenario read_scenario(const Node& document, const std::string& name);
Scenario load_scenario(const Catalog& catalog, const std::string& name_or_path);

// One combination, ready to predict.
struct Case {
  plans::Job job;
  std::string model, hardware;  // as named
  bool largest = false;         // micro_batch was "largest": job holds the largest that fits, or 1
  std::optional<Published> published;
  Origins origins;
  Place place;  // of its plan's name
};

// All combinations, models first, then machines, sweep values, plans. Machines and models are
// loaded once each. `done`, when given, is told how many of them are ready: `micro_batch: largest`
// is a search of some steps each.
using Progress = std::function<void(std::size_t done, std::size_t all)>;
std::vector<Case> cases(const Catalog& catalog, const Scenario& scenario,
                        const Progress& done = {});

// {plan: NAME, option: value, ..., workload: {...}} and {micro_batch: ..., ...}, for other files
// with the same keys.
GivenPlan read_given_plan(const Node& node);
GivenWorkload read_given_workload(View map);

// `text` as it would stand in a file, for messages about the command line.
Given on_command_line(std::string text);

}  // namespace offsim::study
