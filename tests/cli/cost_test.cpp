// Does a person, or a script, learn what the job costs beside its alternatives?
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace offsim::cli::cost_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kAsk =
    "cost --model qwen2.5-7b --hardware h200-pcie5 --plan zero2-offload --micro-batch 8";
const std::string kBudget = kAsk + " --tokens 10M";
const std::string kTwo = kBudget + " --machines dgx-h100,gh200-480gb";

std::string good(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.out;
}

TEST(Cost, FitsATerminalAndEndsWithACommandThatWorks) {
  const std::string text = good(offsim(kBudget));
  for (const std::string& line : lines_of(text)) {
    EXPECT_LE(line.size(), 80u) << line;
  }
  EXPECT_THAT(text, HasSubstr("zero2-offload (asked)"));
  EXPECT_THAT(text, HasSubstr("ideal, checkpointing"));
  EXPECT_THAT(text, HasSubstr("break-even of zero2-offload with native on gb200\n"));
  const std::size_t next = text.find("Next: ");
  ASSERT_NE(next, std::string::npos);
  EXPECT_THAT(good(shell(text.substr(next + 6))), HasSubstr("native"));
}

// A bill is what predict says of the same job; two ideal GPUs are twice one that need not fit.
TEST(Cost, SaysWhatPredictSays) {
  const json all = json::parse(good(offsim(kTwo + " --json -")));
  EXPECT_EQ(all["schema"], "offsim.cost/1");
  EXPECT_EQ(all["tokens"], 1e7);
  EXPECT_EQ(all["rows"].size(), 4u);
  const json& asked = all["rows"][all["asked"].get<std::size_t>()];
  EXPECT_EQ(asked["way"], "asked");
  const std::string flags = " --micro-batch 8 --json -";
  const json offload = json::parse(good(
      offsim("predict --model qwen2.5-7b --hardware h200-pcie5 --plan zero2-offload" + flags)));
  const double steps = std::ceil(1e7 / 8192);
  EXPECT_EQ(asked["steps"], steps);
  EXPECT_NEAR(asked["hours"].get<double>(), steps * offload["step_s"].get<double>() / 3600, 1e-9);
  EXPECT_NEAR(asked["usd"].get<double>(), 3.35 * asked["hours"].get<double>(), 1e-9);
  for (const json& row : all["rows"]) {
    if (row["way"] == "ideal" && row["hardware"] == "dgx-h100") {
      EXPECT_EQ(row["gpus"], 2);
      const json one = json::parse(good(offsim(
          "predict --model qwen2.5-7b --hardware dgx-h100 --plan native --checkpointing full" +
          flags)));
      EXPECT_EQ(one["feasible"], false);
      EXPECT_DOUBLE_EQ(row["tokens_per_s"].get<double>(), 2 * one["tokens_per_s"].get<double>());
    }
    if (row["hardware"] == "gh200-480gb") {  // a machine of one GPU
      EXPECT_EQ(row["possible"], false);
      EXPECT_EQ(row["machines"], 2);
      EXPECT_TRUE(row["usd"].is_null());
    }
  }
}

// --price is of the machine at hand, with and without offload; others keep theirs.
TEST(Cost, TakesAPriceForTheMachineAtHand) {
  const json all = json::parse(good(offsim(kTwo + " --price 1USD/h --json -")));
  for (const json& row : all["rows"]) {
    const bool here = row["hardware"] == "h200-pcie5";
    EXPECT_EQ(row["usd_per_gpu_hour"] == 1.0, here) << row["hardware"];
    EXPECT_EQ(row["price_date"].is_null(), here) << row["hardware"];
  }
  EXPECT_THAT(good(shell("offsim " + kTwo + " --price '1 USD/h'")), HasSubstr("1.00"));
  EXPECT_THAT(good(offsim("cost --model gpt2 --hardware workstation-pcie4-4090 --plan "
                          "zero2-offload --tokens 1M --machines h100-pcie")),
              HasSubstr("no price"));
}

// A configuration in place of --plan, as predict takes it.
TEST(Cost, TakesAConfiguration) {
  const Folder folder;
  folder.write("ds.json",
               R"({"train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": true}, "stage": 2,
"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})");
  const std::string ask =
      "cost --model qwen2.5-7b --hardware h200-pcie5 --tokens 10M --machines dgx-h100 ";
  const json by_flags =
      json::parse(good(offsim(ask + "--plan zero2-offload --micro-batch 8 --json -")));
  const json by_file =
      json::parse(good(offsim(ask + "--ds-config ds.json --json -", folder.path())));
  EXPECT_EQ(by_file.at("rows"), by_flags.at("rows"));
  const std::string text = good(offsim(ask + "--ds-config ds.json", folder.path()));
  EXPECT_THAT(text, HasSubstr("DeepSpeed ignores 'stage'"));
  EXPECT_THAT(text, HasSubstr("config    ds.json: "));
}

TEST(Cost, RefusesWhatItCannotAnswer) {
  const auto expect_refused = [](const std::string& line, const std::string& why) {
    const Outcome outcome = offsim(line);
    EXPECT_EQ(outcome.code, 2) << line;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(why));
  };
  expect_refused(kAsk, "--tokens is missing");
  expect_refused("cost --model gpt2 --hardware h200-pcie5 --tokens 1M",
                 "--plan is missing; expected one, or --ds-config: offsim cost --help");
  expect_refused(kAsk + " --tokens 0", "'0' is no budget");
  expect_refused(kAsk + " --tokens many", "'many' is");
  expect_refused(kBudget + " --machines dgx-h10", "did you mean 'dgx-h100'?");
  expect_refused(kBudget + " --machines dgx-h100,dgx-h100", "names dgx-h100 twice");
  expect_refused(kBudget + " --machines h200-pcie5", "that --hardware names already");
  expect_refused(kBudget + " --machines dgx-h100,", "has an empty name");
  expect_refused(kBudget + " --price free", "'free' is");
  expect_refused(kBudget + " --price 0USD/h", "nothing is to be paid");
  expect_refused(kBudget + " --accumulation 0", "accumulation");
  expect_refused("cost --model gpt2 --hardware h200-pcie5 --plan all --tokens 1M",
                 "cost takes one plan and one machine");
}

}  // namespace
}  // namespace offsim::cli::cost_test
