// Scenarios become cases, or are refused at the place of what is wrong.
#include "sim/study/scenario.h"

#include <gtest/gtest.h>

#include "sim/study/predict.h"

namespace offsim::study::scenario_test {
namespace {

std::vector<Case> cases_of(const std::string& text) {
  const Node document = parse_document(text, "s.yaml", Syntax::kYaml);
  return cases(Catalog::folder(OFFSIM_SOURCE_DIR), read_scenario(document, "s"));
}

std::string refusal(const std::string& text) {
  try {
    cases_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Cases, AreModelsByMachinesBySweepByPlans) {
  const auto all = cases_of(
      "model: [gpt2, qwen2.5-0.5b]\nhardware: [h200-pcie5, gh200-480gb]\n"
      "plans: {native: {}, megatrain: {checkpoint_interval: 2}}\nsweep: {micro_batch: [1, 2, "
      "4]}\n");
  ASSERT_EQ(all.size(), 2U * 2 * 3 * 2);
  EXPECT_EQ(all.front().model, "gpt2");
  EXPECT_EQ(all.front().job.plan->name, "native");
  EXPECT_EQ(all[1].job.options.text("checkpoint_interval"), "2");
  EXPECT_EQ(all[2].job.workload.micro_batch, 2);
  EXPECT_EQ(all.back().hardware, "gh200-480gb");
}

TEST(Cases, LetAPlansOwnWorkWin) {
  const auto all = cases_of(
      "model: gpt2\nhardware: h200-pcie5\nworkload: {micro_batch: 8, precision: bf16}\n"
      "plans: [{plan: native, workload: {micro_batch: 2}}]\n");
  EXPECT_EQ(all.front().job.workload.micro_batch, 2);
  EXPECT_EQ(all.front().job.workload.precision, plans::Precision::kBf16);
}

TEST(Cases, TakeTheLargestMicroBatchThatFits) {
  const auto all = cases_of(
      "model: qwen2.5-7b\nhardware: h200-pcie5\nworkload: {micro_batch: largest, precision: bf16}\n"
      "plans: native\n");
  plans::Job job = all.front().job;
  EXPECT_TRUE(predict(job).feasible());
  job.workload.micro_batch += 1;  // one sequence more does not fit
  EXPECT_FALSE(predict(job).feasible());
}

TEST(Cases, RefuseStepsThatCannotBeSimulated) {
  const std::string head = "model: gpt2\nhardware: h200-pcie5\nplans: zero2-offload\n";
  EXPECT_EQ(refusal("model: llama-3.1-405b\nhardware: h200-pcie5\nplans: native\n"
                    "workload: {accumulation: 4096}\n"),
            "s.yaml:4:26: a step has 516,096 passes of a layer; expected at most 12,000");
  EXPECT_EQ(refusal("model: llama-3.1-405b\nhardware: h200-pcie5\nplans: native\n"
                    "workload: {micro_batch: 1000000, sequence: 1000000}\n"),
            "s.yaml:4:25: a micro-batch has more than 1e18 bytes of activations; expected a "
            "smaller micro_batch or sequence");
  EXPECT_EQ(refusal(head + "workload: {sequence: 2000}\n"),
            "s.yaml:4:22: sequence is 2000; expected at most the 1024 positions of gpt2");
  EXPECT_EQ(
      refusal(head + "workload: {micro_batch_limit: 4}\n"),
      "s.yaml:4:31: micro_batch_limit has no effect; expected micro_batch: largest beside it");
}

}  // namespace
}  // namespace offsim::study::scenario_test
