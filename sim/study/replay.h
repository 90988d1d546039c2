// A job's program executed for real (kernels/replay), beside its prediction.
//
// The program is what a prediction simulates, with more of its last step: warm-up steps, then
// kReplaySteps that are measured. The prediction is of the replayer, not of PyTorch: the machine's
// framework is hardware/frameworks/offsim-kernels.yaml, and attention is its stand-in where the
// machine file has rows of it. Python's own time is spun by the replayer for as long as that file
// says.
//
// Both sides are spans: a call, its lane, from when to when in the reported step. A class is what
// calls of a kind are at work on; its busy time is that in which at least one of its spans runs. A
// phase lasts from where the host enters it to where it enters the next or the step ends: on both
// sides the host's time, which runs ahead of the streams. Overlap is the sum of the busy times of
// GPU, link each way, CPU and drive over the step: 1 where nothing overlaps and nothing idles.
// Left out: the host's waits, collectives; of steps that meet the next (Plan::meets_next), that the
// last of those measured has none behind it.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "sim/study/catalog.h"
#include "sim/study/predict.h"

namespace offsim::study {

inline constexpr int kReplaySteps = 3;

// The job for the replayer on the machine that it names (`hardware`).
plans::Job replay_job(const Catalog& catalog, plans::Job job, const std::string& hardware);
// The same with so many layers of the model's. Throws InputError at `place` for more than there
// are, or none.
void keep_layers(plans::Job& job, std::int64_t layers, const Place& place);

// The run of all steps of the replay's program; its window is of the last.
Run simulate_replay(const plans::Job& job);

struct ReplaySpan {
  std::uint32_t call = 0, lane = 0;  // indices of the program
  double begin = 0, end = 0;         // seconds from the beginning of the step
};

struct ReplayMemory {
  std::string pool;
  Bytes used, held;  // worked in, of what the program holds
};

// What the replayer wrote (schema offsim.replay/1).
struct MeasuredReplay {
  std::string gpu;
  std::size_t first = 0;      // which step of the program comes first among
  std::vector<double> steps;  // those that were measured, seconds
  std::size_t reported = 0;   // which step of the program the spans are of
  std::vector<ReplaySpan> spans;
  std::vector<ReplayMemory> memory;
  bool has_hash = false;  // without, of whatever program of the same lanes and calls
  double step() const;    // seconds of the reported one
};
// Throws InputError with the line for what is no such record, or is of another program.
MeasuredReplay read_replay(std::istream& in, const std::string& name,
                           const runtime::Program& program);

// The prediction's spans of a step of the program, those that take time and phases.
std::vector<ReplaySpan> predicted_spans(const Run& run, std::size_t step);
Seconds predicted_step(const Run& run, std::size_t step);

// Launches and copies on the host thread. Measured, it waits in them where the GPU's queue is full,
// which costs a step nothing and is not predicted: no error is made of the two.
inline constexpr std::string_view kIssuing = "issuing (waits on a full queue)";

// What a span is at work on: "GPU kernels", "copies to the GPU, pinned", "CPU adam_deepspeed_f32".
std::string replay_class(const runtime::Program& program, const ReplaySpan& span);
// What it is called in a timeline: the work's name, what is copied.
std::string replay_label(const runtime::Program& program, const ReplaySpan& span);

struct ReplayRow {
  std::string name;
  double measured = 0, predicted = 0;  // seconds
};
struct ReplayComparison {
  double step_measured = 0, step_predicted = 0;  // seconds
  double overlap_measured = 0, overlap_predicted = 0;
  std::vector<ReplayRow> classes;  // the longest first
  std::vector<ReplayRow> works;    // GPU kernels by work, the longest first
  std::vector<ReplayRow> phases;   // in their order
};
ReplayComparison compare_replay(const runtime::Program& program, const MeasuredReplay& measured,
                                const std::vector<ReplaySpan>& predicted, Seconds predicted_step);

}  // namespace offsim::study
