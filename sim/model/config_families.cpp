// The keys of the architectures' files that are not llama's: where each number of a Shape is said,
// under which of its names, and what their configuration classes assume.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "sim/model/config_fields.h"

namespace offsim::model {

namespace {

using Names = std::vector<const char*>;

// The first name that is there; a second one may not say otherwise.
std::int64_t number(View& config, const Names& names, std::int64_t most) {
  const char* found = nullptr;
  std::int64_t value = 0;
  for (const char* name : names) {
    if (!present(config, name)) {
      continue;
    }
    const std::int64_t says = config.integer(name, 1, most);
    if (found != nullptr && says != value) {
      throw InputError(config.place_of(name),
                       fmt::format("{} is {} and {} is {}", found, value, name, says),
                       "expected one of them, or the same number");
    }
    found = name;
    value = says;
  }
  return found != nullptr ? value : config.integer(names.front(), 1, most);
}

bool any_present(View& config, const Names& names) {
  return std::ranges::any_of(names, [&](const char* name) { return present(config, name); });
}

std::int64_t number(View& config, const Names& names, std::int64_t most, std::int64_t fallback) {
  return any_present(config, names) ? number(config, names, most) : fallback;
}

// Where an architecture's file says its sizes.
struct SizeKeys {
  Names layers{"num_hidden_layers"}, hidden{"hidden_size"}, heads{"num_attention_heads"};
  Names kv_heads{}, head_dim{}, ffn{"intermediate_size"}, vocabulary{"vocab_size"};
  Names positions{"max_position_embeddings"};
  bool positions_needed = true;
  bool tied = false;               // where tie_word_embeddings is absent
  std::int64_t ffn_of_hidden = 0;  // ffn where it is absent: so many times hidden; 0: needed
  Names flags{};                   // others whose slips would change the answer
};

void refuse_slips_of(const View& config, const SizeKeys& keys) {
  std::vector<std::string> known{"tie_word_embeddings"};
  for (const Names* names :
       {&keys.layers, &keys.hidden, &keys.heads, &keys.kv_heads, &keys.head_dim, &keys.ffn,
        &keys.vocabulary, &keys.positions, &keys.flags}) {
    known.insert(known.end(), names->begin(), names->end());
  }
  refuse_slips(config, known);
}

void read_sizes(View& config, Shape& shape, const SizeKeys& keys) {
  refuse_slips_of(config, keys);
  shape.layers = number(config, keys.layers, kMostLayers);
  shape.hidden = number(config, keys.hidden, kWidest);
  shape.heads = number(config, keys.heads, kMostHeads);
  shape.kv_heads =
      keys.kv_heads.empty() ? shape.heads : number(config, keys.kv_heads, kMostHeads, shape.heads);
  refuse_remainder(
      config, {keys.heads.front(), shape.heads},
      {keys.kv_heads.empty() ? keys.heads.front() : keys.kv_heads.front(), shape.kv_heads},
      "expected a divisor of it");
  if (!keys.head_dim.empty() && any_present(config, keys.head_dim)) {
    shape.head_dim = number(config, keys.head_dim, kMostHeads);
  } else {
    refuse_remainder(config, {keys.hidden.front(), shape.hidden}, {keys.heads.front(), shape.heads},
                     "expected a divisor of it");
    shape.head_dim = shape.hidden / shape.heads;
  }
  shape.vocabulary = number(config, keys.vocabulary, kMostTokens);
  shape.max_sequence = keys.positions_needed ? number(config, keys.positions, kLongest)
                                             : number(config, keys.positions, kLongest, 0);
  shape.tied = flag(config, "tie_word_embeddings", keys.tied);
  const std::int64_t usual = keys.ffn_of_hidden * shape.hidden;
  const std::int64_t ffn = usual > 0 ? number(config, keys.ffn, kWidestFfn, usual)
                                     : number(config, keys.ffn, kWidestFfn);
  read_layers(config, shape, ffn);
}

// Layer norms, two matrices, biases where the caller has not said otherwise.
void be_like_gpt(Shape& shape, Activation activation, bool biases = true) {
  shape.norm = Norm::kLayer;
  shape.gated_mlp = false;
  shape.activation = activation;
  shape.qkv_bias = shape.output_bias = shape.mlp_bias = biases;
}

// A part of each head is turned, an even number of elements.
void turn(View& config, Shape& shape, const char* key, double usual) {
  const double part = present(config, key) ? config.number(key) : usual;
  if (!(part > 0) || part > 1) {
    throw InputError(config.place_of(key), fmt::format("{} is {}", key, part),
                     "expected more than 0 and at most 1");
  }
  shape.rotary = static_cast<std::int64_t>(part * static_cast<double>(shape.head_dim)) / 2 * 2;
}

void read_gpt2(View& config, Shape& shape) {
  read_sizes(config, shape,
             {.layers = {"n_layer"},
              .hidden = {"n_embd"},
              .heads = {"n_head"},
              .ffn = {"n_inner"},
              .positions = {"n_positions"},
              .tied = true,
              .ffn_of_hidden = 4});
  be_like_gpt(shape, Activation::kGeluNew);
  shape.positions = shape.max_sequence;
  shape.fused_qkv = true;
}

void read_gptj(View& config, Shape& shape) {
  read_sizes(config, shape,
             {.layers = {"n_layer"},
              .hidden = {"n_embd"},
              .heads = {"n_head"},
              .ffn = {"n_inner"},
              .positions = {"n_positions"},
              .ffn_of_hidden = 4,
              .flags = {"rotary_dim"}});
  be_like_gpt(shape, Activation::kGeluNew);
  shape.qkv_bias = shape.output_bias = false;
  shape.parallel = shape.one_norm = shape.head_bias = true;
  shape.scores = Scores::kWrittenWide;
  constexpr std::int64_t kUsual = 64;
  const bool null = config.has("rotary_dim") && !present(config, "rotary_dim");
  shape.rotary =
      null ? shape.head_dim
           : number(config, {"rotary_dim"}, shape.head_dim, std::min(kUsual, shape.head_dim));
}

void read_gpt_neox(View& config, Shape& shape) {
  read_sizes(config, shape, {.flags = {"attention_bias", "rotary_pct", "use_parallel_residual"}});
  be_like_gpt(shape, Activation::kGelu);
  shape.qkv_bias = shape.output_bias = flag(config, "attention_bias", true);
  shape.fused_qkv = true;
  shape.parallel = flag(config, "use_parallel_residual", true);
  turn(config, shape, "rotary_pct", 0.25);
}

void read_opt(View& config, Shape& shape) {
  if (!flag(config, "layer_norm_elementwise_affine", true)) {
    throw InputError(config.place_of("layer_norm_elementwise_affine"),
                     "layer_norm_elementwise_affine is false",
                     "expected opt as it was published, with weights in its norms");
  }
  read_sizes(config, shape,
             {.ffn = {"ffn_dim"},
              .tied = true,
              .flags = {"word_embed_proj_dim", "do_layer_norm_before", "enable_bias"}});
  be_like_gpt(shape, Activation::kRelu, flag(config, "enable_bias", true));
  constexpr std::int64_t kUnused = 2;  // rows of the table before the first position's
  shape.positions = shape.max_sequence + kUnused;
  shape.norms_behind = !flag(config, "do_layer_norm_before", true);
  shape.final_norm = !shape.norms_behind && !flag(config, "_remove_final_layer_norm", false);
  const std::int64_t embedded = number(config, {"word_embed_proj_dim"}, kWidest, shape.hidden);
  shape.embedded = embedded == shape.hidden ? 0 : embedded;
}

void read_bloom(View& config, Shape& shape) {
  read_sizes(config, shape,
             {.layers = {"n_layer", "num_hidden_layers"},
              .hidden = {"hidden_size", "n_embed"},
              .heads = {"n_head", "num_attention_heads"},
              .ffn = {},
              .positions = {"seq_length"},
              .positions_needed = false,
              .tied = true,
              .ffn_of_hidden = 4});
  be_like_gpt(shape, Activation::kGeluBloom);
  shape.fused_qkv = shape.embedding_norm = shape.alibi = true;
  shape.scores = Scores::kWritten;
}

void read_falcon(View& config, Shape& shape) {
  const std::string type = config.text("model_type");
  const bool grouped = flag(config, "new_decoder_architecture", type == "RefinedWeb");
  // The older names' class has one key for all heads only where the file says so.
  const bool one_key = !grouped && flag(config, "multi_query", type == "falcon");
  SizeKeys keys{
      .layers = {"num_hidden_layers", "n_layer"},
      .heads = {"num_attention_heads", "n_head"},
      .ffn = {"ffn_hidden_size"},
      .positions_needed = false,
      .tied = true,
      .ffn_of_hidden = 4,
      .flags = {"multi_query", "new_decoder_architecture", "parallel_attn", "alibi", "bias"}};
  if (grouped) {
    keys.kv_heads = {"num_kv_heads", "n_head_kv"};
  }
  read_sizes(config, shape, keys);
  be_like_gpt(shape, Activation::kGelu, flag(config, "bias", false));
  if (one_key) {
    shape.kv_heads = 1;
  }
  shape.fused_qkv = true;
  shape.alibi = flag(config, "alibi", false);
  shape.parallel = grouped || flag(config, "parallel_attn", true);
  const bool two = present(config, "num_ln_in_parallel_attn")
                       ? config.integer("num_ln_in_parallel_attn", 1, 2) == 2
                       : grouped;
  shape.one_norm = shape.parallel && !(grouped && two);
  shape.scores =
      shape.alibi || (one_key && shape.heads > 1) ? Scores::kWritten : Scores::kFusedOfCopies;
}

void read_phi(View& config, Shape& shape) {
  if (flag(config, "qk_layernorm", false)) {
    throw InputError(config.place_of("qk_layernorm"), "qk_layernorm is true",
                     "expected phi as it was published, without norms of q and k");
  }
  read_sizes(config, shape,
             {.layers = {"num_hidden_layers", "n_layer"},
              .hidden = {"hidden_size", "n_embd"},
              .heads = {"num_attention_heads", "n_head"},
              .kv_heads = {"num_key_value_heads", "n_head_kv"},
              .ffn = {"intermediate_size", "n_inner"},
              .positions = {"max_position_embeddings", "n_positions"},
              .ffn_of_hidden = config.text("model_type") == "phi-msft" ? 4 : 0,
              .flags = {"partial_rotary_factor"}});
  be_like_gpt(shape, Activation::kGeluNew);
  shape.parallel = shape.one_norm = shape.head_bias = true;
  if (present(config, "rotary_dim")) {
    shape.rotary = config.integer("rotary_dim", 1, shape.head_dim);
  } else {
    turn(config, shape, "partial_rotary_factor", 0.5);
  }
}

void read_phi3(View& config, Shape& shape) {
  read_sizes(
      config, shape,
      {.kv_heads = {"num_key_value_heads"}, .flags = {"sliding_window", "partial_rotary_factor"}});
  shape.fused_qkv = shape.fused_gate_up = true;
  turn(config, shape, "partial_rotary_factor", 1);
}

void read_starcoder2(View& config, Shape& shape) {
  read_sizes(
      config, shape,
      {.kv_heads = {"num_key_value_heads"}, .tied = true, .flags = {"use_bias", "sliding_window"}});
  be_like_gpt(shape, Activation::kGelu, flag(config, "use_bias", true));
}

void read_chatglm(View& config, Shape& shape) {
  for (const char* key : {"position_encoding_2d", "inner_hidden_size"}) {
    if (config.has(key)) {
      throw InputError(config.place_of(key), "this is the first ChatGLM-6B, another model",
                       "expected the config.json of chatglm2-6b or chatglm3-6b");
    }
  }
  const bool groups = flag(config, "multi_query_attention", false);
  SizeKeys keys{.layers = {"num_layers"},
                .head_dim = {"kv_channels"},
                .ffn = {"ffn_hidden_size"},
                .vocabulary = {"padded_vocab_size"},
                .positions = {"seq_length"},
                .flags = {"multi_query_attention", "multi_query_group_num", "add_bias_linear",
                          "add_qkv_bias"}};
  if (groups) {
    keys.kv_heads = {"multi_query_group_num"};
    config.integer("multi_query_group_num", 1, kMostHeads);
  }
  read_sizes(config, shape, keys);
  shape.norm = Norm::kRmsLate;
  shape.fused_qkv = shape.fused_gate_up = true;
  shape.output_bias = shape.mlp_bias = flag(config, "add_bias_linear", false);
  shape.qkv_bias = shape.output_bias || flag(config, "add_qkv_bias", false);
  shape.rotary = shape.head_dim / 4 * 2;
  shape.scores = Scores::kFusedOfCopies;
}

// The 13B's file has no max_position_embeddings, since its positions are alibi's.
void read_baichuan(View& config, Shape& shape) {
  read_sizes(config, shape, {.positions = {"max_position_embeddings", "model_max_length"}});
  shape.fused_qkv = true;
  shape.alibi = !present(config, "max_position_embeddings");
  shape.scores = shape.alibi ? Scores::kWritten : Scores::kFused;
}

void read_gemma(View& config, Shape& shape) {
  config.integer("head_dim", 1, kMostHeads);
  config.integer("num_key_value_heads", 1, kMostHeads);
  read_sizes(config, shape,
             {.kv_heads = {"num_key_value_heads"},
              .head_dim = {"head_dim"},
              .tied = true,
              .flags = {"attention_bias", "sliding_window", "sliding_window_pattern"}});
  shape.qkv_bias = shape.output_bias = flag(config, "attention_bias", false);
  shape.norm = Norm::kRmsOnePlus;
  shape.activation = Activation::kGelu;
  shape.scaled_embedding = true;
  shape.result_norms = shape.architecture != Architecture::kGemma;
  shape.qk_norm = shape.architecture == Architecture::kGemma3;
  // gemma2's class caps unless the file says null; gemma3's only if it says a number.
  const bool gemma2 = shape.architecture == Architecture::kGemma2;
  const auto capped = [&](const char* key) {
    return config.has(key) ? present(config, key) : gemma2;
  };
  shape.capped_scores = shape.result_norms && capped("attn_logit_softcapping");
  shape.capped_logits = shape.result_norms && capped("final_logit_softcapping");
  shape.scores = shape.capped_scores ? Scores::kWritten : Scores::kFused;
}

}  // namespace

bool read_family(View& config, Shape& shape) {
  static constexpr std::array<std::pair<Architecture, void (*)(View&, Shape&)>, 14> kReaders{{
      {Architecture::kGpt2, read_gpt2},
      {Architecture::kGptJ, read_gptj},
      {Architecture::kGptNeoX, read_gpt_neox},
      {Architecture::kOpt, read_opt},
      {Architecture::kBloom, read_bloom},
      {Architecture::kFalcon, read_falcon},
      {Architecture::kPhi, read_phi},
      {Architecture::kPhi3, read_phi3},
      {Architecture::kStarcoder2, read_starcoder2},
      {Architecture::kChatGlm, read_chatglm},
      {Architecture::kBaichuan, read_baichuan},
      {Architecture::kGemma, read_gemma},
      {Architecture::kGemma2, read_gemma},
      {Architecture::kGemma3, read_gemma},
  }};
  const auto* const reader =
      std::ranges::find(kReaders, shape.architecture, [](const auto& row) { return row.first; });
  if (reader == kReaders.end()) {
    return false;
  }
  reader->second(config, shape);
  if (shape.tied && shape.head_bias) {
    throw InputError(config.place_of("tie_word_embeddings"),
                     "the head has a bias, and tie_word_embeddings is true",
                     "expected false, as these models were published");
  }
  return true;
}

}  // namespace offsim::model
