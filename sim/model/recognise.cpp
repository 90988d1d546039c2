// Which architecture a config.json is of, and what is refused before anything of it is read.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "sim/base/quantity.h"
#include "sim/base/text.h"
#include "sim/model/config_fields.h"

namespace offsim::model {

namespace {

// Only listed, never "did you mean": mixtral is no slip of mistral.
constexpr std::string_view kSupported =
    "baichuan, bloom, chatglm, deepseek_v2, deepseek_v3, falcon, gemma, gemma2, gemma3, "
    "gemma3_text, "
    "gpt2, gpt_neox, gpt_oss, gptj, llama, llava, mistral, mixtral, opt, phi, phi3, qwen2, "
    "qwen2_5_vl, qwen2_moe, qwen3, qwen3_moe, starcoder2";

struct Named {
  std::string_view name;
  Architecture architecture;
};
// The names that files have today first.
constexpr std::array kArchitectures = {
    Named{"gpt2", Architecture::kGpt2},
    Named{"gptj", Architecture::kGptJ},
    Named{"gpt_neox", Architecture::kGptNeoX},
    Named{"opt", Architecture::kOpt},
    Named{"bloom", Architecture::kBloom},
    Named{"falcon", Architecture::kFalcon},
    Named{"RefinedWeb", Architecture::kFalcon},
    Named{"RefinedWebModel", Architecture::kFalcon},
    Named{"phi", Architecture::kPhi},
    Named{"phi-msft", Architecture::kPhi},
    Named{"phi3", Architecture::kPhi3},
    Named{"starcoder2", Architecture::kStarcoder2},
    Named{"chatglm", Architecture::kChatGlm},
    Named{"baichuan", Architecture::kBaichuan},
    Named{"gemma", Architecture::kGemma},
    Named{"gemma2", Architecture::kGemma2},
    Named{"gemma3_text", Architecture::kGemma3},
    Named{"llama", Architecture::kLlama},
    Named{"mistral", Architecture::kMistral},
    Named{"qwen2", Architecture::kQwen2},
    Named{"qwen2_5_vl", Architecture::kQwen2},
    Named{"qwen2_5_vl_text", Architecture::kQwen2},
    Named{"qwen3", Architecture::kQwen3},
    Named{"mixtral", Architecture::kMixtral},
    Named{"qwen2_moe", Architecture::kQwen2Moe},
    Named{"qwen3_moe", Architecture::kQwen3Moe},
    Named{"deepseek_v2", Architecture::kDeepseekV2},
    Named{"deepseek_v3", Architecture::kDeepseekV3},
    Named{"gpt_oss", Architecture::kGptOss},
};

// What people know by name and no step here has.
struct NoDecoder {
  std::string_view what;
  std::string_view expected;
  std::span<const std::string_view> types;
};
constexpr std::array kRecurrent = std::to_array<std::string_view>(
    {"bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "lfm2", "mamba", "mamba2",
     "minimax", "nemotron_h", "qwen3_5", "qwen3_5_moe", "qwen3_next", "recurrent_gemma", "rwkv",
     "xlstm", "zamba", "zamba2"});
constexpr std::array kEncoders = std::to_array<std::string_view>(
    {"albert", "bert", "camembert", "clip", "deberta", "deberta-v2", "distilbert", "electra",
     "modernbert", "mpnet", "roberta", "siglip", "vit", "xlm-roberta"});
constexpr std::array kEncoderDecoders = std::to_array<std::string_view>(
    {"bart", "blenderbot", "longt5", "m2m_100", "marian", "mbart", "mt5", "pegasus",
     "switch_transformers", "t5gemma", "umt5", "whisper"});
constexpr std::array kNoDecoders = {
    NoDecoder{"has layers that are recurrent, which is not modelled",
              "a transformer, whose layers all have attention", kRecurrent},
    NoDecoder{"is only an encoder: it has no next token to learn", "a language model", kEncoders},
    NoDecoder{"has an encoder and a decoder: a step takes two sequences, which is not modelled",
              "a decoder alone", kEncoderDecoders},
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

// Counted, since that is what people ask of such a file first: q, k, v and o, twice in a decoder's
// layer, two matrices or with a gate three, norms without bias, and a table of distances each for
// encoder and decoder.
[[noreturn]] void refuse_t5(View& config) {
  const double h = static_cast<double>(config.integer("d_model", 1, kWidest));
  const double f = static_cast<double>(config.integer("d_ff", 1, kWidestFfn));
  const double heads = static_cast<double>(config.integer("num_heads", 1, kMostHeads));
  const double inner = heads * static_cast<double>(config.integer("d_kv", 1, kMostHeads));
  const std::int64_t layers = config.integer("num_layers", 1, kMostLayers);
  const double encoders = static_cast<double>(layers);
  const double decoders = static_cast<double>(
      present(config, "num_decoder_layers") ? config.integer("num_decoder_layers", 1, kMostLayers)
                                            : layers);
  const double buckets =
      static_cast<double>(config.integer("relative_attention_num_buckets", 1, kMostTokens, 32));
  const double vocabulary = static_cast<double>(config.integer("vocab_size", 1, kMostTokens));
  const bool gated =
      present(config, "feed_forward_proj") && config.text("feed_forward_proj").starts_with("gated");
  const bool tied = flag(config, "tie_word_embeddings", true);
  const double attention = 4 * h * inner + h, mlp = (gated ? 3 : 2) * h * f + h;
  const double total = (tied ? 1 : 2) * vocabulary * h + encoders * (attention + mlp) +
                       decoders * (2 * attention + mlp) + 2 * buckets * heads + 2 * h;
  throw InputError(config.place_of("model_type"),
                   fmt::format("t5 has an encoder and a decoder ({} parameters here): a step takes "
                               "two sequences, which is not modelled",
                               with_commas(total)),
                   "expected a decoder alone");
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
  for (const NoDecoder& known : kNoDecoders) {
    if (std::ranges::find(known.types, type) != known.types.end()) {
      throw InputError(config.place_of("model_type"), fmt::format("{} {}", type, known.what),
                       fmt::format("expected {}", known.expected));
    }
  }
  if (type == "t5") {
    refuse_t5(config);
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
  const bool sees =
      config.text("model_type").starts_with("qwen2_5_vl");  // its text part was told apart
  for (const char* key : {"text_config", "vision_config"}) {
    if (!sees && present(config, key)) {
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
  for (const char* key : {"attn_layer_period", "attn_layer_indices", "mamba_d_state", "ssm_cfg"}) {
    if (present(config, key)) {
      throw InputError(config.place_of(key), fmt::format("{} announces recurrent layers", key),
                       "expected a transformer, whose layers all have attention");
    }
  }
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
    const bool remote = architecture == Architecture::kChatGlm && name.ends_with("Model");
    if (!name.ends_with("ForCausalLM") && !name.ends_with("LMHeadModel") && !sees && !remote &&
        !name.starts_with("RW")) {
      throw InputError(item->place, fmt::format("'{}' has no language-model head", name),
                       "expected a class that ends in ForCausalLM or LMHeadModel");
    }
  }
}

// Mixtures that nobody trained: a layer or two of a few experts, for the tests of a library.
void refuse_test_models(View& config, Architecture architecture) {
  constexpr std::int64_t kLayers = 2, kExperts = 4;
  if (!is_mixture(architecture) || !present(config, "num_hidden_layers") ||
      config.integer("num_hidden_layers", 1, kMostLayers) > kLayers) {
    return;
  }
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (present(config, key) && config.integer(key, 1, kMostHeads) <= kExperts) {
      throw InputError(config.place_of(key),
                       fmt::format("{} layers with {} experts are a model cut down for tests",
                                   config.integer("num_hidden_layers", 1, kMostLayers),
                                   config.integer(key, 1, kMostHeads)),
                       "expected the config.json of the whole model");
    }
  }
}

}  // namespace

Architecture recognise(View& config) {
  const Architecture architecture = read_architecture(config);
  refuse_other_models(config, architecture);
  refuse_test_models(config, architecture);
  return architecture;
}

std::string_view name_of(Architecture architecture) {
  for (const Named& known : kArchitectures) {
    if (known.architecture == architecture) {
      return known.name;
    }
  }
  SIM_ASSERT(false, "every architecture has a name");
}

}  // namespace offsim::model
