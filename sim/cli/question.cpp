#include "sim/cli/question.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/quantity.h"
#include "sim/plans/plan.h"
#include "sim/study/limits.h"

namespace offsim::cli {

using study::Given;
using study::on_command_line;

namespace {

std::vector<study::GivenPlan> plans_of(const std::string& list) {
  std::vector<study::GivenPlan> plans;
  if (list == "all") {
    for (const plans::Plan& plan : plans::registry()) {
      plans.push_back({on_command_line(std::string(plan.name)), {}, {}});
    }
    return plans;
  }
  for (Given& name : names_of("--plans", list)) {
    plans::find_plan(name.text, name.place);
    plans.push_back({std::move(name), {}, {}});
  }
  return plans;
}

// plan.knob=value, for every plan of that name.
void set_option(const std::string& text, std::vector<study::GivenPlan>& plans) {
  const std::size_t equals = text.find('=');
  const std::size_t dot = text.substr(0, equals).find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot == 0 || dot + 1 == equals) {
    throw InputError(kCommandLine, fmt::format("--set '{}' sets nothing", text),
                     "expected PLAN.OPTION=VALUE, such as megatrain.checkpoint_interval=4");
  }
  const std::string plan = text.substr(0, dot);
  const std::string option = text.substr(dot + 1, equals - dot - 1);
  bool found = false;
  std::vector<std::string> names;
  for (study::GivenPlan& candidate : plans) {
    names.push_back(candidate.name.text);
    if (candidate.name.text == plan) {
      found = true;
      candidate.options.emplace_back(on_command_line(option),
                                     on_command_line(text.substr(equals + 1)));
    }
  }
  if (!found) {
    throw InputError(kCommandLine, fmt::format("--set {} is of a plan that does not run", text),
                     suggest(plan, names));
  }
}

// As a POSIX shell reads it back.
std::string quoted(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("._-/=,:+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) {
    return text;
  }
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
  }
  return out + "'";
}

std::string machine_flags(const Named& named) {
  std::string out =
      fmt::format("--model {} --hardware {}", quoted(named.model), quoted(named.hardware));
  return named.catalog ? out + " --catalog " + quoted(*named.catalog) : out;
}

std::string work_flags(const plans::Job& job) {
  const plans::Workload& work = job.workload;
  const plans::Workload usual;
  std::string out = fmt::format(" --micro-batch {}", work.micro_batch);
  if (work.sequence != usual.sequence) {
    out += fmt::format(" --sequence {}", work.sequence);
  }
  if (work.accumulation != usual.accumulation) {
    out += fmt::format(" --accumulation {}", work.accumulation);
  }
  if (work.gpus != usual.gpus) {
    out += fmt::format(" --gpus {}", work.gpus);
  }
  if (work.checkpointing != usual.checkpointing) {
    out += fmt::format(" --checkpointing {}", plans::to_string(work.checkpointing));
  }
  if (work.activation_offload != usual.activation_offload) {
    out += fmt::format(" --activation-offload {}", plans::to_string(work.activation_offload));
  }
  if (work.precision != usual.precision) {
    out += fmt::format(" --precision {}", plans::to_string(work.precision));
  }
  if (work.loader_workers != usual.loader_workers) {
    out += fmt::format(" --loader-workers {}", work.loader_workers);
  }
  if (work.loader_bandwidth != usual.loader_bandwidth) {
    out += fmt::format(" --loader-bandwidth {}GB/s", work.loader_bandwidth.value / 1e9);
  }
  if (const model::Adapters& adapters = job.shape.adapters; adapters.any()) {
    out += fmt::format(" --lora-rank {} --lora-targets {}", adapters.rank,
                       model::to_string(adapters.targets));
    if (adapters.base != model::Base::k16Bit) {
      out += fmt::format(" --base {}", model::to_string(adapters.base));
    }
  }
  return work.phase_sync ? out + " --phase-sync" : out;
}

}  // namespace

study::Catalog open_catalog(const std::optional<std::string>& folder) {
  return folder ? study::Catalog::folder(*folder) : study::Catalog::embedded();
}

study::Scenario scenario_of(const std::string& model, const std::string& machines,
                            const std::string& plans, const WorkFlags& flags) {
  study::Scenario scenario;
  scenario.models = {on_command_line(model)};
  scenario.machines = names_of("--hardware", machines);
  scenario.plans = plans_of(plans);
  for (const std::string& text : flags.set) {
    set_option(text, scenario.plans);
  }
  const auto give = [](const std::optional<std::string>& flag) -> std::optional<Given> {
    return flag ? std::optional(on_command_line(*flag)) : std::nullopt;
  };
  scenario.workload = {give(flags.micro_batch),
                       give(flags.micro_batch_limit),
                       give(flags.sequence),
                       give(flags.accumulation),
                       give(flags.checkpointing),
                       give(flags.precision),
                       std::nullopt,
                       give(flags.loader_workers),
                       give(flags.loader_bandwidth),
                       give(flags.lora_rank),
                       give(flags.lora_targets),
                       give(flags.base),
                       give(flags.activation_offload),
                       give(flags.gpus)};
  if (flags.phase_sync) {
    scenario.workload.phase_sync = on_command_line("true");
  }
  return scenario;
}

study::Case only_case(const study::Catalog& catalog, const study::Scenario& scenario,
                      std::string_view command, std::string expected) {
  if (scenario.plans.size() != 1 || scenario.machines.size() != 1) {
    throw InputError(kCommandLine, fmt::format("{} takes one plan and one machine", command),
                     std::move(expected));
  }
  return std::move(study::cases(catalog, scenario).front());
}

std::vector<Given> names_of(const std::string& flag, const std::string& list) {
  std::vector<Given> names;
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t comma = std::min(list.find(',', from), list.size());
    names.push_back(on_command_line(list.substr(from, comma - from)));
    if (std::ranges::count(names, names.back().text, &Given::text) > 1) {
      throw InputError(kCommandLine, fmt::format("{} names {} twice", flag, names.back().text),
                       "expected each once");
    }
    if (names.back().text.empty()) {
      throw InputError(kCommandLine, fmt::format("{} '{}' has an empty name", flag, list),
                       "expected names separated by commas");
    }
    from = comma + 1;
  }
  return names;
}

std::optional<double> tokens_of(const std::optional<std::string>& flag) {
  if (!flag) {
    return std::nullopt;
  }
  const Place place{"command line: --tokens", 0, 0};
  const double tokens = parse_count(*flag, place);
  if (tokens < 1) {
    throw InputError(place, fmt::format("'{}' is no budget", *flag),
                     "expected at least 1, such as 10M");
  }
  return tokens;
}

std::optional<UsdPerHour> price_of(const std::optional<std::string>& flag) {
  return flag ? std::optional(parse_price(*flag, {"command line: --price", 0, 0})) : std::nullopt;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    out += (out.empty() ? "" : " ") + quoted(word);
  }
  return out;
}

std::string predict_command(const Named& named, const plans::Job& job) {
  std::string out = fmt::format("offsim predict {} --plan {}{}", machine_flags(named),
                                job.plan->name, work_flags(job));
  for (const plans::OptionSpec& spec : job.plan->options) {
    if (job.options.given(spec.name)) {
      out += fmt::format(" --set {}.{}={}", job.plan->name, spec.name,
                         quoted(job.options.text(spec.name)));
    }
  }
  return out;
}

std::string compare_command(const Named& named, const plans::Job& job) {
  return fmt::format("offsim compare {} --plans all{}", machine_flags(named), work_flags(job));
}

std::string with_largest(std::string command, const plans::Job& job) {
  const std::string flag = fmt::format("--micro-batch {}", job.workload.micro_batch);
  const std::size_t at = command.rfind(flag);
  SIM_ASSERT(at != std::string::npos, "a command names its micro-batch");
  return command.replace(at, flag.size(),
                         study::can_be_searched(job) ? "--micro-batch largest" : "--micro-batch 1");
}

}  // namespace offsim::cli
