#include "sim/study/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "sim/engine/graph.h"

namespace offsim::study {

namespace {

using engine::index;
using runtime::Program;
using Interval = std::pair<double, double>;

constexpr const char* kReplayFramework = "offsim-kernels";

bool pageable(const runtime::Copy& copy) {
  return copy.from == runtime::Space::kPageable || copy.to == runtime::Space::kPageable;
}

// What several classes share.
enum class Part : std::uint8_t { kNone, kGpu, kToGpu, kToHost, kCpu, kDrive };
constexpr std::size_t kParts = 6;

Part part_of(const Program& program, const ReplaySpan& span) {
  const runtime::Call& call = program.calls[span.call];
  const bool on_host = span.lane == static_cast<std::uint32_t>(runtime::kHost);
  if (std::holds_alternative<runtime::CpuWork>(call)) {
    return Part::kCpu;
  }
  if (on_host) {
    return Part::kNone;
  }
  if (const auto* const copy = std::get_if<runtime::Copy>(&call)) {
    return copy->to == runtime::Space::kGpu ? Part::kToGpu : Part::kToHost;
  }
  if (std::holds_alternative<runtime::Launch>(call)) {
    return Part::kGpu;
  }
  return std::holds_alternative<runtime::Io>(call) ? Part::kDrive : Part::kNone;
}

// Time in which at least one of them runs, between 0 and `end`.
double covered(std::vector<Interval> intervals, double end) {
  std::sort(intervals.begin(), intervals.end());
  double total = 0, reached = 0;
  for (const auto& [from, to] : intervals) {
    const double begin = std::max(from, reached);
    const double until = std::min(to, end);
    total += std::max(0.0, until - begin);
    reached = std::max(reached, until);
  }
  return total;
}

// One side of the comparison.
struct Side {
  std::map<std::string, double> classes, works;
  std::array<double, kParts> parts{};
  std::map<runtime::Phase, double> phases;
};

// By the host's entries into them among the calls of the reported step. One that it made before the
// step began, since it runs ahead, counts from the beginning.
std::map<runtime::Phase, double> phases_of(const Program& program,
                                           const std::vector<ReplaySpan>& spans, double step,
                                           std::size_t reported) {
  std::map<std::uint32_t, double> entered;
  for (const ReplaySpan& span : spans) {
    entered[span.call] = std::clamp(span.begin, 0.0, step);
  }
  std::vector<std::pair<double, runtime::Phase>> borders;
  std::size_t ended = 0;
  for (std::uint32_t call = 0; call < program.calls.size() && ended <= reported; ++call) {
    ended += std::holds_alternative<runtime::EndStep>(program.calls[call]) ? 1 : 0;
    const auto* const enter = std::get_if<runtime::EnterPhase>(&program.calls[call]);
    if (enter != nullptr && ended == reported) {
      const auto found = entered.find(call);
      borders.emplace_back(found == entered.end() ? 0 : found->second, enter->phase);
    }
  }
  std::map<runtime::Phase, double> phases;
  for (std::size_t i = 0; i < borders.size(); ++i) {
    const double end = i + 1 < borders.size() ? borders[i + 1].first : step;
    phases[borders[i].second] += end - borders[i].first;
  }
  return phases;
}

Side side_of(const Program& program, const std::vector<ReplaySpan>& spans, double step,
             std::size_t reported) {
  std::map<std::string, std::vector<Interval>> classes, works;
  std::array<std::vector<Interval>, kParts> parts;
  for (const ReplaySpan& span : spans) {
    if (std::holds_alternative<runtime::EnterPhase>(program.calls[span.call])) {
      continue;
    }
    const Interval interval{span.begin, span.end};
    classes[replay_class(program, span)].push_back(interval);
    const Part part = part_of(program, span);
    parts[index(part)].push_back(interval);
    if (part == Part::kGpu) {
      works[replay_label(program, span)].push_back(interval);
    }
  }
  Side side;
  for (auto& [name, intervals] : classes) {
    side.classes[name] = covered(std::move(intervals), step);
  }
  for (auto& [name, intervals] : works) {
    side.works[name] = covered(std::move(intervals), step);
  }
  for (std::size_t i = 1; i < kParts; ++i) {
    side.parts[i] = covered(std::move(parts[i]), step);
  }
  side.phases = phases_of(program, spans, step, reported);
  return side;
}

double overlap(const Side& side, double step) {
  double sum = 0;
  for (const double busy : side.parts) {
    sum += busy;
  }
  return sum / step;
}

std::vector<ReplayRow> rows_of(const std::map<std::string, double>& measured,
                               const std::map<std::string, double>& predicted) {
  std::map<std::string, ReplayRow> rows;
  for (const auto& [name, seconds] : measured) {
    rows[name].measured = seconds;
  }
  for (const auto& [name, seconds] : predicted) {
    rows[name].predicted = seconds;
  }
  std::vector<ReplayRow> out;
  for (auto& [name, row] : rows) {
    row.name = name;
    out.push_back(row);
  }
  std::stable_sort(out.begin(), out.end(), [](const ReplayRow& a, const ReplayRow& b) {
    return std::max(a.measured, a.predicted) > std::max(b.measured, b.predicted);
  });
  return out;
}

}  // namespace

plans::Job replay_job(const Catalog& catalog, plans::Job job, const std::string& hardware) {
  job.machine = catalog.machine(hardware, {"command line", 0, 0}, kReplayFramework);
  machine::Accelerator& accelerator = job.machine.accelerator;
  accelerator.attention_forward =
      accelerator.standin_forward.value_or(accelerator.attention_forward);
  accelerator.attention_backward =
      accelerator.standin_backward.value_or(accelerator.attention_backward);
  if (accelerator.standin_adam_f32) {
    accelerator.adam_f32 = accelerator.standin_adam_f32;
  }
  if (accelerator.standin_adam_bf16) {
    accelerator.adam_bf16 = accelerator.standin_adam_bf16;
  }
  if (machine::Host& host = job.machine.host; !host.standins.empty()) {
    host.kernels = host.standins;
  }
  return job;
}

void keep_layers(plans::Job& job, std::int64_t layers, const Place& place) {
  if (layers < 1 || layers > job.shape.layers) {
    throw InputError(place, fmt::format("{} layers of {}", layers, job.shape.name),
                     fmt::format("expected 1 to {}", job.shape.layers));
  }
  job.shape.layers = layers;
  if (!job.shape.kind_of.empty()) {
    job.shape.kind_of.resize(static_cast<std::size_t>(layers));
  }
}

Run simulate_replay(const plans::Job& job) {
  return simulate(job, job.plan->steps + kReplaySteps - 1);
}

std::vector<ReplaySpan> predicted_spans(const Run& run, std::size_t step) {
  const auto& ends = run.lowered.step_ends;
  const engine::Picoseconds from = run.timeline.finish[index(ends[step - 1])];
  const engine::Picoseconds to = run.timeline.finish[index(ends[step])];
  const auto seconds = [&](engine::Picoseconds time) {
    return engine::to_seconds(time - from).value;
  };
  std::vector<ReplaySpan> spans;
  for (std::size_t i = 0; i < run.lowered.graph.size(); ++i) {
    const engine::Picoseconds begin = run.timeline.start[i], end = run.timeline.finish[i];
    const std::uint32_t call = run.lowered.call[i];
    const bool phase = std::holds_alternative<runtime::EnterPhase>(run.program.calls[call]);
    if ((begin < end || phase) && end >= from && begin <= to) {
      spans.push_back({call, run.lowered.lane[i], seconds(begin), seconds(end)});
    }
  }
  return spans;
}

Seconds predicted_step(const Run& run, std::size_t step) {
  const auto& ends = run.lowered.step_ends;
  return engine::to_seconds(run.timeline.finish[index(ends[step])] -
                            run.timeline.finish[index(ends[step - 1])]);
}

std::string replay_class(const Program& program, const ReplaySpan& span) {
  const runtime::Call& call = program.calls[span.call];
  if (const auto* const work = std::get_if<runtime::CpuWork>(&call)) {
    return fmt::format("CPU {}", program.text(work->kernel));
  }
  if (std::holds_alternative<runtime::Free>(call)) {
    return "pages given back";
  }
  const auto* const copy = std::get_if<runtime::Copy>(&call);
  const bool launch = std::holds_alternative<runtime::Launch>(call);
  if (span.lane == static_cast<std::uint32_t>(runtime::kHost)) {
    return launch || copy != nullptr ? std::string(kIssuing) : "Python on the host thread";
  }
  if (launch) {
    return "GPU kernels";
  }
  if (copy != nullptr) {
    return fmt::format("copies to the {}, {}", copy->to == runtime::Space::kGpu ? "GPU" : "host",
                       pageable(*copy) ? "pageable" : "pinned");
  }
  if (const auto* const io = std::get_if<runtime::Io>(&call)) {
    return io->write ? "writes to the drive" : "reads from the drive";
  }
  return "other";
}

std::string replay_label(const Program& program, const ReplaySpan& span) {
  const runtime::Call& call = program.calls[span.call];
  if (const auto* const launch = std::get_if<runtime::Launch>(&call)) {
    return program.works[index(launch->work)].name;
  }
  if (const auto* const copy = std::get_if<runtime::Copy>(&call)) {
    return std::string(program.text(copy->what));
  }
  if (const auto* const work = std::get_if<runtime::CpuWork>(&call)) {
    return fmt::format("{} ({})", program.text(work->what), program.text(work->kernel));
  }
  if (const auto* const io = std::get_if<runtime::Io>(&call)) {
    return std::string(program.text(io->what));
  }
  if (const auto* const busy = std::get_if<runtime::HostBusy>(&call)) {
    return std::string(program.text(busy->what));
  }
  return replay_class(program, span);
}

ReplayComparison compare_replay(const Program& program, const MeasuredReplay& measured,
                                const std::vector<ReplaySpan>& predicted, Seconds predicted_step) {
  ReplayComparison out;
  out.step_measured = measured.step();
  out.step_predicted = predicted_step.value;
  const Side real = side_of(program, measured.spans, out.step_measured, measured.reported);
  const Side model = side_of(program, predicted, out.step_predicted, measured.reported);
  out.overlap_measured = overlap(real, out.step_measured);
  out.overlap_predicted = overlap(model, out.step_predicted);
  out.classes = rows_of(real.classes, model.classes);
  out.works = rows_of(real.works, model.works);
  std::map<runtime::Phase, ReplayRow> phases;
  for (const auto& [phase, seconds] : real.phases) {
    phases[phase].measured = seconds;
  }
  for (const auto& [phase, seconds] : model.phases) {
    phases[phase].predicted = seconds;
  }
  for (auto& [phase, row] : phases) {
    row.name = runtime::phase_name(phase);
    out.phases.push_back(row);
  }
  return out;
}

}  // namespace offsim::study
