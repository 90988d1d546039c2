#include "sim/study/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/study/log_gpus.h"
#include "sim/study/suspects.h"

namespace offsim::study {

namespace {

using logs::What;

constexpr double kSame = 0.01;      // a trial this close to the prediction changes nothing
constexpr double kCloser = 0.9;     // of the prediction's distance: what counts as closer
constexpr double kEarlyFast = 0.6;  // the first quarter against the rest

using Time = std::optional<double> StepTimes::*;
constexpr std::array<Time, 4> kTimes{&StepTimes::forward, &StepTimes::backward,
                                     &StepTimes::optimizer, &StepTimes::step};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

bool is_most(What what) {
  switch (what) {
    case What::kGpuPeak:
    case What::kGpuReserved:
    case What::kGpuUsed:
    case What::kGpuTotal:
    case What::kHostUsed:
    case What::kHostShare:
    case What::kLinkWidth:
    case What::kLinkWidthMost:
    case What::kLinkGeneration:
    case What::kLinkGenerationMost:
      return true;
    default:
      return false;
  }
}

bool is_of_run(What what) { return what == What::kStepMean || what == What::kSamplesMean; }

// The last step's timer of each group of micro-batches.
std::vector<double> longest_of_each(const std::vector<double>& values, std::size_t group) {
  std::vector<double> out;
  for (std::size_t at = 0; at + group <= values.size(); at += group) {
    out.push_back(*std::max_element(values.begin() + static_cast<std::ptrdiff_t>(at),
                                    values.begin() + static_cast<std::ptrdiff_t>(at + group)));
  }
  return out.empty() ? values : out;
}

Summary summary_of(const logs::Log& log, What what, std::size_t accumulation) {
  std::vector<double> values = log.values(what);
  Summary out{what, values.size(), 0, 0};
  if (values.empty()) {
    return out;
  }
  if (what == What::kSkipped) {
    out.value = static_cast<double>(values.size());
    return out;
  }
  if (is_most(what)) {
    out.value = *std::ranges::max_element(values);
    return out;
  }
  if (what == What::kOptimizerMicro) {
    values = longest_of_each(values, accumulation);
  }
  if (values.size() >= 3 && !is_of_run(what)) {
    out.left_out = std::clamp<std::size_t>(values.size() / 10, 1, 10);
    values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(out.left_out));
  }
  out.value = median(std::move(values));
  return out;
}

struct Measured {
  std::vector<Summary> summaries;
  std::optional<double> of(What what) const {
    const auto found = std::ranges::find(summaries, what, &Summary::what);
    const bool share = what == What::kGpuBusy;  // of which none is an answer
    return found == summaries.end() || found->value < 0 || (found->value == 0 && !share)
               ? std::nullopt
               : std::optional(found->value);
  }
};

Measured summarise(const logs::Log& log, const plans::Workload& work) {
  Measured out;
  for (std::size_t i = 0; i < logs::kWhats; ++i) {
    const Summary summary =
        summary_of(log, static_cast<What>(i), static_cast<std::size_t>(work.accumulation));
    if (summary.count > 0) {
      out.summaries.push_back(summary);
    }
  }
  return out;
}

// The step by the best of what the log has, and its name.
std::pair<std::optional<double>, std::string> step_of(const Measured& seen,
                                                      const plans::Workload& work) {
  const auto tokens = static_cast<double>(work.tokens_per_step());
  const double samples = tokens / static_cast<double>(work.sequence);
  if (const auto rate = seen.of(What::kSamples)) {
    return {samples / *rate, "samples a second"};
  }
  if (const auto step = seen.of(What::kStep)) {
    return {step, "step times"};
  }
  if (const auto rate = seen.of(What::kTokens)) {
    return {tokens / static_cast<double>(work.gpus) / *rate, "tokens a second and GPU"};
  }
  if (const auto step = seen.of(What::kStepMean)) {
    return {step, "steps a second of the whole run"};
  }
  if (const auto rate = seen.of(What::kSamplesMean)) {
    return {samples / *rate, "samples a second of the whole run"};
  }
  return {};
}

StepTimes times_of(const Measured& seen, const plans::Workload& work) {
  const auto micro_batches = static_cast<double>(work.accumulation);
  const auto phase = [&](What whole, What micro, double times) {
    const std::optional<double> of_micro = seen.of(micro);
    const std::optional<double> of_whole = seen.of(whole);
    return of_micro && !of_whole ? std::optional(*of_micro * times) : of_whole;
  };
  return {phase(What::kForward, What::kForwardMicro, micro_batches),
          phase(What::kBackward, What::kBackwardMicro, micro_batches),
          phase(What::kOptimizer, What::kOptimizerMicro, 1), step_of(seen, work).first};
}

StepTimes times_of(const Prediction& prediction) {
  const auto phase = [&](const char* name) {
    const auto found = prediction.phases.find(name);
    return found == prediction.phases.end() ? 0 : found->second.value;
  };
  return {phase("forward"), phase("backward"), phase("optimizer"), prediction.step.value};
}

// Of what is measured: sum |log ratio|, and the largest deviation as a factor.
struct Distance {
  double sum = 0, worst = 1;
  bool slower = false;  // one of them, by more than `worst` would allow
};
Distance distance(const StepTimes& measured, const StepTimes& modelled, double tolerance) {
  constexpr double kNothing = 1e-9;  // seconds: a phase that a plan does not have
  Distance out;
  for (const Time time : kTimes) {
    if (measured.*time && modelled.*time) {
      const double ratio =
          std::max(*(measured.*time), kNothing) / std::max(*(modelled.*time), kNothing);
      out.sum += std::abs(std::log(ratio));
      out.worst = std::max({out.worst, ratio, 1 / ratio});
      out.slower = out.slower || ratio > 1 + tolerance;
    }
  }
  return out;
}

bool changes(const StepTimes& a, const StepTimes& b) {
  return std::ranges::any_of(
      kTimes, [&](Time time) { return std::abs(*(a.*time) - *(b.*time)) > kSame * *(b.step); });
}

std::vector<MemoryRow> memory_rows(const Measured& seen, const Prediction& p) {
  std::vector<MemoryRow> out;
  const auto add = [&](What what, const char* name, const char* pool, bool whole) {
    const std::optional<double> bytes = seen.of(what);
    const PoolReport* const found = p.pool(pool);
    if (bytes && found != nullptr) {
      out.push_back({name, Bytes(std::llround(*bytes)), whole ? found->needed() : found->peak});
    }
  };
  add(What::kGpuPeak, "GPU, allocated", "gpu", false);
  add(What::kGpuUsed, "GPU, by nvidia-smi", "gpu", true);
  add(What::kHostUsed, "host, all processes", "host", true);
  return out;
}

void add_suspects(const Prediction& expected, const logs::Log& log, Diagnosis& d) {
  d.suspects = arithmetic_suspects(d, expected, log);
  for (Trial& trial : trials(d.job, log)) {
    try {
      trial.suspect.times = times_of(predict(trial.job));
    } catch (const InputError&) {
      continue;  // a plan that refuses it cannot be running so
    }
    if (changes(trial.suspect.times, d.expected)) {
      d.suspects.push_back(std::move(trial.suspect));
    }
  }
  for (Suspect& suspect : d.suspects) {
    if (suspect.times.step) {
      const Distance off = distance(d.measured, suspect.times, kReproduces);
      suspect.distance = off.sum;
      suspect.reproduces = off.worst <= 1 + kReproduces;
    }
  }
}

// The best strength of each, without those that are no closer.
void keep_closest(Diagnosis& d) {
  const auto rank = [](const Suspect& s) {
    const bool shown = !s.seen.empty() && (s.reproduces || !s.distance);
    return std::tuple(shown ? 0 : s.reproduces ? 1 : 2, s.distance.value_or(0));
  };
  std::erase_if(d.suspects, [&](const Suspect& s) {
    return s.distance && !s.reproduces && *s.distance > kCloser * d.distance;
  });
  std::ranges::stable_sort(d.suspects, {}, rank);
  std::vector<Suspect> kept;
  for (Suspect& suspect : d.suspects) {
    if (std::ranges::find(kept, suspect.name, &Suspect::name) == kept.end()) {
      kept.push_back(std::move(suspect));
    }
  }
  d.suspects = std::move(kept);
}

void judge(Diagnosis& d) {
  const Distance off = distance(d.measured, d.expected, d.tolerance);
  d.distance = off.sum;
  if (off.worst <= 1 + d.tolerance) {
    d.verdict = Verdict::kAsExpected;
  } else {
    d.verdict = off.slower ? Verdict::kUnexplained : Verdict::kFaster;
  }
}

void conclude(Diagnosis& d) {
  keep_closest(d);
  if (d.suspects.empty()) {
    return;  // kUnexplained, or kFaster without a reason
  }
  const Suspect& first = d.suspects.front();
  if (first.reproduces || (!first.seen.empty() && !first.distance)) {
    d.verdict = Verdict::kFound;
  } else if (d.verdict == Verdict::kUnexplained) {
    d.verdict = Verdict::kClosest;
  }
}

void add_notes(const logs::Log& log, const Measured& seen, Diagnosis& d) {
  if (!d.measured.forward && !d.measured.backward && !d.measured.optimizer) {
    d.notes.emplace_back(
        "the log has whole steps alone, which many things explain: with wall_clock_breakdown true "
        "DeepSpeed says how long forward, backward and step take");
  }
  for (const What what : {What::kOptimizer, What::kOptimizerMicro, What::kStep, What::kSamples}) {
    const std::vector<double> values = log.values(what);
    if (values.size() < 8 || d.job.workload.accumulation > 1) {
      continue;
    }
    const auto quarter = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
    const double ratio = median({values.begin(), quarter}) / median({quarter, values.end()});
    if ((what == What::kSamples ? 1 / ratio : ratio) < kEarlyFast) {
      d.notes.emplace_back(
          "the first quarter is much faster than the rest: updates that fp16 loss "
          "scaling skips, or optimizer states that are not made yet");
      break;
    }
  }
  if (const auto skipped = seen.of(What::kSkipped)) {
    d.notes.push_back(
        fmt::format("{:.0f} of the log's lines are of skipped updates: such steps "
                    "are short",
                    *skipped));
  }
  const auto power = seen.of(What::kPower), limit = seen.of(What::kPowerLimit);
  if (power && limit && seen.of(What::kGpuBusy).value_or(0) > 0.9 && *power < 0.5 * *limit) {
    d.notes.push_back(
        fmt::format("the GPU is busy and draws {:.0f} of {:.0f} W: it waits for data "
                    "inside of its kernels, or runs small ones",
                    *power, *limit));
  }
  if (const auto busy = seen.of(What::kGpuBusy); busy && *busy < 0.5) {
    d.notes.push_back(
        fmt::format("the GPU is busy {:.0f} % of the time: it waits for the host, its "
                    "data loader, copies or optimizer",
                    100 * *busy));
  }
  for (const MemoryRow& row : d.memory) {
    if (gib(row.measured) > 1.25 * gib(row.expected) && row.name == "GPU, allocated") {
      d.notes.emplace_back(
          "the GPU holds more than this job should: is the log of this model, "
          "micro-batch, sequence and plan?");
    }
  }
}

}  // namespace

Diagnosis diagnose(plans::Job job, const logs::Log& whole_log) {
  const auto [log, said] = one_gpu(whole_log, static_cast<std::size_t>(job.workload.gpus));
  const Measured seen = summarise(log, job.workload);
  const StepTimes measured = times_of(seen, job.workload);
  const bool phases = measured.forward || measured.backward || measured.optimizer;
  if (!phases && !measured.step) {
    throw InputError({log.name, 0, 0},
                     log.absurd > 0 ? "has no time or rate of a step that a run can have"
                                    : "has no time or rate of a step",
                     "expected lines such as 'time (ms) | fwd: 12.3 | bwd: 45.6 | step: 78.9' or "
                     "'step time: 1.23 s'");
  }
  job.workload.phase_sync = job.workload.phase_sync || phases;
  const Prediction expected = predict(job);
  Diagnosis d{seen.summaries,
              measured,
              times_of(expected),
              step_of(seen, job.workload).second,
              std::max(kReproduces, expected.step_high / expected.step - 1),
              0,
              memory_rows(seen, expected),
              Verdict::kAsExpected,
              {},
              {},
              std::move(job)};
  judge(d);
  if (d.verdict != Verdict::kAsExpected) {
    add_suspects(expected, log, d);
    conclude(d);
  }
  if (!said.empty()) {
    d.notes.push_back(said);
  }
  add_notes(log, seen, d);
  return d;
}

std::string_view verdict_name(Verdict verdict) {
  constexpr std::array<std::string_view, 5> kNames{"as_expected", "faster", "found", "closest",
                                                   "unexplained"};
  return kNames[static_cast<std::size_t>(verdict)];
}

}  // namespace offsim::study
