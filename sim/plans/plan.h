// A training system as a recorder of its step.
//
// A plan is a row of the table in registry.cpp: a name, a sentence, its source, its options, and a
// function that issues the calls of its training loop on a Recorder. To add one: write
// plans/NAME.cpp, declare its record and check below, add the row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/plans/job.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

struct Plan {
  std::string_view name;
  std::string_view sentence;
  std::string_view source;
  std::vector<OptionSpec> options;
  // Refuses what the real system refuses (InputError) and returns one line for each setting that
  // has no effect.
  std::vector<std::string> (*check)(const Job& job);
  // Issues `steps` steps, or more where an option delays what is steady; the last one is steady.
  void (*record)(const Job& job, runtime::Recorder& gpu, int steps);
  int steps = 2;
  bool several_gpus = false;  // models more than one rank
  // Whether work of the next step begins while this one's is still under way: they compete, so a
  // step that nothing follows would be too short, and they may take turns. Two more are recorded
  // then, and the mean of the two before the last is reported.
  bool (*meets_next)(const Job& job) = [](const Job&) { return false; };
};

const std::vector<Plan>& registry();
// Throws InputError with the nearest name.
const Plan& find_plan(std::string_view name, const Place& asked_at);

}  // namespace offsim::plans
