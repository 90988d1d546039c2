// Is a replay saved, run and compared? A script stands for the program that needs a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace offsim::cli::replay_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kAsk =
    "replay --model gpt2 --hardware h200-16core-vm --plan native --precision bf16 --layers 1";

// Native has three steps, two more are measured. The step before the last is reported; its first
// launch takes half of it.
std::string records(const std::string& program, const std::string& hash = "") {
  int call = 0, ends = 0, launch = -1;
  for (const std::string& line : lines_of(program)) {
    const json record = json::parse(line);
    if (record.contains("call")) {
      launch = launch < 0 && ends == 3 && record["call"] == "launch" ? call : launch;
      ends += record["call"] == "end_step" ? 1 : 0;
      ++call;
    }
  }
  EXPECT_EQ(ends, 5);
  return R"({"record":"env","schema":"offsim.replay/1",)" +
         (hash.empty() ? "" : R"("program_hash":")" + hash + R"(",)") +
         R"("gpu":{"name":"A GPU"}}
{"record":"memory","pool":"gpu","bytes":1073741824,"held":2147483648}
{"record":"step","index":2,"seconds":3}
{"record":"step","index":3,"seconds":2}
{"record":"step","index":4,"seconds":1}
{"record":"reported","index":3}
{"record":"call","call":)" +
         std::to_string(launch) + R"(,"lane":"compute","begin":0.5,"end":1.5}
{"record":"end"}
)";
}

class Replay : public testing::Test {
 protected:
  Replay() {
    const Outcome saved = offsim(kAsk + " --save program.jsonl", folder_.path());
    EXPECT_EQ(saved.code, 0) << saved.err;
    EXPECT_THAT(saved.out, HasSubstr("Next: offsim-kernels replay program.jsonl"));
    folder_.write("records.jsonl", records(folder_.read("program.jsonl")));
  }
  Outcome ask(const std::string& more) const { return offsim(kAsk + more, folder_.path()); }
  void script(const std::string& name, const std::string& lines) const {
    folder_.write(name, "#!/bin/sh\n" + lines + "\n");
    std::filesystem::permissions(folder_.path() / name, std::filesystem::perms::owner_all);
  }
  Folder folder_;
};

TEST_F(Replay, RecordsMadeElsewhereAreCompared) {
  const Outcome text = ask(" --measured records.jsonl --trace trace.json");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("native, 1 layer of gpt2, replayed\n3 steps, 1.00 s to 3.00 s"));
  EXPECT_THAT(text.out, HasSubstr("gpu 1.0 of 2.0 GiB"));
  EXPECT_THAT(text.out, HasSubstr("Next: offsim predict --model gpt2"));
  const json events = json::parse(folder_.read("trace.json")).at("traceEvents");
  int measured = 0, predicted = 0;
  for (const json& event : events) {
    measured += event["ph"] == "X" && event["pid"] == 1 ? 1 : 0;
    predicted += event["ph"] == "X" && event["pid"] == 2 ? 1 : 0;
  }
  EXPECT_EQ(measured, 1);
  EXPECT_GT(predicted, 5);

  const json answer = json::parse(ask(" --measured records.jsonl --json -").out);
  EXPECT_EQ(answer.at("schema"), "offsim.replayed/1");
  EXPECT_EQ(answer.at("step_measured_s"), 2.0);
  EXPECT_GT(answer.at("step_predicted_s"), 0);
  EXPECT_EQ(answer.at("overlap_measured"), 0.5);
  EXPECT_EQ(answer.at("classes").at(0).at("name"), "GPU kernels");
  EXPECT_EQ(answer.at("classes").at(0).at("measured_s"), 1.0);
}

std::string hash_of(const std::string& text) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

TEST_F(Replay, RecordsOfAnotherProgramAreKnownByItsHash) {
  EXPECT_EQ(hash_of("foobar"), "85944171f73967e8");  // of the hash's authors
  const std::string program = folder_.read("program.jsonl");
  folder_.write("same.jsonl", records(program, hash_of(program)));
  folder_.write("other.jsonl", records(program, hash_of(program + "\n")));
  const Outcome same = ask(" --measured same.jsonl");
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.out, testing::Not(HasSubstr("no hash")));
  EXPECT_THAT(same.out, HasSubstr("warning: h200-16core-vm has no CPU kernels of the replayer's"));
  const Outcome other = ask(" --measured other.jsonl");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("other.jsonl:1:59: recorded from another program; expected"));
  EXPECT_THAT(ask(" --measured records.jsonl").out,
              HasSubstr("warning: no hash in these records: cannot tell whether they are of this"));
}

TEST_F(Replay, AProgramIsRunAndNothingIsLeft) {
  script("kernels.sh",
         "test \"$1\" = replay && test -s \"$2\" && echo \"$2\" > where && "
         "test \"$3\" = --busy && cat records.jsonl");
  const Outcome run = ask(" --kernels ./kernels.sh --json -");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out), json::parse(ask(" --measured records.jsonl --json -").out));
  EXPECT_THAT(folder_.read("where"), testing::StartsWith("/proc/self/fd/"));  // no file to leave
}

// What the program leaves behind holds its outputs open.
TEST_F(Replay, AProgramThatHasEndedIsNotWaitedFor) {
  script("leaves.sh", "sleep 60 & echo $! > left; cat records.jsonl");
  const auto begin = std::chrono::steady_clock::now();
  const Outcome run = ask(" --kernels ./leaves.sh --json -");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(::kill(std::stoi(folder_.read("left")), SIGKILL), 0);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out), json::parse(ask(" --measured records.jsonl --json -").out));
}

TEST_F(Replay, ATerminalSeesHowFarItIs) {
  script("slow.sh",
         "echo progress 0 5 memory >&2; sleep 1.2; echo progress 3 5 steps >&2; sleep 0.1; "
         "cat records.jsonl");
  EXPECT_THAT(on_terminal("cd '" + folder_.path().string() + "' && offsim " + kAsk +
                          " --kernels ./slow.sh"),
              HasSubstr("replaying steps: 4 of 5"));
}

TEST_F(Replay, WhatCannotRunSaysSoInOneLine) {
  script("no_gpu.sh", "echo 'no GPU: none' >&2; exit 1");
  const Outcome none = ask(" --kernels ./no_gpu.sh");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("offsim-kernels: no GPU: none"));
  EXPECT_EQ(none.out, "");
  script("killed.sh", "kill -9 $$");
  EXPECT_THAT(ask(" --kernels ./killed.sh").err, HasSubstr("signal 9 ended it"));
  script("silent.sh", "true");
  EXPECT_THAT(ask(" --kernels ./silent.sh").err, HasSubstr("the records have no end"));
}

TEST_F(Replay, BadQuestionsAreRefused) {
  const struct {
    std::string more, says;
  } cases[] = {
      {" --measured missing.jsonl", "missing.jsonl: no such file"},
      {" --measured program.jsonl", "program.jsonl:1:1: record is missing"},
      {" --measured records.jsonl --save x", "--measured has no effect beside --save"},
      {" --measured records.jsonl --kernels x", "--kernels has no effect beside --measured"},
      {" --measured records.jsonl --file x", "--file has no effect beside --measured"},
      {" --save x --json y", "--json has no effect beside --save"},
      {" --kernels missing", "'./missing' does not start"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = ask(c.more);
    EXPECT_EQ(outcome.code, 2) << c.more;
    EXPECT_THAT(outcome.err, HasSubstr(c.says));
    EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.err;
  }
  const std::string other = kAsk.substr(0, kAsk.rfind(' '));
  EXPECT_THAT(offsim(other + " 13").err, HasSubstr("13 layers of gpt2; expected 1 to 12"));
  EXPECT_THAT(offsim(other + " 0").err, HasSubstr("0 layers of gpt2"));
}

}  // namespace
}  // namespace offsim::cli::replay_test
