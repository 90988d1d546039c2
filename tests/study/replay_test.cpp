// Is a replay laid beside its prediction as it was? Programs of a few calls, spans by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "sim/study/replay.h"
#include "tests/plans/jobs.h"

namespace offsim::study::replay_test {
namespace {

using runtime::Program;
using testing::HasSubstr;

// Calls 0 to 8: a step that ends, forward, a launch, two copies, CPU work, backward, a hook, the
// end.
Program program() {
  runtime::Recorder gpu({});
  gpu.end_step();
  gpu.phase(runtime::Phase::kForward);
  gpu.launch(model::elementwise("layer", 1000, 4, 1));
  gpu.copy_h2d(runtime::kCompute, runtime::Space::kPinned, Bytes(1000), "weights");
  gpu.copy_d2h(runtime::kCompute, runtime::Space::kPageable, Bytes(1000), "gradients");
  gpu.cpu("mul_f32", 1000, "clip");
  gpu.phase(runtime::Phase::kBackward);
  gpu.host_busy(runtime::HostTask::kModuleHook, 1, "hooks");
  gpu.end_step();
  return std::move(gpu).finish();
}

// Of 10 s: GPU 1 to 4 and, of another step's launch, to 0.5; copies 3 to 6 and 6 to 8; CPU 8 to 9;
// host 0 to 1 and 9 to 9.5; the backward begins at 7.
const std::vector<ReplaySpan> kSpans{{2, 1, 1, 4},   {2, 1, -2, 0.5}, {2, 0, 0, 1},
                                     {3, 1, 3, 6},   {4, 1, 6, 8},    {5, 0, 8, 9},
                                     {7, 0, 9, 9.5}, {1, 0, -1, -1},  {6, 0, 7, 7}};

MeasuredReplay measured() {
  MeasuredReplay replay;
  replay.first = 1;
  replay.steps = {10};
  replay.reported = 1;
  replay.spans = kSpans;
  return replay;
}

double of(const std::vector<ReplayRow>& rows, const std::string& name) {
  for (const ReplayRow& row : rows) {
    if (row.name == name) {
      return row.measured;
    }
  }
  ADD_FAILURE() << "no row " << name;
  return 0;
}

TEST(Replay, IsPricedWithWhatTheReplayerRuns) {
  const Catalog catalog = Catalog::folder(OFFSIM_SOURCE_DIR);
  const machine::Host trained = catalog.machine("h200-calibrated", {"here", 0, 0}).host;
  const machine::Host replayed =
      replay_job(catalog, plans::job("native"), "h200-calibrated").machine.host;
  EXPECT_TRUE(trained.kernels.contains("adam_torch_loop_f32"));    // PyTorch's, not replayed so
  EXPECT_FALSE(replayed.kernels.contains("adam_torch_loop_f32"));  // passes of ours instead
  EXPECT_EQ(replayed.kernels.at("mul_f32").at(1 << 24), trained.standins.at("mul_f32").at(1 << 24));
  EXPECT_NE(replayed.kernels.at("mul_f32").at(1 << 24), trained.kernels.at("mul_f32").at(1 << 24));
}

TEST(Replay, AClassIsBusyWhileOneOfItsCallsRuns) {
  const ReplayComparison c =
      compare_replay(program(), measured(), {{2, 1, 0, 5}, {2, 1, 4, 6}}, Seconds(8));
  EXPECT_EQ(c.step_measured, 10);
  EXPECT_EQ(c.step_predicted, 8);
  EXPECT_EQ(of(c.classes, "GPU kernels"), 3.5);  // what began before the step is cut
  EXPECT_EQ(of(c.classes, "copies to the GPU, pinned"), 3);
  EXPECT_EQ(of(c.classes, "copies to the host, pageable"), 2);
  EXPECT_EQ(of(c.classes, "CPU mul_f32"), 1);
  EXPECT_EQ(of(c.classes, "Python on the host thread"), 0.5);
  EXPECT_EQ(of(c.classes, std::string(kIssuing)), 1);
  EXPECT_EQ(c.classes.front().name, "GPU kernels");
  EXPECT_EQ(c.classes.front().predicted, 6);
  EXPECT_EQ(of(c.works, "layer"), 3.5);
  EXPECT_EQ(of(c.phases, "forward"), 7);
  EXPECT_EQ(of(c.phases, "backward"), 3);
  EXPECT_DOUBLE_EQ(c.overlap_measured, (3.5 + 3 + 2 + 1) / 10);
  EXPECT_DOUBLE_EQ(c.overlap_predicted, 6.0 / 8);
}

const std::string kEnv = R"({"record":"env","schema":"offsim.replay/1","gpu":{"name":"H"}})"
                         "\n";
const std::string kStep = R"({"record":"step","index":1,"seconds":2.5})"
                          "\n"
                          R"({"record":"reported","index":1})"
                          "\n";
const std::string kEnd = "{\"record\":\"end\"}\n";

MeasuredReplay read(const std::string& text) {
  std::istringstream in(text);
  return read_replay(in, "r.jsonl", program());
}

TEST(Replay, RecordsAreRead) {
  const MeasuredReplay replay =
      read(kEnv + R"({"record":"memory","pool":"gpu","bytes":5,"held":7})" + "\n" + kStep +
           R"({"record":"call","call":2,"lane":"compute","begin":-0.5,"end":0.25})" + "\n" + kEnd);
  EXPECT_EQ(replay.gpu, "H");
  EXPECT_EQ(replay.step(), 2.5);
  EXPECT_EQ(replay.memory.at(0).held, Bytes(7));
  EXPECT_EQ(replay.spans.at(0).lane, 1u);
  EXPECT_EQ(replay.spans.at(0).begin, -0.5);
}

std::string with_hash(const std::string& hash) {
  return R"({"record":"env","schema":"offsim.replay/1","program_hash":")" + hash +
         R"(","gpu":null})" + "\n" + kStep + kEnd;
}

// Lanes and calls of another plan may have the same names and numbers.
TEST(Replay, RecordsOfAnotherProgramAreRefused) {
  EXPECT_TRUE(read(with_hash(runtime::program_hash(program()))).has_hash);
  EXPECT_FALSE(read(kEnv + kStep + kEnd).has_hash);  // older ones
  try {
    read(with_hash("4234448ede66ca69"));
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "r.jsonl:1:59: recorded from another program; expected the records of what --save "
                 "writes for this model, plan and options");
  }
}

TEST(Replay, OtherRecordsAreRefusedInOneLine) {
  const struct {
    std::string text, says;
  } cases[] = {
      {"", "r.jsonl: the records have no end"},
      {kEnv + kStep, "the records have no end"},
      {kEnv + kEnd, "the records have no reported step"},
      {kEnv + kStep + kEnd + kEnd, "r.jsonl:5:1: there is a line after the end"},
      {"[]\n", "r.jsonl:1:1: this is no JSON object"},
      {kStep, "'step' is out of place; expected one env record"},
      {kEnv + kEnv, "r.jsonl:2:1: 'env' is out of place"},
      {R"({"record":"env","schema":"offsim.measured/1","gpu":null})", "the schema is"},
      {kEnv + R"({"record":"tune"})", "r.jsonl:2:11: there is no record 'tune'"},
      {kEnv + R"({"record":"step","index":0,"seconds":1})", "step 0 is out of order"},
      {kEnv + R"({"record":"step","index":2,"seconds":1})", "index is '2'; expected a whole"},
      {kEnv + R"({"record":"step","index":1,"seconds":0})", "seconds is 0; expected seconds"},
      {kEnv + R"({"record":"call","call":99,"lane":"compute","begin":0,"end":1})", "call is '99'"},
      {kEnv + R"({"record":"call","call":1,"lane":"x","begin":0,"end":1})", "no lane 'x'"},
      {kEnv + R"({"record":"call","call":1,"lane":"host","begin":2,"end":1})",
       "end is 1; expected seconds from 2"},
      {kEnv + R"({"record":"call","call":1,"lane":"host","begin":"a","end":1})",
       "begin is the text 'a'"},
  };
  for (const auto& c : cases) {
    try {
      read(c.text);
      ADD_FAILURE() << c.text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.says)) << c.text;
    }
  }
}

// What a prediction replays as itself differs in nothing.
TEST(Replay, APredictionAgreesWithItself) {
  const plans::Job job = plans::job("zero3-offload");
  const study::Run run = simulate_replay(job);
  ASSERT_EQ(run.program.steps, job.plan->steps + kReplaySteps - 1);
  const std::size_t last = static_cast<std::size_t>(run.program.steps) - 1;
  MeasuredReplay replay;
  replay.first = replay.reported = last;
  replay.steps = {predicted_step(run, last).value};
  replay.spans = predicted_spans(run, last);
  const ReplayComparison c =
      compare_replay(run.program, replay, replay.spans, predicted_step(run, last));
  EXPECT_DOUBLE_EQ(c.step_measured, predict(job).step.value);
  ASSERT_GT(c.classes.size(), 4u);
  for (const ReplayRow& row : c.classes) {
    EXPECT_EQ(row.measured, row.predicted) << row.name;
  }
  double phases = 0;
  for (const ReplayRow& row : c.phases) {
    phases += row.measured;
  }
  EXPECT_NEAR(phases, c.step_measured, 1e-3 * c.step_measured);
}

TEST(Replay, KeepsSoManyLayers) {
  plans::Job job = plans::job("native");
  keep_layers(job, 1, {});
  EXPECT_EQ(job.shape.layers, 1);
  EXPECT_THROW(keep_layers(job, 2, {}), InputError);
  EXPECT_THROW(keep_layers(job, 0, {}), InputError);
}

}  // namespace
}  // namespace offsim::study::replay_test
