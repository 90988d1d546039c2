// The shape of a decoder-only transformer, read from a Hugging Face config.json.
//
// Everything that parameters, FLOPs and bytes depend on, and nothing else: no rotary scaling, no
// generation settings, no precision (that is the workload's), but how adapters' frozen weights are
// stored, which is with the adapters. Layers share their attention's widths; in what else they may
// differ is a LayerKind, of which most models have one.
// Symbols in formulas: L layers, h hidden, a heads, g kv_heads, p head_dim, f ffn, V vocabulary;
// of mixtures E experts, k of them a token, w wide; of latent attention r ranks, d widths of a
// head's parts.
//
// Architectures, as transformers 5 implements them (chatglm and baichuan: their own remote code):
//   llama, mistral   RMS norms, gated MLP (SwiGLU), no biases unless the file asks for them (llama)
//   qwen2            the same with biases on q, k, v, which no field of its file announces
//   qwen3            the same with norms over each head of q and k, no biases
//   phi3, baichuan   llama with q, k, v fused, phi3's gate and up too; baichuan's 13B with alibi
//   gemma, 2, 3      tied, head_dim apart from hidden, GELU for SiLU; 2 and 3 norm results too,
//                    2 caps its scores and logits, 3 has norms over heads as qwen3
//   chatglm          q, k, v and gate, up fused, biases on q, k, v, half of a head turned
//   gpt2             layer norms with bias, GELU, biases everywhere, learned positions, tied head
//   opt              the same with ReLU and matrices of their own; 350m norms behind, and its
//                    embedding is narrower than its layers
//   starcoder2       llama's attention, gpt2's norms, biases and MLP, tied
//   bloom            gpt2 with alibi for positions and a norm of the embedding
//   gptj, phi        attention and MLP side by side behind one norm, biases (gptj: the MLP's)
//   gpt_neox, falcon side by side behind two norms (falcon-7b: one), q, k, v fused; falcon tied
//   mixtral          mistral with E experts in the place of the MLP, k of them a token
//   qwen2_moe        qwen2 likewise, and an expert that every token passes, behind a gate
//   qwen3_moe        qwen3 likewise, without that one
//   deepseek_v2, _v3 latent attention; the first layers dense, then E experts and one for every
//                    token; the router in fp32, v3's of sigmoids
//   gpt_oss          windows in every other layer, sinks, biases, experts of a clamped SwiGLU
//   gemma3, llava, qwen2_5_vl
//                    the language model in them; what sees is counted and not simulated
// A window, and dense layers among a mixture's, may be of some layers only (layer_types,
// max_window_layers; first_k_dense_replace, decoder_sparse_step, mlp_only_layers).
// deepseek_v3 and gpt_oss are published as fp8 and mxfp4; training runs on 16-bit weights, which
// transformers makes of these (dequantize) before the first step, so that their
// quantization_config is read over. Any other is refused. What a checkpoint has beyond
// transformers' model is not counted: v3's layer for multi-token prediction (num_nextn_predict_
// layers), and buffers (e_score_correction_bias).
// Left out, and refused by name: encoders, encoder-decoders (t5 with its count), recurrent layers,
// other quantised checkpoints, heads other than a language model's. Not modelled
// either: that baichuan2 normalises its head's rows in each forward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/config.h"

namespace offsim::model {

enum class Architecture : std::uint8_t {
  kGpt2,
  kGptJ,
  kGptNeoX,
  kOpt,
  kBloom,
  kFalcon,
  kPhi,
  kPhi3,
  kStarcoder2,
  kChatGlm,
  kBaichuan,
  kGemma,
  kGemma2,
  kGemma3,
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kMixtral,
  kQwen2Moe,
  kQwen3Moe,
  kDeepseekV2,
  kDeepseekV3,
  kGptOss
};
inline constexpr double kMostParameters = 1e14;  // keeps every count of bytes far inside int64

// A layer norm has a bias, an RMS norm has none. Late: back to 16 bits only behind the weight's
// product; one plus: the same, with a weight that is stored less one (gemma).
enum class Norm : std::uint8_t { kRms, kRmsLate, kRmsOnePlus, kLayer };

// Between the MLP's matrices; but gelu_new's and bloom's formulas each is one kernel.
enum class Activation : std::uint8_t { kSilu, kGelu, kGeluNew, kGeluBloom, kRelu };

// How attention is computed. Fused: all but its result stays on the chip. Of copies: the same
// behind keys and values copied to each query head. Written: all S x S scores are in memory
// (transformers' "eager"), wide ones in fp32.
enum class Scores : std::uint8_t { kFused, kFusedOfCopies, kWritten, kWrittenWide };

std::string_view to_string(Architecture architecture);  // "gpt2", as model_type spells it

// The experts of a layer: gated MLPs in the place of one.
struct Experts {
  std::int64_t count = 0;      // E
  std::int64_t per_token = 0;  // k
  std::int64_t width = 0;      // w, between an expert's matrices
  std::int64_t shared = 0;     // of the expert that every token passes; 0: there is none
  bool normalized = false;     // a token's k weights are divided by their sum
  bool grouped = false;        // the k come from the best groups of experts (deepseek)
  bool bias = false;           // of the router and of the experts' matrices (gpt_oss)
  friend bool operator==(const Experts&, const Experts&) = default;
};

// In what layers of a model may differ.
struct LayerKind {
  std::int64_t ffn = 0;                // f, the width between the MLP's matrices; of experts what a
                                       // token passes: k w + shared
  std::optional<std::int64_t> window;  // sliding attention window, in tokens
  std::optional<Experts> experts;
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

// Multi-head latent attention (arXiv 2405.04434): keys and values, and unless q_rank is 0 queries,
// are products of a narrow latent vector of each token. A head's query and key have a part without
// and one with rotary positions; that of the key is one for all heads.
struct Latent {
  std::int64_t q_rank = 0;  // 0: q is one matrix
  std::int64_t kv_rank = 0;
  std::int64_t plain = 0;   // qk_nope_head_dim
  std::int64_t rotary = 0;  // qk_rope_head_dim
};

// Low-rank adapters on frozen weights (LoRA, arXiv 2106.09685), as PEFT adds them: a Linear's W x
// becomes W x + s B (A x), with A [rank, in] and B [out, rank]; nothing else is trained. Which
// Linears: q and v, PEFT's default for these architectures (the fused q, k, v where they are); q,
// k, v and o; or all of the layers. The head is never one. No dropout. Latent attention: its five
// Linears (or four) in the place of q, k, v and o. Experts and routers are parameters (transformers
// 5), which PEFT adapts by target_parameters: not modelled.
enum class AdapterTargets : std::uint8_t { kQueryValue, kAttention, kAllLinear };

// How bitsandbytes stores the weights of the layers' Linears while they are frozen (LLM.int8, arXiv
// 2208.07339; QLoRA, arXiv 2305.14314): 16 bits; 8 bits and a fp32 number a row; 4 bits and a fp32
// number for each block of 64; or, double quantisation, 8 bits for each block and a fp32 number for
// 256 of these. Embedding, norms, head, experts and routers stay 16-bit.
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
  std::int64_t layers = 0;        // L
  std::int64_t hidden = 0;        // h
  std::int64_t heads = 0;         // a
  std::int64_t kv_heads = 0;      // g, divides a
  std::int64_t head_dim = 0;      // p, of q and k; a p need not be h (qwen3)
  std::int64_t value_dim = 0;     // of v; 0: as head_dim
  std::int64_t vocabulary = 0;    // V, rows of the embedding
  std::int64_t positions = 0;     // rows of the learned position table (gpt2); 0: rotary
  std::int64_t max_sequence = 0;  // the longest sequence the file declares
  std::vector<LayerKind> kinds = std::vector<LayerKind>(1);
  std::vector<std::size_t> kind_of = {};  // by layer, which of them; empty: all are the first
  Norm norm = Norm::kRms;
  bool tied = false;      // the head is the embedding matrix: one tensor, used twice
  bool gated_mlp = true;  // three matrices (SwiGLU); otherwise two
  Activation activation = Activation::kSilu;
  bool fused_qkv = false;                   // q, k, v are one matrix
  bool fused_gate_up = false;               // gate and up are
  bool qkv_bias = false;                    // on q, k and v
  bool output_bias = false;                 // on the attention output projection
  bool mlp_bias = false;                    // on every matrix of the MLP
  bool qk_norm = false;                     // two RMS norms of p elements a layer (qwen3)
  bool sinks = false;                       // a number a head that joins its scores (gpt_oss)
  std::optional<std::int64_t> rotary = {};  // elements of a head that positions turn, else all
  bool alibi = false;                       // positions are added to scores instead
  Scores scores = Scores::kFused;
  bool capped_scores = false;     // through a tanh (gemma2)
  bool capped_logits = false;     // likewise
  bool parallel = false;          // attention and MLP read the same input, which both are added to
  bool one_norm = false;          // parallel ones behind the same norm
  bool norms_behind = false;      // norms follow the additions instead (opt-350m)
  bool result_norms = false;      // of what attention and MLP add, too (gemma2, gemma3)
  bool final_norm = true;         // opt-350m has none
  bool embedding_norm = false;    // bloom
  bool scaled_embedding = false;  // times the root of h (gemma)
  std::int64_t embedded = 0;      // width of embedding and head where it is not h: two projections
  bool head_bias = false;
  std::optional<Latent> latent = {};
  std::int64_t outside = 0;             // parameters of what sees, which no step here has
  Adapters adapters = {};               // the question's, not the file's
  std::vector<std::string> notes = {};  // warnings about the files that it is from

  std::int64_t query_width() const { return heads * head_dim; }  // a p
  std::int64_t kv_width() const { return kv_heads * head_dim; }  // g p
  std::int64_t value_width() const {                             // of attention's result
    return heads * (value_dim > 0 ? value_dim : head_dim);
  }

  std::int64_t embedding_width() const { return embedded > 0 ? embedded : hidden; }
  std::int64_t head_elements() const { return vocabulary * embedding_width(); }  // tied or not
  // Elements of a head that positions turn.
  std::int64_t turned() const { return positions > 0 || alibi ? 0 : rotary.value_or(head_dim); }
  // All scores are in memory.
  bool writes_scores() const {
    return sinks || scores == Scores::kWritten || scores == Scores::kWrittenWide;
  }

  std::size_t kind_index(std::int64_t layer) const {
    return kind_of.empty() ? 0 : kind_of[static_cast<std::size_t>(layer)];
  }
  const LayerKind& kind(std::int64_t layer) const { return kinds[kind_index(layer)]; }
  bool has_experts() const;
  // For sums over layers and what is the largest of any: the first layer of each kind that occurs,
  // and how many are alike.
  struct Alike {
    std::int64_t layer, count;
  };
  std::vector<Alike> different_layers() const;
};

// Reads a config.json. Throws InputError with the place of what is wrong: a missing, negative or
// absurd number, a wrong type, heads that kv_heads does not divide, hidden that heads does not
// divide while head_dim is absent, a list of layers of another length than there are layers, more
// dense layers than layers, more experts a token than there are, groups that do not divide them,
// more than 10^14 parameters, no model_type, another architecture,
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
