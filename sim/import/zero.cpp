#include "sim/import/zero.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/import/keys.h"
#include "sim/model/tensors.h"
#include "sim/plans/plan.h"

namespace offsim::imports {

namespace {

using study::Given;
using study::GivenPlan;

const plans::OptionSpec* spec_of(std::string_view plan, std::string_view option) {
  const plans::Plan& found = plans::find_plan(plan, {});
  const auto spec = std::ranges::find(found.options, option, &plans::OptionSpec::name);
  return spec == found.options.end() ? nullptr : &*spec;
}

class Zero {
 public:
  Zero(Block& zero, std::int64_t stage, const Rest& rest, const Around& around, Findings& findings,
       GivenPlan& plan)
      : zero_(zero),
        stage_(stage),
        rest_(rest),
        around_(around),
        findings_(findings),
        plan_(plan),
        optimizer_(make(offload_optimizer_block(), "offload_optimizer")),
        param_(make(offload_param_block(), "offload_param")),
        zenflow_(make(zenflow_block(), "zenflow")) {}

  void read() {
    optimizer_device_ = device_of(optimizer_, "cpu_offload");
    param_device_ = device_of(param_, "cpu_offload_param");
    refuse_unmodelled();
    check_offload();
    choose_plan();
    findings_.add({"plan", plan_.name.text, plan_.name.place.text(), ""});
    fill_hidden_sizes();
    if (stage_ == 3) {
      stage3_options();
    } else {
      stage2_options();
    }
    shared_options();
  }

 private:
  Block make(const BlockSpec& spec, std::string_view key) {
    const Node* const node = zero_.map(key);
    return node != nullptr ? Block(spec, *node, findings_) : Block(spec, findings_);
  }

  std::string device_of(const Block& block, std::string_view legacy) {
    if (zero_.given(legacy)) {
      if (block.exists()) {
        findings_.refuse(zero_.key_place(legacy),
                         fmt::format("{} stands beside the block that replaces it", legacy),
                         "expected one of them");
      }
      if (zero_.flag(legacy, false)) {
        findings_.warn(
            zero_.key_place(legacy),
            fmt::format("{} is the old spelling of {}: {{device: cpu}}", legacy,
                        legacy == "cpu_offload" ? "offload_optimizer" : "offload_param"));
        return "cpu";
      }
    }
    return block.text("device", "none");
  }

  void refuse_unmodelled() {
    const auto refuse = [&](std::string_view key, std::string_view what) {
      findings_.refuse(zero_.key_place(key), fmt::format("{} is not modelled", what),
                       fmt::format("expected no {}", key));
    };
    if (zero_.count("zero_hpz_partition_size").value_or(1) > 1) {
      refuse("zero_hpz_partition_size", "ZeRO++");
    }
    for (const char* const key : {"zero_quantized_weights", "zero_quantized_gradients"}) {
      if (zero_.flag(key, false)) {
        refuse(key, "ZeRO++");
      }
    }
    if (zero_.map("zeropp_loco_param") != nullptr) {
      refuse("zeropp_loco_param", "ZeRO++'s LoCo");
    }
    if (const std::string shards = zero_.text("mics_shard_size", "-1");
        !shards.starts_with('-') && shards != "0") {
      refuse("mics_shard_size", "MiCS");
    }
    for (const char* const key :
         {"zero_quantized_nontrainable_weights", "stage3_allgather_sequential",
          "stage3_use_all_reduce_for_fetch_params"}) {
      if (zero_.flag(key, false)) {
        findings_.warn(zero_.key_place(key),
                       fmt::format("{} is not modelled: the prediction is without it", key));
      }
    }
    if (zero_.count("stage3_module_granularity_threshold").value_or(0) > 0) {
      findings_.warn(zero_.key_place("stage3_module_granularity_threshold"),
                     "stage3_module_granularity_threshold is not modelled: the prediction is "
                     "without it");
    }
  }

  void check_offload() {
    if (stage_ < 3) {
      check_below_stage3();
    }
    for (Block* const block : {&optimizer_, &param_}) {
      const bool nvme = block->text("device", "none") == "nvme" && stage_ == 3;
      if (nvme && !block->given("nvme_path")) {
        findings_.refuse(block->place("device"),
                         block->full_name("device") + " is nvme, without nvme_path",
                         "expected the folder on the drive");
      } else if (nvme && !block->text("nvme_path").starts_with('/')) {
        findings_.warn(block->place("nvme_path"),
                       "nvme_path is relative: it is on the drive of the folder that training "
                       "starts in");
      }
      block->no_effect("nvme_path", nvme ? "the machine's drive is taken" : "nothing is on nvme");
    }
    const double ratio = optimizer_.number("ratio").value_or(1);
    if (ratio < 1 && stage_ != 3) {
      findings_.refuse(optimizer_.place("ratio"),
                       fmt::format("ratio is {:g} at stage {}", ratio, stage_),
                       "a part of the optimizer is offloaded at stage 3 only");
    }
    if (optimizer_device_ == "nvme" && stage_ == 3 &&
        optimizer_.count("buffer_count").value_or(4) < 4) {
      findings_.refuse(optimizer_.place("buffer_count"),
                       fmt::format("buffer_count is {}", *optimizer_.count("buffer_count")),
                       "expected 4 or more: Adam has parameter, gradient and two moments");
    }
  }

  void check_below_stage3() {
    if (param_device_ != "none") {
      const bool legacy = zero_.given("cpu_offload_param");
      findings_.warn(
          legacy ? zero_.key_place("cpu_offload_param") : zero_.key_place("offload_param"),
          fmt::format("offload_param has NO EFFECT below stage 3, and this is stage {}: all "
                      "parameters stay on the GPU",
                      stage_));
      param_.no_effect("device", "parameters are offloaded at stage 3 only");
    }
    if (optimizer_.flag("super_offload", false)) {
      findings_.warn(optimizer_.place("super_offload"),
                     "super_offload has no effect below stage 3");
      optimizer_.no_effect("super_offload", "it needs stage 3");
    }
    if (optimizer_device_ == "nvme" && stage_ > 0) {
      findings_.warn(optimizer_.place("device"),
                     "nvme below stage 3 is the CPU: DeepSpeed swaps at stage 3 only");
    }
    if (stage_ == 0 && optimizer_device_ != "none") {
      findings_.warn(zero_.place("offload_optimizer"),
                     "offload_optimizer has NO EFFECT at stage 0: nothing is offloaded");
    }
    if (stage_ == 1 && optimizer_device_ != "none") {
      findings_.warn(zero_.place("stage"),
                     "stage 1 is taken as stage 2, which keeps no gradients of its own either "
                     "on one GPU");
    }
  }

  void name_plan(const char* name, const Place& place) { plan_.name = {name, place}; }

  void choose_plan() {
    const Place stage = zero_.exists() ? zero_.place("stage") : plan_.name.place;
    const bool offload = optimizer_device_ != "none";
    if (stage_ == 3) {
      if (optimizer_.flag("super_offload", false) && optimizer_device_ == "cpu") {
        name_plan("superoffload", optimizer_.place("super_offload"));
      } else if (optimizer_device_ == "nvme" || param_device_ == "nvme") {
        name_plan("zero-infinity", stage);
      } else {
        name_plan("zero3-offload", stage);
      }
      if (zenflow_.exists()) {
        findings_.refuse(zero_.place("zenflow"), "ZenFlow at stage 3 is not modelled",
                         "expected stage 2");
      }
    } else if (offload && stage_ > 0 && zenflow_.exists()) {
      name_plan("zenflow", zero_.place("zenflow"));
    } else if (offload && stage_ > 0) {
      name_plan("zero2-offload", stage);
    } else {
      name_plan("native", stage);
    }
    // Nothing is concluded from a device that was refused.
    if (optimizer_.refused("device") || param_.refused("device")) {
      return;
    }
    if (plan_.name.text == "native") {
      findings_.warn(stage, fmt::format("stage {} without offload: everything is on the GPU, as "
                                        "native has it{}",
                                        stage_, rest_.wide ? "" : kNativeDiffers));
      if (zenflow_.exists()) {
        findings_.warn(zero_.place("zenflow"),
                       "zenflow has no effect here without offload_optimizer at stage 1 or 2");
      }
    }
    if (stage_ == 3 && optimizer_device_ == "none" && param_device_ == "none") {
      findings_.warn(stage, "nothing is offloaded: stage 3 on one GPU gathers what it has already");
    }
  }
  static constexpr const char* kNativeDiffers =
      " (fp32 parameters under autocast: DeepSpeed's 16-bit copy beside fp32 masters is not "
      "modelled)";

  // "auto" of sizes: the Trainer's from the hidden size, or dropped, so that the default holds.
  void fill_hidden_sizes() {
    const std::int64_t hidden = around_.shape != nullptr ? around_.shape->hidden : 0;
    const auto fill = [&](std::string_view key, std::int64_t value, std::string_view rule,
                          std::string_view own, bool ruled) {
      if (!zero_.automatic(key)) {
        return;
      }
      if (!around_.hugging_face || !ruled) {
        zero_.fill(key, std::string(own), "auto: DeepSpeed's default");
        if (ruled) {
          findings_.warn(zero_.place(key),
                         fmt::format("{} is auto: DeepSpeed's {} is taken; with --trainer the "
                                     "Trainer's, {}",
                                     key, own, rule));
        }
        return;
      }
      if (hidden == 0) {
        findings_.refuse(zero_.place(key), fmt::format("{} is auto: {}", key, rule),
                         "expected a model beside it");
        return;
      }
      zero_.fill(key, elements_text(static_cast<double>(value)),
                 fmt::format("auto: the Trainer's {}", rule));
      filled_.emplace_back(key, value);
    };
    fill("reduce_bucket_size", hidden * hidden, "hidden size squared", "5e8", true);
    const bool third = stage_ == 3;
    fill("stage3_prefetch_bucket_size",
         static_cast<std::int64_t>(0.9 * static_cast<double>(hidden) * static_cast<double>(hidden)),
         "0.9 x hidden size squared", "5e7", third);
    fill("stage3_param_persistence_threshold", 10 * hidden, "10 x hidden size", "1e5", third);
    for (const char* const key :
         {"sub_group_size", "stage3_max_live_parameters", "stage3_max_reuse_distance"}) {
      fill(key, 0, "", "1e9", false);
    }
    fill("overlap_comm", 0, "", third ? "true" : "false", false);
    fill("zero_quantized_weights", 0, "", "false", false);
  }

  void give(std::string_view option, const Block& block, std::string_view key) {
    const std::string own = block.full_name(key);
    findings_.names.emplace_back(fmt::format("{}.{}", plan_.name.text, option), own);
    if (option != key) {
      findings_.names.emplace_back(option, own);
    }
    if (block.given(key)) {
      plan_.options.emplace_back(Given{std::string(option), block.key_place(key)},
                                 block.as_given(key));
    }
  }
  void give(std::string_view key) {
    give(key, zero_, key);
    for (const auto& [name, value] : filled_) {
      if (name == key) {
        plan_.options.emplace_back(Given{name, zero_.key_place(key)},
                                   Given{std::to_string(value), zero_.place(key)});
      }
    }
  }
  void give_text(const char* option, const std::string& text, const Place& place) {
    plan_.options.emplace_back(Given{option, place}, Given{text, place});
  }

  void shared_options() {
    if (plan_.name.text == "native") {
      if (rest_.clip) {
        give_text("gradient_clipping", *rest_.clip > 0 ? "true" : "false", rest_.clip_at);
      }
      optimizer_.no_effect("pin_memory", "nothing is offloaded");
      return;
    }
    if (optimizer_device_ != "none") {
      give("pin_memory", optimizer_, "pin_memory");
      param_.no_effect("pin_memory", stage_ == 3
                                         ? "the optimizer's counts; 16-bit parameters are pinned "
                                           "whatever it says"
                                         : "parameters are offloaded at stage 3 only");
    } else if (param_device_ != "none") {
      give("pin_memory", param_, "pin_memory");
      optimizer_.no_effect("pin_memory", "the optimizer is not offloaded");
    }
    if (plan_.name.text == "superoffload" && rest_.clip) {
      give_text("gradient_clipping", fmt::format("{:g}", *rest_.clip), rest_.clip_at);
    }
    if (around_.version_given && spec_of(plan_.name.text, "deepspeed_version") != nullptr) {
      give_text("deepspeed_version", around_.version, {"command line", 0, 0});
    }
  }

  void stage2_options() {
    for (const char* const key :
         {"sub_group_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
          "stage3_max_live_parameters", "stage3_max_reuse_distance", "memory_efficient_linear"}) {
      zero_.no_effect(key, "stage 3 only");
    }
    for (const char* const key : {"buffer_count", "pipeline_read", "pipeline_write"}) {
      optimizer_.no_effect(key, "nothing is on nvme below stage 3");
    }
    for (const char* const key : {"ratio", "cpuadam_cores_perc"}) {
      optimizer_.no_effect(key, "stage 3 only");
    }
    for (const char* const key : {"buffer_count", "buffer_size", "max_in_cpu"}) {
      param_.no_effect(key, "parameters are offloaded at stage 3 only");
    }
    if (plan_.name.text == "native") {
      for (const char* const key : {"reduce_bucket_size", "overlap_comm", "contiguous_gradients"}) {
        zero_.no_effect(key, "one GPU reduces nothing");
      }
      return;
    }
    give("reduce_bucket_size");
    give("overlap_comm");
    zero_.no_effect("contiguous_gradients", "DeepSpeed sets it with offload");
    if (plan_.name.text == "zenflow") {
      zenflow_options();
    }
  }

  void zenflow_options() {
    for (const char* const key :
         {"topk_ratio", "select_strategy", "select_interval", "update_interval",
          "full_warm_up_rounds", "overlap_step", "pt_reserved_cores_perc"}) {
      give(key, zenflow_, key);
    }
    const auto select = zenflow_.count("select_interval");
    const auto update = zenflow_.count("update_interval");
    if (select && update && *select < *update && zenflow_.text("select_strategy") == "step") {
      findings_.refuse(
          zenflow_.place("select_interval"),
          fmt::format("select_interval {} is less than update_interval {}", *select, *update),
          "expected as much or more");
    }
    if (zenflow_.flag("offload", false)) {
      findings_.warn(zenflow_.place("offload"),
                     "zenflow.offload is not modelled: the states of chosen columns are on the "
                     "GPU here");
    }
  }

  void stage3_options() {
    if (plan_.name.text != "superoffload") {
      give_text("offload_optimizer", optimizer_device_,
                optimizer_.exists() ? optimizer_.place("device") : plan_.name.place);
    }
    give_text("offload_param", param_device_,
              param_.exists() ? param_.place("device") : plan_.name.place);
    if (plan_.name.text == "superoffload" && param_device_ == "nvme") {
      findings_.refuse(param_.place("device"),
                       "SuperOffload with parameters on nvme is not modelled",
                       "expected none or cpu");
    }
    for (const char* const key :
         {"sub_group_size", "stage3_prefetch_bucket_size", "stage3_max_live_parameters",
          "stage3_max_reuse_distance", "stage3_param_persistence_threshold", "reduce_bucket_size",
          "overlap_comm", "contiguous_gradients"}) {
      give(key);
    }
    give("zero_init", zero_, "memory_efficient_linear");
    if (around_.zero_init == false && !zero_.given("memory_efficient_linear")) {
      give_text("zero_init", "false", plan_.name.place);
    }
    optimizer_share();
    drive_options();
    note_sizes();
  }

  void optimizer_share() {
    if (optimizer_device_ != "none") {
      give("ratio", optimizer_, "ratio");
    } else {
      optimizer_.no_effect("ratio", "the optimizer is not offloaded");
    }
    if (plan_.name.text == "superoffload") {
      give("cpuadam_cores_perc", optimizer_, "cpuadam_cores_perc");
    } else {
      optimizer_.no_effect("cpuadam_cores_perc", "super_offload only");
    }
  }

  void drive_options() {
    if (optimizer_device_ == "nvme") {
      for (const char* const key : {"buffer_count", "pipeline_read", "pipeline_write"}) {
        give(key, optimizer_, key);
      }
    } else {
      for (const char* const key : {"buffer_count", "pipeline_read", "pipeline_write"}) {
        optimizer_.no_effect(key, "read for nvme only");
      }
    }
    if (param_device_ == "nvme") {
      give("param_buffer_count", param_, "buffer_count");
      give("param_buffer_size", param_, "buffer_size");
      give("max_in_cpu", param_, "max_in_cpu");
    } else {
      for (const char* const key : {"buffer_count", "buffer_size", "max_in_cpu"}) {
        param_.no_effect(key, "read for nvme only");
      }
    }
    for (const char* const key :
         {"block_size", "queue_depth", "intra_op_parallelism", "overlap_events"}) {
      if (plan_.name.text == "zero-infinity") {
        give(std::string("aio_") + key, *rest_.aio, key);
      }
    }
  }

  void note_sizes() {
    if (zero_.given("sub_group_size") && *zero_.count("sub_group_size") == 0) {
      findings_.refuse(zero_.place("sub_group_size"), "sub_group_size is 0",
                       "expected at least one element in a sub-group");
    }
    if (around_.shape == nullptr) {
      return;
    }
    const std::int64_t parameters = model::parameters(*around_.shape);
    if (zero_.count("sub_group_size").value_or(0) > parameters) {
      findings_.warn(zero_.place("sub_group_size"),
                     "sub_group_size is more than the model has: its one sub-group's temporaries "
                     "and swap buffers are as large as the model");
    }
    if (param_device_ != "none" &&
        zero_.count("stage3_max_live_parameters").value_or(1'000'000'000) >= parameters) {
      findings_.warn(zero_.place("stage3_max_live_parameters"),
                     "stage3_max_live_parameters is as much as the whole model: it may stay "
                     "gathered, and offload_param then frees little");
    }
  }

  Block& zero_;
  std::int64_t stage_;
  const Rest& rest_;
  const Around& around_;
  Findings& findings_;
  GivenPlan& plan_;
  Block optimizer_, param_, zenflow_;
  std::string optimizer_device_, param_device_;
  std::vector<std::pair<std::string, std::int64_t>> filled_;
};

}  // namespace

void read_zero(Block& zero, std::int64_t stage, const Rest& rest, const Around& around,
               Findings& findings, GivenPlan& plan) {
  Zero(zero, stage, rest, around, findings, plan).read();
}

}  // namespace offsim::imports
