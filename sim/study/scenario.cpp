#include "sim/study/scenario.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "sim/base/quantity.h"
#include "sim/plans/plan.h"
#include "sim/study/predict.h"

namespace offsim::study {

namespace {

constexpr std::int64_t kMostBatch = 1'000'000;
constexpr std::int64_t kMostSequence = 100'000'000;
constexpr std::int64_t kMostTokens = 1'000'000'000'000;  // a step
constexpr std::int64_t kMostAccumulation = 4096;
constexpr std::size_t kMostCases = 10'000;

Given given(const Node& node, std::string_view what) { return {to_text(node, what), node.place}; }

// A scalar or a list of scalars.
std::vector<Given> list_of(const Node& node, std::string_view what) {
  std::vector<Given> out;
  if (node.kind == Node::Kind::kList) {
    for (const Node& item : node.items) {
      out.push_back(given(item, what));
    }
  } else {
    out.push_back(given(node, what));
  }
  if (out.empty()) {
    throw InputError(node.place, fmt::format("{} is an empty list", what), "expected at least one");
  }
  return out;
}

using Field = std::optional<Given> GivenWorkload::*;

const std::vector<std::pair<std::string, Field>>& workload_fields() {
  static const std::vector<std::pair<std::string, Field>> kFields{
      {"micro_batch", &GivenWorkload::micro_batch},
      {"micro_batch_limit", &GivenWorkload::micro_batch_limit},
      {"sequence", &GivenWorkload::sequence},
      {"accumulation", &GivenWorkload::accumulation},
      {"checkpointing", &GivenWorkload::checkpointing},
      {"precision", &GivenWorkload::precision},
      {"phase_sync", &GivenWorkload::phase_sync}};
  return kFields;
}

// The options of a plan's map; `reserved` keys are not options.
GivenPlan read_plan_options(const Node& map, Given name) {
  GivenPlan plan{std::move(name), {}, {}};
  if (map.kind == Node::Kind::kNull) {
    return plan;
  }
  if (map.kind != Node::Kind::kMap) {
    throw InputError(map.place, fmt::format("options of plan {} are not a map", plan.name.text),
                     "expected {option: value, ...}");
  }
  for (std::size_t i = 0; i < map.keys.size(); ++i) {
    if (map.keys[i] == "workload") {
      plan.workload = read_given_workload(View(map.items[i], "workload"));
    } else if (map.keys[i] != "plan") {
      plan.options.emplace_back(Given{map.keys[i], map.key_places[i]},
                                given(map.items[i], map.keys[i]));
    }
  }
  return plan;
}

std::vector<GivenPlan> read_plans(const Node& node) {
  std::vector<GivenPlan> plans;
  switch (node.kind) {
    case Node::Kind::kMap:
      for (std::size_t i = 0; i < node.keys.size(); ++i) {
        plans.push_back(read_plan_options(node.items[i], {node.keys[i], node.key_places[i]}));
      }
      break;
    case Node::Kind::kList:
      for (const Node& item : node.items) {
        plans.push_back(read_given_plan(item));
      }
      break;
    default:
      plans.push_back({given(node, "plans"), {}, {}});
  }
  if (plans.empty()) {
    throw InputError(node.place, "no plan is named", "expected at least one");
  }
  return plans;
}

Published read_published(const Node& node) {
  View map(node, "published");
  Published p;
  p.model = map.text("model");
  p.plan = map.text("plan");
  p.variant = map.text("variant", "");
  p.tflops = map.number("tflops");
  p.from = map.text("from");
  map.finish();
  return p;
}

// Later values win: the scenario's, then the plan's own.
GivenWorkload merge(GivenWorkload base, const GivenWorkload& over) {
  for (const auto& [key, field] : workload_fields()) {
    if (over.*field) {
      base.*field = over.*field;
    }
  }
  return base;
}

std::int64_t whole(const Given& g, std::string_view name, std::int64_t least, std::int64_t most) {
  Node node;
  node.kind = Node::Kind::kScalar;
  node.place = g.place;
  node.scalar = g.text;
  return to_integer(node, least, most, name);
}

template <class Enum>
Enum choice(const Given& g, std::string_view name, const std::vector<Enum>& values) {
  std::vector<std::string> names;
  for (const Enum value : values) {
    names.emplace_back(plans::to_string(value));
    if (names.back() == g.text) {
      return value;
    }
  }
  throw InputError(g.place, fmt::format("{} is '{}'", name, g.text), suggest(g.text, names));
}

bool is_largest(const GivenWorkload& w) {
  return w.micro_batch && w.micro_batch->text == "largest";
}

// Applies what was given and notes every effective value with its origin.
plans::Workload effective(const GivenWorkload& w, Origins& origins) {
  using plans::Checkpointing;
  using plans::Precision;
  plans::Workload out;
  if (w.micro_batch && !is_largest(w)) {
    out.micro_batch = whole(*w.micro_batch, "micro_batch", 1, kMostBatch);
  }
  if (w.sequence) {
    out.sequence = whole(*w.sequence, "sequence", 1, kMostSequence);
  }
  if (w.accumulation) {
    out.accumulation = whole(*w.accumulation, "accumulation", 1, kMostAccumulation);
  }
  if (w.checkpointing) {
    out.checkpointing = choice<Checkpointing>(*w.checkpointing, "checkpointing",
                                              {Checkpointing::kNone, Checkpointing::kFull});
  }
  if (w.precision) {
    out.precision = choice<Precision>(
        *w.precision, "precision",
        {Precision::kBf16Mixed, Precision::kBf16, Precision::kFp16Mixed, Precision::kFp32});
  }
  if (w.phase_sync) {
    Node node;
    node.kind = Node::Kind::kScalar;
    node.place = w.phase_sync->place;
    node.scalar = w.phase_sync->text;
    out.phase_sync = to_boolean(node, "phase_sync");
  }
  if (out.micro_batch > kMostTokens / out.sequence / out.accumulation) {
    throw InputError(w.micro_batch ? w.micro_batch->place : w.sequence->place,
                     "a step has more than 1e12 tokens",
                     "expected a smaller micro_batch, sequence or accumulation");
  }
  const auto note = [&](std::string_view name, const std::optional<Given>& g, std::string value) {
    origins.push_back({fmt::format("workload.{}", name), std::move(value), g ? g->place : Place{}});
  };
  note("micro_batch", w.micro_batch, is_largest(w) ? "largest" : std::to_string(out.micro_batch));
  note("sequence", w.sequence, std::to_string(out.sequence));
  note("accumulation", w.accumulation, std::to_string(out.accumulation));
  note("checkpointing", w.checkpointing, std::string(plans::to_string(out.checkpointing)));
  note("precision", w.precision, std::string(plans::to_string(out.precision)));
  note("phase_sync", w.phase_sync, out.phase_sync ? "true" : "false");
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

// The combinations of the sweep: for each key one value.
std::vector<GivenWorkload> swept(const Scenario& s) {
  std::vector<GivenWorkload> all{s.workload};
  for (const auto& [key, values] : s.sweep) {
    Field field = nullptr;
    std::vector<std::string> names;
    for (const auto& [name, candidate] : workload_fields()) {
      names.push_back(name);
      field = name == key.text ? candidate : field;
    }
    if (field == nullptr) {
      throw InputError(key.place, fmt::format("sweep has no key '{}'", key.text),
                       suggest(key.text, names));
    }
    std::vector<GivenWorkload> next;
    for (const GivenWorkload& base : all) {
      for (const Given& value : values) {
        next.push_back(base);
        next.back().*field = value;
      }
    }
    all = std::move(next);
  }
  return all;
}

// A step that would take more memory to simulate than a computer has, or whose bytes 64 bits cannot
// count, is refused.
void check_size(const model::Shape& shape, const plans::Workload& w, const GivenWorkload& given) {
  constexpr std::int64_t kMostPasses = 50'000;          // of a layer, in a step
  constexpr std::int64_t kMostPositions = 100'000'000;  // of all micro-batches of a step
  constexpr double kMostBytes = 1e18;                   // of one micro-batch's activations
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  const Place at = given.accumulation ? given.accumulation->place
                                      : (given.sequence ? given.sequence->place : Place{});
  if (shape.layers > kMostPasses / w.accumulation) {
    throw InputError(at,
                     fmt::format("a step passes {} layers {} times", shape.layers, w.accumulation),
                     fmt::format("expected at most {} passes", kMostPasses));
  }
  if (w.sequence > kMostPositions / w.accumulation) {
    throw InputError(at, fmt::format("a step has {} x {} positions", w.sequence, w.accumulation),
                     fmt::format("expected at most {}", kMostPositions));
  }
  const double a_token =
      d(shape.layers) * (64 * d(shape.hidden + shape.query_width()) + 32 * d(shape.ffn)) +
      32 * d(shape.vocabulary);
  if (a_token * d(w.micro_batch) * d(w.sequence) > kMostBytes) {
    throw InputError(given.micro_batch ? given.micro_batch->place : at,
                     "a micro-batch has more than 1e18 bytes of activations",
                     "expected a smaller micro_batch or sequence");
  }
}

Case make_case(const Scenario& s, const GivenPlan& plan, const GivenWorkload& work,
               const model::Shape& shape, const machine::Machine& machine) {
  const plans::Plan& found = plans::find_plan(plan.name.text, plan.name.place);
  Case c{plans::Job{shape, {}, machine, &found, plans::Options(found.options, found.name)},
         {},
         {},
         false,
         std::nullopt,
         {}};
  for (const auto& [name, value] : plan.options) {
    c.job.options.set(name.text, value.text, value.place);
  }
  const GivenWorkload merged = merge(work, plan.workload);
  c.job.workload = effective(merged, c.origins);
  check_size(shape, c.job.workload, merged);
  if (shape.positions > 0 && c.job.workload.sequence > shape.positions) {
    throw InputError(merged.sequence ? merged.sequence->place : Place{},
                     fmt::format("sequence is {}", c.job.workload.sequence),
                     fmt::format("{} has {} positions", shape.name, shape.positions));
  }
  c.largest = is_largest(merged);
  if (c.largest) {
    const std::int64_t most = merged.micro_batch_limit
                                  ? whole(*merged.micro_batch_limit, "micro_batch_limit", 1, 65536)
                                  : 1024;
    try {
      c.job.workload.micro_batch = std::max<std::int64_t>(1, largest_micro_batch(c.job, most));
    } catch (const InputError&) {
      c.job.workload.micro_batch = 1;  // what the plan refuses, its prediction refuses again
    }
  } else if (merged.micro_batch_limit) {
    throw InputError(merged.micro_batch_limit->place, "micro_batch_limit has no effect",
                     "expected micro_batch: largest beside it");
  }
  for (const Origin& origin : c.job.options.origins()) {
    c.origins.push_back(origin);
  }
  c.model = shape.name;
  c.hardware = machine.name;
  c.published = published_for(s, c);
  return c;
}

}  // namespace

GivenWorkload read_given_workload(View map) {
  GivenWorkload workload;
  for (const auto& [key, field] : workload_fields()) {
    if (const Node* node = map.get(key)) {
      workload.*field = given(*node, key);
    }
  }
  map.finish();
  return workload;
}

GivenPlan read_given_plan(const Node& node) {
  if (node.kind != Node::Kind::kMap) {
    return {given(node, "plan"), {}, {}};
  }
  const Node* name = node.find("plan");
  if (name == nullptr) {
    throw InputError(node.place, "this plan has no name", "expected {plan: NAME, ...}");
  }
  return read_plan_options(node, given(*name, "plan"));
}

Given on_command_line(std::string text) { return {std::move(text), {"command line", 0, 0}}; }

Scenario read_scenario(const Node& document, const std::string& name) {
  View map(document, "scenario");
  Scenario s;
  s.title = map.text("title", name);
  s.models = list_of(map.need("model"), "model");
  s.machines = list_of(map.need("hardware"), "hardware");
  s.plans = read_plans(map.need("plans"));
  if (auto workload = map.find_map("workload")) {
    s.workload = read_given_workload(*workload);
  }
  if (const Node* sweep = map.get("sweep")) {
    if (sweep->kind != Node::Kind::kMap) {
      throw InputError(sweep->place, "sweep is not a map", "expected {micro_batch: [8, 16], ...}");
    }
    for (std::size_t i = 0; i < sweep->keys.size(); ++i) {
      s.sweep.emplace_back(Given{sweep->keys[i], sweep->key_places[i]},
                           list_of(sweep->items[i], sweep->keys[i]));
    }
  }
  if (const Node* published = map.get("published")) {
    if (published->kind != Node::Kind::kList) {
      throw InputError(published->place, "published is not a list", "expected [{model: ..., ...}]");
    }
    for (const Node& item : published->items) {
      s.published.push_back(read_published(item));
    }
  }
  map.finish();
  return s;
}

Scenario load_scenario(const Catalog& catalog, const std::string& name_or_path) {
  const std::string stem = std::filesystem::path(name_or_path).stem().string();
  const bool is_file = name_or_path.ends_with(".yaml") || name_or_path.ends_with(".json") ||
                       name_or_path.find('/') != std::string::npos;
  if (is_file) {
    std::error_code ignored;
    if (!std::filesystem::exists(name_or_path, ignored)) {
      if (const auto text = catalog.read(name_or_path)) {  // scenarios/gh200.yaml from anywhere
        return read_scenario(parse_document(*text, name_or_path, Syntax::kYaml), stem);
      }
    }
    return read_scenario(load_document(name_or_path), stem);
  }
  const auto text = catalog.read("scenarios/" + name_or_path + ".yaml");
  if (!text) {
    throw InputError(
        {"command line", 0, 0}, fmt::format("there is no scenario '{}'", name_or_path),
        suggest(name_or_path, catalog.list("scenarios", ".yaml")) + ", or the path of a YAML file");
  }
  return read_scenario(parse_document(*text, "scenarios/" + name_or_path + ".yaml", Syntax::kYaml),
                       stem);
}

std::vector<Case> cases(const Catalog& catalog, const Scenario& s) {
  const std::vector<GivenWorkload> works = swept(s);
  const std::size_t count = s.models.size() * s.machines.size() * works.size() * s.plans.size();
  if (count > kMostCases) {
    throw InputError({}, fmt::format("the scenario has {} cases", count),
                     fmt::format("expected at most {}", kMostCases));
  }
  std::map<std::string, machine::Machine> machines;
  for (const Given& hardware : s.machines) {
    machines.emplace(hardware.text, catalog.machine(hardware.text, hardware.place));
  }
  std::vector<Case> out;
  for (const Given& model : s.models) {
    const model::Shape shape = catalog.model(model.text, model.place);
    for (const Given& hardware : s.machines) {
      for (const GivenWorkload& work : works) {
        for (const GivenPlan& plan : s.plans) {
          out.push_back(make_case(s, plan, work, shape, machines.at(hardware.text)));
        }
      }
    }
  }
  return out;
}

}  // namespace offsim::study
