// Does the recorder write down what was asked, in order, with the allocators' rounding?
#include "sim/runtime/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "sim/base/error.h"
#include "tests/runtime/simulated.h"

namespace offsim::runtime::recorder_test {
namespace {

using testing::ElementsAre;

struct Rounded {
  Space space;
  std::int64_t asked, held;
};

class Rounds : public testing::TestWithParam<Rounded> {};

TEST_P(Rounds, AsTheRealAllocatorDoes) {
  Recorder gpu = recorder();
  EXPECT_EQ(gpu.size(gpu.allocate(GetParam().space, Bytes(GetParam().asked), "x")).value,
            GetParam().held);
  EXPECT_EQ(gpu.size(gpu.allocate_exact(GetParam().space, Bytes(GetParam().asked), "x")).value,
            GetParam().asked);
}
INSTANTIATE_TEST_SUITE_P(
    Spaces, Rounds,
    testing::Values(Rounded{Space::kGpu, 0, 0}, Rounded{Space::kGpu, 1, 512},
                    Rounded{Space::kGpu, 512, 512}, Rounded{Space::kGpu, 513, 1024},
                    Rounded{Space::kPinned, 0, 0}, Rounded{Space::kPinned, 3, 4},
                    Rounded{Space::kPinned, kGiB, kGiB},
                    Rounded{Space::kPinned, kGiB + 1, 2 * kGiB},
                    Rounded{Space::kPageable, 513, 513}, Rounded{Space::kNvme, 513, 513}));

TEST(Recorder, RoundsPinnedMemoryOnlyWhereTheFrameworkDoes) {
  Recorder exact({.gpu = 512, .pinned_power_of_two = false});
  EXPECT_EQ(exact.size(exact.allocate(Space::kPinned, Bytes(kGiB + 1), "x")).value, kGiB + 1);
}

RC_GTEST_PROP(RecorderProperty, PinnedMemoryIsAtMostTwiceWhatWasAsked, ()) {
  const std::int64_t asked = *rc::gen::inRange<std::int64_t>(1, 1LL << 50);
  Recorder gpu = recorder();
  const std::int64_t held = gpu.size(gpu.allocate(Space::kPinned, Bytes(asked), "x")).value;
  RC_ASSERT(held >= asked);
  RC_ASSERT(held < 2 * asked);
  RC_ASSERT((held & (held - 1)) == 0);
}

TEST(Recorder, AWorksNameMeansOneWork) {
  Recorder gpu = recorder();
  const WorkId first = gpu.work(kernels("layer", 1, 10));
  EXPECT_EQ(gpu.work(kernels("layer", 1, 10)), first);
  EXPECT_NE(gpu.work(kernels("head", 1, 10)), first);
  EXPECT_EQ(std::move(gpu).finish().works.size(), 2U);
}

model::Work counted(std::int64_t size) {
  static int made = 0;
  return kernels("made as number " + std::to_string(++made), 1, static_cast<int>(size));
}
model::Work another(std::int64_t size) { return kernels("another", 1, static_cast<int>(size)); }

// Made again, the first would have another name and be another work.
TEST(Recorder, MakesAWorkOfASizeOnce) {
  Recorder gpu = recorder();
  const Lane side = gpu.stream("side");
  gpu.launch(counted, 10);
  gpu.launch(counted, 10, side);
  gpu.launch(counted, 20);
  gpu.launch(another, 10);
  const Program program = std::move(gpu).finish();
  EXPECT_EQ(program.works.size(), 3U);
  std::vector<WorkId> launched;
  for (const Call& call : program.calls) {
    launched.push_back(std::get<Launch>(call).work);
  }
  EXPECT_THAT(launched, ElementsAre(WorkId{0}, WorkId{0}, WorkId{1}, WorkId{2}));
}

TEST(Recorder, CopiesOfNothingAreNotMade) {
  Recorder gpu = recorder();
  gpu.copy_h2d(kCompute, Space::kPinned, Bytes(0), "nothing");
  gpu.copy_d2h(kCompute, Space::kPinned, Bytes(1), "a byte");
  const Program program = std::move(gpu).finish();
  ASSERT_EQ(program.calls.size(), 1U);
  const Copy& copy = std::get<Copy>(program.calls.front());
  EXPECT_EQ(copy.from, Space::kGpu);
  EXPECT_EQ(copy.to, Space::kPinned);
  EXPECT_FALSE(copy.blocking);
}

TEST(Recorder, ReadingAResultWaitsForTheComputeStream) {
  Recorder gpu = recorder();
  gpu.read_result();
  const Program program = std::move(gpu).finish();
  ASSERT_EQ(program.calls.size(), 2U);
  EXPECT_EQ(std::get<Record>(program.calls[0]).lane, kCompute);
  EXPECT_EQ(std::get<Wait>(program.calls[1]).lane, kHost);
  EXPECT_EQ(std::get<Wait>(program.calls[1]).event, std::get<Record>(program.calls[0]).event);
}

TEST(Recorder, StopsAtWhatNoProgramCanAsk) {
  Recorder gpu = recorder();
  const Lane copies = gpu.stream("copies");
  const Buffer buffer = gpu.allocate(Space::kGpu, Bytes(1), "x");
  gpu.free(buffer);
  EXPECT_THROW(gpu.free(buffer), InternalError);
  EXPECT_THROW(gpu.free_after(buffer, copies), InternalError);
  EXPECT_THROW(gpu.launch(kernels("layer", 1, 1), kHost), InternalError);
  EXPECT_THROW(gpu.cpu("copy_bf16", 1, "copy", {.thread = copies}), InternalError);
  EXPECT_THROW(gpu.copy_h2d(copies, Space::kPinned, Bytes(1), "x", {.pieces = 0}), InternalError);
}

// Every kind of call once, as the executor of a real machine reads it.
TEST(WrittenProgram, IsOneObjectALineInIssueOrder) {
  Recorder gpu = recorder();
  const Lane copies = gpu.stream("copies");
  const Lane worker = gpu.worker("a \"worker\"");
  gpu.phase(Phase::kForward);
  const Buffer buffer = gpu.allocate(Space::kGpu, Bytes(1), "x");
  gpu.launch(kernels("layer", 2, 1));
  gpu.copy_h2d(copies, Space::kPageable, Bytes(12), "weights", {.blocking = true, .pieces = 3});
  gpu.cpu("copy_bf16", 7, "stage", {.thread = worker, .calls = 2, .threads = 1, .into = buffer});
  gpu.host_busy(HostTask::kCheckpoint, 2, "checkpoint");
  gpu.wait(copies, gpu.record(worker));
  gpu.sync_device();
  gpu.free_after(buffer, copies);
  gpu.end_step();
  std::ostringstream out;
  write_program(std::move(gpu).finish(), out);

  std::vector<nlohmann::json> lines;
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  ASSERT_EQ(lines.size(), 17U);
  EXPECT_EQ(lines[0], nlohmann::json::parse(
                          R"({"schema":"offsim.program/1","steps":1,"events":1,"buffers":1})"));
  EXPECT_EQ(lines[4], nlohmann::json::parse(R"({"lane":"a \"worker\"","kind":"worker"})"));
  EXPECT_EQ(lines[5]["kernels"][0]["count"], 2);
  std::vector<std::string> calls;
  for (std::size_t i = 6; i < lines.size(); ++i) {
    calls.push_back(lines[i]["call"]);
  }
  EXPECT_THAT(calls, ElementsAre("phase", "allocate", "launch", "copy", "cpu", "host", "record",
                                 "wait", "synchronize", "free", "end_step"));
  EXPECT_EQ(lines[9], nlohmann::json::parse(R"({"call":"copy","stream":"copies","from":"pageable",
      "to":"gpu","bytes":12,"pieces":3,"blocking":true,"into":null,"mover":"engine",
      "what":"weights"})"));
  EXPECT_EQ(lines[10], nlohmann::json::parse(R"({"call":"cpu","thread":"a \"worker\"",
      "kernel":"copy_bf16","elements":7,"calls":2,"threads":1,"into":0,"what":"stage"})"));
  EXPECT_EQ(lines[15]["used_by"], "copies");
}

// The number was computed by another program; the executor's tests have the same text and number.
TEST(WrittenProgram, HasAHashThatItsExecutorFindsToo) {
  Recorder gpu = recorder();
  gpu.end_step();
  const Program program = std::move(gpu).finish();
  std::ostringstream out;
  write_program(program, out);
  EXPECT_EQ(out.str(), R"({"schema":"offsim.program/1","steps":1,"events":0,"buffers":0}
{"lane":"host","kind":"host"}
{"lane":"compute","kind":"stream"}
{"call":"end_step"}
)");
  EXPECT_EQ(program_hash(program), "4234448ede66ca69");
}

}  // namespace
}  // namespace offsim::runtime::recorder_test
