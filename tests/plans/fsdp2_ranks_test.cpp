// Does fsdp2-offload on several GPUs gather, reduce and wait as fully_shard does?
//
// d ranks; a shard is a d-th of a tensor's rows, rounded up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "tests/plans/activities.h"
#include "tests/plans/calls.h"
#include "tests/plans/held.h"

namespace offsim::plans::fsdp2_ranks_test {
namespace {

constexpr int kLayerTensors = 9, kRootTensors = 3;

Job asked(int gpus, Workload w, machine::Machine m) {
  w.gpus = gpus;
  return job("fsdp2-offload", w, {}, tiny_shape(), std::move(m));
}
Job asked(int gpus, const Workload& w) {
  machine::Machine m = runtime::joined_machine(std::max(2, gpus));
  m.host.cores = 8;
  return asked(gpus, w, std::move(m));
}

// Elements of a rank's shards, of the tensors that `counted` takes.
template <class Counted>
std::int64_t shards(int gpus, Counted counted) {
  std::int64_t n = 0;
  for (const model::Tensor& t : model::all_tensors(tiny_shape())) {
    n += counted(t) ? (t.rows + gpus - 1) / gpus * t.cols : 0;
  }
  return n;
}

// --- bytes

class Fsdp2Ranks : public testing::TestWithParam<std::tuple<int, std::int64_t>> {
 protected:
  int d() const { return std::get<0>(GetParam()); }
  std::int64_t k() const { return std::get<1>(GetParam()); }
  Workload workload() const { return {.micro_batch = 2, .sequence = 128, .accumulation = k()}; }
  std::int64_t layers() const {
    return shards(d(), [](const model::Tensor& t) { return t.layer >= 0; });
  }
  std::int64_t root() const {
    return shards(d(), [](const model::Tensor& t) { return t.layer < 0; });
  }
};
INSTANTIATE_TEST_SUITE_P(Steps, Fsdp2Ranks,
                         testing::Combine(testing::Values(2, 3, 4, 8), testing::Values(1, 2)));

TEST_P(Fsdp2Ranks, CrossTheLinkWithTheirShards) {
  const auto t = study::predict(asked(d(), workload())).totals;
  EXPECT_EQ(t.h2d_bytes, static_cast<double>(4 * k() * (2 * layers() + root())));
  EXPECT_EQ(t.d2h_bytes, static_cast<double>(4 * k() * (layers() + root())));
}

// Gathered: layers twice, the root once; reduced: everything once; d - 1 of d parts cross.
TEST_P(Fsdp2Ranks, ExchangeSixteenBits) {
  const auto t = study::predict(asked(d(), workload())).totals;
  EXPECT_EQ(t.peer_bytes, static_cast<double>(2 * (d() - 1) * k() * (3 * layers() + 2 * root())));
}

TEST_P(Fsdp2Ranks, ComputeTheSameAsOne) {
  const auto executed = [&](int gpus) {
    return study::predict(asked(gpus, workload())).totals.executed.value;
  };
  EXPECT_EQ(executed(d()), executed(1));
}

// Of all ranks together. The heap keeps what the largest gradient of a later micro-batch landed in.
TEST_P(Fsdp2Ranks, HoldTheirShardsInHostMemory) {
  const study::Prediction p = study::predict(asked(d(), workload()));
  std::int64_t pinned = 0;
  for (const model::Tensor& t : model::all_tensors(tiny_shape())) {
    const std::int64_t bytes = 4 * ((t.rows + d() - 1) / d()) * t.cols;
    pinned += 2 * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
  }
  EXPECT_EQ(p.pool("host_pinned")->peak.value, d() * pinned);
  const std::int64_t landing = k() > 1 ? 4 * ((256 + d() - 1) / d()) * 64 : 0;
  EXPECT_EQ(p.pool("host")->resident.value, d() * (pinned + 8 * (layers() + root()) + landing));
}

TEST_P(Fsdp2Ranks, TakeAsManyTokensAndCostAsMuch) {
  const Job of = asked(d(), workload());
  const study::Prediction p = study::predict(of, UsdPerHour(3.6));
  EXPECT_DOUBLE_EQ(p.tokens_per_s * p.step.value, static_cast<double>(2 * 128 * k() * d()));
  EXPECT_DOUBLE_EQ(p.cost->usd_per_step.value, 0.001 * p.step.value * d());
}

// --- memory

// Of many tokens the peak is at the loss, where the last layer's parameters come already.
TEST(Fsdp2RanksPeak, HasTheLayerThatComesNext) {
  EXPECT_EQ(peak(asked(2, many_tokens()), "gpu") - peak(asked(1, many_tokens()), "gpu"),
            r(2 * Tiny::layer));
}

// --- who waits for whom

constexpr Workload kShort{.micro_batch = 1, .sequence = 16};

// Five groups: the root and two layers, then the layers again, the last one first.
TEST(Fsdp2RanksSequence, OfAStep) {
  const runtime::Program program = recorded(asked(2, kShort));
  const Names cast{"parameters", "cast parameters to 16 bits"};
  const Names layer = repeated(cast, kLayerTensors) + Names{"copy parameters"};
  const Names root = repeated(cast, kRootTensors) + Names{"copy parameters"};
  EXPECT_THAT(on(program, "copy-in"), testing::ElementsAreArray(root + repeated(layer, 4)));
  EXPECT_THAT(on(program, "all-gather"),
              testing::ElementsAreArray(repeated({"all-gather of parameters"}, 5)));
  const Names backward{"copy parameters", "layer backward", "copy gradients in"};
  EXPECT_THAT(on(program, "compute"),
              testing::ElementsAreArray(Names{"copy parameters", "embedding forward"} +
                                        repeated({"copy parameters", "layer forward"}, 2) +
                                        Names{"head and loss forward", "head and loss backward"} +
                                        repeated(backward, 2) +
                                        Names{"embedding backward", "copy gradients in"}));
  const Names reduction{"reduce-scatter of gradients", "cast to fp32"};
  EXPECT_THAT(
      on(program, "reduce-scatter"),
      testing::ElementsAreArray(repeated(reduction + repeated({"gradients"}, kLayerTensors), 2) +
                                reduction + repeated({"gradients"}, kRootTensors)));
}

// A host that is far ahead of a slow GPU.
machine::Machine slow_kernels() {
  machine::Machine m = runtime::joined_machine(2);
  m.accelerator.kernel_floor = runtime::known<Seconds>(1e-3);
  return m;
}
class Fsdp2RanksWaits : public testing::Test {
 protected:
  // The first parameter of the n-th group, and when the group's were copied out.
  std::size_t group(int n) const {
    return of_.nth("parameters", Cause::kH2d, n == 0 ? 0 : kRootTensors + (n - 1) * kLayerTensors);
  }
  std::size_t kernel(std::string_view label, int n) const {
    return of_.nth(label, Cause::kGpuCompute, n);
  }
  Activities of_{asked(2, kShort, slow_kernels())};
};

// The second layer's come while the first is computed: after the root's were copied out, which the
// host had asked for before.
TEST_F(Fsdp2RanksWaits, ForwardPrefetchesTheNextLayer) {
  EXPECT_LT(of_.start(group(2)), of_.finish(kernel("layer forward", 0)));
  EXPECT_GE(of_.start(group(2)), of_.finish(kernel("copy parameters (131328 bytes)", 0)));
}

// In backward the first layer's are asked for once the second's are copied out.
TEST_F(Fsdp2RanksWaits, BackwardPrefetchesTheLayerBefore) {
  const std::string copied_out = "copy parameters (147968 bytes)";
  const std::size_t second = kernel("layer backward", 0);
  EXPECT_LT(of_.start(group(4)), of_.finish(second));
  EXPECT_GE(of_.start(group(4)), of_.finish(kernel(copied_out, 2)));  // two in forward
}

}  // namespace
}  // namespace offsim::plans::fsdp2_ranks_test
