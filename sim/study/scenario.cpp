#include "sim/study/scenario.h"

#include <fmt/format.h>

#include <filesystem>

#include "sim/base/text.h"

namespace offsim::study {

namespace {

Given given(const Node& node, std::string_view what) {
  return {to_text(node, what), node.place, node.quoted};
}

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

// The options of a plan's map. In a list of plans, the map holds its `plan: NAME` too.
GivenPlan read_plan_options(const Node& map, Given name, bool in_list) {
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
    } else if (!in_list || map.keys[i] != "plan") {
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
        plans.push_back(
            read_plan_options(node.items[i], {node.keys[i], node.key_places[i]}, false));
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
  p.place = map.place();
  map.finish();
  if (p.tflops <= 0) {
    throw InputError(map.place_of("tflops"), "published.tflops is 0", "expected more than zero");
  }
  if (p.from.empty()) {
    throw InputError(map.place_of("from"), "published.from is empty", "expected an address");
  }
  return p;
}

}  // namespace

const std::vector<std::pair<std::string, WorkloadField>>& workload_fields() {
  static const std::vector<std::pair<std::string, WorkloadField>> kWorkloadFields{
      {"micro_batch", &GivenWorkload::micro_batch},
      {"micro_batch_limit", &GivenWorkload::micro_batch_limit},
      {"sequence", &GivenWorkload::sequence},
      {"accumulation", &GivenWorkload::accumulation},
      {"checkpointing", &GivenWorkload::checkpointing},
      {"precision", &GivenWorkload::precision},
      {"phase_sync", &GivenWorkload::phase_sync},
      {"loader_workers", &GivenWorkload::loader_workers},
      {"loader_bandwidth", &GivenWorkload::loader_bandwidth},
      {"lora_rank", &GivenWorkload::lora_rank},
      {"lora_targets", &GivenWorkload::lora_targets},
      {"base", &GivenWorkload::base},
      {"activation_offload", &GivenWorkload::activation_offload},
      {"gpus", &GivenWorkload::gpus}};
  return kWorkloadFields;
}

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
  return read_plan_options(node, given(*name, "plan"), true);
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
  const std::string stem = printable(std::filesystem::path(name_or_path).stem().string());
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
    throw InputError({"command line", 0, 0}, fmt::format("there is no scenario '{}'", name_or_path),
                     suggest(name_or_path, catalog.list("scenarios", ".yaml"),
                             fmt::format("a path such as ./{}.yaml", name_or_path)));
  }
  return read_scenario(
      parse_document(*text, catalog.place_of("scenarios/" + name_or_path + ".yaml"), Syntax::kYaml),
      stem);
}

}  // namespace offsim::study
