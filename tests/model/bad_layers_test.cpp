// Is nonsense in what deepseek's and gpt_oss's files say of their layers refused, with its place?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/base/message_of.h"
#include "tests/model/fixture.h"

namespace offsim::model::bad_layers_test {
namespace {

constexpr const char* kAccepted = "(nothing was refused)";

struct Edit {
  const char* from;  // a part of the good file
  const char* to;    // what stands there in the bad one
  const char* message;
};
void PrintTo(const Edit& edit, std::ostream* out) { *out << edit.to; }

// What is wrong with the good file once edited.
std::string verdict(std::string text, const Edit& edit) {
  const std::size_t at = text.find(edit.from);
  EXPECT_NE(at, std::string::npos) << edit.from;
  text.replace(at, std::string(edit.from).size(), edit.to);
  return message_of([&] { read_config(parse_document(text, "bad.json", Syntax::kJson), "bad"); });
}

constexpr const char* kDeepseek = R"({
  "model_type": "deepseek_v3",
  "num_hidden_layers": 4,
  "first_k_dense_replace": 1,
  "hidden_size": 64,
  "num_attention_heads": 4,
  "q_lora_rank": 24,
  "kv_lora_rank": 16,
  "qk_nope_head_dim": 8,
  "qk_rope_head_dim": 4,
  "v_head_dim": 6,
  "intermediate_size": 100,
  "moe_intermediate_size": 20,
  "n_routed_experts": 8,
  "n_shared_experts": 1,
  "num_experts_per_tok": 2,
  "n_group": 4,
  "topk_group": 2,
  "vocab_size": 1000,
  "max_position_embeddings": 2048
})";

class BadDeepseek : public testing::TestWithParam<Edit> {};
TEST_P(BadDeepseek, IsRefused) { EXPECT_EQ(verdict(kDeepseek, GetParam()), GetParam().message); }
const Edit kDeepseekEdits[] = {
    {"1000", "1001", kAccepted},
    {R"("first_k_dense_replace": 1)", R"("first_k_dense_replace": 0)", kAccepted},
    {R"("first_k_dense_replace": 1)", R"("first_k_dense_replace": 4)",
     "bad.json:4:28: first_k_dense_replace is '4'; expected a whole number from 0 to 3"},
    {R"("first_k_dense_replace": 1,)", "", kAccepted},
    {"\"n_group\": 4,\n  \"topk_group\": 2,", R"("n_group": 2,)",
     "bad.json:17:14: of 2 groups 4 are chosen where topk_group is absent; expected topk_group of "
     "2 "
     "at most"},
    {R"("model_type": "deepseek_v3",)", R"("model_type": "deepseek_v2", "topk_method": "noaux",)",
     "bad.json:2:47: topk_method is 'noaux'; expected greedy or group_limited_greedy"},
    {R"("model_type": "deepseek_v3",)", R"("model_type": "deepseek_v2",)", kAccepted},
    {"_v3\"", R"(_v2", "topk_method": "greedy", "scoring_func": "softmax")", kAccepted},
    {"\"n_group\": 4", "\"n_group\": -4",
     "bad.json:17:14: n_group is '-4'; expected a whole number from 1 to 100000"},
    {R"("v_head_dim": 6)", R"("v_head_dim": 6, "moe_layer_freq": 2)",
     "bad.json:11:38: moe_layer_freq is '2'; expected 1"},
    {R"("v_head_dim": 6)", R"("v_head_dim": 6, "scoring_func": "softmax")",
     "bad.json:11:36: scoring_func is 'softmax'; expected sigmoid"},
    {R"("q_lora_rank": 24)", R"("q_lora_rank": null)", kAccepted},
    {R"("q_lora_rank": 24,)", "",
     "bad.json:1:1: q_lora_rank is missing; did you mean it by 'kv_lora_rank'?"},
    {R"("q_lora_rank": 24)", R"("q_lora_rank": 0)",
     "bad.json:7:18: q_lora_rank is '0'; expected a whole number from 1 to 1000000"},
    {R"("kv_lora_rank": 16)", R"("kv_lora_rank": null)",
     "bad.json:8:3: kv_lora_rank is empty; expected a whole number from 1 to 1000000"},
    {R"("qk_nope_head_dim": 8)", R"("qk_nope_head_dim": 0)",
     "bad.json:9:23: qk_nope_head_dim is '0'; expected a whole number from 1 to 100000"},
    {R"("qk_rope_head_dim": 4)", R"("qk_rope_head_dim": 0)",
     "bad.json:10:23: qk_rope_head_dim is '0'; expected a whole number from 1 to 100000"},
    {R"("qk_rope_head_dim": 4)", R"("qk_rope_head_dim": 5)",
     "bad.json:10:23: qk_rope_head_dim is 5; expected an even number: positions turn pairs of "
     "elements"},
    {R"("v_head_dim": 6)", R"("v_head_dim": 0)",
     "bad.json:11:17: v_head_dim is '0'; expected a whole number from 1 to 100000"},
    {R"("n_routed_experts": 8)", R"("n_routed_experts": 10)",
     "bad.json:17:14: n_group 4 does not divide the 10 experts; expected a divisor of "
     "n_routed_experts"},
    {R"("n_shared_experts": 1)", R"("n_shared_experts": 0)",
     "bad.json:15:23: n_shared_experts is '0'; expected a whole number from 1 to 100000"},
    {R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 9)",
     "bad.json:16:26: a token passes 9 of 8 experts; expected at most 8"},
    {R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 5)",
     "bad.json:16:26: a token passes 5 of the 4 experts of its groups; expected at most 4"},
    {R"("topk_group": 2)", R"("topk_group": 5)",
     "bad.json:18:17: topk_group is '5'; expected a whole number from 1 to 4"},
    {R"("n_group")", R"("n_groups")",
     "bad.json:17:15: unknown key 'n_groups'; did you mean "
     "'n_group'?"},
    {R"("vocab_size": 1000)", R"("quantization_config": {"quant_method": "fp8"}, "vocab_size": 9)",
     kAccepted},
    {R"("vocab_size": 1000)", R"("quantization_config": {"quant_method": "awq"}, "vocab_size": 9)",
     "bad.json:19:26: a quantised checkpoint is not supported: only adapters on it can be trained; "
     "expected the config.json of the unquantised model, and lora_rank with a base"},
    {R"("vocab_size": 1000)", R"("num_local_experts": 8, "vocab_size": 9)",
     "bad.json:19:24: num_local_experts announces a mixture of experts; expected the keys of its "
     "model_type alone"},
};
INSTANTIATE_TEST_SUITE_P(Edits, BadDeepseek, testing::ValuesIn(kDeepseekEdits));

// transformers reads them over when a token's experts are the best of all; out of range they are
// nonsense none the less.
TEST(BadDeepseekV2, ChecksGroupsThatNobodyUses) {
  const std::string good = std::string(kDeepseek).replace(19, 11, "deepseek_v2");
  EXPECT_EQ(verdict(good, {R"("topk_group": 2)", R"("topk_group": 5)", ""}),
            "bad.json:18:17: topk_group is '5'; expected a whole number from 1 to 4");
  EXPECT_EQ(verdict(good, {R"("n_group": 4)", R"("n_group": 0)", ""}),
            "bad.json:17:14: n_group is '0'; expected a whole number from 1 to 100000");
}

constexpr const char* kGptOss = R"({
  "model_type": "gpt_oss",
  "num_hidden_layers": 3,
  "hidden_size": 64,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 8,
  "intermediate_size": 100,
  "num_local_experts": 8,
  "num_experts_per_tok": 2,
  "sliding_window": 128,
  "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
  "vocab_size": 1000,
  "max_position_embeddings": 2048
})";

class BadGptOss : public testing::TestWithParam<Edit> {};
TEST_P(BadGptOss, IsRefused) { EXPECT_EQ(verdict(kGptOss, GetParam()), GetParam().message); }
const Edit kGptOssEdits[] = {
    {"1000", "1001", kAccepted},
    {R"(, "full_attention", "sliding_attention")", R"(, "full_attention")",
     "bad.json:12:18: layer_types has 2 layers of 3; expected one type for each layer"},
    {R"("full_attention")", R"("chunked_attention")",
     "bad.json:12:40: layer type 'chunked_attention' is not supported; expected full_attention or "
     "sliding_attention"},
    {R"("head_dim": 8,)", "", "bad.json:1:1: head_dim is missing; expected it in this map"},
    {R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 9)",
     "bad.json:10:26: a token passes 9 of 8 experts; expected at most 8"},
    {R"("sliding_window": 128)", R"("sliding_window": 0)",
     "bad.json:11:21: sliding_window is '0'; expected a whole number from 1 to 1000000000"},
    {R"("vocab_size": 1000)",
     R"("quantization_config": {"quant_method": "mxfp4"}, "vocab_size": 9)", kAccepted},
    {R"("vocab_size": 1000)", R"("quantization_config": {"quant_method": "fp8"}, "vocab_size": 9)",
     "bad.json:13:26: a quantised checkpoint is not supported: only adapters on it can be trained; "
     "expected the config.json of the unquantised model, and lora_rank with a base"},
};
INSTANTIATE_TEST_SUITE_P(Edits, BadGptOss, testing::ValuesIn(kGptOssEdits));

}  // namespace
}  // namespace offsim::model::bad_layers_test
