#include "sim/import/keys.h"

#include <fmt/format.h>

#include <array>

namespace offsim::imports {

namespace {

constexpr std::string_view kOneGpu = "one GPU exchanges nothing with others";
constexpr std::string_view kSaving = "matters when a model is saved or loaded";
constexpr std::string_view kScaling = "matters to loss scaling, not to a step that is taken";
constexpr std::string_view kStarting = "matters while training starts";
constexpr std::string_view kPrinting = "what is printed is not in a step";
constexpr std::string_view kLearning = "matters to what the model learns";
constexpr std::string_view kNotModelled = "not modelled";

std::vector<Key> all_alike(std::initializer_list<std::string_view> names, std::string_view effect) {
  std::vector<Key> keys;
  for (const std::string_view name : names) {
    keys.push_back({name, Kind::kAny, effect});
  }
  return keys;
}

void append(std::vector<Key>& to, const std::vector<Key>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<Key> without_effect_in_zero() {
  std::vector<Key> keys;
  append(keys, all_alike({"reduce_scatter", "use_multi_rank_bucket_allreduce",
                          "allgather_partitions", "mics_hierarchical_params_gather"},
                         kOneGpu));
  append(keys, all_alike({"load_from_fp32_weights", "elastic_checkpoint", "legacy_stage1",
                          "pipeline_loading_checkpoint"},
                         kSaving));
  append(keys, all_alike({"override_module_apply"}, kStarting));
  append(keys, all_alike({"log_trace_cache_warnings", "ignore_unused_parameters"},
                         "no effect on a step's time or memory"));
  append(keys,
         all_alike({"enable_sanity_checks", "save_muon_momentum_buffer_in_memory", "leaf_module"},
                   kNotModelled));
  return keys;
}

}  // namespace

const BlockSpec& top_block() {
  static const BlockSpec kBlock = [] {
    BlockSpec spec{"", false, {}};
    spec.keys = {
        {"train_batch_size", Kind::kCount},
        {"train_micro_batch_size_per_gpu", Kind::kCount},
        {"gradient_accumulation_steps", Kind::kCount},
        {"sequence_parallel_size", Kind::kCount},
        {"gradient_clipping", Kind::kNumber},
        {"zero_optimization"},
        {"bf16", Kind::kMap, {}, {}, "bfloat16"},
        {"fp16", Kind::kMap},
        {"aio", Kind::kMap},
        {"activation_checkpointing", Kind::kMap},
        {"optimizer", Kind::kMap},
        {"zero_force_ds_cpu_optimizer", Kind::kFlag},
        {"zero_allow_untested_optimizer", Kind::kFlag,
         "it lets DeepSpeed start, and changes no step"},
        {"data_types", Kind::kMap},
        {"communication_data_type", Kind::kText, kOneGpu},
        {"compile", Kind::kMap},
        {"elasticity", Kind::kMap},
        {"pipeline", Kind::kMap},
        {"torch_autocast", Kind::kMap},
        {"amp", Kind::kMap},
        {"tensor_parallel", Kind::kMap},
        {"expert_parallel", Kind::kMap},
        {"wall_clock_breakdown", Kind::kFlag, "its timers' synchronisation is not modelled"}};
    append(spec.keys,
           all_alike({"steps_per_print", "dump_state", "memory_breakdown", "log_level",
                      "flops_profiler", "tensorboard", "wandb", "csv_monitor", "comet",
                      "comms_logger", "monitor_config", "timers", "print_config", "verbose"},
                     kPrinting));
    append(spec.keys, all_alike({"scheduler", "dataloader_drop_last", "data_efficiency",
                                 "curriculum_learning", "vocabulary_size", "seed"},
                                kLearning));
    append(spec.keys, all_alike({"checkpoint", "nebula", "datastates_checkpointing",
                                 "load_universal_checkpoint", "use_node_local_storage"},
                                kSaving));
    append(spec.keys,
           all_alike({"prescale_gradients", "gradient_predivide_factor", "gradient_allreduce_op",
                      "sparse_gradients", "disable_allgather", "allgather_size",
                      "seq_parallel_communication_data_type", "use_data_before_expert_parallelism"},
                     kOneGpu));
    append(spec.keys,
           all_alike({"managed_gradient_accumulation", "graph_harvesting", "sparse_attention",
                      "progressive_layer_drop", "eigenvalue", "compression_training",
                      "weight_quantization", "hybrid_engine", "autotuning"},
                     kNotModelled));
    return spec;
  }();
  return kBlock;
}

const BlockSpec& zero_block() {
  static const BlockSpec kBlock = [] {
    BlockSpec spec{"zero_optimization", true, {}};
    spec.keys = {
        {"stage", Kind::kChoice, {}, {"0", "1", "2", "3"}},
        {"offload_optimizer", Kind::kMap},
        {"offload_param", Kind::kMap},
        {"zenflow", Kind::kMap},
        {"cpu_offload", Kind::kFlag},
        {"cpu_offload_param", Kind::kFlag},
        {"cpu_offload_use_pin_memory", Kind::kFlag,
         "DeepSpeed ignores it: pin_memory inside the offload block is what counts"},
        {"overlap_comm", Kind::kFlag},
        {"contiguous_gradients", Kind::kFlag},
        {"reduce_bucket_size", Kind::kCount, {}, {}, {}, "elements"},
        {"sub_group_size", Kind::kCount, {}, {}, {}, "elements"},
        {"stage3_prefetch_bucket_size", Kind::kCount, {}, {}, "prefetch_bucket_size", "elements"},
        {"stage3_param_persistence_threshold",
         Kind::kCount,
         {},
         {},
         "param_persistence_threshold",
         "elements"},
        {"stage3_max_live_parameters", Kind::kCount, {}, {}, "max_live_parameters", "elements"},
        {"stage3_max_reuse_distance", Kind::kCount, {}, {}, "max_reuse_distance", "elements"},
        {"stage3_gather_16bit_weights_on_model_save",
         Kind::kFlag,
         kSaving,
         {},
         "gather_16bit_weights_on_model_save"},
        {"stage3_gather_fp16_weights_on_model_save", Kind::kFlag, kSaving},
        {"memory_efficient_linear", Kind::kFlag},
        {"zero_hpz_partition_size", Kind::kCount, kOneGpu},
        {"zero_quantized_weights", Kind::kFlag, kOneGpu},
        {"zero_quantized_gradients", Kind::kFlag, kOneGpu},
        {"zero_quantized_nontrainable_weights", Kind::kFlag, kNotModelled},
        {"zeropp_loco_param", Kind::kMap},
        {"mics_shard_size"},
        {"allgather_bucket_size", Kind::kCount, kOneGpu, {}, {}, "elements"},
        {"stage3_model_persistence_threshold",
         Kind::kCount,
         kNotModelled,
         {},
         "model_persistence_threshold",
         "elements"},
        {"stage3_module_granularity_threshold",
         Kind::kCount,
         kNotModelled,
         {},
         "module_granularity_threshold"},
        {"stage3_use_all_reduce_for_fetch_params",
         Kind::kFlag,
         kNotModelled,
         {},
         "use_all_reduce_for_fetch_params"},
        {"stage3_allgather_sequential", Kind::kFlag, kNotModelled, {}, "allgather_sequential"},
        {"round_robin_gradients", Kind::kFlag, "it spreads copies over GPUs, and there is one"}};
    append(spec.keys, without_effect_in_zero());
    return spec;
  }();
  return kBlock;
}

const BlockSpec& offload_optimizer_block() {
  static const BlockSpec kBlock{"zero_optimization.offload_optimizer",
                                true,
                                {{"device", Kind::kChoice, {}, {"none", "cpu", "nvme"}},
                                 {"nvme_path", Kind::kText},
                                 {"buffer_count", Kind::kCount},
                                 {"pin_memory", Kind::kFlag},
                                 {"pipeline_read", Kind::kFlag},
                                 {"pipeline_write", Kind::kFlag},
                                 {"fast_init", Kind::kFlag, kStarting},
                                 {"ratio", Kind::kShare},
                                 {"super_offload", Kind::kFlag},
                                 {"cpuadam_cores_perc", Kind::kShare}}};
  return kBlock;
}

const BlockSpec& offload_param_block() {
  static const BlockSpec kBlock{"zero_optimization.offload_param",
                                true,
                                {{"device", Kind::kChoice, {}, {"none", "cpu", "nvme"}},
                                 {"nvme_path", Kind::kText},
                                 {"buffer_count", Kind::kCount},
                                 {"buffer_size", Kind::kCount, {}, {}, {}, "elements"},
                                 {"max_in_cpu", Kind::kCount, {}, {}, {}, "elements"},
                                 {"pin_memory", Kind::kFlag}}};
  return kBlock;
}

const BlockSpec& zenflow_block() {
  // "auto" is a value of its own here.
  static const BlockSpec kBlock{
      "zero_optimization.zenflow",
      true,
      {{"topk_ratio", Kind::kShare},
       {"select_strategy", Kind::kChoice, {}, {"auto", "step", "epoch"}},
       {"select_interval", Kind::kCount},
       {"update_interval", Kind::kCount},
       {"overlap_step", Kind::kFlag},
       {"offload", Kind::kFlag, kNotModelled},
       {"auto_ratio", Kind::kShare, kLearning},
       {"full_warm_up_rounds", Kind::kCount},
       {"pt_reserved_cores_perc", Kind::kShare},
       {"steps_per_epoch", Kind::kCount, "DeepSpeed counts them itself"}}};
  return kBlock;
}

const BlockSpec& fp16_block() {
  static const BlockSpec kBlock{"fp16",
                                true,
                                {{"enabled", Kind::kFlag},
                                 {"auto_cast", Kind::kFlag, kNotModelled},
                                 {"loss_scale", Kind::kNumber, kScaling},
                                 {"initial_scale_power", Kind::kCount, kScaling},
                                 {"loss_scale_window", Kind::kCount, kScaling},
                                 {"hysteresis", Kind::kCount, kScaling},
                                 {"consecutive_hysteresis", Kind::kFlag, kScaling},
                                 {"min_loss_scale", Kind::kCount, kScaling},
                                 {"fp16_master_weights_and_grads", Kind::kFlag, kNotModelled}}};
  return kBlock;
}

const BlockSpec& bf16_block() {
  static const BlockSpec kBlock{"bf16",
                                true,
                                {{"enabled", Kind::kFlag},
                                 {"immediate_grad_update", Kind::kFlag, kNotModelled},
                                 {"check_grad_overflow", Kind::kFlag, kNotModelled},
                                 {"bf16_master_weights_and_grads", Kind::kFlag, kNotModelled},
                                 {"bf16_optimizer_states", Kind::kFlag, kNotModelled}}};
  return kBlock;
}

const BlockSpec& aio_block() {
  static const BlockSpec kBlock{"aio",
                                false,
                                {{"block_size", Kind::kCount},
                                 {"queue_depth", Kind::kCount},
                                 {"intra_op_parallelism", Kind::kCount},
                                 {"overlap_events", Kind::kFlag},
                                 {"single_submit", Kind::kFlag, kNotModelled},
                                 {"use_gds", Kind::kFlag, kNotModelled}}};
  return kBlock;
}

const BlockSpec& activation_block() {
  static const BlockSpec kBlock = [] {
    BlockSpec spec{"activation_checkpointing", false, {}};
    spec.keys =
        all_alike({"partition_activations", "cpu_checkpointing", "contiguous_memory_optimization",
                   "number_checkpoints", "synchronize_checkpoint_boundary", "profile"},
                  "Hugging Face's models do not call DeepSpeed's checkpointing: their own "
                  "gradient_checkpointing counts");
    return spec;
  }();
  return kBlock;
}

const BlockSpec& optimizer_block() {
  static const BlockSpec kBlock{
      "optimizer",
      false,
      {{"type", Kind::kText}, {"params", Kind::kMap}, {"legacy_fusion", Kind::kAny, kNotModelled}}};
  return kBlock;
}

std::string block_with(const std::string& key, std::string_view not_in) {
  const std::array<const BlockSpec*, 8> blocks{
      &top_block(),  &zero_block(), &offload_optimizer_block(), &offload_param_block(),
      &fp16_block(), &bf16_block(), &zenflow_block(),           &aio_block()};
  for (const BlockSpec* const block : blocks) {
    if (block->name != not_in && block->find(key) != nullptr) {
      return block->name.empty() ? "at the top level" : fmt::format("in {}", block->name);
    }
  }
  return "";
}

}  // namespace offsim::imports
