// Does every plan move exactly the bytes of the system that it models, and execute its operations?
//
// k micro-batches a step, on one GPU. Bytes a parameter that cross the link:
//                                        to the GPU       to the host
//   native                               0                0
//   zero2-offload before 0.17            2 (k - 1) + 4    4, or 2 k + 4 when k > 1
//   zero2-offload since                  2 (k - 1) + 2    the same
//   megatrain, of the layers             6 k              2 k
//   megatrain as the paper states it     4 k              2 k
//   megatrain, embedding and head        2, after the step   2 k
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plans/jobs.h"

namespace offsim::plans::bytes_test {
namespace {

// What of a step crosses the link.
std::pair<double, double> moved(const Job& job) {
  const runtime::StepTotals totals = study::predict(job).totals;
  return {totals.h2d_bytes, totals.d2h_bytes};
}

std::pair<double, double> bytes(std::int64_t to_gpu, std::int64_t to_host) {
  return {static_cast<double>(to_gpu), static_cast<double>(to_host)};
}

class Accumulation : public testing::TestWithParam<std::int64_t> {
 protected:
  std::int64_t k() const { return GetParam(); }
  Workload workload() const { return {.micro_batch = 2, .sequence = 128, .accumulation = k()}; }
  std::int64_t n() const { return model::parameters(tiny_shape()); }
  std::int64_t of_layers() const { return 2 * model::layer_parameters(tiny_shape(), 0); }
};
INSTANTIATE_TEST_SUITE_P(Steps, Accumulation, testing::Values(1, 2, 4));

TEST_P(Accumulation, OfNativeMovesNothing) {
  EXPECT_EQ(moved(job("native", workload())), bytes(0, 0));
}

// Whatever memory is pinned and whichever stream copies.
TEST_P(Accumulation, OfZero2WithFp32WriteBack) {
  for (const char* const pinned : {"true", "false"}) {
    for (const char* const overlap : {"true", "false"}) {
      const Job asked =
          job("zero2-offload", workload(),
              {{"deepspeed_version", "0.14.5"}, {"pin_memory", pinned}, {"overlap_comm", overlap}});
      EXPECT_EQ(moved(asked), bytes((2 * (k() - 1) + 4) * n(), (k() > 1 ? 2 * k() + 4 : 4) * n()));
    }
  }
}

TEST_P(Accumulation, OfZero2With16BitStaging) {
  for (const char* const version : {"0.17.0", "0.19.6"}) {
    for (const char* const overlap : {"true", "false"}) {
      const Job asked = job("zero2-offload", workload(),
                            {{"deepspeed_version", version}, {"overlap_comm", overlap}});
      EXPECT_EQ(moved(asked), bytes(2 * k() * n(), (k() > 1 ? 2 * k() + 4 : 4) * n()));
    }
  }
}

TEST(Zero2, WritesBackFp32Before0_17) {
  EXPECT_EQ(moved(job("zero2-offload", {}, {{"deepspeed_version", "0.16.9"}})).first,
            2 * moved(job("zero2-offload", {}, {{"deepspeed_version", "0.17.0"}})).first);
}

TEST_P(Accumulation, OfMegatrainsCode) {
  EXPECT_EQ(moved(job("megatrain", workload())),
            bytes(6 * k() * of_layers() + 2 * (n() - of_layers()), 2 * k() * n()));
}

TEST_P(Accumulation, OfMegatrainsPaper) {
  EXPECT_EQ(moved(job("megatrain", workload(), {{"variant", "paper"}})),
            bytes(4 * k() * of_layers() + 2 * (n() - of_layers()), 2 * k() * n()));
}

// Loads do not depend on how layers fall into blocks.
TEST(Megatrain, LoadsEveryLayerThriceWhateverTheBlocks) {
  for (const std::int64_t layers : {1, 2, 5, 8}) {
    for (const char* const interval : {"1", "2", "3", "100"}) {
      const model::Shape shape = tiny_shape(layers);
      const std::int64_t of_layers = layers * model::layer_parameters(shape, 0);
      const std::int64_t n = model::parameters(shape);
      EXPECT_EQ(
          moved(job("megatrain", {.sequence = 128}, {{"checkpoint_interval", interval}}, shape)),
          bytes(6 * of_layers + 2 * (n - of_layers), 2 * n));
    }
  }
}

// Host kernels' DRAM bytes: 10 an element on the synthetic machine, whichever kernel.
TEST_P(Accumulation, OfZero2TouchesEveryParameterInUnscaleAdamAndCast) {
  const auto dram = [&](const char* version) {
    const runtime::StepTotals t =
        study::predict(job("zero2-offload", workload(),
                           {{"deepspeed_version", version}, {"pin_memory", "true"}}))
            .totals;
    return t.dram_bytes - t.h2d_bytes - t.d2h_bytes;
  };
  EXPECT_EQ(dram("0.14.5"), 10.0 * 2 * static_cast<double>(n()));  // unscale, Adam
  EXPECT_EQ(dram("0.19.6"), 10.0 * 3 * static_cast<double>(n()));  // and the cast
}

TEST_P(Accumulation, OfMegatrainTouchesEveryParameterInTheWorkerAndTheOptimizer) {
  const runtime::StepTotals t = study::predict(job("megatrain", workload())).totals;
  const double pageable = 2.0 * static_cast<double>(n() - of_layers());
  // The worker k times; norm, scale, Adam and zero once; the refresh of the layers. A pageable byte
  // counts three times.
  EXPECT_EQ(t.dram_bytes - t.h2d_bytes - t.d2h_bytes - 2 * pageable,
            10.0 * static_cast<double>((k() + 4) * n() + of_layers()));
}

// --- operations executed, in forward operations of the layers' matrices (linear), their attention,
// and the head

struct Parts {
  double linear, attention, head;  // of one micro-batch's forward
  double down;                     // the last product of all layers
};
Parts parts_of(const Workload& w) {
  const model::Shape s = tiny_shape();
  const double layers = static_cast<double>(s.layers);
  return {layers * model::layer_linear_flops(s, 0, w.batch().tokens()).value,
          layers * model::layer_attention_flops(s, 0, w.batch()).value,
          model::head_flops(s, w.batch().tokens()).value,
          layers * 2.0 * static_cast<double>(w.batch().tokens() * s.kinds.front().ffn * s.hidden)};
}
double executed(const Job& job) { return study::predict(job).totals.executed.value; }

// 3 F, attention's backward being 2.5 forwards.
TEST_P(Accumulation, OfNativeExecutesForwardAndBackward) {
  const Parts p = parts_of(workload());
  const double k = static_cast<double>(this->k());
  EXPECT_DOUBLE_EQ(executed(job("native", workload())),
                   k * (3 * p.linear + 3.5 * p.attention + 3 * p.head));
}

// 4 F less the last product of each layer: recomputation stops early.
TEST_P(Accumulation, OfCheckpointingExecutesOneMoreForward) {
  Workload checkpointed = workload();
  checkpointed.checkpointing = Checkpointing::kFull;
  const Parts p = parts_of(checkpointed);
  const double k = static_cast<double>(this->k());
  for (const char* const plan : {"native", "zero2-offload"}) {
    EXPECT_DOUBLE_EQ(executed(job(plan, checkpointed)),
                     k * (4 * p.linear - p.down + 4.5 * p.attention + 3 * p.head));
  }
}

// 5 F: forward, recomputation of the block, and once more with autograd. The last position of a
// sequence predicts nothing.
TEST_P(Accumulation, OfMegatrainExecutesThreeForwards) {
  const Parts p = parts_of(workload());
  const double head = p.head * 127 / 128;
  const double k = static_cast<double>(this->k());
  EXPECT_DOUBLE_EQ(executed(job("megatrain", workload())),
                   k * (5 * p.linear + 5.5 * p.attention + 3 * head));
  EXPECT_DOUBLE_EQ(executed(job("megatrain", workload(), {{"variant", "paper"}})),
                   k * (4 * p.linear + 4.5 * p.attention + 3 * head));
}

}  // namespace
}  // namespace offsim::plans::bytes_test
