#include "sim/study/predict.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

#include "sim/base/quantity.h"
#include "sim/engine/critical_path.h"
#include "sim/machine/share.h"
#include "sim/model/flops.h"
#include "sim/model/tensors.h"
#include "sim/plans/checks.h"
#include "sim/study/search.h"

namespace offsim::study {

namespace {

using engine::Picoseconds;
using runtime::Cause;

using engine::index;

PoolReport report_pool(const Run& run, const engine::MemoryLedger& ledger, engine::PoolId id) {
  const engine::PoolPeak& peak = ledger.peaks[index(id)];
  PoolReport report;
  report.name = run.lowered.graph.pools()[index(id)].name;
  report.peak = Bytes(peak.bytes);
  report.phase = runtime::phase_name(runtime::Phase(peak.phase));
  for (const engine::TagBytes& tag : peak.composition) {
    report.by_tag.push_back({std::string(run.lowered.graph.tag(tag.tag)), Bytes(tag.bytes)});
  }
  report.resident = Bytes(ledger.at_end[index(id)]);  // of the last step recorded
  return report;
}

PoolReport of_all_ranks(PoolReport pool, const plans::Job& job) {
  pool.peak = pool.peak * job.workload.gpus;
  pool.resident = pool.resident * job.workload.gpus;
  for (Tagged& tag : pool.by_tag) {
    tag.bytes = tag.bytes * job.workload.gpus;
  }
  return pool;
}

Bytes swaps_from(const machine::Machine& m) {
  const Bytes nearly(std::llround(kSwapsFrom * static_cast<double>(m.host.memory.value.value)));
  return m.accelerator.unified ? std::min(nearly, m.accelerator.memory.value) : nearly;
}

// In words without numbers, so that rows of a comparison that say the same say it once.
std::vector<std::string> swap_warnings(const plans::Job& job, const Prediction& p) {
  std::vector<std::string> lines;
  for (const PoolReport& pool : p.pools) {
    if (pool.may_swap()) {
      const bool near =
          pool.name == "host" || *pool.swaps_from < job.machine.accelerator.memory.value;
      lines.push_back(
          fmt::format("{}: {} is {}: the machine may swap, and a step takes longer then",
                      job.plan->name, pool.name == "host" ? "host memory" : "unified memory",
                      near ? fmt::format("within {:.0f} % of its capacity", 100 * (1 - kSwapsFrom))
                           : "beyond the working set that the driver recommends"));
    }
  }
  return lines;
}

// A rank's pools; of host memory and drives, those of all ranks.
std::vector<PoolReport> report_pools(const plans::Job& job, const Run& run) {
  const runtime::Lowered& lowered = run.lowered;
  const machine::Machine& m = job.machine;
  const engine::MemoryLedger ledger = engine::account_memory(lowered.graph, run.timeline);
  std::vector<PoolReport> pools;
  PoolReport gpu = report_pool(run, ledger, lowered.gpu);
  gpu.capacity = m.accelerator.memory.value;
  gpu.fixed = m.framework.gpu_context.value;
  if (lowered.unified) {
    gpu.capacity = m.host.memory.value;
    gpu.swaps_from = swaps_from(m);
    gpu.fixed += m.framework.process_resident.value;
  }
  pools.push_back(std::move(gpu));
  if (!lowered.unified) {
    PoolReport host = of_all_ranks(report_pool(run, ledger, lowered.host), job);
    host.capacity = m.host.memory.value;
    host.swaps_from = swaps_from(m);
    host.fixed = m.framework.process_resident.value * job.workload.gpus;
    pools.push_back(std::move(host));
    pools.push_back(of_all_ranks(report_pool(run, ledger, lowered.host_pinned), job));
  }
  PoolReport nvme = of_all_ranks(report_pool(run, ledger, lowered.nvme), job);
  if (nvme.peak.value > 0) {
    nvme.capacity = m.drives.front().capacity.value;  // the one that programs write to
    pools.push_back(std::move(nvme));
  }
  return pools;
}

// A step's share of a time within the window.
Seconds a_step(const Run& run, Picoseconds in_window) {
  return Seconds(engine::to_seconds(in_window).value / static_cast<double>(run.turns));
}

// Critical path of the step: by cause, by label, by phase, by figure.
void explain(const plans::Job& job, const Run& run, Prediction& p) {
  const runtime::Lowered& lowered = run.lowered;
  const auto path = engine::critical_path(lowered.graph, run.timeline, run.step, run.end());
  p.idle = a_step(run, path.idle);
  const std::size_t labels = lowered.graph.label_count();
  std::vector<Picoseconds> by_label(runtime::kCauses * labels);  // of a cause side by side
  std::array<Seconds, runtime::kPhases> by_phase{};
  std::vector<double> by_figure(job.machine.figures.size(), 0.0);
  for (const engine::Segment& segment : path.segments) {
    const engine::Activity activity = lowered.graph.activity(segment.activity);
    const Seconds time = a_step(run, segment.to - segment.from);
    p.critical_path[activity.cause] += time;
    by_phase[activity.phase] += time;
    by_label[activity.cause * labels + index(activity.label)] += segment.to - segment.from;
    for (const auto& [figure, share] :
         lowered.figure_shares[lowered.rests_on[index(segment.activity)]]) {
      if (figure != machine::kNoFigure) {
        by_figure[index(figure)] += share * time.value;
      }
    }
  }
  for (std::size_t phase = 0; phase < by_phase.size(); ++phase) {
    if (by_phase[phase].value > 0) {
      p.phases[std::string(runtime::phase_name(runtime::Phase(phase)))] = by_phase[phase];
    }
  }
  for (std::size_t i = 0; i < by_label.size(); ++i) {
    if (by_label[i] > 0) {
      p.spent.push_back({Cause(i / labels),
                         std::string(lowered.graph.label(engine::LabelId(i % labels))),
                         a_step(run, by_label[i])});
    }
  }
  std::ranges::sort(p.spent, [](const Spent& a, const Spent& b) {
    return a.time.value != b.time.value ? a.time > b.time
                                        : std::tie(a.cause, a.label) < std::tie(b.cause, b.label);
  });
  double known = 0, variance = 0;
  for (std::size_t i = 0; i < by_figure.size(); ++i) {
    const machine::Figure& figure = job.machine.figures[i];
    known += by_figure[i];
    variance += std::pow(by_figure[i] * figure.spread, 2);
    if (by_figure[i] > 0) {
      p.supports.push_back({machine::FigureId(i), by_figure[i]});
      p.sources[index(figure.source)] += by_figure[i];
    }
  }
  for (double& source : p.sources) {
    source = known > 0 ? source / known : 0;
  }
  for (Support& support : p.supports) {
    support.share = known > 0 ? support.share / known : 0;
  }
  std::stable_sort(p.supports.begin(), p.supports.end(),
                   [](const Support& a, const Support& b) { return a.share > b.share; });
  const Seconds spread(std::sqrt(variance));
  p.step_low = Seconds(std::max(0.0, p.step.value - spread.value));
  p.step_high = p.step + spread;
}

// Time within the step in which at least one activity of a cause runs.
void measure_busy(const Run& run, Prediction& p) {
  std::array<std::vector<std::pair<Picoseconds, Picoseconds>>, runtime::kCauses> spans;
  for (std::size_t i = 0; i < run.lowered.graph.size(); ++i) {
    const Picoseconds from = std::max(run.timeline.start[i], run.step.from);
    const Picoseconds to = std::min(run.timeline.finish[i], run.step.to);
    if (from >= to) {
      continue;
    }
    auto& of_cause = spans[run.lowered.graph.causes()[i]];
    if (!of_cause.empty() && of_cause.back().first <= from && from <= of_cause.back().second) {
      of_cause.back().second = std::max(of_cause.back().second, to);  // most follow at once
    } else {
      of_cause.emplace_back(from, to);
    }
  }
  for (std::size_t cause = 0; cause < spans.size(); ++cause) {
    std::sort(spans[cause].begin(), spans[cause].end());
    Picoseconds total = 0, covered = 0;
    for (const auto& [from, to] : spans[cause]) {
      total += std::max<Picoseconds>(0, to - std::max(from, covered));
      covered = std::max(covered, to);
    }
    p.busy[cause] = a_step(run, total);
  }
}

void measure_use(const Run& run, Prediction& p) {
  const auto used = engine::resource_use(run.lowered.graph, run.timeline, run.step);
  const double seconds = engine::to_seconds(run.step.to - run.step.from).value;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const engine::Resource& resource = run.lowered.graph.resources()[i];
    p.utilization.emplace_back(resource.name, used[i] / (resource.capacity * seconds));
  }
}

void measure_rates(const plans::Job& job, Prediction& p) {
  const double tera = 1e12 * p.step.value;
  const auto micro_batches = static_cast<double>(job.workload.accumulation);
  const model::Batch batch = job.workload.batch();
  p.tokens_per_s = static_cast<double>(job.workload.tokens_per_step()) / p.step.value;
  p.tflops_model = micro_batches * model::model_flops(job.shape, batch).value / tera;
  p.tflops_six_nd = micro_batches * model::six_nd(job.shape, batch).value / tera;
  p.tflops_hardware = p.totals.executed.value / tera;
}

void check_loader(const plans::Job& job) {
  const machine::Host& host = job.machine.host;
  if (job.workload.loader_workers >= host.cores) {
    throw InputError({},
                     fmt::format("loader_workers is {}, and a process on {} has {} cores",
                                 job.workload.loader_workers, job.machine.name, host.cores),
                     "expected fewer: the loop needs a core");
  }
  if (job.workload.loader_bandwidth >= host.dram.value) {
    throw InputError(
        {},
        fmt::format("loader_bandwidth is {}, and the DRAM that a process on {} has moves {}",
                    show(job.workload.loader_bandwidth), job.machine.name, show(host.dram.value)),
        "expected less");
  }
}

std::optional<Cost> cost_of(const plans::Job& job, std::optional<UsdPerHour> price, Seconds step) {
  if (!price && job.machine.price) {
    price = job.machine.price->per_gpu;
  }
  if (!price) {
    return std::nullopt;
  }
  const Usd per_step = *price * step * static_cast<double>(job.workload.gpus);
  const double millions = static_cast<double>(job.workload.tokens_per_step()) / 1e6;
  return Cost{*price, per_step, per_step / millions};
}

}  // namespace

Run simulate(const plans::Job& job, int steps) {
  check_loader(job);
  Run run;
  const machine::Framework& framework = job.machine.framework;
  const bool fp16 = job.workload.precision == plans::Precision::kFp16Mixed;
  runtime::Recorder recorder({framework.gpu_rounding.value.value, framework.pinned_power_of_two},
                             fp16 ? runtime::Half::kFp16 : runtime::Half::kBf16);
  const bool met = job.plan->meets_next(job);
  job.plan->record(job, recorder, met ? steps + 2 : steps);
  run.program = std::move(recorder).finish();
  run.lowered = runtime::lower(run.program, job.machine,
                               {job.workload.loader_workers, job.workload.loader_bandwidth});
  run.timeline = engine::simulate(run.lowered.graph);
  const auto& ends = run.lowered.step_ends;
  SIM_ASSERT(ends.size() >= (met ? 4 : 2), "a plan records a step before the one that is reported");
  run.reported = ends.size() - (met ? 2 : 1);
  run.turns = met ? 2 : 1;
  run.step.from = run.timeline.finish[index(ends[run.reported - run.turns])];
  run.step.to = run.timeline.finish[index(run.end())];
  return run;
}

bool Prediction::feasible() const {
  return std::all_of(pools.begin(), pools.end(), [](const PoolReport& r) { return r.fits(); });
}

bool Prediction::may_swap() const {
  return std::any_of(pools.begin(), pools.end(), [](const PoolReport& r) { return r.may_swap(); });
}

const PoolReport* Prediction::pool(std::string_view name) const {
  for (const PoolReport& report : pools) {
    if (report.name == name) {
      return &report;
    }
  }
  return nullptr;
}

Prediction predict(const plans::Job& job, std::optional<UsdPerHour> price, Run* out) {
  const auto began = std::chrono::steady_clock::now();
  Prediction p;
  p.warnings = job.plan->check(job);
  const std::vector<std::string> asked = plans::check_question(job);
  p.warnings.insert(p.warnings.end(), asked.begin(), asked.end());
  Run run;
  if (job.workload.gpus > 1) {
    plans::Job rank = job;
    rank.machine = machine::share_of(job.machine, static_cast<int>(job.workload.gpus));
    run = simulate(rank, rank.plan->steps);
  } else {
    run = simulate(job, job.plan->steps);
  }
  p.step = a_step(run, run.step.to - run.step.from);
  SIM_ASSERT(p.step.value > 0, "a step takes time");
  p.totals = run.lowered.totals[run.reported];
  p.activities = run.lowered.graph.size();
  explain(job, run, p);
  measure_busy(run, p);
  measure_use(run, p);
  measure_rates(job, p);
  p.pools = report_pools(job, run);
  const std::vector<std::string> swaps = swap_warnings(job, p);
  p.warnings.insert(p.warnings.end(), swaps.begin(), swaps.end());
  constexpr double kDay = 86'400;
  p.nvme_written_a_day = Bytes(std::llround(
      p.totals.nvme_write_bytes * static_cast<double>(job.workload.gpus) * kDay / p.step.value));
  p.cost = cost_of(job, price, p.step);
  p.simulate =
      Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  if (out != nullptr) {
    *out = std::move(run);
  }
  return p;
}

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // larger than any array of a usual step
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

std::int64_t largest_micro_batch(plans::Job job, std::int64_t most) {
  return largest_good(most, [&job](std::int64_t micro_batch) {
    job.workload.micro_batch = micro_batch;
    return predict(job).fits();
  });
}

}  // namespace offsim::study
