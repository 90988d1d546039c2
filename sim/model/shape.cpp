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
  shape.norm = shape.sinks ? Norm::kRmsLate : Norm::kRms;
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
  return any() && (targets == AdapterTargets::kAllLinear ||
                   is({"q_proj", "v_proj", "c_attn", "query_key_value", "qkv_proj", "W_pack"}) ||
                   (targets == AdapterTargets::kAttention &&
                    is({"k_proj", "o_proj", "attn.c_proj", "out_proj", "dense", "q_a_proj",
                        "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"})));
}

std::string_view to_string(Architecture architecture) { return name_of(architecture); }

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
  View whole(document, "");
  const std::optional<TextPart> text = text_part(whole, document);
  View config(text ? text->config : document, "");
  Shape shape;
  shape.name = name;
  shape.architecture = recognise(config);
  shape.outside = text ? text->outside : 0;
  refuse_slips(config, {"quantization_config"});
  if (is_deepseek(shape.architecture)) {
    read_deepseek(config, shape);
  } else if (!read_family(config, shape)) {
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
