// Does Ratel move, hold and compute what its schedule says, and does Adam run beside the backward?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plans/activities.h"
#include "tests/plans/on_paper.h"

namespace offsim::plans::ratel_test {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kBlock = 36'992, kOuter = 2 * 256 * 64 + 64, kAllElements = 106'816;
constexpr std::int64_t kTokens = 16, kHidden = 64;
constexpr std::int64_t kCheckpoints = 2 * 2 * 2 * kTokens * kHidden;  // bytes: blocks, each two

// Nothing kept, or all of it.
const Given kNothing{{"planner", "ordered"}, {"swap_ratio", "0"}};
const Given kEverything{{"planner", "ordered"}, {"swap_ratio", "1e9"}};
// Outputs of MLP out, attention out, q, k and v, gate and up, of 16 tokens, two blocks.
constexpr std::int64_t kKept = 2 * 2 * kTokens * (64 + 64 + (64 + 32 + 32) + 2 * 128);

Job ratel(Given options = kNothing, Workload w = sixteen_tokens()) {
  return job("ratel", w, options);
}

class RatelAccumulation : public testing::TestWithParam<std::int64_t> {
 protected:
  Workload workload() const {
    Workload w = sixteen_tokens();
    w.accumulation = GetParam();
    return w;
  }
  double k() const { return static_cast<double>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Steps, RatelAccumulation, testing::Values(1, 2, 4));

// Blocks cross twice a micro-batch, embedding and head once a step; gradients in fp32, which come
// back to be added to.
TEST_P(RatelAccumulation, MovesWeightsGradientsAndActivations) {
  for (const auto& [options, kept] : {std::pair{kNothing, std::int64_t{0}}, {kEverything, kKept}}) {
    const runtime::StepTotals t = study::predict(ratel(options, workload())).totals;
    const double activations = k() * static_cast<double>(kCheckpoints + kept);
    EXPECT_EQ(t.h2d_bytes,
              k() * 4 * 2 * kBlock + 2 * kOuter + 4 * (k() - 1) * kAllElements + activations);
    EXPECT_EQ(t.d2h_bytes, 4 * k() * kAllElements + activations);
    EXPECT_EQ(t.nvme_read_bytes, k() * 4 * 2 * kBlock + 2 * kOuter + 12.0 * kAllElements);
    EXPECT_EQ(t.nvme_write_bytes, 14.0 * kAllElements);
  }
}

TEST_P(RatelAccumulation, ComputesAgainWhatWasNotKept) {
  const model::Shape s = tiny_shape();
  const Workload w = workload();
  const double linear = 2 * model::layer_linear_flops(s, 0, kTokens).value;
  const double attention = 2 * model::layer_attention_flops(s, 0, w.batch()).value;
  const double head = model::head_flops(s, kTokens).value;
  const auto executed = [&](const Given& options) {
    return study::predict(ratel(options, w)).totals.executed.value;
  };
  EXPECT_DOUBLE_EQ(executed(kNothing), k() * (4 * linear + 4.5 * attention + 3 * head));
  EXPECT_DOUBLE_EQ(executed(kEverything), k() * (3 * linear + 4.5 * attention + 3 * head));
}

std::int64_t p2(std::int64_t bytes) { return power_of_two(Bytes(bytes)).value; }

TEST(RatelMemory, OfTheHostIsBuffersGradientsAndActivations) {
  const std::int64_t buffers = 8 * p2(4 * kAllElements) + p2(12 * 1'200'000'000LL);
  const auto pinned = [](const Job& of) {
    return study::predict(of).pool("host_pinned")->peak.value;
  };
  EXPECT_EQ(pinned(ratel()), buffers + 2 * p2(4 * kAllElements) + kCheckpoints);
  EXPECT_EQ(pinned(ratel(kEverything)), buffers + 2 * p2(4 * kAllElements) + kCheckpoints + kKept);
  Given later = kNothing;
  later["is_grad_async"] = "false";
  EXPECT_EQ(pinned(ratel(later)), buffers + p2(4 * kAllElements) + kCheckpoints);
  EXPECT_EQ(study::predict(ratel()).pool("nvme")->peak.value, 14 * kAllElements);
}

TEST(RatelMemory, OfTheGpuAtRestIsThreeBlocksEmbeddingHeadAndTwoBuffersOfActivations) {
  const auto r = [](std::int64_t bytes) { return round_up(Bytes(bytes), 512).value; };
  EXPECT_EQ(study::predict(ratel()).pool("gpu")->resident.value,
            kMiB + 3 * r(2 * kBlock) + r(2 * 256 * 64) + r(2 * (256 * 64 + 64)) +
                2 * r(kCheckpoints / 2));
}

// --- order and waits

// Sub-groups: the embedding; of each block five tensors, q, k, v, o and gate, and with the other
// four what follows until 16,000 are reached. What the optimizer asks of the drive, in order.
std::vector<std::string> optimizer_io(const Job& of) {
  const runtime::Program program = recorded(of);
  std::vector<std::string> names;
  for (const runtime::Call& call : program.calls) {
    if (std::holds_alternative<runtime::EndStep>(call)) {
      break;
    }
    if (const auto* io = std::get_if<runtime::Io>(&call);
        io != nullptr &&
        program.lanes[static_cast<std::size_t>(io->queue)].name == "optimizer I/O") {
      names.push_back(io->write ? (program.text(io->what).starts_with("opt") ? "write" : "weights")
                                : "read");
    }
  }
  return names;
}

// Embedding; both blocks and the final norm; head.
Given three_groups(const std::string& rearrange) {
  Given options = kNothing;
  options["sub_group_size"] = "16384";
  options["is_nvme_rearrange"] = rearrange;
  return options;
}

TEST(RatelOrder, ReadsASubGroupBeforeItWritesTheOneBefore) {
  const std::vector<std::string> io = optimizer_io(ratel(three_groups("true")));
  ASSERT_GE(io.size(), 9U);
  EXPECT_THAT((std::vector<std::string>{io.begin(), io.begin() + 7}),
              ElementsAre("read", "read", "weights", "write", "read", "weights", "write"));
  EXPECT_EQ(io.back(), "write");
  EXPECT_EQ(std::ranges::count(io, "read"), std::ranges::count(io, "write"));
}

TEST(RatelOrder, WithoutRearrangementWritesEachAtOnce) {
  const std::vector<std::string> io = optimizer_io(ratel(three_groups("false")));
  for (std::size_t i = 0; i < io.size(); i += 3) {
    EXPECT_THAT((std::vector<std::string>{io.begin() + i, io.begin() + i + 3}),
                ElementsAre("read", "weights", "write"));
  }
}

// Adam of the head's sub-group is slow: the blocks' backward goes on meanwhile.
machine::Machine slow_cores() {
  machine::Machine m = paper_machine();
  m.framework.kernels["adam_deepspeed_f32"].core_rate = ElementsPerSecond(1e6);
  return m;
}

TEST(RatelWaits, AdamRunsBesideTheBackwardInAProcessOfItsOwn) {
  Given options = three_groups("true");
  const Activities beside(job("ratel", sixteen_tokens(), options, tiny_shape(), slow_cores()));
  EXPECT_LT(beside.start(beside.nth("Adam", Cause::kCpuOptimizer, 0)),
            beside.start(beside.nth("layer backward", Cause::kGpuCompute, 1)));
  options["is_grad_async"] = "false";
  const Activities after(job("ratel", sixteen_tokens(), options, tiny_shape(), slow_cores()));
  EXPECT_GE(after.start(after.nth("Adam", Cause::kCpuOptimizer, 0)),
            after.finish(after.nth("embedding backward", Cause::kGpuCompute, 0)));
}

TEST(RatelWaits, NothingIsWrittenBeforeItsAdam) {
  const Activities of(
      job("ratel", sixteen_tokens(), three_groups("true"), tiny_shape(), slow_cores()));
  for (int group = 0; group < 3; ++group) {
    EXPECT_GE(of.start(of.nth("parameters to the drive", Cause::kNvme, group)),
              of.finish(of.nth("Adam", Cause::kCpuOptimizer, group)));
  }
}

// Three slots: the copy of the fourth block waits for the first one's forward.
TEST(RatelWaits, ABlockComesWhenASlotIsFree) {
  const Activities of(job("ratel", sixteen_tokens(), kNothing, tiny_shape(5), paper_machine()));
  for (int block = 3; block < 5; ++block) {
    // The embedding's copy comes first, the head's after three blocks.
    const std::size_t copy = of.nth("weights", Cause::kH2d, block + 2);
    const std::size_t forward = of.nth("layer forward", Cause::kGpuCompute, block - 3);
    EXPECT_GE(of.start(copy), of.finish(forward));
    EXPECT_LT(of.start(copy), of.finish(of.nth("layer forward", Cause::kGpuCompute, block - 2)));
  }
}

// --- time

// A drive of 1 MB/s hides all else: weights, then states in and out. Two queues share it, but what
// they read and write at once is little.
TEST(RatelSchedule, BoundByTheDriveIsItsBytes) {
  machine::Machine m = runtime::synthetic_machine();
  m.drives.front().read = m.drives.front().write = runtime::known<BytesPerSecond>(1e6);
  runtime::connect(m);
  const study::Prediction p =
      study::predict(job("ratel", sixteen_tokens(), kNothing, tiny_shape(), m));
  const double bytes = 8 * kBlock + 2 * kOuter + 26 * kAllElements;
  EXPECT_NEAR(p.step.value, bytes / 1e6, 0.01 * p.step.value);
}

// --- the host has no room

TEST(RatelSpills, TheFirstBlocksWhenTheHostIsFull) {
  machine::Machine m = runtime::synthetic_machine();
  const Job roomy = job("ratel", sixteen_tokens(), kNothing, tiny_shape(4), m);
  const std::int64_t block = 2 * 2 * kTokens * kHidden;
  const std::int64_t all_kinds = block + kKept / 2;
  const std::int64_t pinned = study::predict(roomy).pool("host_pinned")->peak.value - 4 * block;
  // Room for two of the four blocks, and for the buffers of those that leave.
  m.host.memory = runtime::known_bytes(pinned + 2 * kMiB + 4 * all_kinds + 2 * block);
  const runtime::StepTotals t =
      study::predict(job("ratel", sixteen_tokens(), kNothing, tiny_shape(4), m)).totals;
  const runtime::StepTotals without = study::predict(roomy).totals;
  EXPECT_EQ(t.nvme_write_bytes - without.nvme_write_bytes, 2.0 * static_cast<double>(block));
  EXPECT_EQ(t.nvme_read_bytes - without.nvme_read_bytes, 2.0 * static_cast<double>(block));
  EXPECT_EQ(t.h2d_bytes, without.h2d_bytes);
}

}  // namespace
}  // namespace offsim::plans::ratel_test
