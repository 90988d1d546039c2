#include "sim/model/config_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/text.h"

namespace offsim::model {

bool present(View& config, std::string_view key) {
  const Node* node = config.get(key);
  return node != nullptr && node->kind != Node::Kind::kNull;
}

bool flag(View& config, std::string_view key, bool fallback) {
  return present(config, key) ? config.boolean(key) : fallback;
}

std::vector<const Node*> texts(View& config, std::string_view key) {
  if (!present(config, key)) {
    return {};
  }
  const Node& list = config.need(key);
  if (list.kind != Node::Kind::kList) {
    throw InputError(list.place, fmt::format("{} is not a list", key), "expected [NAME, ...]");
  }
  std::vector<const Node*> out;
  for (const Node& item : list.items) {
    to_text(item, key);
    out.push_back(&item);
  }
  return out;
}

void refuse_slips(const View& config, const std::vector<std::string>& known) {
  std::vector<std::string> absent;
  std::ranges::copy_if(known, std::back_inserter(absent),
                       [&](const std::string& key) { return !config.has(key); });
  for (const std::string& key : config.keys()) {
    const std::string meant = nearest(key, absent);
    if (!meant.empty() && std::ranges::find(known, key) == known.end()) {
      throw InputError(config.place_of(key), fmt::format("unknown key '{}'", key),
                       fmt::format("did you mean '{}'?", meant));
    }
  }
}

void refuse_remainder(const View& config, Count whole, Count part, const char* expected) {
  if (whole.value % part.value != 0) {
    throw InputError(
        config.place_of(part.key),
        fmt::format("{} {} does not divide {} {}", part.key, part.value, whole.key, whole.value),
        expected);
  }
}

namespace {

std::size_t at(std::int64_t layer) { return static_cast<std::size_t>(layer); }

// Of each layer whether its attention slides, where the file says so layer by layer; else empty.
std::vector<bool> listed_windows(View& config, const Shape& shape) {
  std::vector<bool> slides;
  for (const Node* item : texts(config, "layer_types")) {
    const std::string& type = item->scalar;
    if (type != "full_attention" && type != "sliding_attention") {
      throw InputError(item->place, fmt::format("layer type '{}' is not supported", type),
                       "expected full_attention or sliding_attention");
    }
    slides.push_back(type == "sliding_attention");
  }
  if (!slides.empty() && std::ssize(slides) != shape.layers) {
    throw InputError(config.place_of("layer_types"),
                     fmt::format("layer_types has {} layers of {}", slides.size(), shape.layers),
                     "expected one type for each layer");
  }
  return slides;
}

bool is_qwen(Architecture architecture) {
  return architecture == Architecture::kQwen2 || architecture == Architecture::kQwen3 ||
         architecture == Architecture::kQwen2Moe || architecture == Architecture::kQwen3Moe;
}

// Of each layer whether its attention slides. transformers: mistral slides in every layer, mixtral,
// phi3 and starcoder2 if there is a window, gemma2 in every other layer and gemma3 in five of six,
// the qwen ones only if use_sliding_window: qwen2, qwen3 and qwen2_moe where layer_types says so,
// else the first two from layer max_window_layers on and qwen2_moe in every other one before it,
// qwen3_moe in all; gpt_oss where layer_types says so, or in every other one from the first on, all
// others never.
std::vector<bool> windows(View& config, const Shape& shape) {
  std::vector<bool> listed = listed_windows(config, shape);
  std::vector<bool> slides(at(shape.layers), false);
  const bool absent = config.has("sliding_window") && !present(config, "sliding_window");
  if (absent || is_deepseek(shape.architecture)) {
    return slides;
  }
  const auto in_turn = [&](std::int64_t pattern) {  // the last of each so many does not slide
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      slides[at(layer)] = (layer + 1) % pattern != 0;
    }
    return listed.empty() ? slides : listed;
  };
  switch (shape.architecture) {
    case Architecture::kGemma2:
      return in_turn(2);
    case Architecture::kGemma3:
      return in_turn(config.integer("sliding_window_pattern", 1, kMostLayers, 6));
    case Architecture::kPhi3:
    case Architecture::kStarcoder2:
    case Architecture::kMixtral:
      return std::vector<bool>(at(shape.layers), present(config, "sliding_window"));
    case Architecture::kMistral:
      return std::vector<bool>(at(shape.layers), true);
    case Architecture::kGptOss:
      for (std::size_t layer = 0; layer < slides.size(); layer += 2) {
        slides[layer] = true;
      }
      return listed.empty() ? slides : listed;
    default:
      break;
  }
  if (!is_qwen(shape.architecture) || !flag(config, "use_sliding_window", false)) {
    return slides;
  }
  if (shape.architecture == Architecture::kQwen3Moe) {
    return std::vector<bool>(at(shape.layers), true);
  }
  if (!listed.empty()) {
    return listed;
  }
  constexpr std::int64_t kUsualBorder = 28;  // of transformers' classes
  const std::int64_t border = present(config, "max_window_layers")
                                  ? config.integer("max_window_layers", 0, kLongest)
                                  : kUsualBorder;
  const bool first_ones = shape.architecture == Architecture::kQwen2Moe;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    slides[at(layer)] = first_ones ? layer % 2 == 0 && layer < border : layer >= border;
  }
  return slides;
}

// Of each layer of a mixture whether it has experts.
std::vector<bool> sparse_layers(View& config, const Shape& shape) {
  std::vector<bool> sparse(at(shape.layers), true);
  if (is_deepseek(shape.architecture)) {
    const std::int64_t usual = shape.architecture == Architecture::kDeepseekV3 ? 3 : 0;
    const std::int64_t dense = present(config, "first_k_dense_replace")
                                   ? config.integer("first_k_dense_replace", 0, shape.layers - 1)
                                   : std::min(usual, shape.layers);
    std::fill(sparse.begin(), sparse.begin() + dense, false);
  }
  if (shape.architecture != Architecture::kQwen2Moe &&
      shape.architecture != Architecture::kQwen3Moe) {
    return sparse;
  }
  if (present(config, "decoder_sparse_step")) {
    const std::int64_t step = config.integer("decoder_sparse_step", 1, kMostLayers);
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      sparse[at(layer)] = (layer + 1) % step == 0;
    }
  }
  if (present(config, "mlp_only_layers")) {
    const Node& dense = config.need("mlp_only_layers");
    if (dense.kind != Node::Kind::kList) {
      throw InputError(dense.place, "mlp_only_layers is not a list", "expected [LAYER, ...]");
    }
    for (const Node& item : dense.items) {
      sparse[at(to_integer(item, 0, shape.layers - 1, "mlp_only_layers"))] = false;
    }
  }
  return sparse;
}

// What the architecture calls the number of its experts, and the width of one.
struct Keys {
  const char *count, *width;
};
Keys keys_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::kMixtral:
    case Architecture::kGptOss:
      return {"num_local_experts", "intermediate_size"};
    case Architecture::kDeepseekV2:
    case Architecture::kDeepseekV3:
      return {"n_routed_experts", "moe_intermediate_size"};
    default:
      return {"num_experts", "moe_intermediate_size"};
  }
}

// Of v2: whether topk_method asks for groups.
bool asks_for_groups(View& config) {
  if (!present(config, "topk_method")) {
    return false;
  }
  const std::string method = config.text("topk_method");
  if (method != "greedy" && method != "group_limited_greedy") {
    throw InputError(config.place_of("topk_method"), fmt::format("topk_method is '{}'", method),
                     "expected greedy or group_limited_greedy");
  }
  return method != "greedy";
}

// v2 asks for groups by topk_method, v3 always has them.
void read_groups(View& config, const Shape& shape, Experts& experts) {
  const bool v3 = shape.architecture == Architecture::kDeepseekV3;
  experts.grouped = v3 || asks_for_groups(config);
  if (!experts.grouped) {  // read over, but nonsense is none the less
    const std::int64_t groups =
        present(config, "n_group") ? config.integer("n_group", 1, kMostHeads) : kMostHeads;
    if (present(config, "topk_group")) {
      config.integer("topk_group", 1, groups);
    }
    return;
  }
  const std::int64_t groups =
      v3 && !present(config, "n_group") ? 8 : config.integer("n_group", 1, kMostHeads);
  if (experts.count % groups != 0) {
    throw InputError(
        config.place_of("n_group"),
        fmt::format("n_group {} does not divide the {} experts", groups, experts.count),
        "expected a divisor of n_routed_experts");
  }
  constexpr std::int64_t kUsuallyChosen = 4;  // v3's class
  const bool usual = v3 && !present(config, "topk_group");
  if (usual && kUsuallyChosen > groups) {
    throw InputError(config.place_of("n_group"),
                     fmt::format("of {} groups {} are chosen where topk_group is absent", groups,
                                 kUsuallyChosen),
                     fmt::format("expected topk_group of {} at most", groups));
  }
  const std::int64_t chosen = usual ? kUsuallyChosen : config.integer("topk_group", 1, groups);
  if (experts.per_token > chosen * (experts.count / groups)) {
    throw InputError(config.place_of("num_experts_per_tok"),
                     fmt::format("a token passes {} of the {} experts of its groups",
                                 experts.per_token, chosen * (experts.count / groups)),
                     fmt::format("expected at most {}", chosen * (experts.count / groups)));
  }
}

// transformers has one answer to each; a file that asks for another is of another model.
void refuse_other_routing(View& config, const Shape& shape) {
  const bool v3 = shape.architecture == Architecture::kDeepseekV3;
  const auto refuse = [&](const char* key, const std::string& only) {
    if (present(config, key) && config.need(key).scalar != only) {
      throw InputError(config.place_of(key),
                       fmt::format("{} is '{}'", key, printable(config.need(key).scalar)),
                       fmt::format("expected {}", only));
    }
  };
  refuse("moe_layer_freq", "1");
  refuse("scoring_func", v3 ? "sigmoid" : "softmax");
  if (v3) {
    refuse("topk_method", "noaux_tc");
  }
}

void refuse_expert_slips(const View& config, const Shape& shape) {
  const Keys keys = keys_of(shape.architecture);
  refuse_slips(config, {keys.count, "num_experts_per_tok"});
  if (is_deepseek(shape.architecture)) {
    refuse_slips(config, {"moe_intermediate_size", "intermediate_size", "n_shared_experts",
                          "first_k_dense_replace", "n_group", "topk_group", "norm_topk_prob"});
  } else if (shape.architecture == Architecture::kQwen2Moe ||
             shape.architecture == Architecture::kQwen3Moe) {
    refuse_slips(config,
                 {"moe_intermediate_size", "shared_expert_intermediate_size", "norm_topk_prob",
                  "intermediate_size", "decoder_sparse_step", "mlp_only_layers"});
  }
}

Experts read_experts(View& config, const Shape& shape) {
  const Keys keys = keys_of(shape.architecture);
  Experts experts;
  experts.count = config.integer(keys.count, 1, kMostHeads);
  experts.per_token = config.integer("num_experts_per_tok", 1, kMostHeads);
  if (experts.per_token > experts.count) {
    throw InputError(
        config.place_of("num_experts_per_tok"),
        fmt::format("a token passes {} of {} experts", experts.per_token, experts.count),
        fmt::format("expected at most {}", experts.count));
  }
  experts.width = config.integer(keys.width, 1, kWidestFfn);
  switch (shape.architecture) {
    case Architecture::kMixtral:
      experts.normalized = true;
      break;
    case Architecture::kGptOss:
      experts.bias = true;
      break;
    case Architecture::kDeepseekV2:  // transformers does not read its norm_topk_prob
    case Architecture::kDeepseekV3:
      experts.shared = config.integer("n_shared_experts", 1, kMostHeads) * experts.width;
      experts.normalized =
          shape.architecture == Architecture::kDeepseekV3 && flag(config, "norm_topk_prob", true);
      refuse_other_routing(config, shape);
      read_groups(config, shape, experts);
      break;
    case Architecture::kQwen2Moe:
      experts.shared = config.integer("shared_expert_intermediate_size", 1, kWidestFfn);
      [[fallthrough]];
    default:
      experts.normalized = flag(config, "norm_topk_prob", false);
  }
  return experts;
}

}  // namespace

bool is_deepseek(Architecture architecture) {
  return architecture == Architecture::kDeepseekV2 || architecture == Architecture::kDeepseekV3;
}

bool is_mixture(Architecture architecture) {
  return architecture == Architecture::kMixtral || architecture == Architecture::kQwen2Moe ||
         architecture == Architecture::kQwen3Moe || is_deepseek(architecture) ||
         architecture == Architecture::kGptOss;
}

void read_layers(View& config, Shape& shape, std::int64_t ffn) {
  std::vector<bool> sparse(at(shape.layers), false);
  std::optional<Experts> experts;
  if (is_mixture(shape.architecture)) {
    refuse_expert_slips(config, shape);
    experts = read_experts(config, shape);
    sparse = sparse_layers(config, shape);
  }
  const bool any_dense = std::ranges::find(sparse, false) != sparse.end();
  const std::int64_t dense =
      ffn > 0 ? ffn : (any_dense ? config.integer("intermediate_size", 1, kWidestFfn) : 0);
  const std::vector<bool> slides = windows(config, shape);
  const bool any_window = std::ranges::find(slides, true) != slides.end();
  const std::int64_t window = any_window ? config.integer("sliding_window", 1, kLongest) : 0;
  shape.kinds.clear();
  for (std::size_t layer = 0; layer < sparse.size(); ++layer) {
    LayerKind kind{.ffn = dense, .window = std::nullopt, .experts = std::nullopt};
    if (sparse[layer]) {
      kind.ffn = experts->per_token * experts->width + experts->shared;
      kind.experts = experts;
    }
    if (slides[layer]) {
      kind.window = window;
    }
    const auto known = std::ranges::find(shape.kinds, kind);
    shape.kind_of.push_back(static_cast<std::size_t>(known - shape.kinds.begin()));
    if (known == shape.kinds.end()) {
      shape.kinds.push_back(kind);
    }
  }
  if (shape.kinds.size() == 1) {
    shape.kind_of.clear();
  }
}

}  // namespace offsim::model
