// Is each bad file refused in one line that says where, what is wrong and what was expected?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string_view>

#include "tests/model/fixture.h"

namespace offsim::model::config_errors_test {
namespace {

std::string message(const std::string& text, Syntax syntax = Syntax::kJson) {
  try {
    read_config(parse_document(text, "bad.json", syntax), "bad");
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

// A good file, one key a line; line 1 is the brace, so that model_type is at 2:17.
constexpr std::string_view kGood = R"({
  "model_type": "llama",
  "architectures": ["LlamaForCausalLM"],
  "num_hidden_layers": 4,
  "hidden_size": 64,
  "num_attention_heads": 8,
  "num_key_value_heads": 2,
  "intermediate_size": 100,
  "vocab_size": 1000,
  "max_position_embeddings": 2048,
  "tie_word_embeddings": false
})";

std::string good_with(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(GoodFile, IsAccepted) { EXPECT_EQ(message(std::string(kGood)), "accepted"); }

struct Edit {
  const char* from;  // a part of the good file
  const char* to;    // what stands there in the bad one
  const char* message;
};
void PrintTo(const Edit& edit, std::ostream* out) { *out << edit.to; }

class BadEdit : public testing::TestWithParam<Edit> {};
TEST_P(BadEdit, IsRefused) {
  EXPECT_EQ(message(good_with(GetParam().from, GetParam().to)), GetParam().message);
}

const Edit kNumbers[] = {
    {R"("num_hidden_layers": 4,)", "",
     "bad.json:1:1: num_hidden_layers is missing; expected it in this map"},
    {R"("hidden_size": 64,)", "", "bad.json:1:1: hidden_size is missing; expected it in this map"},
    {R"("num_attention_heads": 8,)", "",
     "bad.json:1:1: num_attention_heads is missing; expected it in this map"},
    {R"("intermediate_size": 100,)", "",
     "bad.json:1:1: intermediate_size is missing; expected it in this map"},
    {R"("vocab_size": 1000,)", "", "bad.json:1:1: vocab_size is missing; expected it in this map"},
    {R"("max_position_embeddings": 2048,)", "",
     "bad.json:1:1: max_position_embeddings is missing; expected it in this map"},
    {R"(layers": 4)", R"(layers": null)",
     "bad.json:4:3: num_hidden_layers is empty; expected a whole number from 1 to 100000"},
    {R"(layers": 4)", R"(layers": 0)",
     "bad.json:4:24: num_hidden_layers is '0'; expected a whole number from 1 to 100000"},
    {R"(layers": 4)", R"(layers": -4)",
     "bad.json:4:24: num_hidden_layers is '-4'; expected a whole number from 1 to 100000"},
    {R"(layers": 4)", R"(layers": 100001)",
     "bad.json:4:24: num_hidden_layers is '100001'; expected a whole number from 1 to 100000"},
    {R"(layers": 4)", R"(layers": 4.5)",
     "bad.json:4:24: num_hidden_layers is '4.5'; expected a whole number from 1 to 100000"},
    {R"(layers": 4)", R"(layers": "4")",
     "bad.json:4:24: num_hidden_layers is the text '4'; expected a whole number from 1 to 100000"},
    {R"(layers": 4)", R"(layers": [4])",
     "bad.json:4:24: num_hidden_layers is a list; expected a whole number from 1 to 100000"},
    {R"(layers": 4)", R"(layers": true)",
     "bad.json:4:24: num_hidden_layers is 'true'; expected a whole number from 1 to 100000"},
    {R"(hidden_size": 64)", R"(hidden_size": 9223372036854775808)",
     "bad.json:5:18: hidden_size is '9223372036854775808'; expected a whole number from 1 to "
     "1000000"},
    {R"(vocab_size": 1000)", R"(vocab_size": 0)",
     "bad.json:9:17: vocab_size is '0'; expected a whole number from 1 to 100000000"},
    {R"("intermediate_size": 100)", R"("intermediate_size": {})",
     "bad.json:8:24: intermediate_size is a map; expected a whole number from 1 to 10000000"},
    {R"("tie_word_embeddings": false)", R"("tie_word_embeddings": 0)",
     "bad.json:11:26: tie_word_embeddings is '0'; expected true or false"},
    {R"("num_attention_heads": 8)", R"("num_attention_heads": 7)",
     "bad.json:7:26: num_key_value_heads 2 does not divide num_attention_heads 7; expected a "
     "divisor of it"},
    {R"("num_key_value_heads": 2)", R"("num_key_value_heads": 16)",
     "bad.json:7:26: num_key_value_heads 16 does not divide num_attention_heads 8; expected a "
     "divisor of it"},
    {R"("hidden_size": 64)", R"("hidden_size": 63)",
     "bad.json:6:26: num_attention_heads 8 does not divide hidden_size 63; expected a divisor of "
     "it, or head_dim"},
    {R"("num_hidden_layers": 4,
  "hidden_size": 64)",
     R"("num_hidden_layers": 100000,
  "hidden_size": 1000000)",
     "bad.json:1:1: the model has 2.5e+17 parameters; expected at most 1e+14"},
};
INSTANTIATE_TEST_SUITE_P(Numbers, BadEdit, testing::ValuesIn(kNumbers));

#define ONE_OF_THESE                                                                              \
  "; expected one of baichuan, bloom, chatglm, deepseek_v2, deepseek_v3, falcon, gemma, gemma2, " \
  "gemma3, gemma3_text, gpt2, gpt_neox, gpt_oss, gptj, llama, llava, mistral, mixtral, opt, "     \
  "phi, phi3, qwen2, qwen2_5_vl, qwen2_moe, qwen3, qwen3_moe, starcoder2"
const Edit kOtherModels[] = {
    {R"("model_type": "llama")", R"("model_type": "cohere")",
     "bad.json:2:17: architecture 'cohere' is not supported yet" ONE_OF_THESE},
    {R"("model_type": "llama")", R"("model_type": "Llama")",
     "bad.json:2:17: architecture 'Llama' is not supported yet" ONE_OF_THESE},
    {R"("model_type": "llama")", R"("model_type": "x\ny")",
     "bad.json:2:17: architecture 'x?y' is not supported yet" ONE_OF_THESE},
    {R"("model_type": "llama")", R"("model_type": ["llama"])",
     "bad.json:2:17: model_type is a list; expected a single value"},
    {R"("model_type": "llama",)", "", "bad.json:1:1: model_type is missing" ONE_OF_THESE},
    {R"("model_type": "llama",)", R"("quantization_config": {"bits": 4}, "model_type": "llama",)",
     "bad.json:2:26: a quantised checkpoint is not supported: only adapters on it can be trained; "
     "expected the config.json of the unquantised model, and lora_rank with a base"},
    {R"("model_type": "llama",)", R"("model_type": "llama", "num_experts": 8,)",
     "bad.json:2:41: num_experts announces a mixture of experts; expected a dense model"},
    {R"("model_type": "llama",)", R"("model_type": "llama", "num_local_experts": -1,)",
     "bad.json:2:47: num_local_experts is '-1'; expected a whole number from 0 to 100000"},
    {R"("model_type": "llama",)", R"("model_type": "llama", "vision_config": {},)",
     "bad.json:2:43: vision_config announces a multimodal model; expected a language model alone"},
    {R"("model_type": "llama",)", R"("model_type": "llama", "is_encoder_decoder": true,)",
     "bad.json:2:48: is_encoder_decoder announces an encoder-decoder; expected a decoder alone"},
    {R"(["LlamaForCausalLM"])", R"("LlamaForCausalLM")",
     "bad.json:3:20: architectures is not a list; expected [NAME, ...]"},
    {R"("LlamaForCausalLM")", R"(null)",
     "bad.json:3:21: architectures is empty; expected a single value"},
    {R"("model_type": "llama",)", R"("model_type": "llama", "layer_types": "full_attention",)",
     "bad.json:2:41: layer_types is not a list; expected [NAME, ...]"},
    {"LlamaForCausalLM", "LlamaForSequenceClassification",
     "bad.json:3:21: 'LlamaForSequenceClassification' has no language-model head; expected a class "
     "that ends in ForCausalLM or LMHeadModel"},
    {R"("model_type": "llama",)",
     R"("model_type": "llama", "layer_types": ["full_attention", "sliding_attention"],)",
     "bad.json:2:41: layer_types has 2 layers of 4; expected one type for each layer"},
    {R"("model_type": "llama",)", R"("model_type": "llama", "layer_types": ["linear_attention"],)",
     "bad.json:2:42: layer type 'linear_attention' is not supported; expected full_attention or "
     "sliding_attention"},
};
INSTANTIATE_TEST_SUITE_P(OtherModels, BadEdit, testing::ValuesIn(kOtherModels));

const Edit kWhatOtherArchitecturesNeed[] = {
    {R"("model_type": "llama")", R"("model_type": "qwen3")",
     "bad.json:1:1: head_dim is missing; expected it in this map"},
    {R"("model_type": "llama")", R"("model_type": "mistral")",
     "bad.json:1:1: sliding_window is missing; expected it in this map"},
    {R"("model_type": "llama")", R"("model_type": "gpt2")",
     "bad.json:1:1: n_layer is missing; expected it in this map"},
    {R"("model_type": "llama")",
     R"("model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 3)",
     "bad.json:1:1: sliding_window is missing; expected it in this map"},
};
INSTANTIATE_TEST_SUITE_P(Needs, BadEdit, testing::ValuesIn(kWhatOtherArchitecturesNeed));

#define RECURRENT                                           \
  " has layers that are recurrent, which is not modelled; " \
  "expected a transformer, whose layers all have attention"
const Edit kNoDecoders[] = {
    {"llama", "mamba", "bad.json:2:17: mamba" RECURRENT},
    {"llama", "rwkv", "bad.json:2:17: rwkv" RECURRENT},
    {"llama", "jamba", "bad.json:2:17: jamba" RECURRENT},
    {"llama", "qwen3_next", "bad.json:2:17: qwen3_next" RECURRENT},
    {"llama", "qwen3_5", "bad.json:2:17: qwen3_5" RECURRENT},
    {"llama", "falcon_h1", "bad.json:2:17: falcon_h1" RECURRENT},
    {"llama", "granitemoehybrid", "bad.json:2:17: granitemoehybrid" RECURRENT},
    {R"("model_type": "llama",)", R"("model_type": "llama", "attn_layer_period": 8,)",
     "bad.json:2:47: attn_layer_period announces recurrent layers; expected a transformer, whose "
     "layers all have attention"},
    {"llama", "bert",
     "bad.json:2:17: bert is only an encoder: it has no next token to learn; expected a language "
     "model"},
    {"llama", "deberta-v2",
     "bad.json:2:17: deberta-v2 is only an encoder: it has no next token to learn; expected a "
     "language model"},
    {"llama", "whisper",
     "bad.json:2:17: whisper has an encoder and a decoder: a step takes two sequences, which is "
     "not modelled; expected a decoder alone"},
};
INSTANTIATE_TEST_SUITE_P(NoDecoders, BadEdit, testing::ValuesIn(kNoDecoders));

const Edit kSlips[] = {
    {"tie_word_embeddings", "quantisation_config",
     "bad.json:11:26: unknown key 'quantisation_config'; did you mean 'quantization_config'?"},
    {"tie_word_embeddings", "tie_word_embedding",
     "bad.json:11:25: unknown key 'tie_word_embedding'; did you mean 'tie_word_embeddings'?"},
    {"num_hidden_layers", "num_hiden_layers",
     "bad.json:4:23: unknown key 'num_hiden_layers'; did you mean 'num_hidden_layers'?"},
    {"num_key_value_heads", "num_key_values_heads",
     "bad.json:7:27: unknown key 'num_key_values_heads'; did you mean 'num_key_value_heads'?"},
};
INSTANTIATE_TEST_SUITE_P(Slips, BadEdit, testing::ValuesIn(kSlips));

TEST(GoodFile, MayLeaveListsOut) {
  EXPECT_EQ(message(good_with(R"(["LlamaForCausalLM"])", "null")), "accepted");
  EXPECT_EQ(message(good_with(R"(["LlamaForCausalLM"])", "[]")), "accepted");
}

TEST(Mistral, WithoutKvHeadsIsNotGuessed) {
  std::string text = good_with(R"("num_key_value_heads": 2,)", R"("sliding_window": null,)");
  text.replace(text.find("\"llama\""), 7, "\"mistral\"");
  EXPECT_EQ(message(text), "bad.json:1:1: num_key_value_heads is missing; expected it in this map");
}

struct Whole {
  const char* text;
  const char* message;
};
void PrintTo(const Whole& whole, std::ostream* out) { *out << whole.text; }

class OtherFormat : public testing::TestWithParam<Whole> {};
TEST_P(OtherFormat, IsNamed) {
  EXPECT_EQ(message(GetParam().text, Syntax::kYaml), GetParam().message);
}
#define WITH_MODEL_TYPE "; expected a Hugging Face config.json with a model_type"
const Whole kFormats[] = {
    {R"({"dim": 4096, "n_layers": 32, "n_heads": 32, "multiple_of": 256, "norm_eps": 1e-05})",
     "bad.json:1:1: this is params.json of the original Llama release" WITH_MODEL_TYPE},
    {"num_layers: 32\nhidden_size: 4096\nffn_hidden_size: 11008\n",
     "bad.json:1:1: this is a Megatron configuration" WITH_MODEL_TYPE},
    {"tensor_model_parallel_size: 8\nnum_layers: 32\n",
     "bad.json:1:1: this is a Megatron configuration" WITH_MODEL_TYPE},
    {"trainer: {devices: 8}\nmodel: {num_layers: 32}\n",
     "bad.json:1:1: this is a NeMo configuration" WITH_MODEL_TYPE},
    {R"({"peft_type": "LORA", "r": 8})",
     "bad.json:1:1: this is the configuration of an adapter, without its base "
     "model" WITH_MODEL_TYPE},
    {R"({"_class_name": "UNet2DConditionModel"})",
     "bad.json:1:1: this is the configuration of a diffusion model" WITH_MODEL_TYPE},
    {R"({"zero_optimization": {"stage": 3}})",
     "bad.json:1:1: this is a DeepSpeed configuration" WITH_MODEL_TYPE},
    {"{}", "bad.json:1:1: model_type is missing" ONE_OF_THESE},
    {"[]", "bad.json:1:1: this file is a list; expected a map"},
    {"llama", "bad.json:1:1: this file is 'llama'; expected a map"},
};
INSTANTIATE_TEST_SUITE_P(Formats, OtherFormat, testing::ValuesIn(kFormats));

// qwen3_moe: more experts a token than there are, layers that are none.
struct MixtureEdit {
  const char* more;  // keys behind the others
  const char* message;
};
void PrintTo(const MixtureEdit& edit, std::ostream* out) { *out << edit.more; }
class BadMixture : public testing::TestWithParam<MixtureEdit> {};
TEST_P(BadMixture, IsRefused) {
  const std::string good = good_with(
      R"("model_type": "llama",)",
      R"("model_type": "qwen3_moe", "head_dim": 8, "num_experts": 8, "moe_intermediate_size": 9,)");
  EXPECT_EQ(message(good.substr(0, good.size() - 1) + GetParam().more + "}"), GetParam().message);
}
const MixtureEdit kMixtures[] = {
    {R"(, "num_experts_per_tok": 2)", "accepted"},
    {"", "bad.json:1:1: num_experts_per_tok is missing; expected it in this map"},
    {R"(, "num_experts_per_token": 2)",
     "bad.json:12:28: unknown key 'num_experts_per_token'; did you mean 'num_experts_per_tok'?"},
    {R"(, "num_experts_per_tok": 9)",
     "bad.json:12:26: a token passes 9 of 8 experts; expected at most 8"},
    {R"(, "num_experts_per_tok": 2, "decoder_sparse_step": 2)", "accepted"},
    {R"(, "num_experts_per_tok": 2, "decoder_sparse_step": 0)",
     "bad.json:12:52: decoder_sparse_step is '0'; expected a whole number from 1 to 100000"},
    {R"(, "num_experts_per_tok": 2, "mlp_only_layers": 3)",
     "bad.json:12:48: mlp_only_layers is not a list; expected [LAYER, ...]"},
    {R"(, "num_experts_per_tok": 2, "n_shared_experts": 1)",
     "bad.json:12:49: n_shared_experts announces a mixture of experts; expected the keys of its "
     "model_type alone"},
    {R"(, "num_experts_per_tok": 2, "mlp_only_layers": [0])", "accepted"},
    {R"(, "num_experts_per_tok": 2, "mlp_only_layers": [4])",
     "bad.json:12:49: mlp_only_layers is '4'; expected a whole number from 0 to 3"},
};
INSTANTIATE_TEST_SUITE_P(Mixtures, BadMixture, testing::ValuesIn(kMixtures));

TEST(Mixture, OfTwoLayersAndFourExpertsIsATestsOwn) {
  std::string text = good_with(
      R"("model_type": "llama",)",
      R"("model_type": "qwen3_moe", "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,)");
  text.replace(text.find(R"("num_hidden_layers": 4)"), 22, R"("num_hidden_layers": 2)");
  EXPECT_EQ(message(text),
            "bad.json:2:60: 2 layers with 4 experts are a model cut down for tests; expected the "
            "config.json of the whole model");
}

// Counted all the same: by hand in the table of the published totals.
class Refused : public testing::TestWithParam<std::pair<const char*, const char*>> {};
TEST_P(Refused, WithItsCount) {
  const auto& [name, count] = GetParam();
  const std::string path = fmt::format("{}/tests/model/refused/{}.json", OFFSIM_SOURCE_DIR, name);
  const std::string expected = fmt::format(
      "t5 has an encoder and a decoder ({} parameters here): a step takes two sequences, which is "
      "not modelled; expected a decoder alone",
      count);
  try {
    read_config(path);
    FAIL() << path << " was accepted";
  } catch (const InputError& error) {
    EXPECT_EQ(error.place().file, path);
    EXPECT_GT(error.place().line, 0);
    EXPECT_TRUE(std::string_view(error.what()).ends_with(": " + expected)) << error.what();
  }
}
INSTANTIATE_TEST_SUITE_P(Files, Refused,
                         testing::Values(std::pair("t5-3b", "2,851,598,336"),
                                         std::pair("t5-11b", "11,307,321,344"),
                                         std::pair("flan-t5-large", "783,150,080"),
                                         std::pair("flan-t5-xxl", "11,135,332,352")));

}  // namespace
}  // namespace offsim::model::config_errors_test
