// Does the drive tier read, write and wait as DeepSpeed's swappers do?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/plans/stage3.h"
#include "tests/base/message_of.h"
#include "tests/plans/activities.h"
#include "tests/plans/calls.h"
#include "tests/plans/on_paper.h"
#include "tests/plans/visits.h"

namespace offsim::plans::nvme_test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr std::int64_t kMi = 1 << 20;
constexpr std::int64_t kMany = 1'000'000;

// --- parameters: visits as in visits.h

Job buffers(const std::string& count, const std::string& version = "0.19.6") {
  return job("zero-infinity", {}, {{"param_buffer_count", count}, {"deepspeed_version", version}});
}

// Demanded, the host waits for the read, then for the copy.
TEST(DriveWindow, ReadsBeforeItCopies) {
  Window of(buffers("3"), {0, kMany, 0}, {10, 20});
  of.micro_step({{0}, {0, 1}});
  EXPECT_THAT(of.last(2), ElementsAre("r10 s 10 s | -10", "r10 r20 s 10 20 s | -10 -20"));
}

// There and back. Behind each hook the next parameter of the trace is read, one when nothing is in
// flight to the GPU; a prefetch goes as far as what was read, and waits for the reads.
TEST(DriveWindow, ReadsAheadOfTheTrace) {
  const std::vector<Module> there_and_back{{0}, {1}, {2}, {2}, {1}, {0}};
  Window of(buffers("10"), {1, kMany, 1}, {10, 20, 40});
  of.micro_step(there_and_back);
  of.micro_step(there_and_back);
  EXPECT_THAT(of.last(6), ElementsAre("r10 s 10 s | r20 -10", "s 20 s | r40 -20", "s 40 s | r20",
                                      "| s 20 r10 -40", "s | s 10 -20", "s | -10"));
}

// Also without a prefetch to the GPU.
TEST(DriveWindow, ReadsAheadWithoutPrefetch) {
  Window of(buffers("10"), {0, kMany, 0}, {10, 20});
  of.micro_step({{0}, {1}});
  of.micro_step({{0}, {1}});
  EXPECT_THAT(of.last(2), ElementsAre("r10 s 10 s | r20 -10", "s 20 s | -20"));
}

// Twice as many elements as are in flight to the GPU: with 10, until more than 20 are considered.
TEST(DriveWindow, ReadsTwiceWhatIsInFlight) {
  const std::vector<Module> forward{{0}, {}, {1}, {2}, {3}, {4}, {5}};
  Window of(buffers("10"), {10, kMany, 0}, std::vector<std::int64_t>(6, 10));
  of.micro_step(forward);
  of.micro_step(forward);
  EXPECT_EQ(of.last(7)[1], "| s 10 r10 r10 r10");
}

// A parameter holds its buffer until it leaves the GPU. Two buffers: one is read, one read ahead.
TEST(DriveWindow, ReadsNoMoreThanThereAreBuffers) {
  const std::vector<Module> forward{{0}, {}, {1}, {2}, {3}};
  Window of(buffers("2"), {10, kMany, 0}, std::vector<std::int64_t>(4, 10));
  of.micro_step(forward);
  of.micro_step(forward);
  EXPECT_THAT(of.last(5), ElementsAre("r10 s 10 s | r10 -10", "| s 10 r10", "s | s 10 -10",
                                      "s | r10 -10", "s 10 s | -10"));
}

// One that is kept on the GPU for its next use has one less for the others: DeepSpeed's issue 3062.
TEST(DriveWindow, StopsWhenWhatIsKeptHoldsAllBuffers) {
  const std::vector<Module> there_and_back{{0}, {1}, {1}, {0}};
  Window of(buffers("1"), {0, kMany, kMany}, {10, 20});
  of.micro_step(there_and_back);
  EXPECT_THAT(message_of([&] { of.micro_step(there_and_back); }),
              HasSubstr("DeepSpeed stops with 'Not enough buffers' for parameters on the drive; "
                        "expected a larger param_buffer_count"));
}

// Buffers are not registered with CUDA since 0.19.4.
TEST(DriveWindow, CopiesFromPageableBuffersSince0_19_4) {
  for (const auto& [version, space] : std::map<std::string, runtime::Space>{
           {"0.19.3", runtime::Space::kPinned}, {"0.19.4", runtime::Space::kPageable}}) {
    runtime::Recorder gpu({});
    EXPECT_EQ(ParameterSwapper(buffers("1", version), gpu, {10}, 0).buffers(), space) << version;
  }
}

// --- optimizer: six sub-groups of about 8 Mi elements; only matrices are worth a request

Given of_drive(Given options = {}) {
  options.insert({{"offload_param", "cpu"}, {"sub_group_size", "8388608"}});
  return options;
}
const Given kPipelined{
    {"pipeline_read", "true"}, {"pipeline_write", "true"}, {"buffer_count", "12"}};

Job on_drive(const Given& options, const machine::Machine& m = paper_machine()) {
  return job("zero-infinity", {.micro_batch = 1, .sequence = 16}, of_drive(options),
             shape_of_large_matrices(), m);
}

// Embedding; q, k, v, o and gate; up and down; two norms and the second layer's likewise; its up
// and down; three norms and the head. Elements, and of them those of norms.
constexpr std::int64_t kNorm = 1024;
constexpr std::int64_t kSubGroups = 6;
std::int64_t norms(std::int64_t sub_group) { return sub_group == 3 ? 2 : sub_group == 5 ? 3 : 0; }
double matrices() { return 8 * kMi; }
double elements(std::int64_t sub_group) {
  return matrices() + static_cast<double>(norms(sub_group) * kNorm);
}

TEST(DriveSubGroups, AreThoseOfTheComment) {
  const std::vector<SubGroup> groups = make_sub_groups(on_drive({}));
  ASSERT_EQ(groups.size(), static_cast<std::size_t>(kSubGroups));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    EXPECT_EQ(static_cast<double>(groups[i].elements), elements(static_cast<std::int64_t>(i)));
  }
}

TEST(DriveSequence, OfAPlainStepIsOneQueue) {
  const Names update{"optimizer states from the drive", "gradients from the drive",
                     "optimizer states to the drive"};
  EXPECT_THAT(on(recorded(on_drive({})), "optimizer I/O"),
              ElementsAreArray(repeated({"gradients to the drive"}, kSubGroups) +
                               repeated(update, kSubGroups)));
}

// One of less than a request is not on the drive, and does not end a pipeline that it follows: two
// norms and the final norm behind a head that is tied.
TEST(DriveSequence, SkipsASubGroupSmallerThanARequest) {
  model::Shape shape = shape_of_large_matrices();
  shape.tied = true;
  const Job of = job("zero-infinity", {.sequence = 16}, of_drive(kPipelined), shape);
  ASSERT_LT(make_sub_groups(of).back().elements, 4 * kNorm);
  const runtime::Program program = recorded(of);
  const Names read{"optimizer states from the drive", "gradients from the drive"};
  EXPECT_THAT(on(program, "optimizer reads"), ElementsAreArray(repeated(read, kSubGroups - 1)));
  EXPECT_EQ(count_of(on(program, "host"), "Adam"), kSubGroups);
}

// --- a cycle on paper: from Adam of a sub-group to Adam of the next, all microseconds

double read(double bytes) { return bytes / 2e3; }     // 2 GB/s
double written(double bytes) { return bytes / 1e3; }  // 1 GB/s

// Norms' gradients stayed on the GPU: each a blocking copy into a locked buffer.
double small_gradients(std::int64_t sub_group) {
  return static_cast<double>(norms(sub_group)) * (kCall + kLatency + pageable(4.0 * kNorm));
}

double adam_to_adam(const Activities& of, int sub_group) {
  const auto done = [&](int i) {
    return static_cast<double>(of.finish(of.nth("Adam", Cause::kCpuOptimizer, i)));
  };
  return (done(sub_group + 1) - done(sub_group)) * 1e-6;
}

// Nothing overlaps: cast; states written; the next sub-group's read, its gradients read, unscaled,
// updated.
TEST(DriveOnPaper, APlainCycleIsTheSumOfItsParts) {
  const Activities of(on_drive({}));
  for (int s = 0; s + 1 < kSubGroups; ++s) {
    const double n = elements(s + 1);
    EXPECT_NEAR(adam_to_adam(of, s),
                cpu(elements(s)) + kCall + written(12 * elements(s)) + 2 * kCall + read(12 * n) +
                    read(4 * matrices()) + small_gradients(s + 1) + 2 * cpu(n),
                kExact)
        << s;
  }
}

// And with parameters on the drive the cast is followed by their write. Three queues, but one
// request after the other: nothing mixes.
TEST(DriveOnPaper, APlainCycleWritesParametersBeforeStates) {
  const Activities of(on_drive({{"offload_param", "nvme"},
                                {"max_in_cpu", "0"},
                                {"stage3_prefetch_bucket_size", "0"},
                                {"stage3_max_reuse_distance", "0"}}));
  for (int s = 0; s + 1 < kSubGroups; ++s) {
    const double n = elements(s + 1);
    EXPECT_NEAR(adam_to_adam(of, s),
                cpu(elements(s)) + kCall + written(2 * matrices()) + kCall +
                    written(12 * elements(s)) + 2 * kCall + read(12 * n) + read(4 * matrices()) +
                    small_gradients(s + 1) + 2 * cpu(n),
                kExact)
        << s;
  }
}

// Pipelined, with a slow CPU: reads and writes hide behind unscale, Adam and cast; what is left are
// the host's calls for one write and two reads, and the small gradients of the sub-group after
// next.
TEST(DriveOnPaper, APipelinedCycleIsTheCpuWhenThatIsSlow) {
  machine::Machine m = paper_machine();
  for (const char* const kernel : {"mul_f32", "adam_deepspeed_f32", "cast_f32_bf16"}) {
    m.framework.kernels[kernel].core_rate = ElementsPerSecond(1e6);
  }
  const Activities of(on_drive(kPipelined, m));
  for (int s = 0; s + 2 < kSubGroups; ++s) {
    EXPECT_NEAR(adam_to_adam(of, s),
                1000 * cpu(elements(s)) + 3 * kCall + small_gradients(s + 2) +
                    2 * 1000 * cpu(elements(s + 1)),
                kExact)
        << s;
  }
}

// With a slow drive it is all that the drive does: from one sub-group's last read to the next's
// there are its reads and the write of the one before. Byte by byte together, at half the drive's
// rates, until the write is done; the rest is read alone.
TEST(DriveOnPaper, APipelinedCycleIsTheDriveWhenThatIsSlow) {
  const Activities of(on_drive(kPipelined));
  const auto arrived = [&](int sub_group) {
    const auto at = of.nth("gradients from the drive", Cause::kNvme, sub_group);
    return static_cast<double>(of.finish(at)) * 1e-6;
  };
  for (int s = 1; s + 1 < kSubGroups; ++s) {
    EXPECT_NEAR(arrived(s + 1) - arrived(s),
                kCall + 2 * (read(12 * elements(s)) + written(12 * elements(s))) +
                    read(12 * (elements(s + 1) - elements(s)) + 4 * matrices()),
                kExact)
        << s;
  }
}

// What is in flight bounds the rate: 4 KiB at a time each 100 us, or half of that on average.
TEST(DriveOnPaper, ARequestIsAsFastAsItsQueueIsDeep) {
  const auto seconds = [](const char* overlap) {
    const Activities of(on_drive({{"aio_block_size", "4096"},
                                  {"aio_queue_depth", "2"},
                                  {"aio_intra_op_parallelism", "3"},
                                  {"aio_overlap_events", overlap}}));
    const auto at = of.nth("optimizer states from the drive", Cause::kNvme, 0);
    return static_cast<double>(of.finish(at) - of.start(at)) * 1e-12;
  };
  const double rate = 6 * 4096 / 100e-6;
  EXPECT_NEAR(seconds("true"), 12 * elements(0) / rate, 1e-9);
  EXPECT_NEAR(seconds("false"), 12 * elements(0) / (rate / 2), 1e-9);
}

// --- who waits for whom

machine::Machine slow_drive() {
  machine::Machine m = paper_machine();
  m.drives.front().write = runtime::known<BytesPerSecond>(1e8);
  runtime::connect(m);
  return m;
}

// Gradients fill a buffer of the largest sub-group, which is written while the next is filled. Of
// four, three are free behind the first; then the host waits for all writes. Buffers change with q
// of layer 0, up, q of layer 1, up and the head; the fourth change, up of layer 1, is the 14th
// copy.
TEST(DriveWaits, GradientsWaitWhenNoBufferIsFree) {
  const Activities of(on_drive({}, slow_drive()));
  const auto sent = [&](int matrix) {
    return of.start(of.nth("fp32 gradients", Cause::kD2h, matrix));
  };
  const auto on_the_drive = [&](int buffer) {
    return of.finish(of.nth("gradients to the drive", Cause::kNvme, buffer));
  };
  EXPECT_LT(sent(12), on_the_drive(0));
  EXPECT_GE(sent(13), on_the_drive(3));
  EXPECT_LT(sent(15), on_the_drive(4));
}

// The step begins when the last buffer is written.
TEST(DriveWaits, TheFirstReadComesAfterAllGradients) {
  const Activities of(on_drive({}, slow_drive()));
  EXPECT_GE(of.start(of.nth("optimizer states from the drive", Cause::kHostThread, 0)),
            of.finish(of.nth("gradients to the drive", Cause::kNvme, kSubGroups - 1)));
}

// pipeline_write alone: the write of a sub-group is under way while the next is read and updated,
// and waited for before the next one's; without it the host waits at once.
TEST(DriveWaits, AWriteIsWaitedForBeforeTheNext) {
  for (const char* const pipelined : {"true", "false"}) {
    const Activities of(
        on_drive({{"pipeline_write", pipelined}, {"buffer_count", "8"}}, slow_drive()));
    const auto written_at = [&](int s) {
      return of.finish(of.nth("optimizer states to the drive", Cause::kNvme, s));
    };
    const auto next_read = [&](int s) {
      return of.start(of.nth("optimizer states from the drive", Cause::kHostThread, s + 1));
    };
    for (int s = 0; s + 2 < kSubGroups; ++s) {
      EXPECT_EQ(next_read(s) >= written_at(s), pipelined == std::string("false"));
      EXPECT_GE(of.start(of.nth("optimizer states to the drive", Cause::kHostThread, s + 1)),
                written_at(s));
    }
  }
}

// pipeline_read alone: reads of the next sub-group are submitted when this one's have come.
TEST(DriveWaits, TheNextSubGroupIsReadBesideAdam) {
  for (const char* const pipelined : {"true", "false"}) {
    const Activities of(on_drive({{"pipeline_read", pipelined}, {"buffer_count", "8"}}));
    for (int s = 0; s + 1 < kSubGroups; ++s) {
      const auto next =
          of.start(of.nth("optimizer states from the drive", Cause::kHostThread, s + 1));
      EXPECT_EQ(next < of.start(of.nth("Adam", Cause::kCpuOptimizer, s)),
                pipelined == std::string("true"));
      EXPECT_GE(next, of.finish(of.nth("gradients from the drive", Cause::kNvme, s)));
    }
  }
}

TEST(DriveRefuses, TooFewBuffers) {
  const auto refused = [](Given options) {
    Job of = on_drive({});
    for (const auto& [name, value] : options) {
      of.options.set(name, value, {"case.yaml", 3, 7});
    }
    return message_of([&] { of.plan->check(of); });
  };
  EXPECT_THAT(refused({{"pipeline_read", "true"}}), HasSubstr("expected a buffer_count of 8"));
  EXPECT_THAT(
      refused({{"pipeline_read", "true"}, {"pipeline_write", "true"}, {"buffer_count", "11"}}),
      HasSubstr("case.yaml:3:7: DeepSpeed stops with 'ran out of swap buffers'; expected a "
                "buffer_count of 12"));
  EXPECT_EQ(refused({{"buffer_count", "4"}}), "(nothing was refused)");
}

TEST(DriveRefuses, AParameterLargerThanItsBuffer) {
  const auto refused = [](const char* elements) {
    const Job of =
        job("zero-infinity", {}, {{"param_buffer_size", elements}}, shape_of_large_matrices());
    return message_of([&] { of.plan->check(of); });
  };
  EXPECT_EQ(refused("8388608"), "(nothing was refused)");
  EXPECT_THAT(refused("8388607"), HasSubstr("'More elements than buffer size'; expected a "
                                            "param_buffer_size of 8388608 or more"));
}

}  // namespace
}  // namespace offsim::plans::nvme_test
