// From what a scenario says to jobs: every combination, checked before the first step is simulated.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/base/quantity.h"
#include "sim/plans/plan.h"
#include "sim/study/limits.h"
#include "sim/study/predict.h"
#include "sim/study/scenario.h"

namespace offsim::study {

namespace {

constexpr double kMostCases = 10'000;

bool is_largest(const GivenWorkload& w) {
  return w.micro_batch && w.micro_batch->text == "largest";
}

// Later values win: the scenario's, then the sweep's, then the plan's own. A limit goes with the
// `largest` that it was given beside.
GivenWorkload merge(GivenWorkload base, const GivenWorkload& over) {
  if (over.micro_batch && !is_largest(over)) {
    base.micro_batch_limit.reset();
  }
  for (const auto& [key, field] : workload_fields()) {
    if (over.*field) {
      base.*field = over.*field;
    }
  }
  return base;
}

Node scalar(const Given& g) {
  return {.kind = Node::Kind::kScalar, .place = g.place, .scalar = g.text, .quoted = g.quoted};
}

std::int64_t whole(const Given& g, std::string_view name, std::int64_t least, std::int64_t most) {
  return to_integer(scalar(g), least, most, name);
}

BytesPerSecond bandwidth(const Given& g, std::string_view name) {
  try {
    return parse_bandwidth(g.text, g.place);
  } catch (const InputError&) {  // its message has no name, which the command line has not either
    throw InputError(g.place, fmt::format("{} is '{}'", name, g.text),
                     "expected a bandwidth such as '2 GB/s'");
  }
}

template <class Enum>
Enum choice(const Given& g, std::string_view name, const std::vector<Enum>& values) {
  using model::to_string;
  using plans::to_string;
  std::vector<std::string> names;
  for (const Enum value : values) {
    names.emplace_back(to_string(value));
    if (names.back() == g.text) {
      return value;
    }
  }
  throw InputError(g.place, fmt::format("{} is '{}'", name, g.text), suggest(g.text, names));
}

// Every effective value with its origin.
void note_origins(const GivenWorkload& w, const plans::Workload& out, Origins& origins) {
  const auto note = [&](std::string_view name, const std::optional<Given>& g, std::string value) {
    origins.push_back({fmt::format("workload.{}", name), std::move(value), g ? g->place : Place{}});
  };
  note("micro_batch", w.micro_batch, is_largest(w) ? "largest" : std::to_string(out.micro_batch));
  note("sequence", w.sequence, std::to_string(out.sequence));
  note("accumulation", w.accumulation, std::to_string(out.accumulation));
  note("gpus", w.gpus, std::to_string(out.gpus));
  note("checkpointing", w.checkpointing, std::string(plans::to_string(out.checkpointing)));
  note("activation_offload", w.activation_offload,
       std::string(plans::to_string(out.activation_offload)));
  note("precision", w.precision, std::string(plans::to_string(out.precision)));
  note("phase_sync", w.phase_sync, out.phase_sync ? "true" : "false");
  note("loader_workers", w.loader_workers, std::to_string(out.loader_workers));
  note("loader_bandwidth", w.loader_bandwidth, show(out.loader_bandwidth));
}

// Applies what was given.
plans::Workload effective(const GivenWorkload& w, Origins& origins) {
  using plans::ActivationOffload;
  using plans::Checkpointing;
  using plans::Precision;
  plans::Workload out;
  if (w.micro_batch && !is_largest(w)) {
    if (!nearest(w.micro_batch->text, {"largest"}).empty()) {
      throw InputError(w.micro_batch->place,
                       fmt::format("micro_batch is '{}'", w.micro_batch->text),
                       "did you mean 'largest'?");
    }
    out.micro_batch = whole(*w.micro_batch, "micro_batch", 1, kMostBatch);
  }
  if (w.sequence) {
    out.sequence = whole(*w.sequence, "sequence", 1, kMostSequence);
  }
  if (w.accumulation) {
    out.accumulation = whole(*w.accumulation, "accumulation", 1, kMostAccumulation);
  }
  if (w.gpus) {
    out.gpus = whole(*w.gpus, "gpus", 1, kMostGpus);
  }
  if (w.checkpointing) {
    out.checkpointing = choice<Checkpointing>(*w.checkpointing, "checkpointing",
                                              {Checkpointing::kNone, Checkpointing::kFull});
  }
  if (w.activation_offload) {
    out.activation_offload = choice<ActivationOffload>(
        *w.activation_offload, "activation_offload",
        {ActivationOffload::kNone, ActivationOffload::kSaveOnCpu,
         ActivationOffload::kSaveOnCpuPinned, ActivationOffload::kStreamed});
  }
  if (w.precision) {
    out.precision = choice<Precision>(
        *w.precision, "precision",
        {Precision::kBf16Mixed, Precision::kBf16, Precision::kFp16Mixed, Precision::kFp32});
  }
  if (w.phase_sync) {
    out.phase_sync = to_boolean(scalar(*w.phase_sync), "phase_sync");
  }
  if (w.loader_workers) {
    out.loader_workers = whole(*w.loader_workers, "loader_workers", 0, kMostWorkers);
  }
  if (w.loader_bandwidth) {
    out.loader_bandwidth = bandwidth(*w.loader_bandwidth, "loader_bandwidth");
  }
  if (out.micro_batch > kMostTokens / out.sequence / out.accumulation) {
    throw InputError(w.micro_batch ? w.micro_batch->place : w.sequence->place,
                     "a step has more than 1e12 tokens",
                     "expected a smaller micro_batch, sequence or accumulation");
  }
  note_origins(w, out, origins);
  return out;
}

// The adapters that the work puts on the model.
model::Adapters adapters(const GivenWorkload& w, Origins& origins) {
  using model::AdapterTargets;
  using model::Base;
  model::Adapters out;
  if (w.lora_rank) {
    out.rank = whole(*w.lora_rank, "lora_rank", 0, kMostRank);
  }
  const auto need_rank = [&](const Given& g, const char* name) {
    if (!out.any()) {
      throw InputError(g.place, fmt::format("{} has no effect", name),
                       "expected a lora_rank beside it");
    }
  };
  if (w.lora_targets) {
    out.targets = choice<AdapterTargets>(
        *w.lora_targets, "lora_targets",
        {AdapterTargets::kQueryValue, AdapterTargets::kAttention, AdapterTargets::kAllLinear});
    need_rank(*w.lora_targets, "lora_targets");
  }
  if (w.base) {
    out.base =
        choice<Base>(*w.base, "base", {Base::k16Bit, Base::kInt8, Base::kNf4, Base::kNf4Double});
    need_rank(*w.base, "base");
  }
  const auto note = [&](const char* name, const std::optional<Given>& g, std::string value) {
    origins.push_back({name, std::move(value), g ? g->place : Place{}});
  };
  note("workload.lora_rank", w.lora_rank, std::to_string(out.rank));
  if (out.any()) {
    note("workload.lora_targets", w.lora_targets, std::string(model::to_string(out.targets)));
    note("workload.base", w.base, std::string(model::to_string(out.base)));
  }
  return out;
}

std::optional<Published> published_for(const Scenario& s, const Case& c) {
  for (const Published& p : s.published) {
    std::string variant;
    for (const Origin& origin : c.job.options.origins()) {
      if (origin.name == p.plan + ".variant") {
        variant = origin.value;
      }
    }
    if (p.model == c.model && p.plan == c.job.plan->name &&
        (p.variant.empty() || p.variant == variant)) {
      return p;
    }
  }
  return std::nullopt;
}

WorkloadField sweep_field(const Given& key) {
  std::vector<std::string> names;
  for (const auto& [name, field] : workload_fields()) {
    if (name == key.text) {
      return field;
    }
    names.push_back(name);
  }
  throw InputError(key.place, fmt::format("sweep has no key '{}'", key.text),
                   suggest(key.text, names));
}

// A value that the sweep sets and something else too would be without effect on one side.
void refuse_set_twice(const Scenario& s) {
  for (const auto& [key, values] : s.sweep) {
    const WorkloadField field = sweep_field(key);
    const auto refuse = [&, &name = key.text](const GivenWorkload& w, const std::string& who) {
      if (w.*field) {
        throw InputError((w.*field)->place, fmt::format("{} sets {}, as the sweep does", who, name),
                         "expected only one of them to");
      }
    };
    refuse(s.workload, "the workload");
    for (const GivenPlan& plan : s.plans) {
      refuse(plan.workload, "plan " + plan.name.text);
    }
  }
}

// The combinations of the sweep: for each key one value.
std::vector<GivenWorkload> swept(const Scenario& s) {
  std::vector<GivenWorkload> all{s.workload};
  for (const auto& [key, values] : s.sweep) {
    const WorkloadField field = sweep_field(key);
    std::vector<GivenWorkload> next;
    for (const GivenWorkload& base : all) {
      for (const Given& value : values) {
        GivenWorkload over;
        over.*field = value;
        next.push_back(merge(base, over));
      }
    }
    all = std::move(next);
  }
  return all;
}

std::int64_t most_micro_batches(const GivenWorkload& w) {
  return w.micro_batch_limit ? whole(*w.micro_batch_limit, "micro_batch_limit", 1, kMostBatch)
                             : kMostBatch;
}

// What PEFT has no adapters for, or more than are modelled: "all-linear" is for it what it was in
// transformers 4, where a mixture's experts and router were Linears (_convert_peft_config_moe).
void refuse_adapters_of(const model::Shape& shape, const GivenWorkload& given) {
  using model::AdapterTargets;
  if (!shape.adapters.any()) {
    return;
  }
  const Place targets = given.lora_targets ? given.lora_targets->place : given.lora_rank->place;
  const std::string_view architecture = model::to_string(shape.architecture);
  if (shape.latent && shape.adapters.targets == AdapterTargets::kQueryValue) {
    throw InputError(targets, fmt::format("{} has no v_proj for lora_targets", architecture),
                     "expected lora_targets attention");
  }
  if (shape.has_experts() && shape.architecture != model::Architecture::kGptOss &&
      shape.adapters.targets == AdapterTargets::kAllLinear) {
    throw InputError(targets,
                     fmt::format("all-linear adapts the experts of {} too (PEFT 0.20), which is "
                                 "not modelled",
                                 architecture),
                     shape.latent ? "expected lora_targets attention"
                                  : "expected lora_targets query-value or attention");
  }
  if (shape.architecture == model::Architecture::kDeepseekV2 &&
      shape.adapters.base != model::Base::k16Bit) {
    throw InputError(given.base->place,
                     "the router of deepseek_v2 is a Linear, and its quantised weight is read as "
                     "numbers",
                     "expected base 16-bit");
  }
}

// In floating point, because the exact count could overflow.
void refuse_absurd_adapters(const model::Shape& shape, const GivenWorkload& given) {
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  const double latent = shape.latent ? d(shape.latent->q_rank) + d(shape.latent->kv_rank) : 0;
  const double widths = 7 * d(shape.hidden) + 2 * d(shape.query_width()) + 2 * d(shape.kv_width()) +
                        2 * d(shape.value_width()) + 2 * latent + 3 * d(widest_ffn(shape));
  const double most = d(shape.layers) * d(shape.adapters.rank) * widths;
  if (most > model::kMostParameters) {
    throw InputError(given.lora_rank->place,
                     fmt::format("adapters of that rank have up to {:.3g} parameters", most),
                     fmt::format("expected at most {:g}", model::kMostParameters));
  }
}

// A step that is too large is refused. Returns its share of the largest that is not.
double check_size(const model::Shape& shape, const plans::Workload& w, const GivenWorkload& given,
                  const Place& model) {
  const auto place = [&](const std::optional<Given>& g) { return g ? g->place : model; };
  const StepSize size = step_size(shape, w);
  const bool search = is_largest(given);
  const double steps = search ? kSearchSteps : 1;
  const auto refuse_above = [&](double count, double most, const char* has, const Place& at) {
    const double allowed = search ? kMostOfSearch * most : most;
    if (count > allowed) {
      const char* what = search ? "the search for the largest micro-batch" : "a step";
      throw InputError(at, fmt::format("{} has {} {}", what, with_commas(count), has),
                       fmt::format("expected at most {}", with_commas(allowed)));
    }
  };
  refuse_above(steps * size.passes, kMostPasses,
               size.weight > 1
                   ? "passes of a layer, counted more than once for what is saved or adapted"
                   : "passes of a layer",
               place(given.accumulation));
  refuse_above(steps * size.positions, kMostPositions, "positions",
               place(given.sequence ? given.sequence : given.accumulation));
  if (size.bytes > kMostBytes) {
    throw InputError(place(given.micro_batch ? given.micro_batch : given.sequence),
                     "a micro-batch has more than 1e18 bytes of activations",
                     "expected a smaller micro_batch or sequence");
  }
  return steps * size.share();
}

struct Made {
  Case c;
  GivenWorkload work;
  double size;  // as check_size() says
};

Made make_case(const Scenario& s, const GivenPlan& plan, const GivenWorkload& work,
               const model::Shape& shape, const machine::Machine& machine, const Place& model) {
  const plans::Plan& found = plans::find_plan(plan.name.text, plan.name.place);
  Case c{plans::Job{shape, {}, machine, &found, plans::Options(found.options, found.name)},
         {},
         {},
         false,
         std::nullopt,
         {},
         plan.name.place};
  for (const auto& [name, value] : plan.options) {
    c.job.options.set(name.text, value.text, value.place, value.quoted);
  }
  const GivenWorkload merged = merge(work, plan.workload);
  c.job.workload = effective(merged, c.origins);
  c.job.shape.adapters = adapters(merged, c.origins);
  refuse_adapters_of(c.job.shape, merged);
  refuse_absurd_adapters(c.job.shape, merged);
  const double size = check_size(c.job.shape, c.job.workload, merged, model);
  if (shape.positions > 0 && c.job.workload.sequence > shape.max_sequence) {
    throw InputError(
        merged.sequence ? merged.sequence->place : model,
        fmt::format("sequence is {}", c.job.workload.sequence),
        fmt::format("expected at most the {} positions of {}", shape.max_sequence, shape.name));
  }
  c.largest = is_largest(merged);
  for (const Origin& origin : c.job.options.origins()) {
    c.origins.push_back(origin);
  }
  c.model = shape.name;
  c.hardware = machine.name;
  c.published = published_for(s, c);
  return {std::move(c), merged, size};
}

// A limit that no search has, a published figure that stands beside no case.
void refuse_unused(const Scenario& s, const std::vector<Made>& made) {
  const auto refuse_limit = [&](const std::optional<Given>& limit) {
    if (limit && std::ranges::none_of(made, [&](const Made& m) {
          return m.c.largest && m.work.micro_batch_limit &&
                 m.work.micro_batch_limit->place == limit->place;
        })) {
      throw InputError(limit->place, "micro_batch_limit has no effect",
                       "expected micro_batch: largest beside it");
    }
  };
  refuse_limit(s.workload.micro_batch_limit);
  for (const GivenPlan& plan : s.plans) {
    refuse_limit(plan.workload.micro_batch_limit);
  }
  for (const auto& [key, values] : s.sweep) {
    for (const Given& value : values) {
      refuse_limit(key.text == "micro_batch_limit" ? std::optional(value) : std::nullopt);
    }
  }
  for (const Published& p : s.published) {
    if (std::ranges::none_of(made, [&](const Made& m) {
          return m.c.published && m.c.published->place == p.place;
        })) {
      throw InputError(p.place, "this published figure stands beside no case",
                       "expected the model, plan and variant of one, once");
    }
  }
}

// A step may take ten seconds to simulate, and a scenario has many.
void refuse_too_much(const Scenario& s, const std::vector<Made>& made) {
  constexpr double kMostSize = 100;
  double size = 0;
  for (const Made& m : made) {
    size += m.size;
  }
  if (size > kMostSize) {
    throw InputError(s.sweep.empty() ? s.models.front().place : s.sweep.front().first.place,
                     fmt::format("the scenario is {:.3g} times as large as the largest step that "
                                 "is simulated",
                                 size),
                     fmt::format("expected at most {} times", kMostSize));
  }
}

void search_largest(Case& c, std::int64_t most) {
  try {
    c.job.workload.micro_batch = std::max<std::int64_t>(1, largest_micro_batch(c.job, most));
  } catch (const InputError&) {
    c.job.workload.micro_batch = 1;  // what the plan refuses, its prediction refuses again
  }
}

}  // namespace

std::vector<Case> cases(const Catalog& catalog, const Scenario& s, const Progress& done) {
  refuse_set_twice(s);
  double count = static_cast<double>(s.models.size() * s.machines.size() * s.plans.size());
  for (const auto& [key, values] : s.sweep) {
    count *= static_cast<double>(values.size());
  }
  if (count > kMostCases) {
    throw InputError(s.sweep.empty() ? s.models.front().place : s.sweep.front().first.place,
                     fmt::format("the scenario has {} cases", with_commas(count)),
                     fmt::format("expected at most {}", with_commas(kMostCases)));
  }
  const std::vector<GivenWorkload> works = swept(s);
  std::map<std::string, machine::Machine> machines;
  for (const Given& hardware : s.machines) {
    machines.emplace(hardware.text, catalog.machine(hardware.text, hardware.place));
  }
  std::vector<Made> made;
  for (const Given& model : s.models) {
    const model::Shape shape = catalog.model(model.text, model.place);
    for (const Given& hardware : s.machines) {
      for (const GivenWorkload& work : works) {
        for (const GivenPlan& plan : s.plans) {
          made.push_back(make_case(s, plan, work, shape, machines.at(hardware.text), model.place));
        }
      }
    }
  }
  refuse_unused(s, made);
  refuse_too_much(s, made);
  std::vector<Case> out;
  for (Made& m : made) {
    if (m.c.largest) {
      search_largest(m.c, most_micro_batches(m.work));
    }
    out.push_back(std::move(m.c));
    if (done) {
      done(out.size(), made.size());
    }
  }
  return out;
}

}  // namespace offsim::study
