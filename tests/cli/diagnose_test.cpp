// Does the command read a log as people have it, name the suspect, and refuse what it cannot use?
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace offsim::cli::diagnose_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kJob =
    " --model llama-3.1-8b --hardware h200-pcie5 --plan zero3-offload --micro-batch 4";
const std::string kExample = OFFSIM_SOURCE_DIR "/scenarios/slow-optimizer.log";

TEST(Diagnose, TheExampleNamesItsThreads) {
  const Outcome outcome = offsim("diagnose " + kExample + kJob);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("First suspect: too few threads for the CPU's work."));
  EXPECT_THAT(outcome.out, HasSubstr("1 thread, not 112"));
  EXPECT_THAT(lines_of(outcome.out).back(), HasSubstr("Next: echo $OMP_NUM_THREADS"));
}

TEST(Diagnose, StandardInputIsALogToo) {
  const Outcome outcome = shell("cat " + kExample + " | offsim diagnose -" + kJob + " --json -");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer["schema"], "offsim.diagnosis/1");
  EXPECT_EQ(answer["verdict"], "found");
  EXPECT_EQ(answer["suspects"][0]["name"], "threads");
  EXPECT_TRUE(answer["suspects"][0]["reproduces"]);
  EXPECT_NEAR(answer["measured"]["forward_s"].get<double>(), 0.3885, 1e-9);  // median of five
  EXPECT_EQ(answer["log"]["unknown"], 1);                                    // the remark
}

TEST(Diagnose, AsExpectedLeadsToAComparison) {
  const Outcome predicted = offsim("predict --json - --phase-sync" + kJob);
  const json phases = json::parse(predicted.out)["phases_s"];
  const double forward = phases["forward"].get<double>(),
               backward = phases["backward"].get<double>(),
               step = phases["optimizer"].get<double>();
  const Outcome outcome =
      shell("echo 'time (ms) | fwd: " + std::to_string(1e3 * forward) +
            " | bwd: " + std::to_string(1e3 * backward) + " | step: " + std::to_string(1e3 * step) +
            "' | offsim diagnose -" + kJob);
  EXPECT_THAT(outcome.out, HasSubstr("All is as expected"));
  EXPECT_THAT(outcome.out, HasSubstr("Next: offsim compare --model llama-3.1-8b"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("suspect")));
}

TEST(Diagnose, FiguresThatNoRunHasAreNotPrinted) {
  const Outcome outcome = shell(
      "printf 'step time: 2 s\\nstep time: 1e300 s\\nCurrSamplesPerSec=1e300\\n"
      "MaxMemAllocated=1e17GB\\n' | offsim diagnose -" +
      kJob);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("passed over 3 figures"));
  for (const std::string& line : lines_of(outcome.out)) {
    EXPECT_LE(line.size(), 80U) << line;
  }
}

void expect_refused(const std::string& line, const std::string& what) {
  const Outcome outcome = shell(line);
  EXPECT_EQ(outcome.code, 2) << line;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr(what));
  EXPECT_EQ(lines_of(outcome.err).size(), 1U);
}

TEST(Diagnose, BadInputIsOneLine) {
  expect_refused("offsim diagnose" + kJob, "LOG is missing");
  expect_refused("offsim diagnose missing.log" + kJob, "missing.log");
  expect_refused("offsim diagnose ." + kJob, ".");
  expect_refused("offsim diagnose - --model gpt2 --hardware h200-pcie5", "--plan is missing");
  expect_refused("echo hello | offsim diagnose -" + kJob,
                 "standard input: none of its 1 lines is of a kind that offsim reads; expected");
  expect_refused("echo 'MaxMemAllocated=3GB' | offsim diagnose -" + kJob,
                 "standard input: has no time or rate of a step; expected");
  expect_refused("echo 'CurrSamplesPerSec=1e300' | offsim diagnose -" + kJob,
                 "has no time or rate of a step that a run can have; expected");
  expect_refused("head -c 100000 /dev/zero | offsim diagnose -" + kJob, "none of its 1 lines");
  expect_refused(
      "echo 'step time: 1 s' | offsim diagnose - --model gpt2 --hardware h200-pcie5 "
      "--plan all",
      "diagnose takes one plan and one machine");
  expect_refused(
      "echo 'step time: 1 s' | offsim diagnose - --model gpt2 --hardware "
      "h200-pcie5,gh200-480gb --plan native",
      "diagnose takes one plan and one machine");
}

}  // namespace
}  // namespace offsim::cli::diagnose_test
