#include "sim/import/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/config.h"
#include "sim/base/quantity.h"
#include "sim/base/text.h"
#include "sim/import/batch.h"
#include "sim/import/defaults.h"
#include "sim/import/keys.h"
#include "sim/import/partners.h"
#include "sim/import/zero.h"
#include "sim/plans/deepspeed.h"
#include "sim/plans/job.h"

namespace offsim::imports {

namespace {

using study::Given;
using study::GivenPlan;
using study::GivenWorkload;

constexpr std::int64_t kMostInABatch = 1'000'000;  // three of them multiply within 64 bits
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";
constexpr const char* kTotal = "train_batch_size";

std::int64_t whole(const Given& given, std::string_view name) {
  return to_integer({.kind = Node::Kind::kScalar, .place = given.place, .scalar = given.text}, 1,
                    kMostInABatch, name);
}

class DeepSpeed {
 public:
  DeepSpeed(const Node& root, Around around, Findings& findings, GivenPlan& plan,
            GivenWorkload& work)
      : root_(root),
        around_(std::move(around)),
        findings_(findings),
        plan_(plan),
        work_(work),
        top_(top_block(), root, findings),
        bf16_(block(bf16_block(), "bf16")),
        fp16_(block(fp16_block(), "fp16")),
        aio_(block(aio_block(), "aio")),
        activation_(block(activation_block(), "activation_checkpointing")),
        optimizer_(block(optimizer_block(), "optimizer")) {}

  void read() {
    if (!top_.exists()) {
      return;
    }
    refuse_nested();
    know_hugging_face();
    read_precision();
    read_batch();
    read_partners(top_, activation_, aio_, findings_);
    if (read_zero_block()) {
      read_optimizer();
      list_defaults(plan_, plan_.name.text == "native" ? "" : around_.version, findings_);
    }
  }

 private:
  Block block(const BlockSpec& spec, std::string_view key) {
    const Node* const node = top_.map(key);
    return node != nullptr ? Block(spec, *node, findings_) : Block(spec, findings_);
  }

  // Where the whole is in another tool's file, nothing of it would be in force.
  void refuse_nested() {
    if (root_.find("zero_optimization") != nullptr) {
      return;
    }
    for (std::size_t i = 0; i < root_.keys.size(); ++i) {
      if (root_.items[i].kind == Node::Kind::kMap &&
          root_.items[i].find("zero_optimization") != nullptr) {
        const std::string key = printable(root_.keys[i], 60);
        findings_.refuse(root_.items[i].key_places.front(),
                         fmt::format("zero_optimization is inside '{}', and DeepSpeed reads the "
                                     "top level alone",
                                     key),
                         fmt::format("expected what is inside '{}' as the file", key));
      }
    }
  }

  void know_hugging_face() {
    if (around_.hugging_face) {
      return;
    }
    for (const char* const key : {kMicro, kAccumulation, kTotal}) {
      if (top_.automatic(key)) {
        around_.hugging_face = true;
        findings_.warn(top_.place(key),
                       fmt::format("{} is auto, which only Hugging Face's Trainer fills: every "
                                   "auto has its meaning there",
                                   key));
        return;
      }
    }
  }

  // ---- precision

  bool enabled(Block& block, std::string_view trainers) {
    if (!block.automatic("enabled")) {
      const bool on = block.flag("enabled", false);
      const std::string argument(trainers.substr(0, trainers.find('-')));
      if (block.given("enabled") && around_.trainer != nullptr &&
          around_.trainer->find(argument) != nullptr && around_.trainer->flag(argument) != on) {
        findings_.refuse(block.place("enabled"),
                         fmt::format("{} is {}, and the Trainer's argument says {}",
                                     block.full_name("enabled"), on, !on),
                         "expected the same, or auto");
      }
      return on;
    }
    const std::optional<Given> said = around_.precision();
    const bool on = said && said->text == trainers;
    if (said || around_.trainer != nullptr) {
      block.fill("enabled", on ? "true" : "false", "auto: the Trainer's");
    } else if (!around_.flags.precision) {
      asked_ = block.place("enabled");
    }
    return on;
  }

  void warn_of_narrow_states(const Block& block, std::initializer_list<const char*> keys) {
    for (const char* const key : keys) {
      if (block.flag(key, false)) {
        findings_.warn(block.place(key),
                       fmt::format("{} is not modelled: masters, gradients and states are fp32 "
                                   "here, 2 to 3 times the host memory",
                                   key));
      }
    }
  }

  void read_precision() {
    if (bf16_.refused("enabled") || fp16_.refused("enabled")) {
      return;  // nothing is concluded from a value that was refused
    }
    const bool bf16 = enabled(bf16_, "bf16-mixed");
    const bool fp16 = enabled(fp16_, "fp16-mixed");
    if (bf16 && fp16) {
      findings_.refuse(fp16_.place("enabled"), "fp16 and bf16 are both enabled",
                       "expected one of them");
    }
    wide_ = !bf16 && !fp16;
    warn_of_narrow_states(bf16_, {"bf16_master_weights_and_grads", "bf16_optimizer_states"});
    warn_of_narrow_states(fp16_, {"fp16_master_weights_and_grads"});
    if (fp16 && fp16_.count("initial_scale_power").value_or(16) > 24) {
      findings_.warn(fp16_.place("initial_scale_power"),
                     "a scale so large overflows: the first steps skip the optimizer and look "
                     "fast");
    }
    if (around_.flags.precision) {
      wide_ = around_.flags.precision->text == "fp32";
      return;
    }
    if (asked_ && wide_) {
      findings_.refuse(*asked_, "the precision is auto (DeepSpeed alone would run in fp32)",
                       "expected --precision bf16-mixed, or --trainer '--bf16 ...'");
      return;
    }
    work_.precision = bf16   ? Given{"bf16-mixed", bf16_.place("enabled")}
                      : fp16 ? Given{"fp16-mixed", fp16_.place("enabled")}
                             : Given{"fp32", root_.place};
    if (wide_) {
      findings_.warn(root_.place, "neither bf16 nor fp16 is enabled: DeepSpeed runs in fp32");
    }
  }

  // ---- batch

  // What is in force of a member of the batch: flag, file, the Trainer's.
  std::optional<Given> member(const char* key, const std::optional<Given>& flag, const char* option,
                              const std::optional<Given>& trainers, const char* usual) {
    if (flag) {
      if (top_.given(key)) {
        findings_.warn(top_.place(key), fmt::format("{} {} gives way to {} {}", key, top_.text(key),
                                                    option, flag->text));
      }
      top_.no_effect(key, fmt::format("{} {} counts", option, flag->text));
      return *flag;
    }
    if (top_.given(key)) {
      if (trainers && whole(*trainers, key) != *top_.count(key)) {
        findings_.refuse(top_.place(key),
                         fmt::format("{} is {}, and the Trainer's argument says {}", key,
                                     top_.text(key), trainers->text),
                         "expected the same, or auto");
      }
      return top_.as_given(key);
    }
    const bool fills = top_.automatic(key) || around_.trainer != nullptr;
    if (fills && trainers) {
      top_.fill(key, trainers->text, "auto: the Trainer's argument");
      return *trainers;
    }
    if (fills && usual != nullptr) {
      top_.fill(key, usual, "auto: the Trainer's default");
      return Given{usual, top_.place(key)};
    }
    return std::nullopt;
  }

  void read_batch() {
    const bool elastic =
        top_.map("elasticity") != nullptr &&
        Block(elastic_block(), *top_.map("elasticity"), findings_).flag("enabled", false);
    if (elastic) {
      findings_.refuse(top_.key_place("elasticity"), "elastic batches are not modelled",
                       "expected fixed batch keys, and elasticity off");
      return;
    }
    for (const char* const key : {kTotal, kMicro, kAccumulation, "sequence_parallel_size"}) {
      if (top_.refused(key)) {
        return;  // what is derived from it would be wrong too
      }
    }
    const GivenWorkload& flags = around_.flags;
    const GivenWorkload trainers =
        around_.trainer != nullptr ? around_.trainer->workload() : GivenWorkload{};
    // Only what the Trainer is known to be asked for falls back to its defaults.
    const char* const usual = around_.trainer != nullptr ? "8" : nullptr;
    const auto micro =
        member(kMicro, flags.micro_batch, "--micro-batch", trainers.micro_batch, usual);
    const auto accumulation =
        member(kAccumulation, flags.accumulation, "--accumulation", trainers.accumulation, "1");
    if (!micro && top_.automatic(kMicro)) {
      findings_.refuse(top_.place(kMicro), fmt::format("{} is auto", kMicro),
                       "expected --micro-batch N, or --trainer '--per_device_train_batch_size N'");
      return;
    }
    settle_batch(micro, accumulation);
  }

  static const BlockSpec& elastic_block() {
    static const BlockSpec kBlock = [] {
      BlockSpec spec{"elasticity", false, {{"enabled", Kind::kFlag}}};
      for (const char* const key :
           {"max_train_batch_size", "micro_batch_sizes", "min_gpus", "max_gpus", "min_time",
            "version", "ignore_non_elastic_batch_info", "prefer_larger_batch",
            "model_parallel_size", "num_gpus_per_node"}) {
        spec.keys.push_back({key, Kind::kAny, "elasticity is off"});
      }
      return spec;
    }();
    return kBlock;
  }

  void settle_batch(const std::optional<Given>& micro, const std::optional<Given>& accumulation) {
    const GivenWorkload& flags = around_.flags;
    const std::optional<Given> gpus = flags.gpus ? flags.gpus : around_.gpus;
    BatchKeys keys;
    const bool search = micro && micro->text == "largest";
    const bool by_flags = flags.micro_batch || flags.accumulation;
    // What a flag leaves open follows from the total, as DeepSpeed's own keys do.
    if (by_flags && ((micro && accumulation) || search)) {
      if (top_.given(kTotal)) {
        findings_.warn(top_.place(kTotal), fmt::format("{} {} gives way to offsim's own flags",
                                                       kTotal, top_.text(kTotal)));
      }
      top_.no_effect(kTotal, "offsim's own flags count");
    } else {
      keys.total = top_.count(kTotal);
    }
    if (accumulation) {
      keys.accumulation = whole(*accumulation, kAccumulation);
    }
    if (micro) {
      keys.micro = search ? 1 : whole(*micro, kMicro);
    }
    if (gpus) {
      keys.gpus = data_parallel(whole(*gpus, "gpus"));
    }
    if (keys.gpus == 0) {
      return;  // refused
    }
    const Batch batch = batch_of(keys);
    if (!batch.wrong.empty()) {
      const bool named = top_.given(kTotal) || top_.given(kMicro);
      findings_.refuse(named ? top_.place(top_.given(kTotal) ? kTotal : kMicro) : root_.place,
                       batch.wrong, named ? batch.expected : batch.expected + ": --micro-batch N");
      return;
    }
    const Place derived = top_.given(kTotal) ? top_.place(kTotal) : root_.place;
    const auto take = [&](const std::optional<Given>& given, std::int64_t value) {
      return given ? *given : Given{std::to_string(value), derived};
    };
    work_.micro_batch = take(micro, batch.micro);
    work_.accumulation = take(accumulation, batch.accumulation);
    work_.gpus = take(gpus, batch.gpus);
    if (top_.automatic(kTotal)) {
      top_.fill(kTotal, search ? "as the micro-batch has it" : std::to_string(batch.total),
                "auto: micro-batch x accumulation x GPUs");
    }
    if (!gpus && batch.gpus > 1) {
      findings_.warn(derived, fmt::format("the three batch keys are those of {} GPUs (--gpus 1 "
                                          "--micro-batch {} asks for one of them)",
                                          batch.gpus, batch.micro));
    }
    findings_.add({"batch",
                   fmt::format("{} x {} x {} GPU{}", search ? "largest" : work_.micro_batch->text,
                               batch.accumulation, batch.gpus, batch.gpus == 1 ? "" : "s"),
                   derived.text(), ""});
  }

  // 0 where it is refused.
  std::int64_t data_parallel(std::int64_t gpus) {
    const std::int64_t degree = top_.count("sequence_parallel_size").value_or(1);
    if (degree <= 1) {
      return gpus;
    }
    if (gpus % degree != 0) {
      findings_.refuse(
          top_.place("sequence_parallel_size"),
          fmt::format("{} GPUs are no multiple of sequence_parallel_size {}", gpus, degree),
          "expected one");
      return 0;
    }
    findings_.warn(top_.place("sequence_parallel_size"),
                   fmt::format("sequence parallelism is not modelled; {} of {} GPUs are data "
                               "parallel",
                               gpus / degree, gpus));
    return gpus / degree;
  }

  // ---- the rest

  bool optimizer_is_offloaded() const {
    return plan_.name.text != "native" &&
           std::ranges::none_of(plan_.options, [](const auto& option) {
             return option.first.text == "offload_optimizer" && option.second.text == "none";
           });
  }

  void read_optimizer() {
    Given type;
    if (optimizer_.given("type")) {
      type = optimizer_.as_given("type");
    } else if (around_.trainer != nullptr) {
      const Given* const optim = around_.trainer->take("optim");
      type = optim != nullptr ? *optim : type;
    }
    const bool offloaded = optimizer_is_offloaded();
    if (offloaded && !optimizer_.exists()) {
      findings_.add({"optimizer", "AdamW, DeepSpeed's own on the CPU", "no optimizer block", ""});
    }
    const std::string name = lower(type.text);
    if (!name.empty() && name.find("adam") == std::string::npos) {
      findings_.warn(type.place, fmt::format("optimizer {} is not modelled: Adam's bytes and time "
                                             "are taken",
                                             printable(type.text, 60)));
    }
    const bool eight_bit = name.find("8bit") != std::string::npos;
    if (!offloaded) {
      if (eight_bit) {
        findings_.warn(type.place,
                       "8-bit states are not modelled: they are fp32 here, 4 times as large");
      }
      return;
    }
    if (eight_bit) {
      findings_.refuse(type.place, "an 8-bit Adam does not run on the CPU",
                       "expected AdamW with offload");
    }
    const Node* const params = optimizer_.map("params");
    const Node* const torch_adam = params != nullptr && params->kind == Node::Kind::kMap
                                       ? params->find("torch_adam")
                                       : nullptr;
    if (torch_adam != nullptr && torch_adam->scalar == "true") {
      warn_slow(torch_adam->place, "torch_adam");
    } else if (!top_.flag("zero_force_ds_cpu_optimizer", true)) {
      warn_slow(top_.place("zero_force_ds_cpu_optimizer"), "zero_force_ds_cpu_optimizer false");
    }
  }

  void warn_slow(const Place& place, std::string_view what) {
    findings_.warn(place, fmt::format("{}: a framework's Adam on the CPU takes several times as "
                                      "long as DeepSpeed's, which is what is predicted",
                                      what));
  }

  std::optional<double> clip() {
    if (top_.automatic("gradient_clipping")) {
      const Given* const norm =
          around_.trainer != nullptr ? around_.trainer->take("max_grad_norm") : nullptr;
      const double value =
          norm != nullptr
              ? to_number({.kind = Node::Kind::kScalar, .place = norm->place, .scalar = norm->text},
                          "max_grad_norm")
              : 1;
      top_.fill("gradient_clipping", fmt::format("{:g}", value), "auto: the Trainer's");
      if (!around_.hugging_face) {
        findings_.warn(top_.place("gradient_clipping"),
                       "gradient_clipping is auto, which DeepSpeed does not fill: 1.0 is taken");
      }
      return value;
    }
    return top_.number("gradient_clipping");
  }

  // False where it does not say which plan it is.
  bool read_zero_block() {
    const Node* const node = root_.find("zero_optimization");
    plan_.name = {"", node != nullptr ? node->place : root_.place};
    std::int64_t stage = 0;
    Block zero(zero_block(), findings_);
    if (node != nullptr && node->kind == Node::Kind::kScalar &&
        (node->scalar == "true" || node->scalar == "false")) {
      stage = node->scalar == "true" ? 1 : 0;
      findings_.warn(node->place, fmt::format("zero_optimization: {} is the old form of stage {}",
                                              node->scalar, stage));
    } else if (node != nullptr) {
      zero = Block(zero_block(), *node, findings_);
      if (!zero.exists() || zero.refused("stage")) {
        return false;
      }
      stage = zero.given("stage") ? std::stoll(zero.text("stage")) : 0;
    }
    if (node == nullptr) {
      findings_.warn(root_.place, "there is no zero_optimization: nothing is offloaded");
    }
    Rest rest;
    rest.wide = wide_;
    rest.clip = clip();
    rest.clip_at = top_.place("gradient_clipping");
    rest.aio = &aio_;
    read_zero(zero, stage, rest, around_, findings_, plan_);
    const std::string& plan = plan_.name.text;
    if (plan != "native" && plan != "superoffload") {
      top_.no_effect("gradient_clipping", "the step scales gradients once, whatever the norm");
    }
    if (plan != "zero-infinity") {
      for (const Key& key : aio_block().keys) {
        aio_.no_effect(key.name, "nothing is on nvme");
      }
    }
    return true;
  }

  const Node& root_;
  Around around_;
  Findings& findings_;
  GivenPlan& plan_;
  GivenWorkload& work_;
  Block top_, bf16_, fp16_, aio_, activation_, optimizer_;
  bool wide_ = true;
  std::optional<Place> asked_;
};

}  // namespace

void read_deepspeed(const Node& root, Around around, Findings& findings, GivenPlan& plan,
                    GivenWorkload& workload) {
  DeepSpeed(root, std::move(around), findings, plan, workload).read();
}

}  // namespace offsim::imports
