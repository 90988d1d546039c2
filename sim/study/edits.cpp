#include "sim/study/edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "sim/base/quantity.h"
#include "sim/plans/plan.h"
#include "sim/study/limits.h"

namespace offsim::study {

namespace {

// "other": every other value of a flag or a choice; "default": the option's; "x2", "x0.1": the
// value in force so many times; all else is a value.
struct OptionRule {
  std::vector<std::string_view> options;  // changed together
  std::vector<std::string_view> tries;
  std::string_view why;
  int size = 1;
};

// In the order of the usual advice for a slow offloaded step.
const std::vector<OptionRule>& option_rules() {
  static const std::vector<OptionRule> kRules{
      {{"offload_optimizer"}, {"other"}, "where Adam runs and its states live", 2},
      {{"offload_param"}, {"other"}, "where parameters live; from elsewhere they are fetched", 2},
      {{"pin_memory"}, {"other"}, "copies of pinned memory run at link rate beside the host", 1},
      {{"deepspeed_version"}, {"default"}, "a current release", 3},
      {{"stage3_max_live_parameters", "stage3_max_reuse_distance"},
       {"x2", "x10", "x0.1"},
       "how many gathered parameters stay on the GPU, to be used again"},
      {{"stage3_prefetch_bucket_size"},
       {"x10", "x0.1", "0"},
       "how far ahead parameters are fetched"},
      {{"stage3_param_persistence_threshold"},
       {"x10"},
       "small parameters that are never sent back"},
      {{"overlap_comm"}, {"other"}, "gradients leave on a stream of their own"},
      {{"reduce_bucket_size"}, {"x2", "x0.1"}, "the GPU's bucket of gradients"},
      {{"sub_group_size"}, {"x2", "x0.1"}, "what Adam updates at a time"},
      {{"ratio"}, {"0.9", "0.5", "0"}, "Twin-Flow: the GPU updates the rest", 1},
      {{"contiguous_gradients"}, {"other"}, "gradients are copied into the bucket"},
      {{"cpu_checkpointing"}, {"other"}, "checkpoints wait in host memory", 2},
      {{"partition_activations"}, {"other"}, "blocking copies of checkpoints"},
      {{"max_in_cpu"}, {"x10", "0"}, "parameters that stay in CPU memory before the drive"},
      {{"pipeline_read", "pipeline_write"}, {"other"}, "the drive works beside Adam"},
      {{"buffer_count"}, {"x2"}, "the optimizer's swap buffers"},
      {{"param_buffer_count"}, {"x2"}, "swap buffers of parameters"},
      {{"aio_block_size"}, {"x8"}, "larger requests to the drive"},
      {{"aio_queue_depth"}, {"x4"}, "more requests in flight"},
      {{"aio_intra_op_parallelism"}, {"x4"}, "more threads submit requests"},
      {{"aio_thread_count"}, {"x4"}, "more threads submit requests"},
      {{"aio_overlap_events"}, {"other"}, "the drive's queue is kept full"},
      {{"overlap_step"}, {"other"}, "Adam beside the next interval"},
      {{"pt_reserved_cores_perc"}, {"0.2", "0.8"}, "cores that Adam's process leaves"},
      {{"cpuadam_cores_perc"}, {"0.5", "0.9"}, "cores that Adam's process gets"},
      {{"fused"}, {"other"}, "AdamW in one pass over memory"},
      {{"offload_gradients"}, {"other"}, "gradients leave the GPU in the backward"},
      {{"minimal_size"}, {"x16"}, "smaller tensors keep their optimizer on the GPU"},
      {{"checkpoint_interval"}, {"x2", "x0.5"}, "layers that are recomputed together"},
      {{"num_grad_slabs"}, {"x2", "x0.5"}, "pinned slabs that gradients land in"},
      {{"access"}, {"other"}, "how the GPU reaches states in CPU memory"},
      {{"gradients"}, {"other"}, "where gradients wait for the step"},
      {{"planner"}, {"other"}, "what is kept of the forward"},
      {{"swap_ratio"}, {"0.5", "0"}, "the part of the forward that copies may take"},
      {{"is_grad_async"}, {"other"}, "a sub-group is updated once its gradients are there"},
      {{"is_mp"}, {"other"}, "Adam in a process of its own"},
      {{"is_nvme_rearrange"}, {"other"}, "writes wait for the next reads"},
      {{"path"}, {"other"}, "the drive's way to the GPU"},
      {{"host_memory"}, {"16e9"}, "host memory that holds what the drive has no time for"},
      {{"pool"}, {"other"}, "swap buffers by the size of what they hold"},
      {{"allocator"}, {"other"}, "pinned memory to the byte"},
      {{"overflow_check"}, {"other"}, "one pass over gradients"},
      {{"engine"}, {"other"}, "the drive without a file system"},
      {{"compile"}, {"other"}, "one kernel a tensor for Adam"},
      {{"donation"}, {"other"}, "old states make room for new ones"},
      {{"param_buffer_size"}, {"default"}, "the size that DeepSpeed needs"},
  };
  return kRules;
}

// Why no rule tries them.
struct NoRule {
  std::string_view option, why;
};
constexpr std::array<NoRule, 14> kNoRules{{
    {"variant", "another system, not a setting"},
    {"zero_init", "how the program makes its model"},
    {"gradient_clipping", "the model learns something else"},
    {"optimizer", "the model learns something else"},
    {"topk_ratio", "the model learns something else"},
    {"select_strategy", "the model learns something else"},
    {"select_interval", "the model learns something else"},
    {"update_interval", "the model learns something else"},
    {"full_warm_up_rounds", "over before the step that is reported"},
    {"allgather_bucket_size", "no effect on one GPU"},
    {"round_robin_gradients", "no effect on one GPU"},
    {"memory_limit", "no effect on a step here"},
    {"wired_limit", "no effect on a step here"},
    {"optimizer_states", "the model learns something else"},
}};

// 2,000,000,000 as "2e9", 1,048,576 as itself.
std::string count_text(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  const std::size_t last = digits.find_last_not_of('0');
  if (value < 1e5 || last == std::string::npos || digits.size() - last < 6) {
    return digits;
  }
  const std::size_t exponent = digits.size() - 1;
  digits.resize(last + 1);
  return fmt::format("{}{}{}e{}", digits[0], digits.size() > 1 ? "." : "", digits.substr(1),
                     exponent);
}

// The values that `attempt` stands for; none where the value in force is no number.
std::vector<std::string> values_of(const plans::OptionSpec& spec, const std::string& now,
                                   std::string_view attempt) {
  using Kind = plans::OptionSpec::Kind;
  if (attempt == "default") {
    return {std::string(spec.fallback)};
  }
  if (attempt == "other") {
    return spec.kind == Kind::kFlag ? std::vector<std::string>{"true", "false"} : spec.choices;
  }
  if (!attempt.starts_with("x")) {
    return {std::string(attempt)};
  }
  if (now == "auto" || now == "by version") {
    return {};
  }
  const double factor = parse_number(attempt.substr(1), {});
  const double value = std::round(parse_count(now, {}) * factor);
  const bool allowed =
      value >= static_cast<double>(spec.least) && value <= static_cast<double>(spec.most);
  return allowed ? std::vector<std::string>{count_text(value)} : std::vector<std::string>{};
}

const plans::OptionSpec* spec_of(const plans::Plan& plan, std::string_view option) {
  const auto found = std::ranges::find(plan.options, option, &plans::OptionSpec::name);
  return found == plan.options.end() ? nullptr : &*found;
}

// The rule's options with what `attempt` stands for, all at its n-th value; nothing where that is
// what is in force.
std::optional<Edit> option_edit(const plans::Job& job, const OptionRule& rule,
                                std::string_view attempt, std::size_t n) {
  Edit edit{.why = std::string(rule.why), .size = rule.size};
  for (const std::string_view name : rule.options) {
    const plans::OptionSpec* const spec = spec_of(*job.plan, name);
    if (spec == nullptr) {
      return std::nullopt;
    }
    const std::string& now = job.options.text(name);
    const std::vector<std::string> values = values_of(*spec, now, attempt);
    if (n >= values.size()) {
      return std::nullopt;
    }
    if (values[n] != now) {
      const std::string option(name);
      edit.changes.push_back({option, now, values[n]});
      edit.apply.emplace_back([option, value = values[n]](plans::Job& changed) {
        changed.options = changed.options.with(option, value);
      });
    }
  }
  return edit.changes.empty() ? std::nullopt : std::optional(std::move(edit));
}

void add_option_edits(const plans::Job& job, std::vector<Edit>& edits) {
  constexpr std::size_t kMostValues = 4;  // of a flag or a choice
  for (const OptionRule& rule : option_rules()) {
    for (const std::string_view attempt : rule.tries) {
      for (std::size_t n = 0; n < kMostValues; ++n) {
        if (std::optional<Edit> edit = option_edit(job, rule, attempt, n)) {
          edits.push_back(std::move(*edit));
        }
      }
    }
  }
}

std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(BytesPerSecond value) { return show(value); }
std::string text_of(plans::Checkpointing value) { return std::string(plans::to_string(value)); }
std::string text_of(plans::ActivationOffload value) { return std::string(plans::to_string(value)); }

// Edits of the work, each noted with what it was.
class WorkEdits {
 public:
  WorkEdits(const plans::Job& job, std::vector<Edit>& edits)
      : job_(job), work_(job.workload), edits_(edits) {}

  void add() {
    micro_batch();
    checkpointing();
    start("fewer optimizer steps for the tokens; parameters are fetched as often", 1);
    set(&plans::Workload::accumulation, "accumulation", 4 * work_.accumulation);
    activations();
    loader();
    if (job_.plan->several_gpus && 2 * work_.gpus <= job_.machine.gpus) {
      start("each GPU holds a part, and has a link of its own", 5);
      set(&plans::Workload::gpus, "gpus", 2 * work_.gpus);
    }
  }

 private:
  Edit& start(const char* why, int size) {
    return edits_.emplace_back(Edit{.why = why, .size = size});
  }
  // To the edit that was started last.
  template <class T>
  void set(T plans::Workload::*field, const char* name, std::type_identity_t<T> value) {
    edits_.back().changes.push_back({name, text_of(work_.*field), text_of(value)});
    edits_.back().apply.emplace_back(
        [field, value](plans::Job& changed) { changed.workload.*field = value; });
  }

  void micro_batch() {
    constexpr const char* kWhy = "more tokens share each fetch and each update";
    const auto to = [this](const char* why, std::int64_t micro_batch) {
      start(why, 1);
      set(&plans::Workload::micro_batch, "micro_batch", micro_batch);
    };
    to(kWhy, 2 * work_.micro_batch);
    start(kWhy, 2).largest = true;
    if (work_.micro_batch > 1) {
      to("fewer activations", 1);
    }
    if (work_.micro_batch > 3) {
      to("fewer activations", work_.micro_batch / 2);
    }
    if (work_.accumulation > 1) {
      to("parameters are fetched once for the same tokens", work_.micro_batch * work_.accumulation);
      set(&plans::Workload::accumulation, "accumulation", 1);
    }
  }

  void checkpointing() {
    using plans::Checkpointing;
    if (work_.checkpointing == Checkpointing::kFull) {
      start("nothing is recomputed", 1);
      set(&plans::Workload::checkpointing, "checkpointing", Checkpointing::kNone);
      return;
    }
    for (const bool largest : {false, true}) {
      start(largest ? "recomputing makes room for more tokens"
                    : "activations are recomputed in place of kept",
            largest ? 3 : 1);
      set(&plans::Workload::checkpointing, "checkpointing", Checkpointing::kFull);
      edits_.back().largest = largest;
    }
  }

  void activations() {
    using plans::ActivationOffload;
    const auto to = [this](const char* why, ActivationOffload where) {
      start(why, 2);
      set(&plans::Workload::activation_offload, "activation_offload", where);
    };
    if (work_.activation_offload != ActivationOffload::kNone) {
      to("activations stay on the GPU", ActivationOffload::kNone);
      return;
    }
    to("activations wait in host memory", ActivationOffload::kSaveOnCpuPinned);
    to("activations wait in host memory", ActivationOffload::kStreamed);
  }

  void loader() {
    constexpr const char* kWhy = "cores and bandwidth go to Adam";
    if (work_.loader_workers > 1) {
      start(kWhy, 1);
      set(&plans::Workload::loader_workers, "loader_workers", work_.loader_workers / 2);
    }
    if (work_.loader_bandwidth.value > 0) {
      start(kWhy, 1);
      set(&plans::Workload::loader_bandwidth, "loader_bandwidth", work_.loader_bandwidth * 0.5);
    }
    if (work_.phase_sync) {
      start("the host runs ahead of the GPU", 1);
      set(&plans::Workload::phase_sync, "phase_sync", false);
    }
  }

  const plans::Job& job_;
  const plans::Workload& work_;
  std::vector<Edit>& edits_;
};

}  // namespace

plans::Job Edit::of(plans::Job job) const {
  for (const auto& change : apply) {
    change(job);
  }
  return job;
}

bool Edit::changes_setting(std::string_view setting) const {
  return std::ranges::find(changes, setting, &Change::setting) != changes.end() ||
         (largest && setting == "micro_batch");
}

bool Edit::of_settings() const { return !changes_setting("plan") && !changes_setting("hardware"); }

std::optional<Edit> together(const Edit& first, const Edit& second) {
  const auto options_meet_a_plan = [](const Edit& plan, const Edit& other) {
    return plan.changes_setting("plan") &&
           std::ranges::any_of(other.changes,
                               [](const Change& change) { return is_considered(change.setting); });
  };
  const bool same = std::ranges::any_of(second.changes, [&first](const Change& change) {
    return first.changes_setting(change.setting);
  });
  if (same || options_meet_a_plan(first, second) || options_meet_a_plan(second, first)) {
    return std::nullopt;
  }
  Edit both{.changes = first.changes,
            .apply = first.apply,
            .size = first.size + second.size,
            .largest = first.largest || second.largest};
  both.changes.insert(both.changes.end(), second.changes.begin(), second.changes.end());
  both.apply.insert(both.apply.end(), second.apply.begin(), second.apply.end());
  return both;
}

std::vector<Edit> edits_of(const plans::Job& job, const std::vector<machine::Machine>& machines) {
  std::vector<Edit> edits;
  add_option_edits(job, edits);
  WorkEdits(job, edits).add();
  for (const plans::Plan& plan : plans::registry()) {
    if (plan.name != job.plan->name) {
      edits.push_back({.changes = {{"plan", std::string(job.plan->name), std::string(plan.name)}},
                       .apply = {[&plan](plans::Job& changed) {
                         changed.plan = &plan;
                         changed.options = plans::Options(plan.options, plan.name);
                       }},
                       .why = std::string(plan.sentence),
                       .size = 4});
    }
  }
  for (const machine::Machine& machine : machines) {
    edits.push_back({.changes = {{"hardware", job.machine.name, machine.name}},
                     .apply = {[machine](plans::Job& changed) { changed.machine = machine; }},
                     .why = machine.title,
                     .size = 5});
  }
  std::erase_if(edits, [&job](const Edit& edit) { return !can_be_asked(edit.of(job)); });
  return edits;
}

std::vector<machine::Machine> other_machines(const Catalog& catalog, const machine::Machine& here) {
  std::vector<machine::Machine> out;
  for (const std::string& name : catalog.machine_names()) {
    if (name == here.name) {
      continue;
    }
    machine::Machine machine = catalog.machine(name, {});
    const bool coherent = machine.link && machine.link->coherent();
    const bool less = here.link && here.link->coherent();  // what has one seeks no slower link
    if (machine.accelerator.name == here.accelerator.name || (coherent && !less)) {
      out.push_back(std::move(machine));
    }
  }
  return out;
}

bool is_considered(std::string_view option) {
  const auto has = [&](const OptionRule& rule) {
    return std::ranges::find(rule.options, option) != rule.options.end();
  };
  return std::ranges::any_of(option_rules(), has) ||
         std::ranges::find(kNoRules, option, &NoRule::option) != kNoRules.end();
}

}  // namespace offsim::study
