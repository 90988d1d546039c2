// Is one mistake one line, and is a flag in quotes what DeepSpeed takes it for?
#include <gtest/gtest.h>

#include "tests/import/answer.h"

namespace offsim::imports::mistakes_test {
namespace {

// What would follow from a value that was refused is not refused too.
class OneMistake : public testing::TestWithParam<Case> {};
TEST_P(OneMistake, IsOneLine) {
  SCOPED_TRACE(GetParam().what);
  const Answer a = answer(GetParam().text);
  ASSERT_EQ(a.refusals.size(), 1U) << a.refusals.back();
  EXPECT_EQ(a.refusals[0], GetParam().expected);
}
const std::string kRest = ", \"bf16\": {\"enabled\": true}}";
INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, OneMistake,
    testing::Values(
        Case{"negative", "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": -3" + kRest,
             "ds.json:1:59: train_micro_batch_size_per_gpu is '-3'; expected a whole number, not "
             "negative"},
        Case{"a word",
             "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": \"abc\"" + kRest,
             "ds.json:1:59: train_micro_batch_size_per_gpu is the text 'abc'; expected a whole "
             "number, not negative"},
        Case{"alone", "{\"train_micro_batch_size_per_gpu\": 2.5" + kRest,
             "ds.json:1:36: train_micro_batch_size_per_gpu is '2.5'; expected a whole number"},
        Case{"total", "{\"train_batch_size\": -8, \"gradient_accumulation_steps\": 4" + kRest,
             "ds.json:1:22: train_batch_size is '-8'; expected a whole number, not negative"},
        Case{"accumulation",
             "{\"train_batch_size\": 6, \"train_micro_batch_size_per_gpu\": 2, "
             "\"gradient_accumulation_steps\": null" +
                 kRest,
             "ds.json:1:62: gradient_accumulation_steps is null; expected a value"},
        Case{"precision",
             "{\"train_batch_size\": 1, \"bf16\": {\"enabled\": \"perhaps\"}, "
             "\"fp16\": {\"enabled\": \"auto\"}}",
             "ds.json:1:45: bf16.enabled is the text 'perhaps'; expected true or false"}));

TEST(OneMistake, OfTheGpusIsOneLine) {
  Around around;
  around.gpus = study::Given{"3", {}};
  const Answer a =
      answer("{\"train_batch_size\": 7, \"sequence_parallel_size\": 2" + kRest, around);
  EXPECT_EQ(a.refusals,
            std::vector<std::string>{
                "ds.json:1:51: 3 GPUs are no multiple of sequence_parallel_size 2; expected one"});
}

// pydantic's words (tried with 2.13): a text is true, false or refused.
TEST(Flag, InQuotesIsWhatPydanticTakesItFor) {
  const auto overlap = [](const std::string& value) {
    return answer(stage(3, "\"overlap_comm\": " + value));
  };
  const auto value = [](const Answer& a) {
    return a.setting("zero_optimization.overlap_comm").substr(0, 5);
  };
  for (const char* const word : {"true", "True", "t", "yes", "Y", "on", "1"}) {
    const Answer a = overlap("\"" + std::string(word) + "\"");
    EXPECT_EQ(value(a), "true ") << word;
    EXPECT_TRUE(a.warns("which DeepSpeed takes as true: expected true without quotes")) << word;
    EXPECT_TRUE(a.refusals.empty());
  }
  for (const char* const word : {"false", "F", "no", "n", "OFF", "0"}) {
    const Answer a = overlap("\"" + std::string(word) + "\"");
    EXPECT_EQ(value(a), "false") << word;
    EXPECT_TRUE(a.warns("takes as false: expected false without quotes")) << word;
  }
  for (const char* const word : {"maybe", "2", "", "01"}) {
    ASSERT_EQ(overlap("\"" + std::string(word) + "\"").refusals.size(), 1U) << word;
  }
  EXPECT_EQ(overlap("\"maybe\"").refusals[0],
            "ds.json:2:17: zero_optimization.overlap_comm is the text 'maybe'; expected true or "
            "false");
  EXPECT_EQ(overlap("\"yes\"").warnings[0],
            "ds.json:2:17: zero_optimization.overlap_comm is the text 'yes', which DeepSpeed takes "
            "as true: expected true without quotes");
  for (const char* const plain : {"true", "false", "1", "0"}) {
    EXPECT_FALSE(overlap(plain).warns("the text")) << plain;
  }
}

// No model of pydantic is behind these: the text "false" is true to Python.
TEST(Flag, InQuotesOutsideOfModelsIsTrue) {
  const auto force = [](const std::string& value) {
    return answer(
        top("\"train_batch_size\": 1, \"zero_force_ds_cpu_optimizer\": \"" + value + "\""));
  };
  EXPECT_EQ(force("false").refusals,
            std::vector<std::string>{"ds.json:2:55: zero_force_ds_cpu_optimizer is the text "
                                     "'false'; expected false without quotes: to Python every text "
                                     "is true"});
  EXPECT_TRUE(force("true").warns("which DeepSpeed takes as true"));
}

// What is not modelled is not all about the states' width.
TEST(Precision, WarnsOfNarrowStatesAlone) {
  const auto warns = [](const std::string& inner) {
    return answer("{\"train_batch_size\": 1, " + inner + "}").warns("2 to 3 times the host memory");
  };
  EXPECT_FALSE(warns("\"bf16\": {\"enabled\": true, \"immediate_grad_update\": true}"));
  EXPECT_FALSE(warns("\"fp16\": {\"enabled\": true, \"auto_cast\": true}"));
  EXPECT_TRUE(warns("\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}"));
  EXPECT_TRUE(warns("\"fp16\": {\"enabled\": true, \"fp16_master_weights_and_grads\": true}"));
}

// Of a block that other systems need what counts is what it asks for, not that it is there.
TEST(Partners, ThatAreOffChangeNothing) {
  const std::string off =
      "\"train_batch_size\": 1, \"zero_optimization\": {\"stage\": 3}, \"amp\": {\"enabled\": "
      "false, \"opt_level\": \"O1\"}, \"torch_autocast\": {\"dtype\": \"bfloat16\"}, "
      "\"tensor_parallel\": {\"autotp_size\": 1, \"tp\": {\"tp_size\": 1}}";
  const Answer a = answer(top(off));
  EXPECT_TRUE(a.refusals.empty()) << a.refusals[0];
  EXPECT_FALSE(a.warns("amp is not modelled"));
  EXPECT_FALSE(a.warns("torch_autocast is not modelled"));
}

TEST(Partners, ThatAreOnAreToldOf) {
  const std::string batch = "\"train_batch_size\": 1, ";
  EXPECT_TRUE(answer(top(batch + "\"amp\": {\"enabled\": true}"))
                  .warns("ds.json:2:24: amp is not modelled: the prediction is without it"));
  EXPECT_TRUE(answer(top(batch + "\"torch_autocast\": {\"enabled\": 1}"))
                  .warns("ds.json:2:24: torch_autocast is not modelled"));
  for (const char* const inner :
       {"{\"autotp_size\": 2}", "{\"tp\": {\"tp_size\": 4}}", "{\"tp_size\": \"auto\"}"}) {
    const Answer a = answer(top(batch + "\"tensor_parallel\": " + inner));
    ASSERT_EQ(a.refusals.size(), 1U) << inner;
    EXPECT_EQ(a.refusals[0].substr(0, 48), "ds.json:2:24: tensor_parallel is not modelled; e");
  }
}

}  // namespace
}  // namespace offsim::imports::mistakes_test
