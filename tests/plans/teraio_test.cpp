// Does what is planned happen: memory below its capacity whatever that is, bytes out and in alike,
// past host memory or through it, and at no cost where the drive keeps up?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/message_of.h"
#include "tests/plans/calls.h"
#include "tests/plans/held.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::teraio_test {
namespace {

Workload few(std::int64_t accumulation = 1, Checkpointing checkpointing = Checkpointing::kNone) {
  return {.micro_batch = 2,
          .sequence = 64,
          .accumulation = accumulation,
          .checkpointing = checkpointing};
}

Job teraio(const Workload& w, std::optional<Bytes> memory = {}, const Given& options = {},
           std::int64_t layers = 6) {
  Job of = job("teraio", w, options, tiny_shape(layers), paper_machine());
  if (memory) {
    of.machine.accelerator.memory.value = *memory;
  }
  return of;
}
Bytes needed(const Workload& w, std::int64_t layers = 6) {
  return study::predict(teraio(w, {}, {}, layers)).pool("gpu")->needed();
}
Bytes share(Bytes bytes, double of) {
  return Bytes(static_cast<std::int64_t>(static_cast<double>(bytes.value) * of));
}
machine::Drive slow_drive(double rate) {
  machine::Drive drive = runtime::synthetic_drive();
  drive.read = drive.write = runtime::known<BytesPerSecond>(rate);
  drive.mixed = runtime::known<double>(1);
  return drive;
}

// Seconds of a step in which both lanes do something.
double together(const Predicted& of, std::string_view one, std::string_view other) {
  const auto& lane = of.run.lowered.lane;
  const auto is = [&](std::size_t i, std::string_view name) {
    return lane[i] == static_cast<std::uint32_t>(lane_of(of.run.program, name));
  };
  const engine::Timeline& time = of.run.timeline;
  engine::Picoseconds sum = 0;
  for (std::size_t a = 0; a < lane.size(); ++a) {
    for (std::size_t b = 0; is(a, one) && b < lane.size(); ++b) {
      if (is(b, other)) {
        const auto from = std::max({time.start[a], time.start[b], of.run.step.from});
        const auto to = std::min({time.finish[a], time.finish[b], of.run.step.to});
        sum += std::max<engine::Picoseconds>(0, to - from);
      }
    }
  }
  return engine::to_seconds(sum).value / static_cast<double>(of.run.turns);
}

TEST(Teraio, MovesNothingWhereAllFits) {
  const study::Prediction p = study::predict(teraio(few()));
  EXPECT_EQ(p.totals.nvme_read_bytes + p.totals.nvme_write_bytes, 0);
  EXPECT_EQ(p.pool("nvme"), nullptr);
  EXPECT_EQ(p.totals.executed.value,
            study::predict(job("native", few(), {}, tiny_shape(6), paper_machine()))
                .totals.executed.value);
}

// A kernel of Adam a piece; what leaves does so beside kernels and is back in time.
TEST(Teraio, CostsNothingWhereTheDriveKeepsUp) {
  const Workload w = sixteen_tokens();
  const Times t(model::Numerics::kAutocast);
  const double kernels = t.forward() + t.backward() + 4 * kKernel;
  EXPECT_NEAR(step_us(teraio(w, {}, {}, 2)), kernels, kExact);
  const study::Prediction tight = study::predict(teraio(w, needed(w, 2) - Bytes(1), {}, 2));
  EXPECT_GT(tight.totals.nvme_write_bytes, 0);
  EXPECT_NEAR(tight.step.value / runtime::kMicro, kernels, kExact);
}

// One byte too little for the backward of the first layer, the operation that needs most. Least to
// move that is not used there and for long enough before and after: the head's parameters, 4 B for
// each of 16,448, written during the backward of the second layer. They are read once the first
// layer's is done, and the head's Adam waits for them, beside which the embedding's backward and
// three kernels of Adam run.
TEST(Teraio, WaitsForASlowDrive) {
  const Workload w = sixteen_tokens();
  Job slow = teraio(w, needed(w, 2) - Bytes(1), {}, 2);
  slow.machine.drives = {slow_drive(1e7)};
  runtime::connect(slow.machine);
  const Times t(model::Numerics::kAutocast);
  const double bytes = 4 * kHead + 256;  // a multiple of 512
  const double read = bytes / 10;        // us
  const study::Prediction p = study::predict(slow);
  EXPECT_EQ(p.totals.nvme_write_bytes, bytes);
  EXPECT_EQ(p.totals.nvme_read_bytes, bytes);
  EXPECT_NEAR(p.step.value / runtime::kMicro,
              t.forward() + t.head_backward + 2 * t.layer_backward + read + kKernel, kExact);
}

struct Case {
  double share;
  Workload work;
  Given options = {};
};
class TeraioMemory : public testing::TestWithParam<Case> {
 protected:
  TeraioMemory()
      : memory(share(needed(GetParam().work), GetParam().share)),
        job(teraio(GetParam().work, memory, GetParam().options)),
        done(predicted(job)),
        p(done.prediction) {}
  Bytes memory;
  Job job;
  Predicted done;
  const study::Prediction& p;
};
const Given kThroughHost{{"path", "host"}};
INSTANTIATE_TEST_SUITE_P(
    Shares, TeraioMemory,
    testing::Values(Case{0.95, few()}, Case{0.8, few()}, Case{0.6, few()}, Case{0.8, few(3)},
                    Case{0.7, few(1, Checkpointing::kFull)},
                    Case{0.7, few(2, Checkpointing::kFull)}, Case{0.7, few(), kThroughHost},
                    Case{0.7, few(2), kThroughHost}, Case{0.7, few(2), {{"host_memory", "1e6"}}},
                    Case{0.7, few(2), {{"host_memory", "1e6"}, {"path", "host"}}}));

TEST_P(TeraioMemory, StaysBelowItsCapacity) {
  EXPECT_TRUE(p.feasible());
  EXPECT_LE(p.pool("gpu")->needed(), memory);
  EXPECT_GT(p.pool("nvme")->peak, Bytes(0));
}

TEST_P(TeraioMemory, MovesOutWhatItMovesIn) {
  EXPECT_GT(p.totals.nvme_write_bytes, 0);
  EXPECT_EQ(p.totals.nvme_read_bytes, p.totals.nvme_write_bytes);
  EXPECT_EQ(p.totals.h2d_bytes, p.totals.d2h_bytes);
}

// What a step needs of its drive: its bytes, each kind at its rate, and what is lost while a read
// and a write run together, which is when there is `mixed` of the drive.
double seconds_of_drive(const Job& job, const Predicted& done) {
  const machine::Drive& drive = job.machine.drives.front();
  const runtime::StepTotals& totals = done.prediction.totals;
  return totals.nvme_read_bytes / drive.read.value.value +
         totals.nvme_write_bytes / drive.write.value.value +
         (1 - drive.mixed.value) * together(done, "reads", "writes");
}

TEST_P(TeraioMemory, TakesNoLessThanTheDriveNeeds) {
  EXPECT_GE(p.step.value, seconds_of_drive(job, done) * (1 - 1e-9));
}

// A drive of kilobytes a second never rests. The last writes of a step meet the first reads of the
// next, which count as its own: so all bytes of a step are moved in a step.
TEST_P(TeraioMemory, TakesWhatTheDriveNeedsWhereThatIsAll) {
  machine::Drive& drive = job.machine.drives.front();
  drive.read = runtime::known<BytesPerSecond>(2e3);
  drive.write = runtime::known<BytesPerSecond>(1e3);
  runtime::connect(job.machine);
  const Predicted slow = predicted(job);
  EXPECT_NEAR(slow.prediction.step.value / seconds_of_drive(job, slow), 1, 1e-3);
}

// Two Adam states leave after their use, one of them in the next step; parameters after the
// forward, and are back for the backward, the states for Adam.
TEST(Teraio, WritesAfterAUseAndReadsBeforeTheNext) {
  const runtime::Program program = recorded(teraio(few(), share(needed(few()), 0.9)));
  const Names layers = repeated({"parameters"}, 6);
  EXPECT_EQ(on(program, "writes"), Names{"Adam states"} + layers + Names{"Adam states"});
  EXPECT_EQ(on(program, "reads"), layers + repeated({"Adam states"}, 2));
}

// GPUDirect: no byte of DRAM, none of host memory. Otherwise each byte passes DRAM twice, through
// two buffers.
TEST(TeraioPath, IsPastHostMemoryOrThroughIt) {
  const Bytes memory = share(needed(few()), 0.7);
  const study::Prediction direct = study::predict(teraio(few(), memory));
  EXPECT_EQ(direct.totals.dram_bytes + direct.totals.h2d_bytes + direct.totals.d2h_bytes, 0);
  EXPECT_EQ(direct.pool("host")->peak, Bytes(0));
  const study::Prediction host = study::predict(teraio(few(), memory, kThroughHost));
  const double moved = host.totals.nvme_read_bytes + host.totals.nvme_write_bytes;
  EXPECT_EQ(host.totals.dram_bytes, 2 * moved);
  EXPECT_EQ(host.totals.h2d_bytes + host.totals.d2h_bytes, moved);
  EXPECT_EQ(host.pool("host")->peak, Bytes(2 * 64 * kMiB));
}

// Where kernels take no time beside the drive, through host memory is longer, since a direction's
// requests and copies take turns, and by no more than all its copies. Where kernels do, it may be
// a little shorter: while a direction copies, the drive has all of itself for the other.
TEST(TeraioPath, ThroughHostMemoryWaitsForItsCopiesToo) {
  const Bytes memory = share(needed(few()), 0.7);
  for (const double link : {1e3, 5e3, 10e9}) {
    const auto predict = [&](const Given& options) {
      Job of = teraio(few(), memory, options);
      machine::Drive& drive = of.machine.drives.front();
      drive.read = drive.write = runtime::known<BytesPerSecond>(1e3);
      of.machine.link->h2d = of.machine.link->d2h = runtime::known<BytesPerSecond>(link);
      of.machine.link->total = runtime::known<BytesPerSecond>(2 * link);
      runtime::connect(of.machine);
      return study::predict(of);
    };
    const study::Prediction direct = predict({}), host = predict(kThroughHost);
    const double moved = host.totals.nvme_read_bytes + host.totals.nvme_write_bytes;
    EXPECT_EQ(moved, direct.totals.nvme_read_bytes + direct.totals.nvme_write_bytes);
    const double least = link > 1e6 ? 1 - 1e-6 : 1.04;
    EXPECT_GE(host.step.value, least * direct.step.value) << link;
    EXPECT_LE(host.step.value, (direct.step.value + moved / link) * (1 + 1e-6)) << link;
  }
}

TEST(TeraioPath, IsThroughHostMemoryWhereTheGpuHasNoGpuDirect) {
  Job consumer = teraio(few(), share(needed(few()), 0.7));
  consumer.machine.accelerator.gpudirect = false;
  const Job through = teraio(few(), share(needed(few()), 0.7), kThroughHost);
  EXPECT_EQ(study::predict(consumer).step, study::predict(through).step);
}

// A drive that is slow, and a host that has room, within what the user allows.
TEST(TeraioHostMemory, TakesWhatTheDriveHasNoTimeFor) {
  const auto asked = [](const Given& options) {
    Job of = teraio(few(), share(needed(few()), 0.6), options);
    of.machine.drives = {slow_drive(1e7)};
    runtime::connect(of.machine);
    return study::predict(of);
  };
  const study::Prediction none = asked({}), some = asked({{"host_memory", "1e6"}}),
                          plenty = asked({{"host_memory", "1e9"}});
  EXPECT_EQ(none.pool("host")->peak, Bytes(0));
  EXPECT_GT(some.pool("host")->peak, Bytes(0));
  EXPECT_LE(some.pool("host")->peak, Bytes(1'000'000));
  EXPECT_LT(some.step, none.step);
  EXPECT_LT(plenty.step, some.step);
  EXPECT_GT(plenty.totals.d2h_bytes, some.totals.d2h_bytes);
}

// Reads and writes share the drive's time, so one that reads as fast as the link leaves room both
// ways. PCIe 5.0 and drives that read at 60 and write at 11 GB/s, a thousand times slower.
TEST(TeraioHostMemory, GetsNoLessOfTheLinkPastHostMemoryThanThroughIt) {
  const auto asked = [](const std::string& path) {
    Job of = teraio(few(), share(needed(few()), 0.5), {{"host_memory", "1e9"}, {"path", path}});
    of.machine.link->h2d = of.machine.link->d2h = runtime::known<BytesPerSecond>(55e6);
    of.machine.link->total = runtime::known<BytesPerSecond>(95.7e6);
    of.machine.drives = {slow_drive(60e6)};
    of.machine.drives.front().write = runtime::known<BytesPerSecond>(11e6);
    runtime::connect(of.machine);
    return study::predict(of).step;
  };
  EXPECT_LE(asked("gpudirect"), asked("host"));
}

TEST(TeraioHostMemory, IsCopiedToAndFromBesideADriveThatIsReachedThroughIt) {
  Job of = teraio(few(), share(needed(few()), 0.5), {{"host_memory", "1e6"}, {"path", "host"}});
  of.machine.drives = {slow_drive(1e7)};
  runtime::connect(of.machine);
  const Predicted done = predicted(of);
  EXPECT_GT(together(done, "copies to the host", "writes"), 0);
  EXPECT_GT(together(done, "copies to the GPU", "reads"), 0);
}

// One byte too little for a plan: another one, or none.
TEST(TeraioDrive, HoldsNoMoreThanItsCapacity) {
  Job of = teraio(few(), share(needed(few()), 0.7));
  const Bytes held = study::predict(of).pool("nvme")->peak;
  const auto with = [&](Bytes capacity) {
    of.machine.drives.front().capacity.value = capacity;
    return study::predict(of);
  };
  EXPECT_EQ(with(held).pool("nvme")->peak, held);
  EXPECT_LT(with(held - Bytes(1)).pool("nvme")->peak, held);
  const study::Prediction none = with(Bytes(1));
  EXPECT_EQ(none.pool("nvme"), nullptr);
  EXPECT_FALSE(none.pool("gpu")->fits());
}

TEST(Teraio, LaunchesWhatNativeDoesWithAdamPieceByPiece) {
  const runtime::Program program = recorded(teraio(sixteen_tokens(), {}, {}, 2));
  EXPECT_EQ(
      on(program, "compute"),
      (Names{"embedding forward", "layer forward", "layer forward", "head and loss forward",
             "head and loss backward", "layer backward", "layer backward", "embedding backward"} +
       repeated({"Adam"}, 4)));
}

// Before Adam, with a head that is the embedding, too.
TEST(Teraio, LaunchesWhatNativeDoesBeforeAdam) {
  for (const bool tied : {false, true}) {
    for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
      for (const std::int64_t accumulation : {1, 2}) {
        const auto launched = [&](std::string_view plan) {
          Job of = job(plan, few(accumulation, checkpointing), {}, tiny_shape(), paper_machine());
          of.shape.tied = tied;
          Names names = on(recorded(of), "compute");
          std::erase(names, "Adam");
          return names;
        };
        EXPECT_EQ(launched("teraio"), launched("native"))
            << tied << to_string(checkpointing) << accumulation;
      }
    }
  }
}

// Not an error: a prediction that says what is missing.
TEST(Teraio, DoesNotFitWhereNoPlanDoes) {
  const study::Prediction p = study::predict(teraio(few(), share(needed(few()), 0.45)));
  EXPECT_FALSE(p.pool("gpu")->fits());
  EXPECT_TRUE(p.pool("nvme")->fits());
}

// Half the link's time goes to each direction where it does one at a time.
TEST(TeraioWarns, OfHostMemoryThatIsNoneOrThatTheLinkHasNoRoomFor) {
  const auto warnings = [](double rate, const std::string& host_memory) {
    Job of = teraio(few(), {}, {{"host_memory", host_memory}});
    of.machine.link->total = of.machine.link->h2d;
    of.machine.drives = {slow_drive(rate)};
    return of.plan->check(of);
  };
  EXPECT_THAT(warnings(9e9, "1e9"), testing::IsEmpty());
  EXPECT_THAT(
      warnings(20e9, "1e9"),
      testing::ElementsAre("teraio.host_memory has no effect: the drive alone fills the link"));
  EXPECT_THAT(warnings(9e9, "0"),
              testing::ElementsAre("teraio.host_memory has no effect: it allows no bytes"));
}

std::string refusal(const Job& of) {
  return message_of([&] { study::predict(of); });
}

TEST(TeraioRefuses, MachinesWithoutADriveOrWithOneMemory) {
  Job bare = teraio(few());
  bare.machine.drives.clear();
  EXPECT_EQ(refusal(bare), "synthetic has no drive; expected a machine with one");
  EXPECT_EQ(refusal(job("teraio", few(), {}, tiny_shape(), runtime::unified_machine())),
            "teraio needs a GPU with a memory of its own, and synthetic has one memory: nowhere to "
            "go; expected a machine with a link");
}

TEST(TeraioRefuses, GpuDirectWhereThereIsNone) {
  Job of = teraio(few(), {}, {{"path", "gpudirect"}});
  of.machine.accelerator.gpudirect = false;
  EXPECT_EQ(refusal(of), "synthetic GPU has no GPUDirect; expected path auto or host");
}

// 1,000 layers: 8 x 1,000^2 + 24 x 1,000 + 10.
TEST(TeraioRefuses, StepsThatItsPlannerWouldTakeLongFor) {
  EXPECT_EQ(refusal(teraio(few(), {}, {}, 1000)),
            "teraio's planner needs to look at 8,024,010 operations during which a tensor is not "
            "used; expected at most 4,000,000: fewer layers or micro-batches");
}

}  // namespace
}  // namespace offsim::plans::teraio_test
