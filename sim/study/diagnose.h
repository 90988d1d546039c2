// A run's log beside its prediction: what is slower than expected, and the first suspect.
//
// Measured is the median of what a log says of a time, without the first tenth of it (warm-up: at
// least one of three, at most ten); of memory it is the most. A whole step is the step's own time,
// else what the run's rates make of it. Timers of micro-batches are multiplied by those of a step,
// and of the step's timer the longest of each step counts: it does little at the others. Timers of
// DeepSpeed wait for the GPU, so with phases in the log the prediction waits too (phase_sync).
//
// A suspect is the job with something wrong (handicaps.h), predicted; or arithmetic on the log, or
// something the log shows that no prediction knows (swapping). How far it is from the log is
// sum |log(measured / suspected)| over forward, backward, optimizer and step, those that were
// measured. It reproduces the log when each of them is within kReproduces. Suspects that change
// nothing, or are no closer than the prediction as it is, are left out. Those that the log shows
// come first, then those that reproduce it, the closest first.
//
// As expected: every time within kReproduces of the prediction, or within its own range if that is
// wider. Left out: two things wrong at once, how common a cause is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/logs/log.h"
#include "sim/plans/job.h"
#include "sim/study/predict.h"

namespace offsim::study {

inline constexpr double kReproduces = 0.15;

// What a step's times are: absent where nobody measured.
struct StepTimes {
  std::optional<double> forward, backward, optimizer, step;  // seconds
};

struct Summary {  // of a kind of figure in the log
  logs::What what;
  std::size_t count = 0, left_out = 0;
  double value = 0;  // median, or the most
};

struct MemoryRow {
  std::string name;  // "GPU peak"
  Bytes measured, expected;
};

struct Suspect {
  std::string name;     // for scripts: "threads"
  std::string title;    // "too few threads for the CPU's work"
  std::string setting;  // what was tried: "1 thread, not 56"
  std::string seen;     // what in the log shows it; empty where nothing does
  std::string check;    // what to look at, a sentence
  std::string command;  // to be run on that machine
  StepTimes times;      // with it; empty where it was not predicted
  std::optional<double> distance;
  bool reproduces = false;
};

enum class Verdict : std::uint8_t {
  kAsExpected,
  kFaster,      // and nothing is slower
  kFound,       // the first suspect reproduces the log, or the log shows it
  kClosest,     // it is closer than the prediction, no more
  kUnexplained  // none is
};

struct Diagnosis {
  std::vector<Summary> summaries;
  StepTimes measured, expected;
  std::string step_from;  // "CurrSamplesPerSec", ...; empty without a step
  double tolerance = kReproduces;
  double distance = 0;  // of the prediction as it is
  std::vector<MemoryRow> memory;
  Verdict verdict = Verdict::kAsExpected;
  std::vector<Suspect> suspects;
  std::vector<std::string> notes;
  plans::Job job;  // as predicted
};

// Throws InputError for a log without a time.
Diagnosis diagnose(plans::Job job, const logs::Log& log);

std::string_view verdict_name(Verdict verdict);  // "as_expected" ...

}  // namespace offsim::study
