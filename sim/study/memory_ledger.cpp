#include "sim/study/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <variant>

#include "sim/engine/memory.h"
#include "sim/model/tensors.h"

namespace offsim::study {

namespace {

using engine::index;

constexpr double kEstimatorsBuffers = 1.5;

// The first activities of the phases.
std::vector<engine::ActivityId> begins(const Run& run) {
  const runtime::Lowered& lowered = run.lowered;
  const std::size_t end = index(lowered.step_ends.front());
  std::optional<std::size_t> forward, optimizer;
  for (std::size_t i = 0; i < end; ++i) {
    const auto* const enter = std::get_if<runtime::EnterPhase>(&run.program.calls[lowered.call[i]]);
    if (enter != nullptr && enter->phase == runtime::Phase::kForward && !forward) {
      forward = i;
    }
    if (enter != nullptr && enter->phase == runtime::Phase::kOptimizer && !optimizer) {
      optimizer = i;
    }
  }
  std::vector<engine::ActivityId> out{engine::ActivityId{0}};
  for (const std::size_t i : {forward.value_or(0), optimizer.value_or(end), end + 1}) {
    out.push_back(engine::ActivityId(static_cast<std::uint32_t>(i)));
  }
  return out;
}

// What DeepSpeed's plans are to its estimators.
struct Stage {
  int stage = 0;
  bool parameters = false, optimizer = false;  // on the host, or beyond
};
std::optional<Stage> stage_of(const plans::Job& job) {
  const std::string_view plan = job.plan->name;
  if (plan == "zero2-offload" || plan == "zenflow") {
    return Stage{2, false, true};
  }
  if (plan == "zero3-offload" || plan == "zero-infinity" || plan == "memascend" ||
      plan == "superoffload") {
    return Stage{
        3, job.options.text("offload_param") != "none",
        !job.options.has("offload_optimizer") || job.options.text("offload_optimizer") != "none"};
  }
  return std::nullopt;
}

// DeepSpeed takes the parameters of one module without those of its children: a weight here.
// Left out: modules of several large ones (experts in one tensor each are single, too).
std::int64_t largest_layer(const model::Shape& shape) {
  std::int64_t largest = 0;
  for (const model::Tensor& tensor : model::all_tensors(shape)) {
    largest = std::max(largest, tensor.numel());
  }
  return largest;
}

DeepspeedEstimate estimate(const plans::Job& job, const Stage& stage) {
  const auto all = static_cast<double>(model::parameters(job.shape));
  const auto largest = static_cast<double>(largest_layer(job.shape));
  const bool sharded = !job.options.has("zero_init") || job.options.flag("zero_init");
  const auto made = [](std::string gpu_terms, double gpu, std::string host_terms, double host) {
    return DeepspeedEstimate{std::move(gpu_terms), std::move(host_terms), Bytes(std::llround(gpu)),
                             Bytes(std::llround(host * kEstimatorsBuffers))};
  };
  if (stage.stage == 2) {
    return made("2 B x parameters", 2 * all, "16 B x parameters x 1.5", 16 * all);
  }
  if (stage.parameters) {
    return made("4 B x largest layer", 4 * largest, "18 B x parameters x 1.5", 18 * all);
  }
  if (stage.optimizer) {
    return made("4 B x largest layer + 2 B x parameters", 4 * largest + 2 * all,
                "16 B x parameters x 1.5", 16 * all);
  }
  return made("4 B x largest layer + 18 B x parameters", 4 * largest + 18 * all,
              sharded ? "4 B x largest layer x 1.5" : "4 B x parameters x 1.5",
              4 * (sharded ? largest : all));
}

}  // namespace

std::size_t LedgerPool::worst() const {
  return static_cast<std::size_t>(std::ranges::max_element(peak) - peak.begin());
}

MemoryLedger memory_ledger(const plans::Job& job, const Run& run) {
  const runtime::Lowered& lowered = run.lowered;
  const auto peaks = engine::peaks_by_section(lowered.graph, run.timeline, begins(run));
  MemoryLedger out;
  out.parameters = model::parameters(job.shape);
  std::vector<engine::PoolId> pools{lowered.gpu};
  if (!lowered.unified) {
    pools.push_back(lowered.host);
  }
  pools.push_back(lowered.nvme);
  for (const engine::PoolId id : pools) {
    // Host memory and drives are all ranks'.
    const std::int64_t ranks = id == lowered.gpu ? 1 : job.workload.gpus;
    LedgerPool pool;
    pool.name = lowered.graph.pools()[index(id)].name;
    std::map<std::string, LedgerTag> tags;
    for (std::size_t phase = 0; phase < peaks.size(); ++phase) {
      const engine::PoolPeak& peak = peaks[phase][index(id)];
      pool.peak[phase] = Bytes(peak.bytes * ranks);
      for (const engine::TagBytes& held : peak.composition) {
        LedgerTag& tag = tags[std::string(lowered.graph.tag(held.tag))];
        tag.held[phase] = Bytes(held.bytes * ranks);
      }
    }
    for (auto& [name, tag] : tags) {
      tag.tag = name;
      pool.tags.push_back(std::move(tag));
    }
    std::ranges::stable_sort(pool.tags, std::ranges::greater{},
                             [](const LedgerTag& tag) { return std::ranges::max(tag.held).value; });
    if (pool.peak[pool.worst()].value > 0) {
      out.pools.push_back(std::move(pool));
    }
  }

  const std::int64_t of_all_ranks = out.parameters * job.workload.gpus;
  out.load_least = Bytes(2 * of_all_ranks);
  out.load_most = Bytes(4 * of_all_ranks);
  const std::optional<Stage> stage = stage_of(job);
  out.gathers = stage && stage->stage == 3;
  out.save = Bytes(out.gathers ? 2 * out.parameters
                               : 4 * model::largest_trained_tensor(job.shape).numel());
  if (stage) {
    out.deepspeed = estimate(job, *stage);
  }
  return out;
}

}  // namespace offsim::study
