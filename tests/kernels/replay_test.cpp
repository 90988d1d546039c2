#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "fake_device.h"
#include "kernels/host/cpu_kernels.h"
#include "kernels/records.h"
#include "kernels/replay/executor.h"
#include "kernels/replay/program.h"
#include "kernels/replay/replay.h"

namespace offsim::kernels::replay_test {
namespace {

using testing::HasSubstr;

const std::string kHeader =
    R"({"schema":"offsim.program/1","steps":2,"events":2,"buffers":2})"
    "\n"
    R"({"lane":"host","kind":"host"})"
    "\n"
    R"({"lane":"compute","kind":"stream"})"
    "\n"
    R"({"lane":"copies","kind":"stream"})"
    "\n"
    R"({"lane":"worker","kind":"worker"})"
    "\n"
    R"({"lane":"drive","kind":"io"})"
    "\n"
    R"({"work":0,"name":"layer","kernels":[{"gemm":{"m":8,"n":8,"k":8,"type":"bf16"},"count":2}]})"
    "\n";
const std::string kEnd = "{\"call\":\"end_step\"}\n";

std::string launch(const std::string& stream = "compute") {
  return R"({"call":"launch","stream":")" + stream + R"(","work":0})" + "\n";
}
std::string event(const std::string& what, const std::string& lane, int id) {
  return R"({"call":")" + what + R"(","lane":")" + lane + R"(","event":)" + std::to_string(id) +
         "}\n";
}
std::string cpu(const std::string& thread, const std::string& kernel = "copy_f32",
                const std::string& into = "null") {
  return R"({"call":"cpu","thread":")" + thread + R"(","kernel":")" + kernel +
         R"(","elements":1000,"calls":2,"threads":1,"into":)" + into + R"(,"what":"x"})" + "\n";
}
std::string copy(const std::string& from, const std::string& to, const std::string& into = "null",
                 bool blocking = false) {
  return R"({"call":"copy","stream":"copies","from":")" + from + R"(","to":")" + to +
         R"(","bytes":1001,"pieces":2,"blocking":)" + (blocking ? "true" : "false") +
         R"(,"into":)" + into + R"(,"mover":"engine","what":"x"})" + "\n";
}
std::string allocate(int id) {
  return R"({"call":"allocate","issuer":"host","buffer":)" + std::to_string(id) +
         R"(,"space":"pageable","bytes":1000,"tag":"t"})" + "\n";
}
std::string free_of(int id) {
  return R"({"call":"free","issuer":"host","buffer":)" + std::to_string(id) +
         R"(,"used_by":null})" + "\n";
}

Program program_of(const std::string& text) {
  std::istringstream in(text);
  return read_program(in, "p.jsonl");
}

std::string refusal(const std::string& text) {
  try {
    program_of(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ReplayReader, ReadsWhatThereIs) {
  const Program program = program_of(kHeader + allocate(0) + launch() + kEnd + free_of(0) + kEnd);
  EXPECT_EQ(program.steps, 2);
  EXPECT_EQ(program.lanes.size(), 5u);
  EXPECT_EQ(program.works.at(0).kernels.at(0).count, 2);
  EXPECT_EQ(program.calls.size(), 5u);
  EXPECT_EQ(program.peak.pageable, 1000);
}

TEST(ReplayReader, RefusesInOneLineWithItsPlace) {
  const struct {
    std::string call, says;
  } cases[] = {
      {"{\n", "no JSON object"},
      {"[1]\n", "no JSON object"},
      {std::string(50'000, '[') + "\n", "no JSON object"},
      {R"({"call":"jump"})", "is 'jump'"},
      {R"({"call":"launch","stream":"compute"})", "has no 'work'"},
      {R"({"call":"launch","stream":"compute","work":1})", "expected a whole number, 0 to 0"},
      {R"({"call":"launch","stream":"compute","work":-1})", "is -1"},
      {R"({"call":"launch","stream":"compute","work":0.5})", "is 0.5"},
      {R"({"call":"launch","stream":"worker","work":0})", "wrong kind"},
      {R"({"call":"launch","stream":"nowhere","work":0})", "no lane 'nowhere'"},
      {R"({"call":"launch","stream":"compute","work":0,"x":1})", "a key too many"},
      {R"({"call":"end_step","x":1})", "a key too many"},
      {R"({"call":"host","task":"t","count":99999999999999999999,"what":"x"})", "whole number"},
      {R"({"call":"all_gather","stream":"compute","bytes":1,"ranks":2,"what":"x"})",
       "collectives of several GPUs are not replayed"},
      {event("wait", "compute", 0), "before it is recorded"},
      {event("record", "compute", 0) + event("record", "compute", 0), "recorded twice"},
      {copy("gpu", "gpu"), "between the GPU and host memory"},
      {cpu("host", "copy_f32", "0"), "no pageable buffer that is there"},
      {free_of(1), "freed and is not there"},
      {allocate(1) + allocate(1), "allocated twice"},
      {allocate(1) + free_of(1) + free_of(1), "freed and is not there"},
      {kHeader, "a call has no 'call'"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.call.substr(0, 80));
    const std::string said = refusal(kHeader + c.call + "\n" + kEnd + kEnd);
    EXPECT_THAT(said, HasSubstr(c.says));
    EXPECT_THAT(said, testing::StartsWith("p.jsonl:"));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 0);
  }
  EXPECT_THAT(refusal(kHeader + R"({"call":"launch","stream":"compute","work":-1})" + "\n"),
              testing::StartsWith("p.jsonl:8:37: 'work' of a call is -1"));
  EXPECT_THAT(refusal(kHeader + "{\"call\":\n"), testing::StartsWith("p.jsonl:8:9: is no JSON"));
  EXPECT_THAT(
      refusal(kHeader +
              R"({"work":1,"name":"a","kernels":[{"attention":{"batch":1,"heads":1,"kv_heads":1,)"
              R"("sequence":8,"head_dim":8,"value_dim":8,"causal":true,"backward":false,)"
              R"("type":"fp32"},"count":1}]})"
              "\n"),
      HasSubstr("p.jsonl:8:151: attention in fp32 is not replayed"));
  EXPECT_THAT(refusal(""), HasSubstr("not whole"));
  EXPECT_THAT(refusal(kHeader + kEnd), HasSubstr("1 of 2 steps"));
  EXPECT_THAT(refusal(kHeader + kEnd + kEnd + launch()), HasSubstr("not whole"));
  EXPECT_THAT(refusal("{\"schema\":\"offsim.program/2\"}\n"), HasSubstr("p.jsonl:1:1: the schema"));
}

// A host whose work takes a moment and leaves a trace of who did it.
class FakeHost final : public HostWork {
 public:
  void prepare(const Program&) override {}
  void compute(const Call& call, std::byte* into, std::int64_t into_bytes) override {
    if (call.what == "broken") {
      throw std::runtime_error("it broke");
    }
    std::fill_n(into, into_bytes, std::byte{2});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  void transfer(const Call&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::byte* pageable(std::int64_t) override { return memory_.data(); }
  std::int64_t pageable_bytes() const override { return 600; }
  std::vector<MemoryUse> memory() const override { return {}; }

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(600);
};

struct Outcome {
  Program program;
  Execution execution;
  std::int64_t copied = 0;

  // Of the call at this place behind the header, on its lane.
  Span span(std::uint32_t call, const std::string& lane) const {
    for (const Span& span : execution.spans) {
      if (span.call == call && program.lanes[span.lane].name == lane) {
        return span;
      }
    }
    ADD_FAILURE() << "call " << call << " has no span on " << lane;
    return {};
  }
};

Outcome run(const std::string& calls, const std::map<std::string, double>& busy = {}) {
  Outcome out{program_of(kHeader + kEnd + calls + kEnd), {}, 0};
  FakeDevice device;
  FakeHost host;
  out.execution = execute(out.program, device, host, busy);
  out.copied = device.copied();
  return out;
}

// Calls are counted from 0, and the first is the end of the step before.
TEST(ReplayExecutor, AStreamKeepsItsOrderAndTheHostGoesOn) {
  const Outcome out = run(launch() + launch() + launch("copies"));
  EXPECT_LE(out.span(1, "compute").end, out.span(2, "compute").begin);
  EXPECT_LT(out.span(3, "copies").begin, out.span(2, "compute").begin);
  EXPECT_LT(out.span(3, "host").end, out.span(2, "compute").end);
  EXPECT_GE(out.execution.step_ends[1], out.span(2, "compute").end);
}

TEST(ReplayExecutor, WaitsBetweenAllKindsOfLanesHold) {
  const Outcome streams =
      run(launch() + event("record", "compute", 0) + event("wait", "copies", 0) + launch("copies"));
  EXPECT_GE(streams.span(4, "copies").begin, streams.span(1, "compute").end);

  const Outcome to_worker =
      run(launch() + event("record", "compute", 0) + event("wait", "worker", 0) + cpu("worker"));
  EXPECT_GE(to_worker.span(4, "worker").begin, to_worker.span(1, "compute").end);

  const Outcome from_worker =
      run(cpu("worker") + event("record", "worker", 0) + event("wait", "compute", 0) + launch());
  EXPECT_GE(from_worker.span(4, "compute").begin, from_worker.span(1, "worker").end);
  EXPECT_LT(from_worker.span(4, "host").end, from_worker.span(1, "worker").end);

  const Outcome to_host =
      run(cpu("worker") + event("record", "worker", 0) + event("wait", "host", 0) + cpu("host"));
  EXPECT_GE(to_host.span(4, "host").begin, to_host.span(1, "worker").end);

  const Outcome to_drive =
      run(cpu("worker") + event("record", "worker", 0) + event("wait", "drive", 0) +
          R"({"call":"read","queue":"drive","bytes":1,"in_flight":1,"gpu_direct":false,"what":"x"})"
          "\n");
  EXPECT_GE(to_drive.span(4, "drive").begin, to_drive.span(1, "worker").end);
}

TEST(ReplayExecutor, AWorkerRunsBesideTheHost) {
  const Outcome out = run(cpu("worker") + cpu("host"));
  EXPECT_LT(out.span(2, "host").begin, out.span(1, "worker").end);
  EXPECT_LT(out.span(1, "worker").begin, out.span(2, "host").end);
}

TEST(ReplayExecutor, CopiesMoveAllBytesAndPageableOnesKeepTheHost) {
  const Outcome out = run(copy("pinned", "gpu") + copy("gpu", "pageable") + launch() + allocate(0) +
                          copy("gpu", "pageable", "0") + free_of(0) + launch());
  EXPECT_EQ(out.copied, 3 * 1001);
  EXPECT_GE(out.span(3, "host").begin, out.span(2, "copies").end);
  EXPECT_GE(out.span(7, "host").begin, out.span(5, "copies").end);
  EXPECT_GE(out.span(2, "copies").begin, out.span(1, "host").begin);
}

TEST(ReplayExecutor, HostTasksTakeTheirTime) {
  const Outcome out = run(R"({"call":"host","task":"hook","count":3,"what":"x"})"
                          "\n"
                          R"({"call":"host","task":"other","count":3,"what":"x"})"
                          "\n",
                          {{"hook", 0.004}});
  const Span hook = out.span(1, "host"), other = out.span(2, "host");
  EXPECT_GE(hook.end - hook.begin, 0.012);
  EXPECT_LT(other.end - other.begin, 0.012);
}

TEST(ReplayExecutor, SaysThatItBeginsAndHowManyStepsWereIssued) {
  std::vector<std::int64_t> said;
  const Program program = program_of(kHeader + launch() + kEnd + launch() + kEnd);
  FakeDevice device;
  FakeHost host;
  execute(program, device, host, {}, [&](std::int64_t issued) { said.push_back(issued); });
  EXPECT_EQ(said, (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(ReplayExecutor, AFailureEndsAllWaits) {
  EXPECT_THROW(run(cpu("worker", "broken") + event("record", "worker", 0) +
                   event("wait", "compute", 0) + event("wait", "host", 0) + launch()),
               std::runtime_error);
  EXPECT_THROW(run(cpu("host", "broken") + cpu("worker")), std::runtime_error);
}

// Every name that a program may have (sim/machine/cost.h), the destination of the first of two.
TEST(ReplayHostWork, RunsTheKernelsOfFrameworks) {
  std::string calls;
  for (const char* const kernel : {"adam_deepspeed_f32",
                                   "adam_deepspeed_bf16",
                                   "adam_torch_fused_f32",
                                   "adam_torch_fused_bf16",
                                   "adam_torch_loop_f32",
                                   "adam_torch_loop_bf16",
                                   "cast_f32_bf16",
                                   "cast_bf16_f32",
                                   "mul_f32",
                                   "mul_bf16",
                                   "copy_f32",
                                   "copy_bf16",
                                   "add_f32",
                                   "add_bf16",
                                   "zero_f32",
                                   "zero_bf16",
                                   "norm_f32",
                                   "norm_bf16",
                                   "isinf_any_f32",
                                   "isinf_any_bf16"}) {
    calls += cpu("worker", kernel);
  }
  const Program program = program_of(kHeader + kEnd + allocate(0) + calls +
                                     cpu("host", "zero_f32", "0") + free_of(0) + kEnd);
  const auto host = make_host_work("");
  host->prepare(program);
  for (const Call& call : program.calls) {
    if (call.kind == Call::Kind::kCpu) {
      std::vector<std::byte> into(call.into ? 1000 : 0, std::byte{9});
      host->compute(call, call.into ? into.data() : nullptr,
                    static_cast<std::int64_t>(into.size()));
      EXPECT_EQ(std::count(into.begin(), into.end(), std::byte{9}), 0) << call.what;
    }
  }
  EXPECT_THROW(make_host_work("")->prepare(program_of(kHeader + kEnd + cpu("host", "sing") + kEnd)),
               std::runtime_error);
}

// Bytes an element that the passes read and write.
int moved_by(const std::string& kernel) {
  int bytes = 0;
  for (const std::string& pass : passes_of(kernel).kernels) {
    bytes += find_cpu_kernel(pass).moved;
  }
  return bytes;
}

// PyTorch's for-loop AdamW in fp32 reads and writes: mul_ 4 + 4, lerp_ 8 + 4, mul_ 4 + 4, addcmul_
// 8 + 4, sqrt 4 + 4, division 4 + 4, add_ 4 + 4, addcdiv_ 12 + 4.
TEST(ReplayHostWork, TheForLoopMovesWhatPyTorchsMoves) {
  EXPECT_EQ(moved_by("adam_torch_loop_f32"), 8 + 12 + 8 + 12 + 8 + 8 + 8 + 16);
  EXPECT_EQ(moved_by("adam_torch_loop_bf16"), 40);
  EXPECT_EQ(moved_by("adam_deepspeed_bf16"), 22);
}

TEST(ReplayHostWork, NeedsAFileForADrive) {
  const std::string read = R"({"call":"read","queue":"drive","bytes":100000,)"
                           R"("in_flight":8192,"gpu_direct":false,"what":"x"})";
  const Program program = program_of(kHeader + kEnd + read + "\n" + kEnd);
  EXPECT_THROW(make_host_work("")->prepare(program), std::runtime_error);
}

TEST(Replay, ReportsTheMedianStepFromItsBeginning) {
  Program program;
  program.steps = 4;
  program.lanes = {{"host", LaneKind::kHost}, {"compute", LaneKind::kStream}};
  Execution execution;
  execution.step_ends = {10, 13, 14, 16};  // steps of 3, 1 and 2 s: the last is the median
  execution.spans = {{7, 1, 13.5, 14.25}, {8, 0, 14.5, 15}, {2, 0, 9, 13.9}};
  std::ostringstream out;
  write_execution(program, execution, 3, out);
  EXPECT_EQ(out.str(),
            R"({"record":"step","index":1,"seconds":3.0}
{"record":"step","index":2,"seconds":1.0}
{"record":"step","index":3,"seconds":2.0}
{"record":"reported","index":3}
{"record":"call","call":7,"lane":"compute","begin":-0.5,"end":0.25}
{"record":"call","call":8,"lane":"host","begin":0.5,"end":1.0}
{"record":"end"}
)");
}

// The number was computed by another program; the writer's tests have the same text and number.
TEST(Replay, RecordsNameTheProgramByItsHash) {
  const Program program =
      program_of(R"({"schema":"offsim.program/1","steps":1,"events":0,"buffers":0}
{"lane":"host","kind":"host"}
{"lane":"compute","kind":"stream"}
{"call":"end_step"}
)");
  std::ostringstream out;
  write_environment(program, "p.jsonl", out);
  EXPECT_THAT(out.str(), HasSubstr(R"("program":"p.jsonl","program_hash":"4234448ede66ca69",)"));
}

TEST(Replay, SecondsOfTasksAreNumbers) {
  EXPECT_EQ(busy_seconds({"a=0.5", "b=1e-3"}),
            (std::map<std::string, double>{{"a", 0.5}, {"b", 1e-3}}));
  for (const char* const bad : {"a", "=1", "a=", "a=x", "a=-1", "a=1s", "a=nan", "a=1e9"}) {
    EXPECT_THROW(busy_seconds({bad}), std::runtime_error) << bad;
  }
}

}  // namespace
}  // namespace offsim::kernels::replay_test
