// Is every word of a command obeyed, refused or warned of, and every file whole or untouched?
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/program.h"

namespace offsim::cli::nothing_ignored_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kAsk = "predict --model gpt2 --hardware h200-pcie5 --plan native";

void expect_refused(const Outcome& outcome, const std::string& line) {
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, line + "\n");
}

TEST(CommandLine, WordsOutOfPlaceAreRefused) {
  const std::string there =
      "' was not expected there; expected a command, then its options: offsim predict --help";
  expect_refused(offsim("help " + kAsk), "command line: 'help" + there);
  expect_refused(offsim("--model gpt2 predict"), "command line: '--model" + there);
  expect_refused(offsim("--json x " + kAsk), "command line: '--json" + there);
  expect_refused(offsim(kAsk + " -- x"), "command line: 'x" + there);
  expect_refused(offsim("--"), "command line: '--' was not expected; offsim --help shows what is");
}

TEST(CommandLine, FlagsTakeNoValueAndValuesAreNoFlags) {
  expect_refused(offsim(kAsk + " --phase-sync=maybe"),
                 "command line: --phase-sync takes no value; expected it alone");
  expect_refused(offsim(kAsk + " --explain=false"),
                 "command line: --explain takes no value; expected it alone");
  expect_refused(offsim(kAsk + " --micro-batch --sequence 4"),
                 "command line: --micro-batch has no value; expected one before --sequence");
}

TEST(CommandLine, AnOptionIsNamedThoughItHasNoFile) {
  expect_refused(offsim(kAsk + " --set native.gradient_clipping=1"),
                 "command line: native.gradient_clipping is '1'; expected true or false");
  expect_refused(offsim("predict --model gpt2 --hardware h200-pcie5 --plan megatrain "
                        "--set megatrain.num_grad_slabs=0x10"),
                 "command line: megatrain.num_grad_slabs is '0x10'; expected a whole number of "
                 "layers from 1 to 10,000");
}

TEST(CommandLine, AWorkloadsKeyIsNamed) {
  expect_refused(offsim(kAsk + " --loader-bandwidth 2"),
                 "command line: loader_bandwidth is '2'; expected a bandwidth such as '2 GB/s'");
}

TEST(CommandLine, NobodyPaysOrTrainsSoMuch) {
  expect_refused(offsim(kAsk + " --tokens 1e300"),
                 "command line: --tokens: '1e300' is out of range; expected a count such as 96, "
                 "500k, 10M or 1.5B");
  EXPECT_EQ(offsim(kAsk + " --price 1e300USD/h").code, 2);
}

TEST(CommandLine, WhatHasNoPlaceIsOfTheProgram) {
  expect_refused(offsim("predict --model llama-3.1-405b --hardware h200-pcie5 --plan megatrain "
                        "--micro-batch 1000000"),
                 "offsim: the simulated time passes 106 days; expected less work, or faster "
                 "resources");
}

TEST(Catalog, ScenariosAreShownByName) {
  const Outcome one = offsim("catalog scenarios gh200");
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.out, HasSubstr("gh200"));
  EXPECT_THAT(one.out, Not(HasSubstr("deepspeed-offload")));
  expect_refused(offsim("catalog scenarios gh20"),
                 "command line: there is no scenario 'gh20'; did you mean 'gh200'?");
}

TEST(Compare, WarnsOfWhatHasNoEffect) {
  const Outcome outcome = offsim(
      "compare --model gpt2 --hardware h200-pcie5,dgx-2 --plans zero2-offload "
      "--set zero2-offload.round_robin_gradients=true");
  EXPECT_EQ(outcome.code, 0);
  const std::string warning = "warning: zero2-offload.round_robin_gradients has no effect";
  const std::size_t at = outcome.out.find(warning);
  EXPECT_NE(at, std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find(warning, at + 1), std::string::npos) << "said twice";
}

// A configuration's key that a flag overrides, and an argument that is not read, are told of.
TEST(Predict, WarnsOfWhatOfAConfigurationIsNotInForce) {
  const Folder folder;
  folder.write("ds.json",
               R"({"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true},
"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8,
"offload_optimizer": {"device": "cpu"}}})");
  const Outcome outcome = offsim(
      "predict --model gpt2 --hardware h200-pcie5 --ds-config ds.json --micro-batch 1 "
      "--set zero2-offload.reduce_bucket_size=1e8 --trainer --torch_compile",
      folder.path());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("ds.json:1:36: train_micro_batch_size_per_gpu 4 gives way to"));
  EXPECT_THAT(outcome.out, HasSubstr("ds.json:2:35: reduce_bucket_size gives way to --set"));
  EXPECT_THAT(outcome.out, HasSubstr("--torch_compile is not modelled"));
}

TEST(Outputs, AreAllWrittenOrNone) {
  const Folder folder;
  folder.write("old.json", "old");
  EXPECT_EQ(offsim(kAsk + " --json old.json --trace no/such.json", folder.path()).code, 2);
  EXPECT_EQ(offsim(kAsk + " --json old.json --program /dev/full", folder.path()).code, 2);
  EXPECT_EQ(folder.read("old.json"), "old");
  // No file of more than 512 bytes may be written.
  const Outcome limited =
      shell("ulimit -f 1; offsim " + kAsk + " --json old.json --trace t.json", folder.path());
  EXPECT_EQ(limited.code, 2) << limited.err;
  EXPECT_EQ(folder.read("old.json"), "old");
  EXPECT_THAT(folder.names(), ElementsAre("old.json"));
}

// Before anything is read or simulated: these questions have no answer.
TEST(Outputs, ThatCannotBeWrittenAreRefusedFirst) {
  const Folder folder;
  const std::string step = " --model no --hardware no --plan no";
  for (const std::string& ask :
       {"predict" + step + " --json", "predict" + step + " --trace",
        "predict" + step + " --program", "advise" + step + " --json",
        std::string("compare --model no --hardware no --json"),
        std::string("fit --model no --hardware no --json"), "cost" + step + " --tokens 1M --json",
        "diagnose no.log" + step + " --json", "replay" + step + " --trace",
        "replay" + step + " --save", std::string("run no --json"),
        std::string("validate no --json"), std::string("dag no --finish")}) {
    for (const std::string& path :
         {std::string("no/such.json"), std::string("."), std::string(300, 'x')}) {
      SCOPED_TRACE(ask + " " + path);
      const Outcome outcome = offsim(ask + " " + path, folder.path());
      EXPECT_EQ(outcome.code, 2);
      EXPECT_THAT(outcome.err, HasSubstr(": cannot be written; expected a file in a folder that"));
      EXPECT_EQ(lines_of(outcome.err).size(), 1U);
    }
  }
  EXPECT_EQ(offsim("predict" + step + " --json x", folder.path()).code, 2);
  EXPECT_THAT(folder.names(), testing::IsEmpty());
}

TEST(Outputs, OfOneFileByTwoNamesAreRefused) {
  const Folder folder;
  folder.write("file", "");
  std::filesystem::create_symlink("file", folder.path() / "link");
  expect_refused(offsim(kAsk + " --json x --trace ./x", folder.path()),
                 "command line: --json and --trace both write to './x'; expected a path for each");
  EXPECT_EQ(offsim(kAsk + " --json link --program file", folder.path()).code, 2);
  EXPECT_EQ(folder.read("file"), "");
}

TEST(Outputs, MayBeAPipeByItsName) {
  const Outcome outcome = shell("offsim " + kAsk + " --json /dev/stdout | grep Next");
  EXPECT_THAT(outcome.out, HasSubstr("Next: offsim compare"));
  EXPECT_EQ(outcome.err, "");
}

TEST(Outputs, ToNowhereAreRefused) {
  for (const std::string& ask : {kAsk, kAsk + " --json -", std::string("catalog plans"),
                                 std::string("--help"), std::string("--version")}) {
    for (const char* nowhere : {" > /dev/full", " >&-"}) {
      const Outcome outcome = shell("offsim " + ask + nowhere);
      EXPECT_EQ(outcome.code, 2) << ask << nowhere;
      EXPECT_EQ(outcome.err, "stdout: cannot be written; expected room for the answer\n");
    }
  }
}

TEST(Dag, FinishTimesAreWholeOrNotThere) {
  const Folder folder;
  folder.write("g.dag", "@resource a exec 1\n0 exec a 1\n");
  folder.write("old", "old");
  expect_refused(offsim("dag g.dag --finish no/such", folder.path()),
                 "no/such: cannot be written; expected a file in a folder that exists and allows "
                 "it");
  EXPECT_EQ(offsim("dag g.dag --finish old", folder.path()).code, 0);
  EXPECT_EQ(folder.read("old"), "0 1.000000000000\n");
}

TEST(Dag, FinishTimesThatDoNotArriveAreOneLine) {
  const Folder folder;
  folder.write("g.dag", "@resource a exec 1\n0 exec a 1\n");
  expect_refused(shell("offsim dag g.dag --finish - > /dev/full", folder.path()),
                 "stdout: cannot be written; expected room for the answer");
}

TEST(Dag, AnAnswerNeedsAQuestion) {
  const Folder folder;
  folder.write("empty.dag", "# nothing\n");
  folder.write("slow.dag", "@resource a exec 1e-30\n0 exec a 1\n");
  expect_refused(offsim("dag empty.dag", folder.path()),
                 "empty.dag: there is no activity in this file; expected lines of ID KIND RESOURCE "
                 "AMOUNT [DEP ...]");
  expect_refused(offsim("dag slow.dag", folder.path()),
                 "slow.dag: the simulated time passes 106 days; expected less work, or faster "
                 "resources");
}

TEST(Names, DoNotSpeakToTheTerminal) {
  const Folder folder;
  const std::string config =
      R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 9,
          "n_positions": 1024})";
  folder.write("\x1b[31m.json", config);
  const Outcome outcome =
      offsim("predict --model \x1b[31m.json --hardware h200-pcie5 --plan native", folder.path());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("?[31m, "));
}

}  // namespace
}  // namespace offsim::cli::nothing_ignored_test
