// Are files of other families than llama's read as their own code reads them, with the tensors of
// its modules in their order?
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/model/tensors.h"
#include "sim/model/work.h"
#include "tests/base/message_of.h"
#include "tests/model/fixture.h"

namespace offsim::model::families_test {
namespace {

using testing::ElementsAre;
using testing::Optional;

Shape parse(const std::string& text) {
  return read_config(parse_document(text, "test.json", Syntax::kJson), "test");
}

// "name numel", without what all of a layer's begin with.
std::vector<std::string> show(const std::vector<Tensor>& tensors, const std::string& root) {
  std::vector<std::string> lines;
  for (const Tensor& tensor : tensors) {
    EXPECT_TRUE(tensor.name.starts_with(root)) << tensor.name;
    lines.push_back(fmt::format("{} {}", tensor.name.substr(root.size()), tensor.numel()));
  }
  return lines;
}

// --- parameter by parameter

TEST(Tensors, OfGptJHaveOneNormAndBiasesOfTheMlp) {
  const Shape s = load("gpt-j-6b");
  EXPECT_THAT(
      show(layer_tensors(s, 1), "transformer.h.1."),
      ElementsAre("ln_1.weight 4096", "ln_1.bias 4096", "attn.k_proj.weight 16777216",
                  "attn.v_proj.weight 16777216", "attn.q_proj.weight 16777216",
                  "attn.out_proj.weight 16777216", "mlp.fc_in.weight 67108864",
                  "mlp.fc_in.bias 16384", "mlp.fc_out.weight 67108864", "mlp.fc_out.bias 4096"));
  EXPECT_THAT(
      show(outer_tensors(s), ""),
      ElementsAre("transformer.wte.weight 206438400", "transformer.ln_f.weight 4096",
                  "transformer.ln_f.bias 4096", "lm_head.weight 206438400", "lm_head.bias 50400"));
}

TEST(Tensors, OfGptNeoXHaveBothNormsFirst) {
  EXPECT_THAT(
      show(layer_tensors(load("pythia-6.9b"), 0), "gpt_neox.layers.0."),
      ElementsAre("input_layernorm.weight 4096", "input_layernorm.bias 4096",
                  "post_attention_layernorm.weight 4096", "post_attention_layernorm.bias 4096",
                  "attention.query_key_value.weight 50331648",
                  "attention.query_key_value.bias 12288", "attention.dense.weight 16777216",
                  "attention.dense.bias 4096", "mlp.dense_h_to_4h.weight 67108864",
                  "mlp.dense_h_to_4h.bias 16384", "mlp.dense_4h_to_h.weight 67108864",
                  "mlp.dense_4h_to_h.bias 4096"));
}

TEST(Tensors, OfOpt350mHaveProjectionsAndNoFinalNorm) {
  const Shape s = load("opt-350m");
  EXPECT_THAT(
      show(layer_tensors(s, 0), "model.decoder.layers.0."),
      ElementsAre("self_attn.k_proj.weight 1048576", "self_attn.k_proj.bias 1024",
                  "self_attn.v_proj.weight 1048576", "self_attn.v_proj.bias 1024",
                  "self_attn.q_proj.weight 1048576", "self_attn.q_proj.bias 1024",
                  "self_attn.out_proj.weight 1048576", "self_attn.out_proj.bias 1024",
                  "self_attn_layer_norm.weight 1024", "self_attn_layer_norm.bias 1024",
                  "fc1.weight 4194304", "fc1.bias 4096", "fc2.weight 4194304", "fc2.bias 1024",
                  "final_layer_norm.weight 1024", "final_layer_norm.bias 1024"));
  // 50,272 x 512, 2,050 x 1,024, twice 512 x 1,024.
  EXPECT_THAT(show(outer_tensors(s), "model.decoder."),
              ElementsAre("embed_tokens.weight 25739264", "embed_positions.weight 2099200",
                          "project_in.weight 524288", "project_out.weight 524288"));
  EXPECT_EQ(s.max_sequence, 2048);
}

TEST(Tensors, OfBloomHaveANormOfTheEmbedding) {
  const Shape s = load("bloom-560m");
  EXPECT_THAT(
      show(outer_tensors(s), "transformer."),
      ElementsAre("word_embeddings.weight 256901120", "word_embeddings_layernorm.weight 1024",
                  "word_embeddings_layernorm.bias 1024", "ln_f.weight 1024", "ln_f.bias 1024"));
  EXPECT_EQ(layer_tensors(s, 0)[2].name, "transformer.h.0.self_attention.query_key_value.weight");
}

TEST(Tensors, OfFalconsLayersDifferInNormsAndKeys) {
  // 71 heads and one of k and v, of 64: 73 x 64 = 4,672 rows.
  EXPECT_THAT(show(layer_tensors(load("falcon-7b"), 0), "transformer.h.0."),
              ElementsAre("self_attention.query_key_value.weight 21229568",
                          "self_attention.dense.weight 20647936",
                          "mlp.dense_h_to_4h.weight 82591744", "mlp.dense_4h_to_h.weight 82591744",
                          "input_layernorm.weight 4544", "input_layernorm.bias 4544"));
  // 128 + 2 x 8 heads of 64.
  EXPECT_THAT(
      show(layer_tensors(load("falcon-40b"), 0), "transformer.h.0."),
      ElementsAre("self_attention.query_key_value.weight 75497472",
                  "self_attention.dense.weight 67108864", "mlp.dense_h_to_4h.weight 268435456",
                  "mlp.dense_4h_to_h.weight 268435456", "ln_attn.weight 8192", "ln_attn.bias 8192",
                  "ln_mlp.weight 8192", "ln_mlp.bias 8192"));
}

TEST(Tensors, OfPhisHaveOneNormOrFusedMatrices) {
  EXPECT_THAT(
      show(layer_tensors(load("phi-2"), 0), "model.layers.0."),
      ElementsAre("self_attn.q_proj.weight 6553600", "self_attn.q_proj.bias 2560",
                  "self_attn.k_proj.weight 6553600", "self_attn.k_proj.bias 2560",
                  "self_attn.v_proj.weight 6553600", "self_attn.v_proj.bias 2560",
                  "self_attn.dense.weight 6553600", "self_attn.dense.bias 2560",
                  "mlp.fc1.weight 26214400", "mlp.fc1.bias 10240", "mlp.fc2.weight 26214400",
                  "mlp.fc2.bias 2560", "input_layernorm.weight 2560", "input_layernorm.bias 2560"));
  // 40 + 2 x 10 heads of 128; 2 x 17,920.
  EXPECT_THAT(show(layer_tensors(load("phi-4"), 0), "model.layers.0."),
              ElementsAre("self_attn.o_proj.weight 26214400", "self_attn.qkv_proj.weight 39321600",
                          "mlp.gate_up_proj.weight 183500800", "mlp.down_proj.weight 91750400",
                          "input_layernorm.weight 5120", "post_attention_layernorm.weight 5120"));
}

TEST(Tensors, OfGemma3HaveFourNormsAndTwoOfHeads) {
  EXPECT_THAT(
      show(layer_tensors(load("gemma-3-1b"), 0), "model.layers.0."),
      ElementsAre("self_attn.q_proj.weight 1179648", "self_attn.k_proj.weight 294912",
                  "self_attn.v_proj.weight 294912", "self_attn.o_proj.weight 1179648",
                  "self_attn.q_norm.weight 256", "self_attn.k_norm.weight 256",
                  "mlp.gate_proj.weight 7962624", "mlp.up_proj.weight 7962624",
                  "mlp.down_proj.weight 7962624", "input_layernorm.weight 1152",
                  "post_attention_layernorm.weight 1152", "pre_feedforward_layernorm.weight 1152",
                  "post_feedforward_layernorm.weight 1152"));
}

TEST(Tensors, OfChatGlmAndBaichuanAreFused) {
  // 32 + 2 x 2 heads of 128; 2 x 13,696.
  EXPECT_THAT(
      show(layer_tensors(load("chatglm3-6b"), 0), "transformer.encoder.layers.0."),
      ElementsAre("input_layernorm.weight 4096", "self_attention.query_key_value.weight 18874368",
                  "self_attention.query_key_value.bias 4608",
                  "self_attention.dense.weight 16777216", "post_attention_layernorm.weight 4096",
                  "mlp.dense_h_to_4h.weight 112197632", "mlp.dense_4h_to_h.weight 56098816"));
  EXPECT_THAT(show(layer_tensors(load("baichuan2-7b"), 0), "model.layers.0."),
              ElementsAre("self_attn.W_pack.weight 50331648", "self_attn.o_proj.weight 16777216",
                          "mlp.gate_proj.weight 45088768", "mlp.down_proj.weight 45088768",
                          "mlp.up_proj.weight 45088768", "input_layernorm.weight 4096",
                          "post_attention_layernorm.weight 4096"));
}

// --- what files say, or leave unsaid

TEST(Tied, WhereNoFieldSaysSo) {
  for (const char* name : {"gemma-2b", "gemma-2-9b", "gemma-3-1b", "gemma-3-4b", "opt-1.3b",
                           "bloom-560m", "falcon-7b", "starcoder2-7b"}) {
    EXPECT_TRUE(load(name).tied) << name;
  }
  for (const char* name : {"phi-4", "gpt-neox-20b", "gpt-j-6b", "baichuan2-7b", "llava-1.5-7b"}) {
    EXPECT_FALSE(load(name).tied) << name;
  }
}

TEST(Gemma, SlidesInEveryOtherLayerOrInFiveOfSix) {
  const Shape two = load("gemma-2-9b"), three = load("gemma-3-1b");
  EXPECT_THAT(two.kind(0).window, Optional(4096));
  EXPECT_EQ(two.kind(1).window, std::nullopt);
  EXPECT_THAT(three.kind(4).window, Optional(512));
  EXPECT_EQ(three.kind(5).window, std::nullopt);
  EXPECT_THAT(three.kind(6).window, Optional(512));
  EXPECT_EQ(load("gemma-2b").kind(0).window, std::nullopt);
}

TEST(Gemma, WidthOfHeadsIsNotHiddens) {
  EXPECT_EQ(load("gemma-7b").query_width(), 4096);
  EXPECT_EQ(load("gemma-7b").hidden, 3072);
  EXPECT_EQ(load("gemma-2-27b").query_width(), 4096);
}

TEST(Gemma2, CapsUnlessTheFileSaysNull) {
  EXPECT_TRUE(load("gemma-2-9b").capped_scores);
  EXPECT_TRUE(load("gemma-2-9b").writes_scores());
  EXPECT_FALSE(load("gemma-3-1b").capped_logits);
  constexpr const char* kText = R"({{"model_type": "gemma2", "num_hidden_layers": 2,
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 100, "vocab_size": 1000, "max_position_embeddings": 2048,
    "sliding_window": 64, {}}})";
  const Shape without = parse(fmt::format(kText, R"("attn_logit_softcapping": null)"));
  EXPECT_FALSE(without.writes_scores());
  EXPECT_TRUE(without.capped_logits);
}

// The file leaves heads, head_dim and vocabulary to the class.
TEST(Gemma3, TextPartHasTheSizesOfItsClassWhereItIsSilent) {
  const Shape s = load("gemma-3-4b");
  EXPECT_EQ(s.heads, 8);
  EXPECT_EQ(s.kv_heads, 4);
  EXPECT_EQ(s.head_dim, 256);
  EXPECT_EQ(s.vocabulary, 262208);
  EXPECT_THAT(s.kind(0).window, Optional(1024));
  // Alone, such a file is refused.
  EXPECT_EQ(message_of([] {
              parse(R"({"model_type": "gemma3_text", "hidden_size": 2560, "head_dim": 256})");
            }),
            "test.json:1:1: num_key_value_heads is missing; expected it in this map");
}

// SigLIP of 27 layers 1152 wide and its projection; CLIP's 24 of 1024 and two Linears.
TEST(Vision, IsCountedAndIsOutside) {
  EXPECT_EQ(load("qwen2.5-vl-7b").outside, 676'550'144);
  EXPECT_EQ(parameters(load("qwen2.5-vl-7b")), parameters(load("qwen2.5-7b")));
  EXPECT_EQ(load("gemma-3-27b").outside - load("gemma-3-4b").outside, 1152 * (5376 - 2560));
  // Two tables more of 64 tokens each than vicuna's 6,738,415,616.
  EXPECT_EQ(parameters(load("llava-1.5-7b")), 6'738'415'616 + 2 * 64 * 4096);
  EXPECT_EQ(load("llama-2-7b").outside, 0);
}

TEST(Vision, AboveAllSizesIsRefused) {
  EXPECT_EQ(message_of([] {
              parse(R"({"model_type": "qwen2_5_vl", "hidden_size": 64, "vision_config":
    {"depth": 1, "hidden_size": 1000000, "intermediate_size": 1, "patch_size": 1,
     "spatial_merge_size": 64}})");
            }),
            "test.json:2:5: the vision part has 1.68e+19 parameters; expected at most 1e+14");
}

TEST(Llava, OfAnotherTextPartReadsItsKeys) {
  constexpr const char* kVision = R"("vision_config": {"hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "image_size": 28, "patch_size": 14})";
  EXPECT_EQ(
      message_of([&] {
        parse(fmt::format(
            R"({{"model_type": "llava", "text_config": {{"model_type": "qwen2"}}, {}}})", kVision));
      }),
      "test.json:1:40: hidden_size is missing; expected it in this map");
  EXPECT_EQ(message_of([] { parse(R"({"model_type": "llava", "text_config": {}})"); }),
            "test.json:1:1: vision_config is missing; expected it in this map");
}

TEST(Falcon, MultiQueryIsOneKeyUnlessTheArchitectureIsNew) {
  EXPECT_EQ(load("falcon-7b").kv_heads, 1);
  EXPECT_EQ(load("falcon-40b").kv_heads, 8);
  EXPECT_TRUE(load("falcon-7b").one_norm);
  EXPECT_FALSE(load("falcon-40b").one_norm);
  EXPECT_TRUE(load("falcon-7b").writes_scores());
  EXPECT_FALSE(load("falcon-40b").writes_scores());
}

TEST(Falcon, OldNamesAreReadTheSame) {
  const Shape large = parse(R"({"model_type": "RefinedWeb", "architectures": ["RWForCausalLM"],
    "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60, "parallel_attn": true,
    "alibi": false, "bias": false, "vocab_size": 65024})");
  EXPECT_EQ(parameters(large), 41'303'293'952);
  const Shape small = parse(R"({"model_type": "RefinedWebModel", "hidden_size": 4544, "n_head": 71,
    "n_layer": 32, "multi_query": true, "parallel_attn": true, "vocab_size": 65024})");
  EXPECT_EQ(parameters(small), 6'921'720'704);
}

TEST(Phi, OldNamesAreReadTheSame) {
  const Shape s = parse(R"({"model_type": "phi-msft", "n_embd": 2560, "n_layer": 32, "n_head": 32,
    "n_head_kv": null, "n_inner": null, "n_positions": 2048, "rotary_dim": 32,
    "vocab_size": 51200, "tie_word_embeddings": false})");
  EXPECT_EQ(parameters(s), 2'779'683'840);
  EXPECT_EQ(s.turned(), 32);
  EXPECT_EQ(load("phi-2").turned(), 32);  // 0.4 of 80
}

TEST(Bloom, BothNamesAreReadAndMayNotDiffer) {
  constexpr const char* kText = R"({{"model_type": "bloom", "n_layer": 2, "n_head": 4,
    "vocab_size": 1000, {}}})";
  EXPECT_EQ(parse(fmt::format(kText, R"("hidden_size": 64)")).hidden, 64);
  EXPECT_EQ(parse(fmt::format(kText, R"("n_embed": 64, "hidden_size": 64)")).hidden, 64);
  EXPECT_EQ(
      message_of([&] { parse(fmt::format(kText, R"("n_embed": 64, "hidden_size": 32)")); }),
      "test.json:2:36: hidden_size is 32 and n_embed is 64; expected one of them, or the same "
      "number");
}

TEST(Baichuan, ThirteenBillionHasAlibi) {
  EXPECT_FALSE(load("baichuan2-7b").alibi);
  const Shape s = parse(R"({"model_type": "baichuan", "hidden_size": 5120, "vocab_size": 125696,
    "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 40,
    "model_max_length": 4096, "tie_word_embeddings": false})");
  EXPECT_TRUE(s.alibi);
  EXPECT_EQ(s.turned(), 0);
  EXPECT_EQ(parameters(s), 13'896'668'160);  // 2 V h + h + 40 (4 h h + 3 h f + 2 h)
}

TEST(ChatGlm, OfTheFirst6BIsRefusedByName) {
  EXPECT_EQ(message_of([] {
              parse(R"({"model_type": "chatglm", "inner_hidden_size": 16384, "num_layers": 28})");
            }),
            "test.json:1:48: this is the first ChatGLM-6B, another model; expected the config.json "
            "of chatglm2-6b or chatglm3-6b");
}

TEST(GptJ, WithATiedHeadIsRefused) {
  EXPECT_EQ(message_of([] {
              parse(R"({"model_type": "gptj", "n_embd": 64, "n_layer": 2, "n_head": 4,
    "n_positions": 128, "vocab_size": 1000, "rotary_dim": 8, "tie_word_embeddings": true})");
            }),
            "test.json:2:85: the head has a bias, and tie_word_embeddings is true; expected false, "
            "as these models were published");
}

// PEFT adapts what projects to q, k, v, fused where it is, and the attention's other Linear; never
// the MLP's, whose names begin alike.
TEST(Adapters, KnowEachFamilysProjections) {
  const auto adapted = [](const char* name, AdapterTargets targets) {
    Shape s = load(name);
    s.adapters = {.rank = 8, .targets = targets};
    return count(trained(layer_tensors(s, 0)));
  };
  const auto query_value = AdapterTargets::kQueryValue, attention = AdapterTargets::kAttention;
  EXPECT_EQ(adapted("pythia-6.9b", query_value), 8 * (4096 + 12288));
  EXPECT_EQ(adapted("pythia-6.9b", attention), 8 * (4096 + 12288) + 8 * 2 * 4096);
  EXPECT_EQ(adapted("opt-1.3b", query_value), 2 * 8 * 2 * 2048);
  EXPECT_EQ(adapted("opt-1.3b", attention), 4 * 8 * 2 * 2048);
  EXPECT_EQ(adapted("phi-4", query_value), 8 * (5120 + 7680));
  EXPECT_EQ(adapted("phi-2", attention), 4 * 8 * 2 * 2560);
  EXPECT_EQ(adapted("falcon-7b", AdapterTargets::kAllLinear),
            8 * (4544 + 4672) + 8 * 2 * 4544 + 2 * 8 * 5 * 4544);
}

TEST(QwenVl, NestedInNewerFilesIsReadTheSame) {
  const Shape s = parse(R"({"model_type": "qwen2_5_vl", "text_config": {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl_text",
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "max_position_embeddings": 128000, "tie_word_embeddings": false},
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
    "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2}})");
  EXPECT_EQ(parameters(s) + s.outside, 8'292'166'656);
}

// --- what a step launches

constexpr Batch kBatch{2, 128};

// Stage 3 finds every parameter of a model in a module, and once.
TEST(Works, HaveAModuleForEachTensor) {
  for (const char* name : {"gpt-j-6b", "pythia-6.9b", "opt-350m", "opt-1.3b", "bloom-560m",
                           "falcon-7b", "falcon-40b", "phi-2", "phi-4", "starcoder2-7b",
                           "chatglm3-6b", "baichuan2-7b", "gemma-7b", "gemma-2-9b", "gemma-3-1b"}) {
    const Shape s = load(name);
    const Pieces p = pieces(s, kBatch, Numerics::kAutocast);
    const auto expect_all = [&](const Piece& piece, const std::vector<Tensor>& tensors) {
      std::vector<std::int64_t> in_modules, in_tensors;
      for (const Module& module : piece.modules) {
        if (!module.tied) {
          in_modules.insert(in_modules.end(), module.elements.begin(), module.elements.end());
        }
      }
      for (const Tensor& tensor : tensors) {
        in_tensors.push_back(tensor.numel());
      }
      EXPECT_THAT(in_modules, testing::UnorderedElementsAreArray(in_tensors)) << name;
    };
    expect_all(p.embedding, embedding_tensors(s));
    expect_all(p.layer(0), layer_tensors(s, 0));
    expect_all(p.head, tail_tensors(s));
  }
}

// Products of a forward are those of its matrices and of attention.
TEST(Works, HaveTheOperationsOfTheFormula) {
  for (const char* name : {"gpt-j-6b", "pythia-6.9b", "opt-350m", "bloom-560m", "falcon-40b",
                           "phi-2", "phi-4", "starcoder2-7b", "chatglm3-6b", "gemma-2-9b"}) {
    const Shape s = load(name);
    const Pieces p = pieces(s, kBatch, Numerics::kPure16);
    const Flops attention = layer_attention_flops(s, 0, kBatch, Mask::kFull);
    const double linear = layer_linear_flops(s, 0, kBatch.tokens()).value;
    // A fused kernel leaves the upper half out.
    const double scores = attention.value * (s.writes_scores() ? 1 : 0.5);
    EXPECT_DOUBLE_EQ(p.layer(0).forward.flops().value, linear + scores) << name;
    const double of_pieces = p.embedding.forward.flops().value + p.head.forward.flops().value;
    EXPECT_DOUBLE_EQ(of_pieces, head_flops(s, kBatch.tokens()).value) << name;
  }
}

// gemma-2-9b: 16 heads of 128 scores a token; kept are their tanh and softmax in 16 bits and the
// latter in 32.
TEST(Works, ThatWriteScoresKeepThem) {
  Shape written = load("gemma-2-9b");
  Shape fused = written;
  fused.scores = Scores::kFused;
  const std::int64_t tokens = kBatch.tokens(), scores = tokens * 16 * 128;
  const Bytes kept = pieces(written, kBatch, Numerics::kPure16).layer(0).saved;
  const Bytes less = pieces(fused, kBatch, Numerics::kPure16).layer(0).saved;
  // Keys and values of 16 heads for 8; the result of attention is saved by o_proj either way; the
  // fused kernel's log-sum-exp.
  const std::int64_t copies = 2 * 2 * tokens * 8 * 256;
  EXPECT_EQ(kept.value - less.value, 8 * scores + copies - 4 * tokens * 16);
}

// Behind one norm: one norm's work less, and gradients meet before it.
TEST(Works, OfParallelPartsHaveTwoAdditions) {
  const Shape s = load("phi-2");
  const std::vector<Kernel> kernels =
      pieces(s, kBatch, Numerics::kPure16).layer(0).modules.back().forward.kernels;
  const std::int64_t bytes = 3 * 2 * kBatch.tokens() * 2560;
  EXPECT_EQ(std::ranges::count(kernels, bytes, &Kernel::bytes), 2);
}

TEST(Works, OfAPostNormEndWithIt) {
  const Piece layer = pieces(load("opt-350m"), kBatch, Numerics::kPure16).layer(0);
  EXPECT_EQ(layer.modules.back().name, "final_layer_norm");
  EXPECT_EQ(layer.modules.front().name, "q_proj");
}

}  // namespace
}  // namespace offsim::model::families_test
