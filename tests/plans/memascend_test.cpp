// Is MemAscend ZeRO-Infinity but for the components that it replaces, each by itself?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "sim/base/error.h"
#include "tests/base/message_of.h"
#include "tests/plans/held.h"
#include "tests/plans/jobs.h"

namespace offsim::plans::memascend_test {
namespace {

using testing::Contains;
using testing::HasSubstr;

const Given kAsZeroInfinity{{"pool", "equal"},
                            {"allocator", "torch"},
                            {"overflow_check", "chain"},
                            {"engine", "filesystem"},
                            {"optimizer_states", "fp32"}};

constexpr std::int64_t kMi = 1 << 20;
constexpr std::int64_t kNorms = 5 * 1024;
constexpr std::int64_t kMatrices = 2 * (4 + 12) * kMi + 2 * 8 * kMi;
constexpr std::int64_t kAll = kMatrices + kNorms;

Job asked(std::string_view plan, Given options, Workload w = {.micro_batch = 1, .sequence = 64}) {
  options.try_emplace("max_in_cpu", "0");
  // A parameter leaves the GPU, and its buffer is free, with the module that uses it.
  options.try_emplace("stage3_prefetch_bucket_size", "0");
  options.try_emplace("stage3_max_reuse_distance", "0");
  return job(plan, w, options, shape_of_large_matrices());
}
// All as ZeRO-Infinity but one.
Job with(const std::string& component, const std::string& value,
         Workload w = {.micro_batch = 1, .sequence = 64}, Given options = {}) {
  options.insert(kAsZeroInfinity.begin(), kAsZeroInfinity.end());
  options[component] = value;
  return asked("memascend", options, w);
}
Job base(Workload w = {.micro_batch = 1, .sequence = 64}) {
  return asked("memascend", kAsZeroInfinity, w);
}

std::string program_text(const Job& of) {
  std::ostringstream out;
  runtime::write_program(recorded(of), out);
  return out.str();
}

TEST(MemascendTheShape, HasTheParametersOfItsComment) {
  EXPECT_EQ(model::parameters(shape_of_large_matrices()), kAll);
}

TEST(MemascendOfZeroInfinitysComponents, IsZeroInfinityToTheCall) {
  Workload fp16{.micro_batch = 2, .sequence = 64, .accumulation = 2};
  fp16.precision = Precision::kFp16Mixed;
  fp16.checkpointing = Checkpointing::kFull;
  for (const Workload& w : {Workload{}, fp16}) {
    for (const Given& options :
         {Given{}, Given{{"max_in_cpu", "1e9"}}, Given{{"pin_memory", "false"}},
          Given{{"deepspeed_version", "0.14.5"}, {"offload_param", "cpu"}},
          Given{{"pipeline_read", "true"}, {"buffer_count", "8"}, {"sub_group_size", "1e7"}},
          Given{{"offload_optimizer", "cpu"}, {"aio_queue_depth", "4"}}}) {
      Given mine = options;
      mine.insert(kAsZeroInfinity.begin(), kAsZeroInfinity.end());
      EXPECT_EQ(program_text(asked("memascend", mine, w)),
                program_text(asked("zero-infinity", options, w)));
    }
  }
}

// Five buffers of 1e8 elements; or one layer's matrices in flight, and embedding and head.
TEST(MemascendThePool, HoldsABufferOfItsSizeForEachMatrixOfALayer) {
  EXPECT_EQ(peak(base(), "host_pinned") - peak(with("pool", "adaptive"), "host_pinned"),
            2 * (5 * 100'000'000 - (4 + 12 + 16) * kMi));
}

// Eight buffers serve two layers of seven matrices.
TEST(MemascendThePool, HasAsManyLayersInFlightAsTheEqualBuffersServe) {
  const Given seven{{"param_buffer_count", "7"}}, eight{{"param_buffer_count", "8"}};
  EXPECT_EQ(peak(with("pool", "adaptive", {}, eight), "host_pinned") -
                peak(with("pool", "adaptive", {}, seven), "host_pinned"),
            2 * (4 + 12) * kMi);
}

TEST(MemascendThePool, MovesTheSameBytes) {
  const runtime::StepTotals equal = study::predict(base()).totals;
  const runtime::StepTotals adaptive = study::predict(with("pool", "adaptive")).totals;
  EXPECT_EQ(adaptive.nvme_read_bytes, equal.nvme_read_bytes);
  EXPECT_EQ(adaptive.h2d_bytes, equal.h2d_bytes);
}

// 16-bit gradients, four swap buffers of the one sub-group, five of parameters and the one that
// they are written from; norms, each a block of a power of two.
TEST(MemascendTheAllocator, PinsToTheByte) {
  const std::int64_t buffers = 16 * kAll + 2 * 5 * 100'000'000 + 2 * kAll + 2 * kNorms;
  EXPECT_EQ(peak(base(), "host_pinned"), power_of_two(Bytes(2 * kAll)).value + buffers);
  EXPECT_EQ(peak(with("allocator", "exact"), "host_pinned"), 2 * kAll + buffers);
}

// In memory, parameters were pinned one by one first, and torch keeps the blocks.
TEST(MemascendTheAllocator, KeepsNoBlocksOfTheInitialisation) {
  EXPECT_EQ(peak(with("allocator", "exact", {}, {{"offload_param", "cpu"}}), "host_pinned"),
            2 * kAll + 2 * kAll + 16 * kAll);
}

// On the machine of round numbers an element of a kernel is 10 B.
TEST(MemascendTheOverflowCheck, GoesOverTheGradientsOnceInsteadOfTwice) {
  Workload fp16{.micro_batch = 1, .sequence = 64};
  fp16.precision = Precision::kFp16Mixed;
  const auto dram = [](const Job& of) { return study::predict(of).totals.dram_bytes; };
  EXPECT_EQ(dram(base(fp16)) - dram(with("overflow_check", "fused", fp16)), 10.0 * kAll);
}

// 4 KiB at a time each 100 us are 41 MB/s; a raw drive gives all it has.
TEST(MemascendTheEngine, KeepsTheDriveBusyWhateverAioSays) {
  const Given shallow{{"aio_block_size", "4096"}, {"aio_queue_depth", "1"}};
  const double raw = study::predict(with("engine", "raw", {}, shallow)).step.value;
  EXPECT_DOUBLE_EQ(raw, study::predict(with("engine", "raw")).step.value);
  const study::Prediction through = study::predict(with("engine", "filesystem", {}, shallow));
  const double bytes = through.totals.nvme_read_bytes + through.totals.nvme_write_bytes;
  EXPECT_GT(through.step.value, bytes / (4096 / 100e-6));
  EXPECT_LT(raw, through.step.value / 10);
}

// fp32: master, m, v and the gradient of 4 B; norms' gradients do not pass through the drive. bf16:
// half of all.
TEST(MemascendStates, OfTwoBytesHalveWhatTheDriveMoves) {
  const runtime::StepTotals wide = study::predict(base()).totals;
  const runtime::StepTotals narrow = study::predict(with("optimizer_states", "bf16")).totals;
  EXPECT_EQ(wide.nvme_read_bytes - narrow.nvme_read_bytes, 6.0 * kAll + 2.0 * kMatrices);
  EXPECT_EQ(wide.nvme_write_bytes - narrow.nvme_write_bytes, 6.0 * kAll + 2.0 * kMatrices);
  EXPECT_EQ(narrow.nvme_write_bytes, 6.0 * kAll + 2.0 * kMatrices + 2.0 * kMatrices);
  EXPECT_EQ(wide.d2h_bytes - narrow.d2h_bytes, 2.0 * kAll);
  EXPECT_EQ(peak(base(), "nvme") - peak(with("optimizer_states", "bf16"), "nvme"),
            6 * kAll + 2 * kMatrices);
}

// Swap buffers too: 4 x 4 B.
TEST(MemascendStates, OfTwoBytesHalveTheSwapBuffers) {
  EXPECT_EQ(peak(base(), "host_pinned") - peak(with("optimizer_states", "bf16"), "host_pinned"),
            8 * kAll);
}

TEST(MemascendRefused, AreNarrowStatesInMemory) {
  for (const Given& where :
       {Given{{"offload_optimizer", "cpu"}}, Given{{"offload_param", "none"}}}) {
    const Job of = with("optimizer_states", "bf16", {}, where);
    EXPECT_THAT(message_of([&] { of.plan->check(of); }),
                HasSubstr("bf16 states are states on the drive; expected offload_optimizer nvme"));
  }
}

TEST(MemascendWarned, IsOfWhatDoesNothing) {
  const auto warnings = [](const Job& of) { return of.plan->check(of); };
  EXPECT_THAT(warnings(asked("memascend", {{"overflow_check", "fused"}})),
              Contains("memascend.overflow_check has no effect: only fp16 looks for infinities"));
  EXPECT_THAT(warnings(asked("memascend", {{"aio_queue_depth", "4"}})),
              Contains("memascend.aio_queue_depth has no effect: the raw engine keeps its queue "
                       "full"));
  EXPECT_THAT(warnings(asked("memascend", {{"param_buffer_size", "2e8"}})),
              Contains("memascend.param_buffer_size has no effect: the adaptive pool has the "
                       "parameters' own sizes"));
  EXPECT_THAT(warnings(asked("memascend", {{"pool", "equal"}, {"offload_param", "cpu"}})),
              Contains("memascend.pool has no effect: no parameters are on a drive"));
}

}  // namespace
}  // namespace offsim::plans::memascend_test
