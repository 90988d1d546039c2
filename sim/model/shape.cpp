#include "sim/model/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "sim/base/text.h"
#include "sim/model/config_fields.h"
#include "sim/model/tensors.h"

namespace offsim::model {

namespace {

// Only listed, never "did you mean": mixtral is no slip of mistral.
constexpr std::string_view kSupported =
    "deepseek_v2, deepseek_v3, gpt2, gpt_oss, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, "
    "qwen3_moe";

struct Named {
  std::string_view name;
  Architecture architecture;
};
constexpr std::array kArchitectures = {
    Named{"gpt2", Architecture::kGpt2},
    Named{"llama", Architecture::kLlama},
    Named{"mistral", Architecture::kMistral},
    Named{"qwen2", Architecture::kQwen2},
    Named{"qwen3", Architecture::kQwen3},
    Named{"mixtral", Architecture::kMixtral},
    Named{"qwen2_moe", Architecture::kQwen2Moe},
    Named{"qwen3_moe", Architecture::kQwen3Moe},
    Named{"deepseek_v2", Architecture::kDeepseekV2},
    Named{"deepseek_v3", Architecture::kDeepseekV3},
    Named{"gpt_oss", Architecture::kGptOss},
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

// What these architectures are published as: transformers makes 16-bit weights of it.
std::string_view published_as(Architecture architecture) {
  return architecture == Architecture::kDeepseekV3 ? "fp8"
         : architecture == Architecture::kGptOss   ? "mxfp4"
                                                   : "";
}

void refuse_quantised(View& config, Architecture architecture) {
  if (!present(config, "quantization_config")) {
    return;
  }
  const Node& block = config.need("quantization_config");
  if (block.kind == Node::Kind::kMap) {
    View quantised(block, "quantization_config");
    if (present(quantised, "quant_method") &&
        quantised.text("quant_method") == published_as(architecture)) {
      return;
    }
  }
  throw InputError(config.place_of("quantization_config"),
                   "a quantised checkpoint is not supported: only adapters on it can be trained",
                   "expected the config.json of the unquantised model, and lora_rank with a base");
}

// A supported model_type does not make a supported model: these keys announce another computation.
void refuse_other_models(View& config, Architecture architecture) {
  refuse_quantised(config, architecture);
  for (const char* key : {"text_config", "vision_config"}) {
    if (present(config, key)) {
      throw InputError(config.place_of(key), fmt::format("{} announces a multimodal model", key),
                       "expected a language model alone");
    }
  }
  const bool local =
      architecture == Architecture::kMixtral || architecture == Architecture::kGptOss;
  const bool deepseek = is_deepseek(architecture);
  const bool qwen = is_mixture(architecture) && !local && !deepseek;
  const auto refuse_experts = [&](const char* key, bool own) {
    if (!own && present(config, key) && config.integer(key, 0, kMostHeads) > 0) {
      throw InputError(config.place_of(key), fmt::format("{} announces a mixture of experts", key),
                       is_mixture(architecture) ? "expected the keys of its model_type alone"
                                                : "expected a dense model");
    }
  };
  refuse_experts("num_experts", qwen);
  refuse_experts("num_local_experts", local);
  for (const char* key : {"n_routed_experts", "n_shared_experts", "first_k_dense_replace"}) {
    refuse_experts(key, deepseek);
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
  shape.kinds.front().ffn =
      present(config, "n_inner") ? config.integer("n_inner", 1, kWidestFfn) : 4 * shape.hidden;
  shape.vocabulary = config.integer("vocab_size", 1, kMostTokens);
  shape.positions = config.integer("n_positions", 1, kLongest);
  shape.max_sequence = shape.positions;
  shape.tied = flag(config, "tie_word_embeddings", true);
  shape.norm = Norm::kLayer;
  shape.gated_mlp = false;
  shape.fused_qkv = shape.qkv_bias = shape.output_bias = shape.mlp_bias = true;
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
    case Architecture::kGptOss:
      shape.qkv_bias = shape.output_bias = flag(config, "attention_bias", true);
      break;
    default:
      break;
  }
}

void read_llama_like(View& config, Shape& shape) {
  refuse_slips(config,
               {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
                "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings",
                "tie_word_embeddings", "attention_bias", "mlp_bias", "sliding_window",
                "use_sliding_window", "max_window_layers", "layer_types", "quantization_config"});
  shape.layers = config.integer("num_hidden_layers", 1, kMostLayers);
  shape.hidden = config.integer("hidden_size", 1, kWidest);
  shape.heads = config.integer("num_attention_heads", 1, kMostHeads);
  const bool as_heads =
      !present(config, "num_key_value_heads") && shape.architecture == Architecture::kLlama;
  shape.kv_heads = as_heads ? shape.heads : config.integer("num_key_value_heads", 1, kMostHeads);
  refuse_remainder(config, {"num_attention_heads", shape.heads},
                   {"num_key_value_heads", shape.kv_heads}, "expected a divisor of it");
  if (present(config, "head_dim") || shape.architecture == Architecture::kQwen3 ||
      shape.architecture == Architecture::kGptOss) {
    shape.head_dim = config.integer("head_dim", 1, kMostHeads);
  } else {
    refuse_remainder(config, {"hidden_size", shape.hidden}, {"num_attention_heads", shape.heads},
                     "expected a divisor of it, or head_dim");
    shape.head_dim = shape.hidden / shape.heads;
  }
  shape.vocabulary = config.integer("vocab_size", 1, kMostTokens);
  if (shape.architecture != Architecture::kQwen2Moe || present(config, "max_position_embeddings")) {
    shape.max_sequence = config.integer("max_position_embeddings", 1, kLongest);
  }
  shape.tied = flag(config, "tie_word_embeddings", false);
  shape.qk_norm =
      shape.architecture == Architecture::kQwen3 || shape.architecture == Architecture::kQwen3Moe;
  shape.sinks = shape.architecture == Architecture::kGptOss;
  read_biases(config, shape);
  read_layers(config, shape);
}

// num_key_value_heads is in these files, and these have as many as heads: every head has a key of
// its own.
void read_deepseek(View& config, Shape& shape) {
  refuse_slips(config,
               {"num_hidden_layers", "hidden_size", "num_attention_heads", "q_lora_rank",
                "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "vocab_size",
                "max_position_embeddings", "tie_word_embeddings", "attention_bias",
                "first_k_dense_replace", "topk_method", "quantization_config"});
  shape.layers = config.integer("num_hidden_layers", 1, kMostLayers);
  shape.hidden = config.integer("hidden_size", 1, kWidest);
  shape.heads = shape.kv_heads = config.integer("num_attention_heads", 1, kMostHeads);
  Latent latent;
  const bool one_matrix = config.has("q_lora_rank") && !present(config, "q_lora_rank");
  latent.q_rank = one_matrix ? 0 : config.integer("q_lora_rank", 1, kWidest);
  latent.kv_rank = config.integer("kv_lora_rank", 1, kWidest);
  latent.plain = config.integer("qk_nope_head_dim", 1, kMostHeads);
  latent.rotary = config.integer("qk_rope_head_dim", 1, kMostHeads);
  if (latent.rotary % 2 != 0) {
    throw InputError(config.place_of("qk_rope_head_dim"),
                     fmt::format("qk_rope_head_dim is {}", latent.rotary),
                     "expected an even number: positions turn pairs of elements");
  }
  shape.latent = latent;
  shape.head_dim = latent.plain + latent.rotary;
  shape.value_dim = config.integer("v_head_dim", 1, kMostHeads);
  shape.vocabulary = config.integer("vocab_size", 1, kMostTokens);
  shape.max_sequence = config.integer("max_position_embeddings", 1, kLongest);
  shape.tied = flag(config, "tie_word_embeddings", false);
  shape.qkv_bias = shape.output_bias = flag(config, "attention_bias", false);
  shape.mlp_bias =
      shape.architecture == Architecture::kDeepseekV2 && flag(config, "mlp_bias", false);
  read_layers(config, shape);
}

// In floating point, because the exact sum could overflow for the sizes allowed one by one.
void refuse_absurd_total(const Shape& shape, const Place& place) {
  auto total = static_cast<double>(embedding_parameters(shape) + head_parameters(shape));
  for (const Shape::Alike& alike : shape.different_layers()) {
    total += static_cast<double>(layer_parameters(shape, alike.layer)) *
             static_cast<double>(alike.count);
  }
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
  return any() && (targets == AdapterTargets::kAllLinear || is({"q_proj", "v_proj", "c_attn"}) ||
                   (targets == AdapterTargets::kAttention &&
                    is({"k_proj", "o_proj", "attn.c_proj", "q_a_proj", "q_b_proj",
                        "kv_a_proj_with_mqa", "kv_b_proj"})));
}

std::string_view to_string(Architecture architecture) {
  for (const Named& known : kArchitectures) {
    if (known.architecture == architecture) {
      return known.name;
    }
  }
  SIM_ASSERT(false, "every architecture has a name");
}

bool Shape::has_experts() const {
  return std::ranges::any_of(different_layers(),
                             [this](Alike alike) { return kind(alike.layer).experts.has_value(); });
}

std::vector<Shape::Alike> Shape::different_layers() const {
  std::vector<Alike> different;
  if (kind_of.empty()) {
    return {{0, layers}};
  }
  std::vector<std::int64_t> where(kinds.size(), -1);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    std::int64_t& found = where[kind_index(layer)];
    if (found < 0) {
      found = std::ssize(different);
      different.push_back({layer, 0});
    }
    ++different[static_cast<std::size_t>(found)].count;
  }
  return different;
}

Shape read_config(const Node& document, const std::string& name) {
  View config(document, "");
  Shape shape;
  shape.name = name;
  shape.architecture = read_architecture(config);
  refuse_other_models(config, shape.architecture);
  if (shape.architecture == Architecture::kGpt2) {
    read_gpt2(config, shape);
  } else if (is_deepseek(shape.architecture)) {
    read_deepseek(config, shape);
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
