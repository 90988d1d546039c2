#include "sim/import/accelerate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/hjson.h"
#include "sim/base/text.h"
#include "sim/import/block.h"
#include "sim/import/defaults.h"

namespace offsim::imports {

namespace {

using study::Given;

const BlockSpec& yaml_block() {
  static const BlockSpec kBlock = [] {
    BlockSpec spec{"",
                   false,
                   {{"distributed_type", Kind::kText},
                    {"mixed_precision", Kind::kChoice, {}, {"no", "fp16", "bf16", "fp8"}},
                    {"num_processes", Kind::kCount},
                    {"num_machines", Kind::kCount},
                    {"gradient_accumulation_steps", Kind::kCount},
                    {"deepspeed_config", Kind::kMap},
                    {"fsdp_config", Kind::kMap},
                    {"dynamo_config", Kind::kMap},
                    {"megatron_lm_config", Kind::kMap}}};
    for (const char* const key : {"compute_environment",
                                  "debug",
                                  "downcast_bf16",
                                  "machine_rank",
                                  "main_training_function",
                                  "main_process_ip",
                                  "main_process_port",
                                  "rdzv_backend",
                                  "same_network",
                                  "tpu_env",
                                  "tpu_use_cluster",
                                  "tpu_use_sudo",
                                  "use_cpu",
                                  "enable_cpu_affinity",
                                  "gpu_ids",
                                  "command_file",
                                  "commands",
                                  "tpu_name",
                                  "tpu_zone",
                                  "mpirun_config",
                                  "fp8_config",
                                  "parallelism_config"}) {
      spec.keys.push_back({key, Kind::kAny, "says how training is launched"});
    }
    spec.reader = "Accelerate";
    return spec;
  }();
  return kBlock;
}

const BlockSpec& flat_block() {
  static const BlockSpec kBlock = [] {
    const std::vector<std::string> devices{"none", "cpu", "nvme"};
    BlockSpec spec{"deepspeed_config",
                   false,
                   {{"deepspeed_config_file", Kind::kText},
                    {"zero_stage", Kind::kChoice, {}, {"0", "1", "2", "3"}},
                    {"offload_optimizer_device", Kind::kChoice, {}, devices},
                    {"offload_param_device", Kind::kChoice, {}, devices},
                    {"offload_optimizer_nvme_path", Kind::kText},
                    {"offload_param_nvme_path", Kind::kText},
                    {"gradient_accumulation_steps", Kind::kCount},
                    {"gradient_clipping", Kind::kNumber},
                    {"zero3_init_flag", Kind::kFlag},
                    {"zero3_save_16bit_model", Kind::kFlag, "matters when a model is saved"}}};
    for (const char* const key :
         {"deepspeed_hostfile", "deepspeed_multinode_launcher", "deepspeed_exclusion_filter",
          "deepspeed_inclusion_filter", "deepspeed_moe_layer_cls_names"}) {
      spec.keys.push_back({key, Kind::kAny, "says how training is launched"});
    }
    spec.reader = "Accelerate";
    return spec;
  }();
  return kBlock;
}

const BlockSpec& fsdp_block() {
  static const BlockSpec kBlock = [] {
    BlockSpec spec{
        "fsdp_config",
        false,
        {{"fsdp_offload_params", Kind::kFlag},
         {"fsdp_version", Kind::kCount},
         {"fsdp_sharding_strategy", Kind::kText},
         {"fsdp_reshard_after_forward", Kind::kText},
         {"fsdp_activation_checkpointing", Kind::kFlag},
         {"fsdp_auto_wrap_policy", Kind::kText},
         {"fsdp_cpu_ram_efficient_loading", Kind::kFlag, "matters while training starts"},
         {"fsdp_sync_module_states", Kind::kFlag, "matters while training starts"},
         {"fsdp_state_dict_type", Kind::kText, "matters when a model is saved"},
         {"fsdp_transformer_layer_cls_to_wrap", Kind::kAny,
          "layers are wrapped, as the policy has it"}}};
    for (const char* const key :
         {"fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_use_orig_params",
          "fsdp_min_num_params", "fsdp_backward_prefetch_policy"}) {
      spec.keys.push_back({key, Kind::kAny, "FSDP2 has no such setting"});
    }
    spec.reader = "Accelerate";
    return spec;
  }();
  return kBlock;
}

Node scalar(std::string text, const Place& place) {
  return {.kind = Node::Kind::kScalar, .place = place, .scalar = std::move(text)};
}

void put(Node& map, const char* key, Node value) {
  map.keys.emplace_back(key);
  map.key_places.push_back(value.place);
  map.items.push_back(std::move(value));
}

class Accelerate {
 public:
  Accelerate(const Node& root, std::string folder, Around around, Findings& findings,
             study::GivenPlan& plan, study::GivenWorkload& work)
      : folder_(std::move(folder)),
        around_(std::move(around)),
        findings_(findings),
        plan_(plan),
        work_(work),
        top_(yaml_block(), root, findings),
        root_(root) {}

  void read() {
    around_.hugging_face = true;
    if (top_.given("num_processes")) {
      around_.gpus = top_.as_given("num_processes");
    }
    if (top_.count("num_machines").value_or(1) > 1) {
      findings_.refuse(
          top_.place("num_machines"),
          fmt::format("num_machines is {}, and one host is modelled", top_.text("num_machines")),
          "expected 1");
    }
    read_precision();
    if (lower(top_.text("use_cpu", "false")) == "true") {
      findings_.refuse(top_.place("use_cpu"), "training on the CPU is not modelled",
                       "expected use_cpu false");
    }
    for (const char* const key : {"parallelism_config", "fp8_config"}) {
      if (const Node* const other = top_.map(key); other != nullptr && !other->items.empty()) {
        findings_.warn(top_.key_place(key),
                       fmt::format("{} is not modelled: the prediction is without it", key));
      }
    }
    read_block();
  }

 private:
  // The Trainer's arguments win: it sets ACCELERATE_MIXED_PRECISION where one of them is true
  // (TrainingArguments), and Accelerate reads that.
  void read_precision() {
    const std::string own = top_.text("mixed_precision", "no");
    if (const auto trainers = around_.trainers_precision()) {
      const std::string argument = trainers->text.substr(0, trainers->text.find('-'));
      if (top_.given("mixed_precision") && own != argument) {
        findings_.warn(
            top_.place("mixed_precision"),
            fmt::format("mixed_precision {} gives way to the Trainer's --{}", own, argument));
        top_.no_effect("mixed_precision", "the Trainer's counts");
      }
    } else if (own == "fp8") {
      findings_.refuse(top_.place("mixed_precision"), "fp8 is not modelled",
                       "expected bf16 or fp16");
    } else if (own != "no") {
      around_.launchers_precision = Given{own + "-mixed", top_.place("mixed_precision")};
    }
  }

  // Nothing where it is absent or empty, as Accelerate writes what it does not use.
  const Node* block(const char* key) const {
    const Node* const node = top_.map(key);
    return node != nullptr && node->kind == Node::Kind::kMap && node->items.empty() ? nullptr
                                                                                    : node;
  }

  // accelerate launch takes the block that distributed_type names (use_deepspeed, use_fsdp).
  void read_block() {
    const bool deepspeed = block("deepspeed_config") != nullptr;
    const bool fsdp = block("fsdp_config") != nullptr;
    if (!top_.given("distributed_type") && deepspeed && fsdp) {
      findings_.refuse(top_.key_place("fsdp_config"), "fsdp_config stands beside deepspeed_config",
                       "expected distributed_type DEEPSPEED or FSDP");
      return;
    }
    const std::string usual = deepspeed ? "deepspeed" : fsdp ? "fsdp" : "no";
    const std::string type = lower(top_.text("distributed_type", usual));
    if (type == "deepspeed") {
      if (const Node* const node = in_force("deepspeed_config", "fsdp_config")) {
        read_deepspeed_block(*node);
      }
    } else if (type == "fsdp") {
      if (const Node* const node = in_force("fsdp_config", "deepspeed_config")) {
        read_fsdp(*node);
      }
    } else if (!deepspeed && !fsdp) {
      findings_.refuse(root_.place, "neither deepspeed_config nor fsdp_config is in this file",
                       "expected one of them");
    } else {
      findings_.refuse(top_.place("distributed_type"),
                       ignores(deepspeed ? "deepspeed_config" : "fsdp_config"),
                       "expected DEEPSPEED or FSDP");
    }
  }

  // The block that counts, nullptr where it is missing; the other one does not count.
  const Node* in_force(const char* key, const char* other) {
    if (block(other) != nullptr) {
      findings_.warn(top_.key_place(other), ignores(other));
    }
    const Node* const node = block(key);
    if (node == nullptr) {
      findings_.refuse(top_.place("distributed_type"),
                       fmt::format("distributed_type is {}, without {}",
                                   printable(top_.text("distributed_type"), 60), key),
                       "expected it");
    }
    return node;
  }

  std::string ignores(const char* key) const {
    return fmt::format("distributed_type is {}: Accelerate ignores {}",
                       printable(top_.text("distributed_type"), 60), key);
  }

  void read_deepspeed_block(const Node& node) {
    Block flat(flat_block(), node, findings_);
    if (!flat.exists()) {
      return;
    }
    if (flat.given("zero3_init_flag")) {
      around_.zero_init = flag_with_warning(flat);
    }
    if (!flat.given("deepspeed_config_file")) {
      made_ = make(flat);
      Findings own;  // settings are listed as the YAML has them
      read_deepspeed(made_, around_, own, plan_, work_);
      for (Setting& setting : own.settings) {
        if (setting.key == "plan" || setting.key == "batch" ||
            setting.origin.starts_with("default")) {
          findings_.add(std::move(setting));
        }
      }
      findings_.warnings.insert(findings_.warnings.end(), own.warnings.begin(), own.warnings.end());
      findings_.refusals.insert(findings_.refusals.end(), own.refusals.begin(), own.refusals.end());
      return;
    }
    for (const char* const key : {"zero_stage", "offload_optimizer_device", "offload_param_device",
                                  "offload_optimizer_nvme_path", "offload_param_nvme_path",
                                  "gradient_accumulation_steps", "gradient_clipping"}) {
      if (flat.given(key)) {
        findings_.refuse(flat.key_place(key),
                         fmt::format("{} stands beside deepspeed_config_file", key),
                         "expected it in that file");
      }
    }
    const Given file = flat.as_given("deepspeed_config_file");
    const std::string path = file.text.starts_with('/') ? file.text : folder_ + file.text;
    try {
      made_ = parse_hjson(read_file(path), path);
    } catch (const InputError& error) {
      throw error.at(file.place);
    }
    read_deepspeed(made_, around_, findings_, plan_, work_);
  }

  bool flag_with_warning(const Block& flat) {
    const bool init = flat.flag("zero3_init_flag", true);
    if (!init && flat.text("zero_stage", "2") == "3") {
      findings_.warn(flat.place("zero3_init_flag"),
                     "without zero3_init_flag every process loads the whole model into host memory "
                     "first, up to 4 bytes a parameter, which is not in the prediction");
    }
    return init;
  }

  // The configuration that Accelerate makes: pin_memory is left to DeepSpeed.
  Node make(const Block& flat) const {
    const Place& place = flat.node()->place;
    const auto at = [&](const char* key) { return flat.given(key) ? flat.place(key) : place; };
    const auto taken = [&](const char* key, const char* usual) {
      return scalar(flat.text(key, usual), at(key));
    };
    Node zero{.kind = Node::Kind::kMap, .place = place};
    put(zero, "stage", taken("zero_stage", "2"));
    const std::array<std::array<const char*, 3>, 2> blocks{
        {{"offload_optimizer", "offload_optimizer_device", "offload_optimizer_nvme_path"},
         {"offload_param", "offload_param_device", "offload_param_nvme_path"}}};
    for (const auto& [name, device, path] : blocks) {
      if (flat.text(device, "none") != "none") {
        Node block{.kind = Node::Kind::kMap, .place = at(device)};
        put(block, "device", taken(device, "none"));
        if (flat.given(path)) {
          put(block, "nvme_path", taken(path, ""));
        }
        put(zero, name, std::move(block));
      }
    }
    Node root{.kind = Node::Kind::kMap, .place = place};
    put(root, "train_micro_batch_size_per_gpu", scalar("auto", place));
    put(root, "gradient_accumulation_steps", taken("gradient_accumulation_steps", "auto"));
    put(root, "gradient_clipping", taken("gradient_clipping", "auto"));
    if (const auto precision = around_.precision()) {
      Node enabled{.kind = Node::Kind::kMap, .place = precision->place};
      put(enabled, "enabled", scalar("true", precision->place));
      put(root, precision->text.starts_with("bf16") ? "bf16" : "fp16", std::move(enabled));
    }
    put(root, "zero_optimization", std::move(zero));
    return root;
  }

  void read_fsdp(const Node& node) {
    Block fsdp(fsdp_block(), node, findings_);
    if (!fsdp.exists()) {
      return;
    }
    const bool offload = fsdp.flag("fsdp_offload_params", false);
    plan_.name = {offload ? "fsdp2-offload" : "native", fsdp.given("fsdp_offload_params")
                                                            ? fsdp.place("fsdp_offload_params")
                                                            : node.place};
    findings_.add({"plan", plan_.name.text, plan_.name.place.text(), ""});
    if (!offload) {
      findings_.warn(plan_.name.place,
                     "without fsdp_offload_params everything is on the GPU, as native has it");
    } else if (fsdp.count("fsdp_version").value_or(1) != 2) {
      findings_.warn(fsdp.given("fsdp_version") ? fsdp.place("fsdp_version") : node.place,
                     "FSDP1 is taken as FSDP2, whose gathers and copies are what is modelled");
    }
    check_sharding(fsdp);
    if (fsdp.flag("fsdp_activation_checkpointing", false)) {
      work_.checkpointing = Given{"full", fsdp.place("fsdp_activation_checkpointing")};
    }
    work_.precision = around_.precision();
    if (!work_.precision && !around_.flags.precision) {
      work_.precision = Given{"fp32", root_.place};
      findings_.warn(root_.place, "mixed_precision is no: training runs in fp32");
    }
    read_work();
    list_defaults(plan_, "", findings_);
  }

  void check_sharding(Block& fsdp) {
    const std::string strategy = lower(fsdp.text("fsdp_sharding_strategy", "FULL_SHARD"));
    const bool one = !around_.gpus || around_.gpus->text == "1";
    if (one) {
      fsdp.no_effect("fsdp_sharding_strategy", "one GPU shares nothing out");
    } else if (strategy != "full_shard" && strategy != "1") {
      findings_.refuse(fsdp.place("fsdp_sharding_strategy"),
                       fmt::format("sharding {} is not modelled", printable(strategy, 60)),
                       "expected FULL_SHARD");
    }
    const std::string reshard = lower(fsdp.text("fsdp_reshard_after_forward", "true"));
    if (reshard != "true" && reshard != "full_shard") {
      findings_.refuse(
          fsdp.place("fsdp_reshard_after_forward"),
          fmt::format("fsdp_reshard_after_forward {} is not modelled", printable(reshard, 60)),
          "expected true");
    }
    if (fsdp.text("fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP") != "TRANSFORMER_BASED_WRAP") {
      findings_.warn(fsdp.place("fsdp_auto_wrap_policy"),
                     "layers are wrapped one by one here, as TRANSFORMER_BASED_WRAP does");
    }
  }

  void read_work() {
    const study::GivenWorkload trainers =
        around_.trainer != nullptr ? around_.trainer->workload() : study::GivenWorkload{};
    work_.micro_batch = trainers.micro_batch;
    work_.gpus = around_.gpus;
    work_.accumulation = accumulation(trainers.accumulation);
    if (work_.micro_batch || around_.flags.micro_batch) {
      return;
    }
    if (around_.trainer != nullptr) {
      work_.micro_batch = Given{"8", root_.place};
      findings_.add({"per_device_train_batch_size", "8", "default of the Trainer", ""});
    } else {
      findings_.refuse(root_.place, "Accelerate's file has no micro-batch",
                       "expected --micro-batch N, or --trainer '--per_device_train_batch_size N'");
    }
  }

  // The Trainer gives Accelerate a GradientAccumulationPlugin with its own number, 1 unless an
  // argument says, and the launcher's is then not read.
  std::optional<Given> accumulation(const std::optional<Given>& trainers) {
    const char* const key = "gradient_accumulation_steps";
    if (!top_.given(key)) {
      return trainers;
    }
    if (const auto& flag = around_.flags.accumulation) {
      findings_.warn(top_.place(key), fmt::format("{} {} gives way to {} {}", key, top_.text(key),
                                                  "--accumulation", flag->text));
      top_.no_effect(key, fmt::format("{} {} counts", "--accumulation", flag->text));
      return flag;
    }
    if (around_.trainer == nullptr) {
      return top_.as_given(key);
    }
    const Given in_force = trainers.value_or(Given{"1", root_.place});
    if (in_force.text != top_.text(key)) {
      findings_.warn(top_.place(key), fmt::format("{} {} gives way to the Trainer's {}", key,
                                                  top_.text(key), in_force.text));
      top_.no_effect(key, "the Trainer's counts");
    }
    return in_force;
  }

  std::string folder_;
  Around around_;
  Findings& findings_;
  study::GivenPlan& plan_;
  study::GivenWorkload& work_;
  Block top_;
  const Node& root_;
  Node made_;
};

}  // namespace

bool is_accelerate(const Node& root) {
  return std::ranges::any_of(std::array<const char*, 4>{"distributed_type", "deepspeed_config",
                                                        "fsdp_config", "compute_environment"},
                             [&](const char* key) { return root.find(key) != nullptr; });
}

void read_accelerate(const Node& root, const std::string& folder, Around around, Findings& findings,
                     study::GivenPlan& plan, study::GivenWorkload& workload) {
  Accelerate(root, folder, std::move(around), findings, plan, workload).read();
}

void refuse_other_tools(const Node& root) {
  struct Other {
    const char* key;
    const char* tool;
    const char* expected;
  };
  static constexpr std::array<Other, 13> kOthers{{
      {"fsdp_cpu_offload", "torchtune's", "expected --plan fsdp2-offload"},
      {"component", "torchtune's", "expected --plan torchao-offload for its CPUOffloadOptimizer"},
      {"optim_cpu_offload", "prime-rl's", "expected --plan fsdp2-offload"},
      {"num_grad_slabs", "MegaTrain's", "expected --plan megatrain"},
      {"grad_checkpoint", "mlx-lm's", "expected --plan mlx"},
      {"fine_tune_type", "mlx-lm's", "expected --plan mlx"},
      {"actor_rollout_ref", "verl's",
       "its offload moves states between phases, not during a step: expected --plan native"},
      {"actor", "verl's",
       "its offload moves states between phases, not during a step: expected --plan native"},
      {"cutoff_len", "LLaMA-Factory's",
       "expected it as --trainer FILE, and the DeepSpeed file it names as --ds-config"},
      {"base_model", "axolotl's", "expected the DeepSpeed file that it names"},
      {"strategy", "Lightning's",
       "expected the DeepSpeed configuration that its strategy stands for, as a .json file"},
      {"zero_optimization", "GPT-NeoX's, or YAML around a DeepSpeed configuration",
       "expected what DeepSpeed is given, as a .json file"},
      {"deepspeed", "a training tool's", "expected the DeepSpeed file that it names"},
  }};
  const auto has = [&](const Node& map, const char* key) {
    return map.kind == Node::Kind::kMap && map.find(key) != nullptr;
  };
  for (const Other& other : kOthers) {
    const bool nested =
        std::ranges::any_of(root.items, [&](const Node& item) { return has(item, other.key); });
    if (has(root, other.key) || nested) {
      throw InputError(root.place, fmt::format("this file is {}", other.tool), other.expected);
    }
  }
  throw InputError(root.place, "this file is neither Accelerate's nor a DeepSpeed configuration",
                   "expected deepspeed_config, fsdp_config, or DeepSpeed's own keys in a .json "
                   "file");
}

}  // namespace offsim::imports
