// Does calibrate refuse what it cannot do, write both files or none, and measure a real machine?
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/program.h"

namespace offsim::cli::calibrate_test {
namespace {

using testing::HasSubstr;

constexpr const char* kEnv =
    R"({"record":"env","schema":"offsim.measured/1","date":"2026-11-30T10:00:00Z","quick":true,)"
    R"("host":{"cpu":"A Xeon","isa":"avx2","cores":4,"memory_bytes":68719476736},"gpu":null})";
constexpr const char* kEnd = R"({"record":"end","seconds":1})";

std::string launch(const std::string& seconds) {
  return R"({"record":"point","bench":"launch","at":{"how":"plain"},"value":)" + seconds +
         R"(,"unit":"s","spread":0.01,"samples":5})" + "\n";
}
std::string records(const std::string& seconds) {
  return std::string(kEnv) + "\n" + launch(seconds) +
         R"({"record":"skipped","bench":"gemm","reason":"no GPU"})" + "\n" + kEnd + "\n";
}

TEST(Calibrate, AMistakeIsOneLineAndWritesNothing) {
  const Folder folder;
  folder.write("r.jsonl", records("1e-6"));
  folder.write("cut.jsonl", std::string(kEnv) + "\n");
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"", "--out is missing"},
      {"--out a.yaml --check b.yaml", "--out and --check are given"},
      {"--out a.txt --records r.jsonl", "--out is 'a.txt'; expected a file that ends in .yaml"},
      {"--out none/a.yaml --records r.jsonl", "none/a.yaml: cannot be written"},
      {"--out a.yaml --records cut.jsonl", "cut.jsonl: the records have no end"},
      {"--out a.yaml --records r.jsonl --base h200-pcie6", "did you mean 'h200-pcie5'?"},
      {"--out a.yaml --only hots", "--only hots: no such group or bench"},
      {"--out a.yaml --only ,gpu", "offsim-kernels: command line: --only has an empty name"},
      {"--out a.yaml --only ''", "--only is empty"},
      {"--out a.yaml --file .", "offsim-kernels: .: exists, and is left alone"},
      {"--out a.yaml --kernels none", "'./none' does not start"},
      {"--check a.yaml", "a.jsonl"},
  };
  for (const auto& [arguments, message] : mistakes) {
    SCOPED_TRACE(arguments);
    const Outcome done = offsim("calibrate " + arguments, folder.path());
    EXPECT_EQ(done.code, 2);
    EXPECT_EQ(done.out, "");
    EXPECT_THAT(done.err, HasSubstr(message));
    EXPECT_EQ(lines_of(done.err).size(), 1U) << done.err;
  }
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"cut.jsonl", "r.jsonl"}));
}

TEST(Calibrate, TheSameRecordsGiveTheSameFile) {
  const Folder folder;
  folder.write("r.jsonl", records("1e-6"));
  const std::string command = "calibrate --records r.jsonl --out a.yaml";
  const Outcome first = offsim(command, folder.path());
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("no GPU, 4 cores of A Xeon, 64.0 GiB"));
  EXPECT_THAT(first.out, HasSubstr("gemm: no GPU"));
  const std::string file = folder.read("a.yaml");
  EXPECT_EQ(folder.read("a.jsonl"), records("1e-6"));
  EXPECT_EQ(offsim(command, folder.path()).out, first.out);
  EXPECT_EQ(folder.read("a.yaml"), file);
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (const std::string& line : lines_of(text)) {
    widest = std::max(widest, line.size());
  }
  return widest;
}

TEST(Calibrate, ItsTextFitsEightyColumns) {
  const Folder folder;
  const Outcome done = offsim("calibrate --out a.yaml --records " OFFSIM_SOURCE_DIR
                              "/hardware/measured/h200-calibrated.jsonl",
                              folder.path());
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_LE(widest_line(done.out), 80U) << done.out;
  for (const char* const command :
       {"predict", "compare", "run", "catalog", "validate", "calibrate", "replay", "dag"}) {
    EXPECT_LE(widest_line(offsim(std::string(command) + " --help").out), 80U) << command;
  }
}

TEST(Calibrate, CheckSaysWhatHasDrifted) {
  const Folder folder;
  folder.write("a.jsonl", records("1e-6"));
  folder.write("same.jsonl", records("1.05e-6"));
  folder.write("slow.jsonl", records("2e-6"));
  EXPECT_THAT(offsim("calibrate --check a.yaml --records same.jsonl", folder.path()).out,
              HasSubstr("nothing has drifted"));
  const Outcome slow = offsim("calibrate --check a.yaml --records slow.jsonl", folder.path());
  EXPECT_THAT(slow.out, HasSubstr("x0.50"));
  EXPECT_THAT(slow.out, HasSubstr("drifted: launch"));
}

#if defined(__SANITIZE_ADDRESS__)
#define OFFSIM_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OFFSIM_SLOW 1
#endif
#endif

// The real thing: this machine is measured, and a step is predicted on it.
TEST(Calibrate, ThisMachineIsMeasuredAndPredictedOn) {
#ifdef OFFSIM_SLOW
  GTEST_SKIP() << "with sanitizers the numbers mean nothing";
#endif
  const Folder folder;
  const Outcome done = offsim(
      "calibrate --quick --only host,storage --file drive.tmp --file-size 64MiB --out here.yaml",
      folder.path());
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"here.jsonl", "here.yaml"}));
  EXPECT_THAT(done.out, HasSubstr("host.dram"));
  const Outcome predicted =
      offsim("predict --model gpt2 --hardware ./here.yaml --plan zero2-offload", folder.path());
  EXPECT_EQ(predicted.code, 0) << predicted.err;
  EXPECT_THAT(predicted.out, HasSubstr("CPU optimizer"));
}

}  // namespace
}  // namespace offsim::cli::calibrate_test
