#include "sim/model/layout.h"

#include <algorithm>
#include <array>

namespace offsim::model {

namespace layouts {

using enum Part;

constexpr std::string_view kSelf = "self_attn.", kAttn = "attn.", kMlp = "mlp.";

constexpr std::array kLlamaParts = {
    NamedPart{kSinks, kSelf, "sinks"},
    NamedPart{kQ, kSelf, "q_proj"},
    NamedPart{kK, kSelf, "k_proj"},
    NamedPart{kV, kSelf, "v_proj"},
    NamedPart{kOut, kSelf, "o_proj"},
    NamedPart{kQNorm, kSelf, "q_norm"},
    NamedPart{kKNorm, kSelf, "k_norm"},
    NamedPart{kGate, kMlp, "gate_proj"},
    NamedPart{kUp, kMlp, "up_proj"},
    NamedPart{kDown, kMlp, "down_proj"},
    NamedPart{kAttentionNorm, "", "input_layernorm"},
    NamedPart{kMlpNorm, "", "post_attention_layernorm"},
};
// What follows attention is a norm of its result here.
constexpr std::array kGemma2Parts = {
    NamedPart{kQ, kSelf, "q_proj"},
    NamedPart{kK, kSelf, "k_proj"},
    NamedPart{kV, kSelf, "v_proj"},
    NamedPart{kOut, kSelf, "o_proj"},
    NamedPart{kQNorm, kSelf, "q_norm"},
    NamedPart{kKNorm, kSelf, "k_norm"},
    NamedPart{kGate, kMlp, "gate_proj"},
    NamedPart{kUp, kMlp, "up_proj"},
    NamedPart{kDown, kMlp, "down_proj"},
    NamedPart{kAttentionNorm, "", "input_layernorm"},
    NamedPart{kAttentionResultNorm, "", "post_attention_layernorm"},
    NamedPart{kMlpNorm, "", "pre_feedforward_layernorm"},
    NamedPart{kMlpResultNorm, "", "post_feedforward_layernorm"},
};
constexpr std::array kPhi3Parts = {
    NamedPart{kOut, kSelf, "o_proj"},
    NamedPart{kQkv, kSelf, "qkv_proj"},
    NamedPart{kGateUp, kMlp, "gate_up_proj"},
    NamedPart{kDown, kMlp, "down_proj"},
    NamedPart{kAttentionNorm, "", "input_layernorm"},
    NamedPart{kMlpNorm, "", "post_attention_layernorm"},
};
constexpr std::array kBaichuanParts = {
    NamedPart{kQkv, kSelf, "W_pack"},
    NamedPart{kOut, kSelf, "o_proj"},
    NamedPart{kGate, kMlp, "gate_proj"},
    NamedPart{kDown, kMlp, "down_proj"},
    NamedPart{kUp, kMlp, "up_proj"},
    NamedPart{kAttentionNorm, "", "input_layernorm"},
    NamedPart{kMlpNorm, "", "post_attention_layernorm"},
};
constexpr std::array kChatGlmParts = {
    NamedPart{kAttentionNorm, "", "input_layernorm"},
    NamedPart{kQkv, "self_attention.", "query_key_value"},
    NamedPart{kOut, "self_attention.", "dense"},
    NamedPart{kMlpNorm, "", "post_attention_layernorm"},
    NamedPart{kGateUp, kMlp, "dense_h_to_4h"},
    NamedPart{kDown, kMlp, "dense_4h_to_h"},
};
constexpr std::array kStarcoder2Parts = {
    NamedPart{kQ, kSelf, "q_proj"},
    NamedPart{kK, kSelf, "k_proj"},
    NamedPart{kV, kSelf, "v_proj"},
    NamedPart{kOut, kSelf, "o_proj"},
    NamedPart{kGate, kMlp, "c_fc"},
    NamedPart{kDown, kMlp, "c_proj"},
    NamedPart{kAttentionNorm, "", "input_layernorm"},
    NamedPart{kMlpNorm, "", "post_attention_layernorm"},
};
constexpr std::array kPhiParts = {
    NamedPart{kQ, kSelf, "q_proj"},
    NamedPart{kK, kSelf, "k_proj"},
    NamedPart{kV, kSelf, "v_proj"},
    NamedPart{kOut, kSelf, "dense"},
    NamedPart{kGate, kMlp, "fc1"},
    NamedPart{kDown, kMlp, "fc2"},
    NamedPart{kAttentionNorm, "", "input_layernorm"},
};
constexpr std::array kGpt2Parts = {
    NamedPart{kAttentionNorm, "", "ln_1"}, NamedPart{kQkv, kAttn, "c_attn"},
    NamedPart{kOut, kAttn, "c_proj"},      NamedPart{kMlpNorm, "", "ln_2"},
    NamedPart{kGate, kMlp, "c_fc"},        NamedPart{kDown, kMlp, "c_proj"},
};
constexpr std::array kGptJParts = {
    NamedPart{kAttentionNorm, "", "ln_1"}, NamedPart{kK, kAttn, "k_proj"},
    NamedPart{kV, kAttn, "v_proj"},        NamedPart{kQ, kAttn, "q_proj"},
    NamedPart{kOut, kAttn, "out_proj"},    NamedPart{kGate, kMlp, "fc_in"},
    NamedPart{kDown, kMlp, "fc_out"},
};
constexpr std::array kGptNeoXParts = {
    NamedPart{kAttentionNorm, "", "input_layernorm"},
    NamedPart{kMlpNorm, "", "post_attention_layernorm"},
    NamedPart{kQkv, "attention.", "query_key_value"},
    NamedPart{kOut, "attention.", "dense"},
    NamedPart{kGate, kMlp, "dense_h_to_4h"},
    NamedPart{kDown, kMlp, "dense_4h_to_h"},
};
constexpr std::array kOptParts = {
    NamedPart{kK, kSelf, "k_proj"},
    NamedPart{kV, kSelf, "v_proj"},
    NamedPart{kQ, kSelf, "q_proj"},
    NamedPart{kOut, kSelf, "out_proj"},
    NamedPart{kAttentionNorm, "", "self_attn_layer_norm"},
    NamedPart{kGate, "", "fc1"},
    NamedPart{kDown, "", "fc2"},
    NamedPart{kMlpNorm, "", "final_layer_norm"},
};
constexpr std::array kBloomParts = {
    NamedPart{kAttentionNorm, "", "input_layernorm"},
    NamedPart{kQkv, "self_attention.", "query_key_value"},
    NamedPart{kOut, "self_attention.", "dense"},
    NamedPart{kMlpNorm, "", "post_attention_layernorm"},
    NamedPart{kGate, kMlp, "dense_h_to_4h"},
    NamedPart{kDown, kMlp, "dense_4h_to_h"},
};
// One after the other the norm of the MLP's input comes first, side by side that of attention's.
constexpr std::array kFalconParts = {
    NamedPart{kQkv, "self_attention.", "query_key_value"},
    NamedPart{kOut, "self_attention.", "dense"},
    NamedPart{kGate, kMlp, "dense_h_to_4h"},
    NamedPart{kDown, kMlp, "dense_4h_to_h"},
    NamedPart{kMlpNorm, "", "post_attention_layernorm"},
    NamedPart{kAttentionNorm, "", "input_layernorm"},
};
constexpr std::array kFalconTwoNormParts = {
    NamedPart{kQkv, "self_attention.", "query_key_value"},
    NamedPart{kOut, "self_attention.", "dense"},
    NamedPart{kGate, kMlp, "dense_h_to_4h"},
    NamedPart{kDown, kMlp, "dense_4h_to_h"},
    NamedPart{kAttentionNorm, "", "ln_attn"},
    NamedPart{kMlpNorm, "", "ln_mlp"},
};

constexpr Layout llama_like(std::span<const NamedPart> parts, std::string_view norm = "norm") {
  return {"model.", "embed_tokens", "", "", "model.layers.", norm, "lm_head", parts};
}
constexpr Layout gpt_like(std::span<const NamedPart> parts, std::string_view embedding) {
  return {"transformer.",   embedding, "wpe",     "word_embeddings_layernorm",
          "transformer.h.", "ln_f",    "lm_head", parts};
}

constexpr Layout kLlama = llama_like(kLlamaParts);
constexpr Layout kGemma2 = llama_like(kGemma2Parts);
constexpr Layout kPhi3 = llama_like(kPhi3Parts);
constexpr Layout kBaichuan = llama_like(kBaichuanParts);
constexpr Layout kStarcoder2 = llama_like(kStarcoder2Parts);
constexpr Layout kPhi = llama_like(kPhiParts, "final_layernorm");
constexpr Layout kGpt2 = gpt_like(kGpt2Parts, "wte");
constexpr Layout kGptJ = gpt_like(kGptJParts, "wte");
constexpr Layout kBloom = gpt_like(kBloomParts, "word_embeddings");
constexpr Layout kFalcon = gpt_like(kFalconParts, "word_embeddings");
constexpr Layout kFalconTwoNorms = gpt_like(kFalconTwoNormParts, "word_embeddings");
constexpr Layout kOpt = {"model.",
                         "decoder.embed_tokens",
                         "decoder.embed_positions",
                         "",
                         "model.decoder.layers.",
                         "decoder.final_layer_norm",
                         "lm_head",
                         kOptParts};
constexpr Layout kGptNeoX = {"gpt_neox.",        "embed_in",         "",          "",
                             "gpt_neox.layers.", "final_layer_norm", "embed_out", kGptNeoXParts};
constexpr Layout kChatGlm = {"transformer.",
                             "embedding.word_embeddings",
                             "",
                             "",
                             "transformer.encoder.layers.",
                             "encoder.final_layernorm",
                             "transformer.output_layer",
                             kChatGlmParts};

}  // namespace layouts

const NamedPart& Layout::of(Part part) const {
  const auto found = std::ranges::find(parts, part, &NamedPart::part);
  SIM_ASSERT(found != parts.end(), "a shape asks for parts that its architecture has");
  return *found;
}

std::string Layout::module_name(Part part) const {
  const NamedPart& named = of(part);
  const bool alone = std::ranges::count(parts, named.name, &NamedPart::name) == 1;
  return alone ? std::string(named.name) : std::string(named.inside) + std::string(named.name);
}

const Layout& layout(const Shape& shape) {
  switch (shape.architecture) {
    case Architecture::kGemma2:
    case Architecture::kGemma3:
      return layouts::kGemma2;
    case Architecture::kPhi3:
      return layouts::kPhi3;
    case Architecture::kBaichuan:
      return layouts::kBaichuan;
    case Architecture::kChatGlm:
      return layouts::kChatGlm;
    case Architecture::kStarcoder2:
      return layouts::kStarcoder2;
    case Architecture::kPhi:
      return layouts::kPhi;
    case Architecture::kGpt2:
      return layouts::kGpt2;
    case Architecture::kGptJ:
      return layouts::kGptJ;
    case Architecture::kGptNeoX:
      return layouts::kGptNeoX;
    case Architecture::kOpt:
      return layouts::kOpt;
    case Architecture::kBloom:
      return layouts::kBloom;
    case Architecture::kFalcon:
      return shape.parallel && !shape.one_norm ? layouts::kFalconTwoNorms : layouts::kFalcon;
    default:
      return layouts::kLlama;
  }
}

bool has(const Shape& shape, Part part) {
  using enum Part;
  switch (part) {
    case kSinks:
      return shape.sinks;
    case kQ:
    case kK:
    case kV:
      return !shape.fused_qkv;
    case kQkv:
      return shape.fused_qkv;
    case kQNorm:
    case kKNorm:
      return shape.qk_norm;
    case kGate:
      return !shape.fused_gate_up;
    case kUp:
      return shape.gated_mlp && !shape.fused_gate_up;
    case kGateUp:
      return shape.fused_gate_up;
    case kMlpNorm:
      return !shape.one_norm;
    case kAttentionResultNorm:
    case kMlpResultNorm:
      return shape.result_norms;
    case kOut:
    case kDown:
    case kAttentionNorm:
      return true;
    case kNone:
      break;
  }
  return false;
}

}  // namespace offsim::model
