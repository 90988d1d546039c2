// The shape of a decoder-only transformer, read from a Hugging Face config.json.
//
// Everything that parameters, FLOPs and bytes depend on, and nothing else: no rotary scaling, no
// generation settings, no precision (that is the workload's), but how adapters' frozen weights are
// stored, which is with the adapters. All layers of a Shape are alike.
// Symbols in formulas: L layers, h hidden, a heads, g kv_heads, p head_dim, f ffn, V vocabulary;
// of mixtures E experts, k of them a token.
//
// Eight architectures, as transformers implements them:
//   llama, mistral   RMS norms, gated MLP (SwiGLU), no biases unless the file asks for them (llama)
//   qwen2            the same with biases on q, k, v, which no field of its file announces
//   qwen3            the same with norms over each head of q and k, no biases
//   gpt2             layer norms with bias, GELU, biases everywhere, learned positions, tied head
//   mixtral          mistral with E experts in the place of the MLP, k of them a token
//   qwen2_moe        qwen2 likewise, and an expert that every token passes, behind a gate
//   qwen3_moe        qwen3 likewise, without that one
// Left out, and refused by name: encoders, vision towers, quantised checkpoints, heads other than a
// language model's, files whose layers differ (a window, or experts, in some of them only).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/config.h"

namespace offsim::model {

enum class Architecture : std::uint8_t {
  kGpt2,
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kMixtral,
  kQwen2Moe,
  kQwen3Moe
};
inline constexpr double kMostParameters = 1e14;  // keeps every count of bytes far inside int64

enum class Norm : std::uint8_t { kRms, kLayer };  // a layer norm has a bias, an RMS norm has none

std::string_view to_string(Architecture architecture);  // "gpt2", as model_type spells it

// The experts of every layer: gated MLPs in the place of one.
struct Experts {
  std::int64_t count = 0;      // E
  std::int64_t per_token = 0;  // k
  std::int64_t width = 0;      // between an expert's matrices
  std::int64_t shared = 0;     // of the expert that every token passes; 0: there is none
  bool normalized = false;     // a token's k weights are divided by their sum
};

// Low-rank adapters on frozen weights (LoRA, arXiv 2106.09685), as PEFT adds them: a Linear's W x
// becomes W x + s B (A x), with A [rank, in] and B [out, rank]; nothing else is trained. Which
// Linears: q and v, PEFT's default for these architectures (gpt2: the fused q, k, v); q, k, v and
// o; or all of the layers. The head is never one. No dropout.
enum class AdapterTargets : std::uint8_t { kQueryValue, kAttention, kAllLinear };

// How bitsandbytes stores the weights of the layers' Linears while they are frozen (LLM.int8, arXiv
// 2208.07339; QLoRA, arXiv 2305.14314): 16 bits; 8 bits and a fp32 number a row; 4 bits and a fp32
// number for each block of 64; or, double quantisation, 8 bits for each block and a fp32 number for
// 256 of these. Embedding, norms and head stay 16-bit.
enum class Base : std::uint8_t { k16Bit, kInt8, kNf4, kNf4Double };

std::string_view to_string(AdapterTargets targets);
std::string_view to_string(Base base);

struct Adapters {
  std::int64_t rank = 0;  // 0: none, everything is trained
  AdapterTargets targets = AdapterTargets::kQueryValue;
  Base base = Base::k16Bit;  // of what is frozen

  bool any() const { return rank > 0; }
  bool on(std::string_view linear) const;  // a module by its name, such as "self_attn.q_proj"
  friend bool operator==(const Adapters&, const Adapters&) = default;
};

struct Shape {
  std::string name;  // the file's name without .json, or its folder's when that is config.json
  Architecture architecture = Architecture::kLlama;
  std::int64_t layers = 0;             // L
  std::int64_t hidden = 0;             // h
  std::int64_t heads = 0;              // a
  std::int64_t kv_heads = 0;           // g, divides a
  std::int64_t head_dim = 0;           // p; a p need not be h (qwen3)
  std::int64_t ffn = 0;                // f, the width between the MLP's matrices; of a mixture what
                                       // a token passes: k width + shared
  std::int64_t vocabulary = 0;         // V, rows of the embedding
  std::int64_t positions = 0;          // rows of the learned position table (gpt2); 0: rotary
  std::int64_t max_sequence = 0;       // the longest sequence the file declares
  std::optional<std::int64_t> window;  // sliding attention window of every layer, in tokens
  Norm norm = Norm::kRms;
  bool tied = false;         // the head is the embedding matrix: one tensor, used twice
  bool gated_mlp = true;     // SwiGLU, three matrices; otherwise GELU, two
  bool fused_qkv = false;    // q, k, v are one matrix (gpt2)
  bool qkv_bias = false;     // on q, k and v
  bool output_bias = false;  // on the attention output projection
  bool mlp_bias = false;     // on every matrix of the MLP
  bool qk_norm = false;      // two RMS norms of p elements a layer (qwen3)
  std::optional<Experts> experts = {};
  Adapters adapters = {};  // the question's, not the file's

  std::int64_t query_width() const { return heads * head_dim; }  // a p
  std::int64_t kv_width() const { return kv_heads * head_dim; }  // g p
};

// Reads a config.json. Throws InputError with the place of what is wrong: a missing, negative or
// absurd number, a wrong type, heads that kv_heads does not divide, hidden that heads does not
// divide while head_dim is absent, more than 10^14 parameters, no model_type, another architecture,
// anything listed above as left out, and formats that are not Hugging Face's (params.json of Llama,
// Megatron or NeMo YAML, adapters).
//
// Unknown keys are allowed here, and only here: the file is not ours, and it carries dozens of
// tokenizer and generation settings that differ by release. A key is still refused when it looks
// like a slip of a key that matters and is absent ("tie_word_embedding"), because that one would
// change the answer. An absent key has the value that transformers derives (kv heads of llama,
// head_dim, n_inner) or its configuration class states (tie_word_embeddings, biases); sizes are
// never guessed.
Shape read_config(const std::string& path);
Shape read_config(const Node& document, const std::string& name);

}  // namespace offsim::model
