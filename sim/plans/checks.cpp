#include "sim/plans/checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/quantity.h"
#include "sim/plans/plan.h"

namespace offsim::plans {

namespace {

std::vector<std::string_view> of_several_gpus() {
  std::vector<std::string_view> names;
  for (const Plan& plan : registry()) {
    if (plan.several_gpus) {
      names.push_back(plan.name);
    }
  }
  return names;
}

void warn_of_experts(std::vector<std::string>& warnings, const model::Shape& shape) {
  if (!shape.has_experts() || !shape.adapters.any()) {
    return;
  }
  const std::string_view architecture = model::to_string(shape.architecture);
  if (shape.adapters.targets == model::AdapterTargets::kAllLinear) {
    warnings.push_back(
        fmt::format("all-linear is the attention alone: experts and router of {} are no Linears",
                    architecture));
  }
  if (shape.adapters.base != model::Base::k16Bit) {
    warnings.push_back(fmt::format(
        "the experts of {} stay 16-bit: bitsandbytes quantises Linears alone", architecture));
  }
}

void check_gpus(const Job& job) {
  const std::int64_t gpus = job.workload.gpus;
  if (gpus == 1) {
    return;
  }
  if (!job.plan->several_gpus) {
    throw InputError({}, fmt::format("{} is modelled on one GPU", job.plan->name),
                     fmt::format("expected gpus 1, or {}", fmt::join(of_several_gpus(), ", ")));
  }
  if (gpus > job.machine.gpus) {
    throw InputError(
        {}, fmt::format("gpus is {}, and {} has {}", gpus, job.machine.name, job.machine.gpus),
        "expected as many or fewer, or a machine with more");
  }
  if (gpus > job.machine.host.cores) {
    throw InputError({},
                     fmt::format("gpus is {}, and {} has {} cores", gpus, job.machine.name,
                                 job.machine.host.cores),
                     "expected a core for each process");
  }
  if (!job.machine.peer || job.machine.accelerator.unified) {
    throw InputError(
        {}, fmt::format("collectives between the GPUs of {} are not modelled", job.machine.name),
        "expected a machine with 'peer': GPUs that a switch joins");
  }
}

}  // namespace

std::vector<std::string> check_question(const Job& job) {
  const model::Shape& shape = job.shape;
  std::vector<std::string> warnings = shape.notes;
  const std::int64_t sequence = job.workload.sequence;
  if (shape.max_sequence > 0 && sequence > shape.max_sequence) {
    warnings.push_back(fmt::format("sequence {} is longer than {} declares, {}", sequence,
                                   shape.name, shape.max_sequence));
  }
  for (const model::Shape::Alike& alike : shape.different_layers()) {
    const std::optional<std::int64_t>& window = shape.kind(alike.layer).window;
    if (window && *window < sequence &&
        !shape.writes_scores()) {  // where scores are written it does
      warnings.push_back(
          fmt::format("attention takes the time of the whole sequence: {}'s sliding window of {} "
                      "is not modelled",
                      shape.name, *window));
      break;
    }
  }
  if (job.machine.accelerator.unified &&
      job.workload.activation_offload != ActivationOffload::kNone) {
    warnings.push_back(
        fmt::format("activation_offload frees nothing: it copies within the one memory of {}",
                    job.machine.name));
  }
  check_gpus(job);
  if (job.workload.gpus > 1) {
    warnings.push_back(
        "each process has its share of the cores: set OMP_NUM_THREADS to it and bind them "
        "(torchrun gives one thread)");
  }
  if (shape.latent || shape.sinks) {
    warnings.push_back(fmt::format(
        "{}: kernels of its attention and router follow the modelling code, none was measured",
        model::to_string(shape.architecture)));
  } else if (shape.writes_scores()) {
    warnings.push_back(fmt::format(
        "{}: its attention writes all scores to memory, as no fused kernel is used for it; its "
        "kernels follow the modelling code, none was measured",
        model::to_string(shape.architecture)));
  }
  if (shape.outside > 0) {
    warnings.push_back(fmt::format(
        "{} also sees: the {} parameters of its vision part are outside the step, which trains "
        "the text part alone",
        shape.name, with_commas(static_cast<double>(shape.outside))));
  }
  warn_of_experts(warnings, shape);
  if (const std::int64_t used = job.workload.gpus; used < job.machine.gpus) {
    const std::int64_t all = job.machine.gpus;
    warnings.push_back(used == 1 ? fmt::format("one of the {} GPUs of {}, with all of its host",
                                               all, job.machine.name)
                                 : fmt::format("{} of the {} GPUs of {}, with all of its host",
                                               used, all, job.machine.name));
  }
  return warnings;
}

void require_precision(const Job& job, std::initializer_list<Precision> allowed,
                       std::string_view expected) {
  const Precision asked = job.workload.precision;
  if (std::find(allowed.begin(), allowed.end(), asked) == allowed.end()) {
    throw InputError({}, fmt::format("{} does not run in {}", job.plan->name, to_string(asked)),
                     fmt::format("expected {}", expected));
  }
}

void refuse_experts(const Job& job, std::string_view why) {
  if (job.shape.has_experts()) {
    throw InputError({},
                     fmt::format("{} does not run a mixture of experts: {}", job.plan->name, why),
                     fmt::format("expected a dense model, not {}", job.shape.name));
  }
}

void refuse_adapters(const Job& job, std::string_view why) {
  if (job.shape.adapters.any()) {
    throw InputError(
        {}, fmt::format("{} does not run with lora_rank: {}", job.plan->name, why),
        "expected native, zero2-offload, fsdp2-offload, torchao-offload or, in memory, "
        "zero3-offload");
  }
}

void refuse_activation_offload(const Job& job, std::string_view why) {
  if (job.workload.activation_offload != ActivationOffload::kNone) {
    throw InputError(
        {}, fmt::format("{} does not run with activation_offload: {}", job.plan->name, why),
        "expected native, zero2-offload, fsdp2-offload or torchao-offload");
  }
}

void refuse_int8(const Job& job) {
  if (job.shape.adapters.base == model::Base::kInt8) {
    throw InputError({}, fmt::format("{} does not shard an int8 base", job.plan->name),
                     "expected base 16-bit, nf4 or nf4-double");
  }
}

void require_drive(const Job& job, std::string_view option) {
  if (job.machine.drives.empty()) {
    throw InputError(option.empty() ? Place{} : job.options.place(option),
                     fmt::format("{} has no drive", job.machine.name),
                     option.empty() ? "expected a machine with one"
                                    : "expected a machine with one, or offload to cpu");
  }
}

bool without_effect(const std::vector<std::string>& warnings, std::string_view setting) {
  const std::string said = fmt::format("{} has no effect", setting);
  return std::ranges::any_of(warnings, [&said](const std::string& warning) {
    const std::size_t at = warning.find(said);  // after a plan's name or place, or alone
    return at != std::string::npos && (at == 0 || warning[at - 1] == '.' || warning[at - 1] == ' ');
  });
}

void warn_without_effect(std::vector<std::string>& warnings, const Job& job, std::string_view why,
                         std::initializer_list<std::string_view> options) {
  for (const std::string_view option : options) {
    if (job.options.given(option)) {
      warnings.push_back(fmt::format("{}.{} has no effect: {}", job.plan->name, option, why));
    }
  }
}

}  // namespace offsim::plans
