// zero3-offload, zero-infinity: DeepSpeed stage 3 with parameters and optimizer each on the GPU,
// the CPU or NVMe (source: runtime/zero/stage3.py; ZeRO-Infinity, arXiv 2104.07857).
//
// Where things live: stage3.h. Forward and backward: fetch and release by module
// (gather_window.h), gradients through a bucket to the optimizer's tier (stage3_gradients.h).
// Step, the host alone, one sub-group after the other:
//   norms, added up on the GPU and read
//   swap-in of a sub-group on the drive (nvme.h)
//   unscale and clip    8 B a parameter on the CPU, whatever the factor; on the GPU where it lives
//   Adam                28 B on the CPU, one call a sub-group; fused on the GPU
//   write-back          optimizer CPU, parameters CPU: CPU cast into the pinned copy, 6 B
//                       optimizer CPU, parameters GPU: a blocking copy that changes the type: CPU
//                         cast into a new pageable temporary, pageable H2D of 2 B
//                       optimizer GPU, parameters CPU: the same the other way: 4 B a parameter D2H
//                         into a new pageable temporary of the sub-group, then a CPU cast
//                       both on the GPU: a GPU cast
//                       parameters on the drive: the cast into a buffer, write, wait
//   swap-out
// and persistent parameters are gathered again. fp16 checks the 16-bit gradients for infinities
// first, on the CPU where they are there. Link bytes a parameter for k micro-batches: H2D 2 for
// each fetch (two a micro-batch with checkpointing, less what is kept at the turn), 2k of gradients
// coming back; D2H 2k + 4 (2k + 2 before 0.15.4). Left out: several GPUs, more than one
// parameter group, loss scaling's skipped steps, stage3_module_granularity_threshold.
#include <algorithm>

#include "sim/plans/checkpoint_offload.h"
#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"
#include "sim/plans/plan.h"
#include "sim/plans/plans.h"
#include "sim/plans/stage3.h"
#include "sim/plans/stage3_step.h"

namespace offsim::plans {

using runtime::Phase;
using runtime::Recorder;

namespace {

class Zero3 {
 public:
  Zero3(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        components_(drive_components(job.options)),
        stage_(job, gpu, tier(job.options.text("offload_optimizer"))) {}

  void step(bool first) {
    stage_.micro_steps();
    enter(job_, gpu_, Phase::kOptimizer);
    stage_.begin_optimizer(first);
    check_overflow();
    read_gradient_norms(gpu_, stage_);
    const std::vector<SubGroup>& groups = stage_.sub_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      OptimizerSwapper* const swapper =
          groups[i].optimizer == Tier::kNvme ? stage_.optimizer_swapper() : nullptr;
      if (swapper != nullptr) {
        swapper->swap_in(i);
      }
      update(groups[i]);
      if (swapper != nullptr) {
        swapper->swap_out(i);
      }
    }
    stage_.end_optimizer();
    end_step(job_, gpu_);
  }

 private:
  // fp16: isinf().any() and isnan().any() over the 16-bit gradients.
  void check_overflow() {
    if (job_.workload.precision != Precision::kFp16Mixed) {
      return;
    }
    const std::int64_t n = model::trained_parameters(job_.shape);
    if (components_.fused_check && stage_.offloaded()) {
      gpu_.cpu("zero_bf16", n, "check for infinities");
    } else if (stage_.offloaded()) {
      gpu_.cpu("isinf_any_bf16", 2 * n, "check for infinities", {.calls = 2});
    } else {
      gpu_.launch(model::elementwise("check for infinities", n, 10, 6));
      gpu_.read_result();
    }
  }

  void update(const SubGroup& group) {
    if (group.optimizer == Tier::kGpu) {
      update_on_gpu(gpu_, stage_, group);
      return;
    }
    const bool narrow = components_.narrow_states;
    gpu_.cpu(narrow ? "mul_bf16" : "mul_f32", group.elements, "unscale and clip");
    gpu_.cpu(narrow ? "adam_torch_fused_bf16" : "adam_deepspeed_f32", group.elements, "Adam");
    if (group.elements_on_drive > 0) {
      gpu_.cpu(narrow ? "copy_bf16" : "cast_f32_bf16", group.elements, "cast to 16 bits");
      stage_.parameter_swapper()->write_back(group.elements_on_drive);
    } else if (narrow) {
      gpu_.cpu("copy_bf16", group.elements, "write parameters back");
    } else {
      write_back_from_cpu(gpu_, stage_, group);
    }
  }

  const Job& job_;
  Recorder& gpu_;
  DriveComponents components_;
  Stage3 stage_;
};

std::vector<OptionSpec> drive_options() {
  using Kind = OptionSpec::Kind;
  return {
      {"buffer_count",
       Kind::kCount,
       "4",
       "buffers",
       "swap buffers of the optimizer, each of the largest sub-group in fp32",
       {},
       4,
       1000},
      {"pipeline_read", Kind::kFlag, "false", "", "read the next sub-group beside Adam"},
      {"pipeline_write", Kind::kFlag, "false", "", "write the last sub-group beside Adam"},
      {"param_buffer_count",
       Kind::kCount,
       "5",
       "buffers",
       "swap buffers of parameters",
       {},
       1,
       100'000},
      {"param_buffer_size",
       Kind::kCount,
       "auto",
       "elements",
       "a parameter's swap buffer; auto: DeepSpeed's 1e8, or the largest parameter, without which "
       "it stops",
       {},
       1},
      {"max_in_cpu", Kind::kCount, "1e9", "elements",
       "parameters that stay in CPU memory although offload_param is nvme"},
      {"aio_block_size", Kind::kCount, "1048576", "bytes", "of one request to the drive", {}, 4096},
      {"aio_queue_depth", Kind::kCount, "8", "requests", "in flight a thread", {}, 1, 100'000},
      {"aio_intra_op_parallelism",
       Kind::kCount,
       "1",
       "threads",
       "that submit requests",
       {},
       1,
       1000},
      {"aio_overlap_events", Kind::kFlag, "true", "",
       "keep the queue full instead of waiting for each batch"},
  };
}

}  // namespace

bool is_of_drive(std::string_view option) {
  return std::ranges::count(drive_options(), option, &OptionSpec::name) > 0;
}

std::vector<OptionSpec> zero3_options(std::string_view tier) {
  using Kind = OptionSpec::Kind;
  const std::vector<std::string> tiers{"none", "cpu", "nvme"};
  std::vector<OptionSpec> options{
      {"offload_optimizer", Kind::kChoice, tier, "", "where fp32 masters, gradients and states are",
       tiers},
      {"offload_param", Kind::kChoice, tier, "", "where 16-bit parameters are", tiers},
      {"pin_memory", Kind::kFlag, "by version", "",
       "pinned gradients on the host: asynchronous copies, rounded to powers of two"},
      {"sub_group_size",
       Kind::kCount,
       "1e9",
       "elements",
       "the optimizer's unit: its temporaries, and what is swapped at a time",
       {},
       1},
      {"ratio",
       Kind::kNumber,
       "1",
       "",
       "Twin-Flow: the part of the sub-groups updated on the CPU",
       {},
       0,
       1},
      {"stage3_prefetch_bucket_size", Kind::kCount, "5e7", "elements",
       "fetched ahead at each module; 0: nothing"},
      {"stage3_max_live_parameters", Kind::kCount, "1e9", "elements",
       "gathered parameters beyond which nothing is prefetched"},
      {"stage3_max_reuse_distance", Kind::kCount, "1e9", "elements",
       "parameters used again within so many are kept on the GPU"},
      {"stage3_param_persistence_threshold", Kind::kCount, "1e5", "elements",
       "parameters of at most this size stay gathered"},
      {"reduce_bucket_size", Kind::kCount, "5e8", "elements", "GPU bucket of gradients", {}, 1},
      {"overlap_comm", Kind::kFlag, "true", "", "streams of their own for gathers and reductions"},
      {"contiguous_gradients", Kind::kFlag, "true", "", "copy gradients into the bucket"},
      {"zero_init", Kind::kFlag, "true", "",
       "the model is made under zero.Init, as HF's Trainer does: its Linears save no gathered "
       "weights for their backward"},
      {"deepspeed_version", Kind::kVersion, "0.19.6", "",
       "pin_memory true and asynchronous fp32 gradients since 0.19.5, cast on the GPU since "
       "0.15.4; locked swap buffers since 0.19.4; Twin-Flow's GPU sub-groups first since 0.18; "
       "checkpoints on a stream since 0.19.6"},
  };
  const std::vector<OptionSpec> drive = drive_options();
  options.insert(options.end() - 1, drive.begin(), drive.end());
  add_checkpoint_offload_options(options);
  return options;
}

namespace {

// What DeepSpeed asserts about its buffers on the drive.
void check_buffers(const Job& job) {
  const Options& options = job.options;
  if (options.text("offload_optimizer") == "nvme") {
    const std::int64_t needs =
        4 + (options.flag("pipeline_read") ? 4 : 0) + (options.flag("pipeline_write") ? 4 : 0);
    if (options.count("buffer_count") < needs) {
      throw InputError(options.place("buffer_count"),
                       "DeepSpeed stops with 'ran out of swap buffers'",
                       fmt::format("expected a buffer_count of {} or more", needs));
    }
    if (options.number("ratio") < 1) {
      throw InputError(options.place("ratio"), "ratio needs the optimizer in memory",
                       "expected offload_optimizer cpu");
    }
  }
  const std::int64_t largest = model::largest_tensor(job.shape).numel();
  if (options.text("offload_param") == "nvme" &&
      options.count("param_buffer_size", largest) < largest) {
    throw InputError(options.place("param_buffer_size"),
                     "DeepSpeed stops with 'More elements than buffer size'",
                     fmt::format("expected a param_buffer_size of {} or more", largest));
  }
}

}  // namespace

std::vector<std::string> check_zero3_offload(const Job& job) {
  const Options& options = job.options;
  refuse_int8(job);
  std::vector<std::string> warnings = check_stage3(job);
  for (const std::string_view name : {"offload_optimizer", "offload_param"}) {
    if (options.text(name) == "nvme") {
      refuse_adapters(job, "frozen parameters beside a drive are not modelled");
      require_drive(job, name);
    }
  }
  check_buffers(job);
  const auto useless = [&](bool is, std::string_view why,
                           std::initializer_list<std::string_view> names) {
    if (is) {
      warn_without_effect(warnings, job, why, names);
    }
  };
  const bool asked_nvme = options.text("offload_param") == "nvme";
  const bool all_in_cpu = model::parameters(job.shape) <= options.count("max_in_cpu");
  const bool parameters_nvme = asked_nvme && !all_in_cpu;
  const bool optimizer_nvme = options.text("offload_optimizer") == "nvme";
  if (asked_nvme && all_in_cpu && options.given("offload_param")) {
    warnings.push_back(fmt::format(
        "{}.offload_param nvme leaves all parameters in CPU memory: they fit max_in_cpu",
        job.plan->name));
  }
  useless(!asked_nvme, "no parameters are on a drive",
          {"param_buffer_count", "param_buffer_size", "max_in_cpu"});
  useless(!optimizer_nvme, "the optimizer is not on a drive",
          {"buffer_count", "pipeline_read", "pipeline_write"});
  const bool raw = drive_components(options).raw_engine;
  useless((!optimizer_nvme && !parameters_nvme) || raw,
          raw ? "the raw engine keeps its queue full" : "nothing is on a drive",
          {"aio_block_size", "aio_queue_depth", "aio_intra_op_parallelism", "aio_overlap_events"});
  const bool optimizer_gpu = options.text("offload_optimizer") == "none";
  useless(optimizer_gpu, "the optimizer is not offloaded", {"ratio"});
  useless(optimizer_gpu && options.text("offload_param") == "none", "nothing is in host memory",
          {"pin_memory"});
  return warnings;
}

void record_zero3_offload(const Job& job, Recorder& gpu, int steps) {
  record_steps(Zero3(job, gpu), steps);
}

}  // namespace offsim::plans
