#include "sim/study/suspects.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/study/handicaps.h"

namespace offsim::study {

namespace {

using logs::What;

// Parts of a whole that people meet: half the lanes, a quarter of a drive's speed once its cache is
// full.
constexpr std::array<std::pair<double, const char*>, 3> kLinkParts{
    {{0.5, "1/2"}, {0.25, "1/4"}, {0.125, "1/8"}}};

double most_of(const logs::Log& log, What what) {
  const std::vector<double> values = log.values(what);
  return values.empty() ? 0 : *std::ranges::max_element(values);
}

void add_threads(const plans::Job& job, std::vector<Trial>& out) {
  const int cores = job.machine.host.cores / static_cast<int>(job.workload.gpus);
  for (const int threads : {1, 2, 4, 8}) {
    if (2 * threads > cores) {
      return;
    }
    out.push_back({{.name = "threads",
                    .title = "too few threads for the CPU's work",
                    .setting = fmt::format("{} {}, not {}", threads,
                                           threads == 1 ? "thread" : "threads", cores),
                    .seen = "",
                    .check = "Launchers set OMP_NUM_THREADS to 1 where nothing else is said, and "
                             "ranks that are not bound share cores: set it to the cores of a rank, "
                             "or start with deepspeed --bind_cores_to_rank.",
                    .command = "echo $OMP_NUM_THREADS; nproc; lscpu | grep NUMA",
                    .times = {},
                    .distance = {}},
                   with_threads(job, threads)});
  }
}

void add_host(const plans::Job& job, std::vector<Trial>& out) {
  out.push_back({{.name = "adam",
                  .title = "PyTorch's Adam as a loop, not the fused one",
                  .setting = "a loop for Adam",
                  .seen = "",
                  .check = "DeepSpeed prints 'Adam Optimizer #0 is created with AVX...' when its "
                           "own Adam runs; zero_force_ds_cpu_optimizer: false, or an optimizer "
                           "made outside, keeps PyTorch's. In PyTorch: fused=True.",
                  .command = "ds_report | grep cpu_adam",
                  .times = {},
                  .distance = {}},
                 with_loop_adam(job)});
  out.push_back({{.name = "channels",
                  .title = "half of the host's memory bandwidth",
                  .setting = "half of the DRAM",
                  .seen = "",
                  .check = "Half of the channels may be empty, threads may use the other "
                           "socket's memory, or other work (data loader workers, another job) may "
                           "take its share.",
                  .command = "sudo dmidecode -t memory | grep -E 'Locator|Size|Speed'",
                  .times = {},
                  .distance = {}},
                 with_dram(job, 0.5)});
}

// "the log has 8 lanes of 16"; empty where it shows nothing.
std::string narrow_link(const logs::Log& log) {
  const double lanes = most_of(log, What::kLinkWidth);
  const double most = most_of(log, What::kLinkWidthMost);
  const double generation = most_of(log, What::kLinkGeneration);
  const double best = most_of(log, What::kLinkGenerationMost);
  if (lanes > 0 && lanes < most) {
    return fmt::format("the log has {:.0f} lanes of {:.0f}", lanes, most);
  }
  return generation > 0 && generation < best
             ? fmt::format("the log has PCIe generation {:.0f} of {:.0f}", generation, best)
             : "";
}

bool full_link(const logs::Log& log) {
  return narrow_link(log).empty() && most_of(log, What::kLinkWidthMost) > 0 &&
         most_of(log, What::kLinkGenerationMost) > 0;
}

void add_link(const plans::Job& job, const logs::Log& log, std::vector<Trial>& out) {
  if (!job.machine.link) {
    return;
  }
  for (const auto& part : kLinkParts) {
    if (full_link(log)) {
      break;
    }
    out.push_back({{.name = "link",
                    .title = "a narrow link between host and GPU",
                    .setting = fmt::format("{} of the link", part.second),
                    .seen = narrow_link(log),
                    .check = "Ask while the job runs: an idle GPU lowers the generation, not the "
                             "width. Other slots, risers and switches take lanes away.",
                    .command = "nvidia-smi -q | grep -A 2 -E 'Link Width|PCIe Generation'",
                    .times = {},
                    .distance = {}},
                   with_link(job, part.first)});
  }
  if (job.options.has("pin_memory")) {
    out.push_back({{.name = "pageable",
                    .title = "host buffers that are not pinned",
                    .setting = "pin_memory false",
                    .seen = "",
                    .check = "pin_memory must be true in the configuration that is in force, and "
                             "the limit of locked memory must allow it.",
                    .command = "ulimit -l",
                    .times = {},
                    .distance = {}},
                   with_pageable_memory(job)});
  }
}

void add_drive_and_gpu(const plans::Job& job, std::vector<Trial>& out) {
  for (const auto& part : kLinkParts) {
    if (job.machine.drives.empty()) {
      break;
    }
    out.push_back({{.name = "drive",
                    .title = "a drive slower than its figures",
                    .setting = fmt::format("{} of the drive", part.second),
                    .seen = "",
                    .check = "A drive writes slower once its cache is full or when it is hot, and "
                             "several jobs share it.",
                    .command = "iostat -xm 5 3",
                    .times = {},
                    .distance = {}},
                   with_drive(job, part.first)});
  }
  for (const double share : {0.67, 0.5}) {
    out.push_back({{.name = "gpu_clock",
                    .title = "a GPU below its clock",
                    .setting = fmt::format("{:.0f} % of GPU clock", 100 * share),
                    .seen = "",
                    .check = "A power limit, heat, or another job on the GPU.",
                    .command = "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER",
                    .times = {},
                    .distance = {}},
                   with_gpu_clock(job, share)});
  }
}

double labelled_time(const Prediction& prediction, std::string_view label) {
  double time = 0;
  for (const Spent& spent : prediction.spent) {
    time += spent.label.starts_with(label) ? spent.time.value : 0;
  }
  return time;
}

// The loop between its steps: what the phases do not add up to.
std::optional<Suspect> between_steps(const Diagnosis& d) {
  const StepTimes& m = d.measured;
  if (!m.forward || !m.backward || !m.optimizer || !m.step) {
    return std::nullopt;
  }
  const double gap = *m.step - *m.forward - *m.backward - *m.optimizer;
  if (gap < kReproduces * *m.step) {
    return std::nullopt;
  }
  Suspect out{
      .name = "between_steps",
      .title = "waiting between the steps",
      .setting = fmt::format("{:.0f} % between steps", 100 * gap / *m.step),
      .seen = fmt::format("{:.0f} % of a step is in none of its phases", 100 * gap / *m.step),
      .check =
          "The data loader most often: raise num_workers and prefetch_factor; else "
          "logging, evaluation, or saving in every step.",
      .command = "top -b -n 1 | head -20",
      .times = d.expected,
      .distance = {}};
  out.times.step = *d.expected.step + gap;
  return out;
}

constexpr double kNextToNothing = 0.05;  // of an update

std::optional<Suspect> skipped_updates(const Diagnosis& d, const Prediction& expected,
                                       const logs::Log& log) {
  const std::size_t skipped = log.values(What::kSkipped).size();
  if (d.job.workload.precision != plans::Precision::kFp16Mixed || !d.measured.optimizer ||
      *d.measured.optimizer > (1 - kReproduces) * *d.expected.optimizer) {
    return std::nullopt;
  }
  Suspect out{.name = "skipped_updates",
              .title = "updates that fp16 loss scaling skips",
              .setting = "updates skipped",
              .seen = skipped > 0 ? fmt::format("the log has {} skipped steps", skipped) : "",
              .check =
                  "The first steps look for a loss scale and skip the update: time later "
                  "ones, or set initial_scale_power lower.",
              .command = "grep -c 'Skipping step' train.log",
              .times = d.expected,
              .distance = {}};
  // What is left of a skipped step: the check, unless it is part of the backward; then what there
  // is, if it is next to nothing.
  const double check = labelled_time(expected, "check for infinities");
  out.times.optimizer =
      check > 0 ? check : std::min(*d.measured.optimizer, kNextToNothing * *d.expected.optimizer);
  out.times.step = *d.expected.step - *d.expected.optimizer + *out.times.optimizer;
  return out;
}

std::optional<Suspect> swapping(const Diagnosis& d, const Prediction& expected,
                                const logs::Log& log) {
  if (d.measured.step && d.expected.step &&
      *d.measured.step <= (1 + kReproduces) * *d.expected.step) {
    return std::nullopt;  // what swaps is slow
  }
  const double share = most_of(log, What::kHostShare);
  const PoolReport* const host =
      expected.pool(expected.pool("unified") != nullptr ? "unified" : "host");
  const bool predicted = host != nullptr && (host->may_swap() || !host->fits());
  if (share < kSwapsFrom && (!predicted || share > 0)) {
    return std::nullopt;
  }
  return Suspect{.name = "swap",
                 .title = share >= kSwapsFrom
                              ? std::string("a host that swaps")
                              : fmt::format("a host that swaps: the job alone fills {:.0f} % of it",
                                            100 * gib(host->needed()) / gib(*host->capacity)),
                 .setting = "not simulated",
                 .seen = share >= kSwapsFrom
                             ? fmt::format("the log has host memory {:.0f} % full", 100 * share)
                             : "",
                 .check =
                     "With free memory near nothing everything is slower: look for swap in "
                     "use and for pages going in and out (si, so).",
                 .command = "free -g; vmstat 5 3",
                 .times = {},
                 .distance = {}};
}

}  // namespace

std::vector<Trial> trials(const plans::Job& job, const logs::Log& log) {
  std::vector<Trial> out;
  add_threads(job, out);
  add_host(job, out);
  add_link(job, log, out);
  add_drive_and_gpu(job, out);
  return out;
}

std::vector<Suspect> arithmetic_suspects(const Diagnosis& d, const Prediction& expected,
                                         const logs::Log& log) {
  std::vector<Suspect> out;
  for (const std::optional<Suspect>& found :
       {between_steps(d), skipped_updates(d, expected, log), swapping(d, expected, log)}) {
    if (found) {
      out.push_back(*found);
    }
  }
  return out;
}

}  // namespace offsim::study
