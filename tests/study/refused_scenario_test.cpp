// Has everything that a scenario says an effect, or a line that says why not?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/study/scenario.h"
#include "tests/base/message_of.h"

namespace offsim::study::refused_scenario_test {
namespace {

std::string refusal(const std::string& text) {
  return message_of([&] {
    cases(Catalog::folder(OFFSIM_SOURCE_DIR),
          read_scenario(parse_document(text, "s.yaml", Syntax::kYaml), "s"));
  });
}

// On lines 1 and 2.
const std::string kHead = "model: gpt2\nhardware: h200-pcie5\n";
const std::string kNative = kHead + "plans: native\n";
const std::string kAccepted = "(nothing was refused)";

TEST(Scenario, APlansNameIsNoOptionOfIt) {
  EXPECT_EQ(refusal(kHead + "plans: [{plan: native}]\n"), kAccepted);
  EXPECT_EQ(refusal(kHead + "plans: {native: {plan: megatrain}}\n"),
            "s.yaml:3:24: plan native has no option 'plan'; expected one of gradient_clipping");
}

// As in every other file, what is quoted is a text.
TEST(Scenario, AQuotedNumberIsNone) {
  EXPECT_EQ(refusal(kNative + "workload: {micro_batch: \"8\"}\n"),
            "s.yaml:4:25: micro_batch is the text '8'; expected a whole number from 1 to 1000000");
  EXPECT_EQ(refusal(kNative + "workload: {phase_sync: 'true'}\n"),
            "s.yaml:4:24: phase_sync is the text 'true'; expected true or false");
  EXPECT_EQ(refusal(kNative + "sweep: {sequence: [64, '128']}\n"),
            "s.yaml:4:24: sequence is the text '128'; expected a whole number from 1 to 50000000");
  EXPECT_THAT(refusal(kHead + "plans: {zero3-offload: {sub_group_size: '1e9'}}\n"),
              testing::StartsWith("s.yaml:3:41: zero3-offload.sub_group_size is the text '1e9'; "
                                  "expected a whole number"));
  EXPECT_EQ(refusal(kHead + "plans: {native: {gradient_clipping: \"true\"}}\n"),
            "s.yaml:3:37: native.gradient_clipping is the text 'true'; expected true or false");
  EXPECT_EQ(refusal(kHead + "plans: {zero3-offload: {deepspeed_version: '0.14.5', "
                            "offload_param: 'cpu'}}\n"),
            kAccepted);
}

TEST(Scenario, APublishedFigureStandsBesideACase) {
  const auto published = [](const std::string& rows) {
    return refusal(kNative + "published: [" + rows + "]\n");
  };
  const std::string good = "{model: gpt2, plan: native, tflops: 100, from: x}";
  const std::string wrong =
      ": this published figure stands beside no case; expected the model, plan and variant of "
      "one, once";
  EXPECT_EQ(published(good), kAccepted);
  EXPECT_EQ(published(good + ", " + good), "s.yaml:4:64" + wrong);
  EXPECT_EQ(published("{model: gpt3, plan: native, tflops: 100, from: x}"), "s.yaml:4:13" + wrong);
  EXPECT_EQ(published("{model: gpt2, plan: nativ, tflops: 100, from: x}"), "s.yaml:4:13" + wrong);
  EXPECT_EQ(published("{model: gpt2, plan: native, variant: x, tflops: 1, from: x}"),
            "s.yaml:4:13" + wrong);
  EXPECT_EQ(published("{model: gpt2, plan: native, tflops: 0, from: x}"),
            "s.yaml:4:49: published.tflops is 0; expected more than zero");
  EXPECT_EQ(published("{model: gpt2, plan: native, tflops: 1, from: ''}"),
            "s.yaml:4:58: published.from is empty; expected an address");
}

TEST(Scenario, WhatIsOfAdaptersNeedsARank) {
  EXPECT_EQ(refusal(kNative + "workload: {lora_rank: 8, lora_targets: attention}\n"), kAccepted);
  EXPECT_EQ(refusal(kNative + "workload: {lora_targets: attention}\n"),
            "s.yaml:4:26: lora_targets has no effect; expected a lora_rank beside it");
  EXPECT_EQ(refusal(kNative + "workload: {lora_rank: 8, lora_targets: atention}\n"),
            "s.yaml:4:40: lora_targets is 'atention'; did you mean 'attention'?");
  EXPECT_EQ(refusal(kNative + "workload: {lora_rank: 8, base: nf4}\n"), kAccepted);
  EXPECT_EQ(refusal(kNative + "workload: {base: nf4}\n"),
            "s.yaml:4:18: base has no effect; expected a lora_rank beside it");
  EXPECT_EQ(refusal(kNative + "workload: {lora_rank: -1}\n"),
            "s.yaml:4:23: lora_rank is '-1'; expected a whole number from 0 to 65536");
}

std::string refusal_of_adapters(const std::string& model, const std::string& more) {
  return refusal("model: " + model + "\nhardware: h200-pcie5\nplans: native\n" +
                 "workload: {lora_rank: 8" + more + "}\n");
}

// PEFT takes all Linears of a mixture, and there experts and router, but of gpt_oss; it knows none
// for deepseek.
TEST(Scenario, AdaptersDoNotGoOnExperts) {
  for (const std::string model : {"mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"}) {
    EXPECT_EQ(refusal_of_adapters(model, ""), kAccepted);
    EXPECT_EQ(refusal_of_adapters(model, ", lora_targets: attention, base: nf4"), kAccepted);
  }
  EXPECT_EQ(refusal_of_adapters("gpt-oss-20b", ", lora_targets: all-linear"), kAccepted);
  EXPECT_EQ(refusal_of_adapters("mixtral-8x7b", ", lora_targets: all-linear"),
            "s.yaml:4:40: all-linear adapts the experts of mixtral too (PEFT 0.20), which is not "
            "modelled; expected lora_targets query-value or attention");
  EXPECT_EQ(refusal_of_adapters("deepseek-v3", ", lora_targets: all-linear"),
            "s.yaml:4:40: all-linear adapts the experts of deepseek_v3 too (PEFT 0.20), which is "
            "not modelled; expected lora_targets attention");
  EXPECT_EQ(refusal_of_adapters("deepseek-v3", ""),
            "s.yaml:4:23: deepseek_v3 has no v_proj for lora_targets; expected lora_targets "
            "attention");
  EXPECT_EQ(refusal_of_adapters("deepseek-v3", ", lora_targets: attention, base: nf4"), kAccepted);
  EXPECT_EQ(refusal_of_adapters("deepseek-v2-lite", ", lora_targets: attention, base: nf4"),
            "s.yaml:4:57: the router of deepseek_v2 is a Linear, and its quantised weight is read "
            "as numbers; expected base 16-bit");
}

TEST(Scenario, ASweepAndTheWorkDoNotSetTheSame) {
  EXPECT_EQ(
      refusal(kNative + "workload: {micro_batch: 4}\nsweep: {micro_batch: [1, 2]}\n"),
      "s.yaml:4:25: the workload sets micro_batch, as the sweep does; expected only one of them "
      "to");
  EXPECT_EQ(
      refusal(kHead + "plans: [{plan: native, workload: {micro_batch: 4}}]\n"
                      "sweep: {micro_batch: [1, 2]}\n"),
      "s.yaml:3:48: plan native sets micro_batch, as the sweep does; expected only one of them "
      "to");
}

TEST(Scenario, ALimitIsOfASearch) {
  const std::string wrong =
      ": micro_batch_limit has no effect; expected micro_batch: largest beside it";
  EXPECT_EQ(refusal(kNative + "workload: {micro_batch_limit: 4}\n"), "s.yaml:4:31" + wrong);
  EXPECT_EQ(refusal(kNative + "workload: {micro_batch: 2, micro_batch_limit: 4}\n"),
            "s.yaml:4:47" + wrong);
  EXPECT_EQ(refusal(kHead + "plans: [{plan: native, workload: {micro_batch: 2}}]\n"
                            "workload: {micro_batch: largest, micro_batch_limit: 4}\n"),
            "s.yaml:4:53" + wrong);
  EXPECT_EQ(refusal(kNative + "sweep: {micro_batch: [2, 3], micro_batch_limit: [4]}\n"),
            "s.yaml:4:50" + wrong);
  // One search is enough, and what sets a number of its own needs no limit.
  EXPECT_EQ(refusal(kHead + "plans: [{plan: native, workload: {micro_batch: 2}}, megatrain]\n"
                            "workload: {micro_batch: largest, micro_batch_limit: 4}\n"),
            kAccepted);
  EXPECT_EQ(
      refusal(kNative + "workload: {micro_batch_limit: 4}\nsweep: {micro_batch: [2, largest]}\n"),
      kAccepted);
}

TEST(Scenario, TheWordLargestIsKnown) {
  EXPECT_EQ(refusal(kNative + "workload: {micro_batch: Largest}\n"),
            "s.yaml:4:25: micro_batch is 'Largest'; did you mean 'largest'?");
}

TEST(Scenario, CombinationsAreCountedBeforeTheyAreMade) {
  std::string sweep = "sweep: {";
  for (const char* key : {"micro_batch", "sequence", "accumulation"}) {
    sweep += std::string(key) + ": [1";
    for (int i = 0; i < 2999; ++i) {
      sweep += ",1";
    }
    sweep += "], ";
  }
  EXPECT_EQ(refusal(kNative + sweep + "}\n"),
            "s.yaml:4:9: the scenario has 27,000,000,000 cases; expected at most 10,000");
}

TEST(Scenario, WorkIsBounded) {
  const std::string big = "model: llama-3.1-405b\nhardware: h200-pcie5\nplans: native\n";
  EXPECT_EQ(refusal(big + "workload: {accumulation: 95}\n"), kAccepted);  // 126 layers
  EXPECT_EQ(refusal(big + "workload: {accumulation: 96}\n"),
            "s.yaml:4:26: a step has 12,096 passes of a layer; expected at most 12,000");
  // With a hook on every saved tensor a sixth of that, with adapters half.
  EXPECT_EQ(refusal(big + "workload: {accumulation: 16, activation_offload: streamed}\n"),
            "s.yaml:4:26: a step has 12,096 passes of a layer, counted more than once for what is "
            "saved or adapted; expected at most 12,000");
  EXPECT_EQ(refusal(big + "workload: {accumulation: 47, lora_rank: 8}\n"), kAccepted);
  EXPECT_THAT(refusal(big + "workload: {accumulation: 48, lora_rank: 8}\n"),
              testing::HasSubstr("12,096 passes"));
  // A limit of 1,023 takes ten halvings.
  EXPECT_EQ(refusal(big + "workload: {accumulation: 20, micro_batch: largest, "
                          "micro_batch_limit: 1023}\n"),
            "s.yaml:4:26: the search for the largest micro-batch has 25,200 passes of a "
            "layer; expected at most 24,000");
  EXPECT_EQ(refusal(big + "workload: {sequence: 50000, accumulation: 95}\n"
                          "sweep: {precision: [bf16, bf16-mixed]}\n"),
            kAccepted);
  std::string many = "[50000000";
  for (int i = 0; i < 100; ++i) {
    many += ", 50000000";
  }
  EXPECT_EQ(refusal(big + "sweep: {sequence: " + many + "]}\n"),
            "s.yaml:4:9: the scenario is 101 times as large as the largest step that is simulated; "
            "expected at most 100 times");
}

TEST(Scenario, WhatIsTooLargeByItselfIsOfTheModel) {
  EXPECT_EQ(message_of([] {
              Scenario s;
              s.models = {on_command_line("gpt2")};
              s.machines = {on_command_line("h200-pcie5")};
              s.plans = {{on_command_line("native"), {}, {}}};
              s.workload.sequence = on_command_line("1025");
              cases(Catalog::folder(OFFSIM_SOURCE_DIR), s);
            }),
            "command line: sequence is 1025; expected at most the 1024 positions of gpt2");
}

TEST(Catalog, FilesAreNamedWithTheirFolder) {
  const Catalog here = Catalog::folder(OFFSIM_SOURCE_DIR);
  EXPECT_EQ(here.place_of("models/gpt2.json"), OFFSIM_SOURCE_DIR "/models/gpt2.json");
  EXPECT_EQ(Catalog::embedded().place_of("models/gpt2.json"), "models/gpt2.json");
}

TEST(Catalog, AFileThatIsNotThereIsToldWhereItWasAskedFor) {
  const Catalog embedded = Catalog::embedded();
  const Place here{"s.yaml", 1, 8};
  EXPECT_EQ(message_of([&] { embedded.model("Qwen/Qwen2.5-7B", here); }),
            "s.yaml:1:8: there is no file 'Qwen/Qwen2.5-7B'; did you mean 'qwen2.5-7b'?");
  EXPECT_EQ(message_of([&] { embedded.model("none.json", here); }),
            "s.yaml:1:8: there is no file 'none.json'; expected the path of a config.json or "
            "of a model's folder, or a name of the catalog");
  EXPECT_EQ(message_of([&] { embedded.machine("none.yaml", here); }),
            "s.yaml:1:8: there is no file 'none.yaml'; expected the path of a machine's YAML "
            "file, or a name of the catalog");
}

}  // namespace
}  // namespace offsim::study::refused_scenario_test
