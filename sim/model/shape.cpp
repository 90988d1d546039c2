#include "sim/model/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "sim/base/text.h"
#include "sim/model/tensors.h"

namespace offsim::model {

namespace {

constexpr std::int64_t kMostLayers = 100'000;
constexpr std::int64_t kWidest = 1'000'000;
constexpr std::int64_t kMostHeads = 100'000;
constexpr std::int64_t kWidestFfn = 10'000'000;
constexpr std::int64_t kMostTokens = 100'000'000;  // vocabulary
constexpr std::int64_t kLongest = 1'000'000'000;   // positions, windows

// Only listed, never "did you mean": mixtral is no slip of mistral.
constexpr std::string_view kSupported =
    "gpt2, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe";

struct Named {
  std::string_view name;
  Architecture architecture;
};
constexpr std::array kArchitectures = {
    Named{"gpt2", Architecture::kGpt2},          Named{"llama", Architecture::kLlama},
    Named{"mistral", Architecture::kMistral},    Named{"qwen2", Architecture::kQwen2},
    Named{"qwen3", Architecture::kQwen3},        Named{"mixtral", Architecture::kMixtral},
    Named{"qwen2_moe", Architecture::kQwen2Moe}, Named{"qwen3_moe", Architecture::kQwen3Moe},
};

// Files that people hand over in place of a config.json, each known by one or two of its keys.
struct OtherFormat {
  std::string_view key;
  std::string_view with;  // a second key, or empty
  std::string_view what;
};
constexpr std::array kOtherFormats = {
    OtherFormat{"dim", "n_layers", "params.json of the original Llama release"},
    OtherFormat{"peft_type", "", "the configuration of an adapter, without its base model"},
    OtherFormat{"base_model_name_or_path", "",
                "the configuration of an adapter, without its base model"},
    OtherFormat{"_class_name", "", "the configuration of a diffusion model"},
    OtherFormat{"zero_optimization", "", "a DeepSpeed configuration"},
    OtherFormat{"trainer", "model", "a NeMo configuration"},
    OtherFormat{"tensor_model_parallel_size", "", "a Megatron configuration"},
    OtherFormat{"num_layers", "ffn_hidden_size", "a Megatron configuration"},
    OtherFormat{"language_model", "model_parallel", "a Megatron configuration"},
};

bool present(View& config, std::string_view key) {
  const Node* node = config.get(key);
  return node != nullptr && node->kind != Node::Kind::kNull;
}

// The texts of a list; none where the key is absent.
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

bool is_mixture(Architecture architecture) {
  return architecture == Architecture::kMixtral || architecture == Architecture::kQwen2Moe ||
         architecture == Architecture::kQwen3Moe;
}

bool flag(View& config, std::string_view key, bool fallback) {
  return present(config, key) ? config.boolean(key) : fallback;
}

Architecture read_architecture(View& config) {
  if (!present(config, "model_type")) {
    for (const OtherFormat& format : kOtherFormats) {
      if (config.has(format.key) && (format.with.empty() || config.has(format.with))) {
        throw InputError(config.place(), fmt::format("this is {}", format.what),
                         "expected a Hugging Face config.json with a model_type");
      }
    }
    throw InputError(config.place(), "model_type is missing",
                     fmt::format("expected one of {}", kSupported));
  }
  const std::string type = config.text("model_type");
  for (const Named& known : kArchitectures) {
    if (known.name == type) {
      return known.architecture;
    }
  }
  throw InputError(config.place_of("model_type"),
                   fmt::format("architecture '{}' is not supported yet", type),
                   fmt::format("expected one of {}", kSupported));
}

// A supported model_type does not make a supported model: these keys announce another computation.
void refuse_other_models(View& config, Architecture architecture) {
  if (present(config, "quantization_config")) {
    throw InputError(
        config.place_of("quantization_config"),
        "a quantised checkpoint is not supported: only adapters on it can be trained",
        "expected the config.json of the unquantised model, and lora_rank with a base");
  }
  for (const char* key : {"text_config", "vision_config"}) {
    if (present(config, key)) {
      throw InputError(config.place_of(key), fmt::format("{} announces a multimodal model", key),
                       "expected a language model alone");
    }
  }
  const bool mixtral = architecture == Architecture::kMixtral;
  const bool qwen = is_mixture(architecture) && !mixtral;
  const auto refuse_experts = [&](const char* key, bool own) {
    if (!own && present(config, key) && config.integer(key, 0, kMostHeads) > 0) {
      throw InputError(config.place_of(key), fmt::format("{} announces a mixture of experts", key),
                       is_mixture(architecture) ? "expected the keys of its model_type alone"
                                                : "expected a dense model");
    }
  };
  refuse_experts("num_experts", qwen);
  refuse_experts("num_local_experts", mixtral);
  for (const char* key : {"n_routed_experts", "n_shared_experts", "first_k_dense_replace"}) {
    refuse_experts(key, false);
  }
  for (const char* key : {"is_encoder_decoder", "add_cross_attention"}) {
    if (flag(config, key, false)) {
      throw InputError(config.place_of(key), fmt::format("{} announces an encoder-decoder", key),
                       "expected a decoder alone");
    }
  }
  for (const Node* item : texts(config, "architectures")) {
    const std::string& name = item->scalar;
    if (!name.ends_with("ForCausalLM") && !name.ends_with("LMHeadModel")) {
      throw InputError(item->place, fmt::format("'{}' has no language-model head", name),
                       "expected a class that ends in ForCausalLM or LMHeadModel");
    }
  }
}

// Unknown keys pass, except one that reads like a slip of a key that is not there.
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

struct Count {
  const char* key;
  std::int64_t value;
};

void refuse_remainder(const View& config, Count whole, Count part, const char* expected) {
  if (whole.value % part.value != 0) {
    throw InputError(
        config.place_of(part.key),
        fmt::format("{} {} does not divide {} {}", part.key, part.value, whole.key, whole.value),
        expected);
  }
}

void read_gpt2(View& config, Shape& shape) {
  refuse_slips(config, {"n_embd", "n_layer", "n_head", "n_inner", "n_positions", "vocab_size",
                        "tie_word_embeddings"});
  shape.layers = config.integer("n_layer", 1, kMostLayers);
  shape.hidden = config.integer("n_embd", 1, kWidest);
  shape.heads = config.integer("n_head", 1, kMostHeads);
  shape.kv_heads = shape.heads;
  refuse_remainder(config, {"n_embd", shape.hidden}, {"n_head", shape.heads},
                   "expected a divisor of it");
  shape.head_dim = shape.hidden / shape.heads;
  shape.ffn =
      present(config, "n_inner") ? config.integer("n_inner", 1, kWidestFfn) : 4 * shape.hidden;
  shape.vocabulary = config.integer("vocab_size", 1, kMostTokens);
  shape.positions = config.integer("n_positions", 1, kLongest);
  shape.max_sequence = shape.positions;
  shape.tied = flag(config, "tie_word_embeddings", true);
  shape.norm = Norm::kLayer;
  shape.gated_mlp = false;
  shape.fused_qkv = shape.qkv_bias = shape.output_bias = shape.mlp_bias = true;
}

// The kind of all layers, where the file lists it layer by layer; empty where it does not.
std::string layer_type(View& config) {
  std::string first;
  for (const Node* item : texts(config, "layer_types")) {
    const std::string& type = item->scalar;
    if (type != "full_attention" && type != "sliding_attention") {
      throw InputError(item->place, fmt::format("layer type '{}' is not supported", type),
                       "expected full_attention or sliding_attention");
    }
    if (!first.empty() && type != first) {
      throw InputError(item->place, "some layers have a sliding window and some do not",
                       "expected layers that are all alike");
    }
    first = type;
  }
  return first;
}

// transformers: mistral slides in every layer, qwen2 and qwen3 from layer max_window_layers on (or
// where layer_types says so) and only if use_sliding_window, llama never.
std::optional<std::int64_t> read_window(View& config, const Shape& shape) {
  const std::string type = layer_type(config);
  const bool absent = config.has("sliding_window") && !present(config, "sliding_window");
  if (absent || shape.architecture == Architecture::kLlama) {
    return std::nullopt;
  }
  if (shape.architecture == Architecture::kMixtral && !present(config, "sliding_window")) {
    return std::nullopt;
  }
  if (shape.architecture == Architecture::kMistral ||
      shape.architecture == Architecture::kMixtral) {
    return config.integer("sliding_window", 1, kLongest);
  }
  if (!flag(config, "use_sliding_window", false) || type == "full_attention") {
    return std::nullopt;
  }
  if (type.empty()) {
    const std::int64_t full = config.integer("max_window_layers", 0, kLongest);
    if (full >= shape.layers) {
      return std::nullopt;
    }
    if (full > 0) {
      throw InputError(
          config.place_of("max_window_layers"),
          fmt::format("layers from {} on have a sliding window, the others have none", full),
          fmt::format("expected layers that are all alike: 0, or at least {}", shape.layers));
    }
  }
  return config.integer("sliding_window", 1, kLongest);
}

void read_biases(View& config, Shape& shape) {
  switch (shape.architecture) {
    case Architecture::kLlama:
      shape.qkv_bias = shape.output_bias = flag(config, "attention_bias", false);
      shape.mlp_bias = flag(config, "mlp_bias", false);
      break;
    case Architecture::kQwen3:
    case Architecture::kQwen3Moe:
      shape.qkv_bias = shape.output_bias = flag(config, "attention_bias", false);
      break;
    case Architecture::kQwen2:
      shape.qkv_bias = true;
      break;
    case Architecture::kQwen2Moe:
      shape.qkv_bias = flag(config, "qkv_bias", true);
      break;
    default:
      break;
  }
}

// Dense layers among the sparse ones: qwen's files can ask for them.
void refuse_dense_layers(View& config) {
  if (present(config, "decoder_sparse_step") &&
      config.integer("decoder_sparse_step", 1, kMostLayers) > 1) {
    throw InputError(config.place_of("decoder_sparse_step"), "only some layers have experts",
                     "expected layers that are all alike: 1");
  }
  if (!present(config, "mlp_only_layers")) {
    return;
  }
  const Node& dense = config.need("mlp_only_layers");
  if (dense.kind != Node::Kind::kList) {
    throw InputError(dense.place, "mlp_only_layers is not a list", "expected []");
  }
  if (!dense.items.empty()) {
    throw InputError(config.place_of("mlp_only_layers"), "only some layers have experts",
                     "expected layers that are all alike: []");
  }
}

Experts read_experts(View& config, Architecture architecture) {
  const bool mixtral = architecture == Architecture::kMixtral;
  const char* const count = mixtral ? "num_local_experts" : "num_experts";
  refuse_slips(config, {count, "num_experts_per_tok"});
  if (!mixtral) {
    refuse_slips(config, {"moe_intermediate_size", "shared_expert_intermediate_size",
                          "norm_topk_prob", "intermediate_size"});
  }
  Experts experts;
  experts.count = config.integer(count, 1, kMostHeads);
  experts.per_token = config.integer("num_experts_per_tok", 1, kMostHeads);
  if (experts.per_token > experts.count) {
    throw InputError(
        config.place_of("num_experts_per_tok"),
        fmt::format("a token passes {} of {} experts", experts.per_token, experts.count),
        fmt::format("expected at most {}", experts.count));
  }
  experts.width =
      config.integer(mixtral ? "intermediate_size" : "moe_intermediate_size", 1, kWidestFfn);
  if (architecture == Architecture::kQwen2Moe) {
    experts.shared = config.integer("shared_expert_intermediate_size", 1, kWidestFfn);
  }
  experts.normalized = mixtral || flag(config, "norm_topk_prob", false);
  if (!mixtral) {
    refuse_dense_layers(config);
  }
  return experts;
}

void read_llama_like(View& config, Shape& shape) {
  refuse_slips(config, {"num_hidden_layers", "hidden_size", "num_attention_heads",
                        "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
                        "max_position_embeddings", "tie_word_embeddings", "attention_bias",
                        "mlp_bias", "sliding_window", "use_sliding_window", "max_window_layers"});
  shape.layers = config.integer("num_hidden_layers", 1, kMostLayers);
  shape.hidden = config.integer("hidden_size", 1, kWidest);
  shape.heads = config.integer("num_attention_heads", 1, kMostHeads);
  const bool as_heads =
      !present(config, "num_key_value_heads") && shape.architecture == Architecture::kLlama;
  shape.kv_heads = as_heads ? shape.heads : config.integer("num_key_value_heads", 1, kMostHeads);
  refuse_remainder(config, {"num_attention_heads", shape.heads},
                   {"num_key_value_heads", shape.kv_heads}, "expected a divisor of it");
  if (present(config, "head_dim") || shape.architecture == Architecture::kQwen3) {
    shape.head_dim = config.integer("head_dim", 1, kMostHeads);
  } else {
    refuse_remainder(config, {"hidden_size", shape.hidden}, {"num_attention_heads", shape.heads},
                     "expected a divisor of it, or head_dim");
    shape.head_dim = shape.hidden / shape.heads;
  }
  if (is_mixture(shape.architecture)) {
    shape.experts = read_experts(config, shape.architecture);
    shape.ffn = shape.experts->per_token * shape.experts->width + shape.experts->shared;
  } else {
    shape.ffn = config.integer("intermediate_size", 1, kWidestFfn);
  }
  shape.vocabulary = config.integer("vocab_size", 1, kMostTokens);
  if (shape.architecture != Architecture::kQwen2Moe || present(config, "max_position_embeddings")) {
    shape.max_sequence = config.integer("max_position_embeddings", 1, kLongest);
  }
  shape.tied = flag(config, "tie_word_embeddings", false);
  shape.qk_norm =
      shape.architecture == Architecture::kQwen3 || shape.architecture == Architecture::kQwen3Moe;
  read_biases(config, shape);
  shape.window = read_window(config, shape);
}

// In floating point, because the exact sum could overflow for the sizes allowed one by one.
void refuse_absurd_total(const Shape& shape, const Place& place) {
  const double total =
      static_cast<double>(layer_parameters(shape)) * static_cast<double>(shape.layers) +
      static_cast<double>(embedding_parameters(shape) + head_parameters(shape));
  if (total > kMostParameters) {
    throw InputError(place, fmt::format("the model has {:.3g} parameters", total),
                     fmt::format("expected at most {:g}", kMostParameters));
  }
}

}  // namespace

std::string_view to_string(AdapterTargets targets) {
  static constexpr std::array<std::string_view, 3> kNames{"query-value", "attention", "all-linear"};
  return kNames[static_cast<std::size_t>(targets)];
}

std::string_view to_string(Base base) {
  static constexpr std::array<std::string_view, 4> kNames{"16-bit", "int8", "nf4", "nf4-double"};
  return kNames[static_cast<std::size_t>(base)];
}

// PEFT's names of modules; gpt2 has two that end in c_proj.
bool Adapters::on(std::string_view linear) const {
  const auto is = [linear](std::initializer_list<std::string_view> names) {
    return std::ranges::any_of(names,
                               [&](std::string_view name) { return linear.ends_with(name); });
  };
  return any() &&
         (targets == AdapterTargets::kAllLinear || is({"q_proj", "v_proj", "c_attn"}) ||
          (targets == AdapterTargets::kAttention && is({"k_proj", "o_proj", "attn.c_proj"})));
}

std::string_view to_string(Architecture architecture) {
  for (const Named& known : kArchitectures) {
    if (known.architecture == architecture) {
      return known.name;
    }
  }
  SIM_ASSERT(false, "every architecture has a name");
}

Shape read_config(const Node& document, const std::string& name) {
  View config(document, "");
  Shape shape;
  shape.name = name;
  shape.architecture = read_architecture(config);
  refuse_other_models(config, shape.architecture);
  if (shape.architecture == Architecture::kGpt2) {
    read_gpt2(config, shape);
  } else {
    read_llama_like(config, shape);
  }
  refuse_absurd_total(shape, document.place);
  return shape;
}

Shape read_config(const std::string& path) {
  const std::filesystem::path file(path);
  const std::filesystem::path named =
      file.filename() == "config.json" && file.has_parent_path() ? file.parent_path() : file.stem();
  return read_config(load_document(path), printable(named.filename().string()));
}

}  // namespace offsim::model
