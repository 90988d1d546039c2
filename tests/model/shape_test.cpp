// Is what a file says, or leaves unsaid, read as transformers reads it?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "sim/model/tensors.h"
#include "tests/model/fixture.h"

namespace offsim::model::shape_test {
namespace {

Shape parse(const std::string& text) {
  return read_config(parse_document(text, "test.json", Syntax::kJson), "test");
}

// A small file of the architecture; `more` begins with a comma.
std::string small(const std::string& type, const std::string& more = "") {
  return fmt::format(R"({{"model_type": "{}", "num_hidden_layers": 4, "hidden_size": 64,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 100,
    "vocab_size": 1000, "max_position_embeddings": 2048{}}})",
                     type, more);
}

TEST(Llama, WithoutKvHeadsHasAsManyAsHeads) {
  EXPECT_EQ(load("llama-7b-v1").kv_heads, 32);
  EXPECT_EQ(load("llama-2-70b").kv_heads, 8);
}

TEST(Llama, WithoutHeadDimDividesHiddenByHeads) {
  EXPECT_EQ(load("llama-3.1-8b").head_dim, 128);
  EXPECT_EQ(load("llama-3.2-1b").head_dim, 64);
}

TEST(Llama, IsUntiedUnlessTheFileSaysSo) {
  EXPECT_FALSE(parse(small("llama")).tied);
  EXPECT_TRUE(load("llama-3.2-1b").tied);
}

TEST(Llama, AsksForItsBiasesByName) {
  const Shape plain = parse(small("llama"));
  const Shape attention = parse(small("llama", R"(, "attention_bias": true)"));
  const Shape mlp = parse(small("llama", R"(, "mlp_bias": true)"));
  EXPECT_EQ(layer_parameters(attention, 0) - layer_parameters(plain, 0), 64 + 2 * 16 + 64);
  EXPECT_EQ(layer_parameters(mlp, 0) - layer_parameters(plain, 0), 100 + 100 + 64);
}

TEST(Llama, HasNoSlidingWindowWhateverTheFileSays) {
  EXPECT_EQ(parse(small("llama", R"(, "sliding_window": 512)")).kinds.front().window, std::nullopt);
}

TEST(Mistral, SlidesInEveryLayerUnlessTheWindowIsNull) {
  EXPECT_EQ(load("mistral-7b-v0.1").kinds.front().window, 4096);
  EXPECT_EQ(parse(small("mistral", R"(, "sliding_window": null)")).kinds.front().window,
            std::nullopt);
}

TEST(Qwen2, HasBiasesOnQkvThatNoFieldAnnounces) {
  const Shape shape = load("qwen2.5-7b");
  EXPECT_TRUE(shape.qkv_bias);
  EXPECT_FALSE(shape.output_bias);
  EXPECT_EQ(layer_parameters(parse(small("qwen2")), 0) - layer_parameters(parse(small("llama")), 0),
            64 + 2 * 16);
}

TEST(Qwen2, HasAWindowOnlyWhenItIsUsed) {
  const std::string number = R"(, "sliding_window": 512, "max_window_layers": 0)";
  EXPECT_EQ(parse(small("qwen2", number)).kinds.front().window, std::nullopt);
  EXPECT_EQ(parse(small("qwen2", number + R"(, "use_sliding_window": false)")).kinds.front().window,
            std::nullopt);
  EXPECT_EQ(parse(small("qwen2", number + R"(, "use_sliding_window": true)")).kinds.front().window,
            512);
}

TEST(Qwen2, SlidesFromLayerMaxWindowLayersOn) {
  const std::string used = R"(, "use_sliding_window": true, "sliding_window": 512)";
  EXPECT_EQ(parse(small("qwen2", used + R"(, "max_window_layers": 4)")).kinds.front().window,
            std::nullopt);
  const Shape last = parse(small("qwen2", used + R"(, "max_window_layers": 3)"));
  EXPECT_EQ(last.kind(2).window, std::nullopt);
  EXPECT_EQ(last.kind(3).window, 512);
}

TEST(Qwen3, LayerTypesDecideBeforeMaxWindowLayers) {
  const std::string used =
      R"(, "use_sliding_window": true, "sliding_window": 512, "max_window_layers": 3)";
  const auto types = [](const char* type) {
    return fmt::format(R"(, "layer_types": ["{0}", "{0}", "{0}", "{0}"])", type);
  };
  EXPECT_EQ(parse(small("qwen3", used + types("sliding_attention"))).kinds.front().window, 512);
  EXPECT_EQ(parse(small("qwen3", used + types("full_attention"))).kinds.front().window,
            std::nullopt);
}

TEST(Qwen3, HeadDimIsNotHiddenOverHeads) {
  const Shape shape = load("qwen3-0.6b");
  EXPECT_EQ(shape.head_dim, 128);
  EXPECT_EQ(shape.hidden / shape.heads, 64);
  EXPECT_EQ(shape.query_width(), 2048);
  EXPECT_TRUE(shape.qk_norm);
}

TEST(Qwen3, TiedHeadIsCountedOnceAlthoughItsCheckpointStoresIt) {
  const Shape shape = load("qwen3-0.6b");
  EXPECT_EQ(head_parameters(shape), 0);
  EXPECT_EQ(parameters(shape) + embedding_parameters(shape), 751'632'384);
}

TEST(Gpt2, IsTiedAndFourTimesWideWhereTheFileIsSilent) {
  const Shape shape = load("gpt2-xl");
  EXPECT_TRUE(shape.tied);
  EXPECT_EQ(shape.kinds.front().ffn, 6400);
  EXPECT_EQ(shape.positions, 1024);
  EXPECT_EQ(shape.kv_heads, 25);
  EXPECT_FALSE(shape.gated_mlp);
  const std::string wide = R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
    "n_positions": 128, "vocab_size": 1000, "n_inner": 100, "tie_word_embeddings": false})";
  EXPECT_EQ(parse(wide).kinds.front().ffn, 100);
  EXPECT_EQ(head_parameters(parse(wide)), 64'000);
}

// What transformers writes into every config.json it saves, and what model cards add.
constexpr const char* kHarmless[] = {"return_dict",
                                     "output_hidden_states",
                                     "output_attentions",
                                     "torchscript",
                                     "use_bfloat16",
                                     "tf_legacy_loss",
                                     "chunk_size_feed_forward",
                                     "is_decoder",
                                     "cross_attention_hidden_size",
                                     "tie_encoder_decoder",
                                     "max_length",
                                     "min_length",
                                     "do_sample",
                                     "early_stopping",
                                     "num_beams",
                                     "num_beam_groups",
                                     "diversity_penalty",
                                     "temperature",
                                     "top_k",
                                     "top_p",
                                     "typical_p",
                                     "repetition_penalty",
                                     "length_penalty",
                                     "no_repeat_ngram_size",
                                     "encoder_no_repeat_ngram_size",
                                     "bad_words_ids",
                                     "num_return_sequences",
                                     "output_scores",
                                     "return_dict_in_generate",
                                     "forced_bos_token_id",
                                     "forced_eos_token_id",
                                     "remove_invalid_values",
                                     "exponential_decay_length_penalty",
                                     "suppress_tokens",
                                     "begin_suppress_tokens",
                                     "finetuning_task",
                                     "id2label",
                                     "label2id",
                                     "tokenizer_class",
                                     "prefix",
                                     "bos_token_id",
                                     "pad_token_id",
                                     "eos_token_id",
                                     "sep_token_id",
                                     "decoder_start_token_id",
                                     "task_specific_params",
                                     "problem_type",
                                     "_name_or_path",
                                     "transformers_version",
                                     "torch_dtype",
                                     "dtype",
                                     "rope_scaling",
                                     "rope_theta",
                                     "rope_parameters",
                                     "rms_norm_eps",
                                     "initializer_range",
                                     "use_cache",
                                     "pretraining_tp",
                                     "attention_dropout",
                                     "hidden_act",
                                     "resid_pdrop",
                                     "embd_pdrop",
                                     "attn_pdrop",
                                     "layer_norm_epsilon",
                                     "summary_type",
                                     "summary_use_proj",
                                     "summary_activation",
                                     "summary_proj_to_labels",
                                     "summary_first_dropout",
                                     "scale_attn_weights",
                                     "auto_map",
                                     "scale_attn_by_inverse_layer_idx",
                                     "reorder_and_upcast_attn",
                                     "activation_function",
                                     "n_ctx",
                                     "_attn_implementation",
                                     "unsloth_version",
                                     "use_mrope"};

TEST(HarmlessKeys, PassInEveryArchitecture) {
  std::string harmless;
  for (const char* key : kHarmless) {
    harmless += fmt::format(R"(, "{}": null)", key);
  }
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    EXPECT_NO_THROW(parse(small(type, harmless))) << type;
  }
  EXPECT_NO_THROW(parse(small("mistral", R"(, "sliding_window": null)" + harmless)));
  EXPECT_NO_THROW(parse(R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
    "n_positions": 128, "vocab_size": 1000)" +
                        harmless + "}"));
}

TEST(Name, OfAConfigJsonIsItsFolders) {
  const std::string folder = testing::TempDir() + "offsim-named-model";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(models_folder() + "gpt2.json", folder + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(read_config(folder + "/config.json").name, "offsim-named-model");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace offsim::model::shape_test
