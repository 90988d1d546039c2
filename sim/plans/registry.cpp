#include "sim/plans/checkpoint_offload.h"
#include "sim/plans/plan.h"
#include "sim/plans/plans.h"

namespace offsim::plans {

namespace {

std::vector<OptionSpec> zero2_options() {
  using Kind = OptionSpec::Kind;
  std::vector<OptionSpec> options{
      {"pin_memory", Kind::kFlag, "by version", "",
       "pinned host buffers: asynchronous copies at link rate, rounded to powers of two"},
      {"overlap_comm", Kind::kFlag, "false", "",
       "reduce and offload gradients on a stream of their own, with a second bucket"},
      {"contiguous_gradients", Kind::kFlag, "true", "", "no effect: set by offload"},
      {"reduce_bucket_size",
       Kind::kCount,
       "5e8",
       "elements",
       "GPU bucket of gradients, flushed when full",
       {},
       1},
      {"allgather_bucket_size", Kind::kCount, "5e8", "elements", "no effect on one GPU", {}, 1},
      {"round_robin_gradients", Kind::kFlag, "false", "", "no effect on one GPU"},
      {"deepspeed_version", Kind::kVersion, "0.19.6", "",
       "fp32 write-back before 0.17; the master pinned whatever pin_memory says and buckets made "
       "earlier before 0.18.3; pin_memory true by default since 0.19.5; checkpoints on a stream "
       "since 0.19.6"},
      {"variant",
       Kind::kChoice,
       "code",
       "",
       "the published code, or what the paper states (Adam delayed by a step beside the GPU, "
       "16-bit gradients)",
       {"code", "paper"}}};
  add_checkpoint_offload_options(options);
  return options;
}

std::vector<OptionSpec> megatrain_options() {
  using Kind = OptionSpec::Kind;
  return {
      {"checkpoint_interval",
       Kind::kCount,
       "4",
       "layers",
       "layers between checkpoints, recomputed together",
       {},
       1},
      {"num_grad_slabs",
       Kind::kCount,
       "12",
       "layers",
       "pinned slabs that gradients land in",
       {},
       1,
       10'000},
      {"gradient_clipping", Kind::kFlag, "true", "",
       "norms on one core and a scaling before the step"},
      {"optimizer",
       Kind::kChoice,
       "deepspeed_adam",
       "",
       "deepspeed_adam keeps fp32 moments, torch_fused 16-bit ones",
       {"deepspeed_adam", "torch_fused"}},
      {"variant",
       Kind::kChoice,
       "code",
       "",
       "the published code, or what the paper states (weights cross twice, no pinned copy of all "
       "layers)",
       {"code", "paper"}}};
}

}  // namespace

const std::vector<Plan>& registry() {
  using Kind = OptionSpec::Kind;
  static const std::vector<Plan> kPlans{
      {"native",
       "everything on the GPU: no offload",
       "PyTorch 2.11, torch.optim.AdamW(fused=True)",
       {{"gradient_clipping", Kind::kFlag, "false", "", "clip by the global norm before the step"}},
       check_native,
       record_native,
       3},
      {"zero2-offload", "ZeRO-Offload: parameters on the GPU, gradients and optimizer on the CPU",
       "DeepSpeed stage 2, runtime/zero/stage_1_and_2.py; arXiv 2101.06840", zero2_options(),
       check_zero2_offload, record_zero2_offload, 2, false, zero2_meets_next},
      {"zenflow",
       "ZenFlow: important columns updated on the GPU each micro-batch, the rest on the CPU later",
       "DeepSpeed 0.19.6, runtime/zenflow; arXiv 2505.12242", zenflow_options(), check_zenflow,
       record_zenflow, 2, false, zenflow_meets_next},
      {"zero3-offload",
       "ZeRO-3 offload: parameters gathered module by module, optimizer on the CPU",
       "DeepSpeed stage 3, runtime/zero/stage3.py", zero3_options("cpu"), check_zero3_offload,
       record_zero3_offload, 3},
      {"zero-infinity", "ZeRO-Infinity: stage 3 with parameters and optimizer states on NVMe",
       "DeepSpeed stage 3, runtime/swap_tensor; arXiv 2104.07857", zero3_options("nvme"),
       check_zero3_offload, record_zero3_offload, 3},
      {"memascend", "MemAscend: ZeRO-Infinity with less host memory, component by component",
       "arXiv 2505.23254", memascend_options(), check_memascend, record_zero3_offload, 3},
      {"ratel", "Ratel: all states on NVMe, Adam beside the backward, activations swapped by plan",
       "LoHan's ratel_optimizer.py; arXiv 2403.06504", ratel_options(), check_ratel, record_ratel,
       3},
      {"teraio",
       "TeraIO: all on the GPU, what it does not use for a while on drives, by a plan of lifetimes",
       "arXiv 2506.06472", teraio_options(), check_teraio, record_teraio, 2, false,
       [](const Job&) { return true; }},
      {"superoffload",
       "SuperOffload: Adam on the CPU beside the backward, for hosts with a fast link",
       "DeepSpeed stage 3, runtime/superoffload; arXiv 2509.21271", superoffload_options(),
       check_superoffload, record_superoffload, 3},
      {"fsdp2-offload",
       "FSDP2 with CPU offload: fp32 weights stream layer by layer, AdamW on the CPU",
       "PyTorch 2.11, torch.distributed.fsdp.fully_shard with CPUOffloadPolicy", fsdp2_options(),
       check_fsdp2_offload, record_fsdp2_offload, 3, true},
      {"torchao-offload",
       "CPUOffloadOptimizer: model on the GPU, gradients and Adam on the CPU, tensor by tensor",
       "pytorch/ao, torchao/optim/cpu_offload.py", torchao_options(), check_torchao_offload,
       record_torchao_offload, 2},
      {"megatrain", "MegaTrain: weights stream from CPU memory, layer by layer",
       "DLYuanGod/MegaTrain of April 2026, infinity/model/cpu_master.py; arXiv 2604.05091",
       megatrain_options(), check_megatrain, record_megatrain, 2},
      {"coherent-offload",
       "GPU Adam on fp32 states in CPU memory, through a coherent link (GH200, GB200)",
       "no released system; arXiv 2407.07850, arXiv 2408.11556", coherent_options(),
       check_coherent_offload, record_coherent_offload, 2},
      {"mlx", "MLX: everything in the one memory of CPU and GPU, a lazy graph a micro-batch",
       "ml-explore/mlx of August 2026, ml-explore/mlx-lm mlx_lm/tuner/trainer.py", mlx_options(),
       check_mlx, record_mlx, 2},
  };
  return kPlans;
}

const Plan& find_plan(std::string_view name, const Place& asked_at) {
  std::vector<std::string> names;
  for (const Plan& plan : registry()) {
    if (plan.name == name) {
      return plan;
    }
    names.emplace_back(plan.name);
  }
  throw InputError(asked_at, "there is no plan '" + std::string(name) + "'", suggest(name, names));
}

}  // namespace offsim::plans
