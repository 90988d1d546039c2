// What does stage 3 hold at its worst moment, on the host, the drive and the GPU, to the byte?
//
// N parameters; P2 the next power of two, to which PyTorch rounds every block of pinned memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/plans/stage3.h"
#include "tests/plans/held.h"

namespace offsim::plans::zero3_memory_test {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kBucket = 1'000'000'000;  // 5e8 elements of 2 B
constexpr std::int64_t kN = Tiny::all;

Job asked(const Given& options, const Workload& w = few_tokens()) {
  return job("zero3-offload", w, options);
}

// --- sub-groups

std::vector<std::int64_t> sub_groups(const Given& options) {
  std::vector<std::int64_t> elements;
  for (const SubGroup& group : make_sub_groups(asked(options))) {
    elements.push_back(group.elements);
  }
  return elements;
}

// One closes with the tensor that reaches sub_group_size: embedding 16,384, q 4,096, k and v 2,048,
// o 4,096, gate and up 8,192 are 45,056 elements in seven tensors.
TEST(SubGroups, CloseWithTheTensorThatReachesTheirSize) {
  EXPECT_THAT(sub_groups({}), ElementsAre(kN));
  EXPECT_THAT(sub_groups({{"sub_group_size", "40000"}}), ElementsAre(45'056, 45'184, 16'576));
  EXPECT_THAT(sub_groups({{"sub_group_size", "45056"}}), ElementsAre(45'056, 45'184, 16'576));
  EXPECT_EQ(sub_groups({{"sub_group_size", "45057"}}).front(), 45'056 + 8'192);
  EXPECT_EQ(sub_groups({{"sub_group_size", "1"}}).size(), 21U);
}

// Twin-Flow: the first (1 - r) n sub-groups since 0.18, the last n - r n before; both rounded down.
TEST(SubGroups, StayOnTheGpuFromTheirEnd) {
  const auto kept = [](const char* ratio, const char* version) {
    const Range range = kept_on_gpu(asked({{"ratio", ratio}, {"deepspeed_version", version}}), 7);
    return std::pair(range.from, range.to);
  };
  EXPECT_EQ(kept("0.7", "0.18.0"), std::pair(0UL, 2UL));  // 2.1
  EXPECT_EQ(kept("0.7", "0.17.6"), std::pair(4UL, 7UL));  // 4.9 on the CPU
  EXPECT_EQ(kept("0.9", "0.18.0"), std::pair(0UL, 0UL));
  EXPECT_EQ(kept("1", "0.17.6"), std::pair(7UL, 7UL));
  EXPECT_EQ(kept("0", "0.18.0"), std::pair(0UL, 7UL));
}

// --- host

struct HostCase {
  const char* name;
  Given options;
  std::int64_t pinned, pageable;
};
class Zero3Host : public testing::TestWithParam<HostCase> {};

// The three sub-groups above.
std::int64_t three_blocks() { return 2 * p2(4 * 45'184) + p2(4 * 16'576); }

INSTANTIATE_TEST_SUITE_P(
    Placements, Zero3Host,
    testing::Values(
        // fp32 gradients, 16-bit gradients, parameters in one piece and the blocks they came from.
        HostCase{"cpu_cpu", {}, p2(4 * kN) + 2 * p2(2 * kN) + p2_by_tensor(2), 12 * kN},
        HostCase{"sub_groups",
                 {{"sub_group_size", "40000"}},
                 three_blocks() + 2 * p2(2 * kN) + p2_by_tensor(2),
                 12 * kN},
        // Parameters are pinned whatever is said.
        HostCase{"pageable", {{"pin_memory", "false"}}, p2(2 * kN), 12 * kN + 6 * kN},
        HostCase{"old", {{"deepspeed_version", "0.19.4"}}, p2(2 * kN), 18 * kN},
        HostCase{"cpu_none", {{"offload_param", "none"}}, p2(4 * kN) + p2(2 * kN), 12 * kN},
        HostCase{"none_cpu", {{"offload_optimizer", "none"}}, p2(2 * kN) + p2_by_tensor(2), 0},
        HostCase{"none_none", {{"offload_optimizer", "none"}, {"offload_param", "none"}}, 0, 0},
        // Twin-Flow: the first sub-group is on the GPU, but for its 16-bit gradients.
        HostCase{"ratio",
                 {{"sub_group_size", "40000"}, {"ratio", "0.5"}},
                 p2(4 * 45'184) + p2(4 * 16'576) + 2 * p2(2 * kN) + p2_by_tensor(2),
                 12 * (kN - 45'056)}),
    [](const auto& of) { return of.param.name; });

// What blocking copies between types make and drop is beside it.
std::int64_t temporaries(const study::PoolReport& host) {
  std::int64_t sum = 0;
  for (const study::Tagged& tag : host.by_tag) {
    if (tag.tag == "temporaries of copies" || tag.tag == "C library heap, free") {
      sum += tag.bytes.value;
    }
  }
  return sum;
}

TEST_P(Zero3Host, HoldsWhatIsOffloaded) {
  const study::Prediction p = study::predict(asked(GetParam().options));
  EXPECT_EQ(p.pool("host_pinned")->peak.value, GetParam().pinned);
  EXPECT_EQ(p.pool("host")->peak.value - temporaries(*p.pool("host")),
            GetParam().pinned + GetParam().pageable);
}

// The write-back to parameters on the GPU passes through 2 B a parameter of a sub-group; from them
// 4.
TEST(Zero3Temporaries, AreThoseOfASubGroupsWriteBack) {
  const auto held = [](const Given& options) {
    return temporaries(*study::predict(asked(options)).pool("host"));
  };
  EXPECT_EQ(held({{"offload_param", "none"}}), 2 * kN);
  EXPECT_EQ(held({{"offload_param", "none"}, {"sub_group_size", "40000"}}), 2 * 45'184);
  EXPECT_EQ(held({{"offload_optimizer", "none"}}), 4 * kN);
  EXPECT_EQ(held({}), 0);
  EXPECT_EQ(held({{"deepspeed_version", "0.15.3"}}), 2 * Tiny::largest);  // of the fp32 gradients
}

// --- GPU: of few tokens all parameters stay gathered (they are small)

std::int64_t gathered() {
  std::int64_t sum = 0;
  for (const model::Tensor& tensor : model::all_tensors(tiny_shape())) {
    sum += r(2 * tensor.numel());
  }
  return sum;
}

// The bucket is reduced at the end: joined, then tensor by tensor the numbers that come back, and
// beside them the norm in double, larger than the fp32 copy that is sent after it.
TEST(Zero3Peak, OfAFewTokensIsTheReductionOfTheBucket) {
  const std::int64_t reduction = r(2 * kN) + r(2 * Tiny::largest) + r(8 * Tiny::largest);
  EXPECT_EQ(peak(asked({}), "gpu"), kWorkspace + kBucket + gathered() + reduction);
  EXPECT_EQ(peak(asked({{"overlap_comm", "false"}}), "gpu"),
            kWorkspace + kBucket + gathered() + reduction);
  EXPECT_EQ(peak(asked({{"offload_param", "none"}}), "gpu"),
            kWorkspace + kBucket + r(2 * kN) + reduction);
}

// Without a bucket each gradient keeps its block until it was reduced, two at a time.
TEST(Zero3Peak, OfTensorsLargerThanTheBucketIsTheirOwn) {
  EXPECT_EQ(
      peak(asked({{"reduce_bucket_size", "1000"}}), "gpu") -
          peak(asked({{"reduce_bucket_size", "1000"}, {"contiguous_gradients", "false"}}), "gpu"),
      r(2 * 1000));  // the bucket, in which there was only the norms' room
}

// With the optimizer on the GPU the step is the peak: 16-bit gradients, master and moments; of a
// sub-group the gradients joined, then in fp32. Gathered parameters have left.
TEST(Zero3Peak, OfTheOptimizerOnTheGpuIsTheStep) {
  const std::int64_t fixed = kWorkspace + kBucket + r(2 * kN) + r(4 * kN) + r(8 * kN);
  EXPECT_EQ(peak(asked({{"offload_optimizer", "none"}}), "gpu"), fixed + r(2 * kN) + r(4 * kN));
  EXPECT_EQ(peak(asked({{"offload_optimizer", "none"}, {"offload_param", "none"}}), "gpu"),
            fixed + r(2 * kN) + r(2 * kN) + r(4 * kN));
}

// Twin-Flow: master, gradient and moments of the sub-groups that stay.
TEST(Zero3Peak, OfTwinFlowAddsTheSubGroupsThatStay) {
  const Given half{{"sub_group_size", "40000"}, {"ratio", "0.5"}};
  EXPECT_EQ(peak(asked(half), "gpu") - peak(asked({}), "gpu"),
            r(4 * 45'056) + r(4 * 45'056) + r(8 * 45'056));
}

TEST(Zero3Peak, OfManyTokensIsAtTheLoss) {
  const model::Pieces p = pieces(many_tokens(), model::Numerics::kPure16);
  EXPECT_EQ(peak(asked({}, many_tokens()), "gpu"),
            kWorkspace + kBucket + gathered() + 2 * r(p.layers.back().saved) + r(p.head.saved) +
                std::max(r(p.head.forward_extra), r(p.head.backward_extra)));
}

// --- the drive

constexpr std::int64_t kMi = 1 << 20;
constexpr std::int64_t kMatrices = 2 * 16 * kMi + 2 * 8 * kMi;
constexpr std::int64_t kNorms = 5 * 1024;
constexpr std::int64_t kLarge = kMatrices + kNorms;

Job on_drive(const Given& options) {
  Given all = options;
  all.insert({{"max_in_cpu", "0"}, {"param_buffer_count", "20"}, {"param_buffer_size", "1e7"}});
  return job("zero-infinity", few_tokens(), all, shape_of_large_matrices());
}

// Swap buffers of the optimizer, of parameters, and what parameters are written from; of them only
// norms are in memory.
struct Buffers {
  std::int64_t optimizer = 4 * 4 * kLarge, parameters = 20 * 2 * 10'000'000, written = 2 * kLarge;
  std::int64_t sum() const { return optimizer + parameters + written; }
};
std::int64_t norms() { return 5 * p2(2 * 1024); }

TEST(DriveHost, HoldsBuffersAnd16BitGradients) {
  const study::Prediction p = study::predict(on_drive({}));
  EXPECT_EQ(p.pool("host")->peak.value, Buffers().sum() + norms() + p2(2 * kLarge));
  EXPECT_EQ(p.pool("host_pinned")->peak, p.pool("host")->peak);
  EXPECT_EQ(p.pool("nvme")->peak.value, 12 * kLarge + 4 * kMatrices + 2 * kMatrices);
}

// Before 0.19.4 PyTorch pinned them all.
TEST(DriveHost, HoldsPowersOfTwoBefore0_19_4) {
  const auto pinned = [](const char* version) {
    return peak(on_drive({{"deepspeed_version", version}, {"pin_memory", "true"}}), "host_pinned");
  };
  const std::int64_t beside = norms() + p2(2 * kLarge);
  EXPECT_EQ(pinned("0.19.4"), Buffers().sum() + beside);
  EXPECT_EQ(pinned("0.19.3"),
            4 * p2(4 * kLarge) + p2(20 * 2 * 10'000'000) + p2(2 * kLarge) + beside);
}

// Sub-groups: the largest decides on buffers. Embedding and seven matrices of layer 0 are 24 Mi;
// two norms, seven of layer 1 and the final norm begin the next, which the head completes.
TEST(DriveHost, HasBuffersOfTheLargestSubGroup) {
  const std::int64_t largest = 16 * kMi + 2 * 2 * 1024 + 1024 + 8 * kMi;
  const study::Prediction p = study::predict(on_drive({{"sub_group_size", "25165824"}}));
  EXPECT_EQ(p.pool("host")->peak.value,
            16 * largest + Buffers().parameters + 2 * largest + norms() + p2(2 * kLarge));
}

// What is not on the drive is as of zero3-offload.
TEST(DriveHost, HoldsTheOptimizerInMemoryIfAsked) {
  const study::Prediction p = study::predict(on_drive({{"offload_optimizer", "cpu"}}));
  EXPECT_EQ(p.pool("host_pinned")->peak.value,
            Buffers().parameters + Buffers().written + norms() + p2(2 * kLarge) + p2(4 * kLarge));
  EXPECT_EQ(p.pool("host")->peak.value - p.pool("host_pinned")->peak.value, 12 * kLarge);
  EXPECT_EQ(p.pool("nvme")->peak.value, 2 * kMatrices);
}

TEST(DriveHost, HoldsParametersInMemoryIfAsked) {
  const study::Prediction p = study::predict(on_drive({{"offload_param", "cpu"}}));
  EXPECT_EQ(p.pool("host")->peak.value,
            Buffers().optimizer + 2 * p2(2 * kLarge) + p2_by_tensor(2, shape_of_large_matrices()));
  EXPECT_EQ(p.pool("nvme")->peak.value, 12 * kLarge + 4 * kMatrices);
}

// max_in_cpu elements are one pinned piece, whatever of it is used: a sub-group fits when all up to
// its end do. Here the first ends with layer 0's matrices at 24 Mi, the second with the model.
TEST(MaxInCpu, IsOnePieceForTheFirstSubGroups) {
  const auto predicted_with = [](std::int64_t elements) {
    return study::predict(
        on_drive({{"sub_group_size", "25165824"}, {"max_in_cpu", std::to_string(elements)}}));
  };
  const auto on_the_drive = [&](std::int64_t elements) {
    return predicted_with(elements).pool("nvme")->peak.value - 12 * kLarge - 4 * kMatrices;
  };
  EXPECT_EQ(on_the_drive(24 * kMi - 1), 2 * kMatrices);
  EXPECT_EQ(on_the_drive(24 * kMi), 2 * (kMatrices - 24 * kMi));
  EXPECT_EQ(on_the_drive(kLarge - 1), 2 * (kMatrices - 24 * kMi));
  EXPECT_EQ(on_the_drive(kLarge), 0);
  const auto pinned = [&](std::int64_t elements) {
    return predicted_with(elements).pool("host_pinned")->peak.value;
  };
  EXPECT_EQ(pinned(24 * kMi - 1) - pinned(0), p2(2 * (24 * kMi - 1)));
  EXPECT_EQ(pinned(24 * kMi) - pinned(0), p2(2 * 24 * kMi));
}

// Once the first does not fit none does, however small.
TEST(MaxInCpu, IsNotFilledByASmallSubGroupBehindALargeOne) {
  const Given options{{"sub_group_size", "41943040"}, {"max_in_cpu", "16777216"}};  // 40 and 16 Mi
  const Job of = on_drive(options);
  ASSERT_EQ(make_sub_groups(of).size(), 2U);
  ASSERT_LT(make_sub_groups(of).back().elements, 16 * kMi);
  EXPECT_EQ(study::predict(of).pool("nvme")->peak.value,
            12 * kLarge + 4 * kMatrices + 2 * kMatrices);
}

// Less than a request (1 MiB) stays in memory: all of the tiny model.
TEST(TheDrive, IsNotForTensorsAndSubGroupsSmallerThanARequest) {
  const Job of = job("zero-infinity", few_tokens(), {{"max_in_cpu", "0"}});
  const study::Prediction p = study::predict(of);
  EXPECT_EQ(p.pool("nvme"), nullptr);
  EXPECT_EQ(p.totals.nvme_read_bytes + p.totals.nvme_write_bytes, 0);
  // As zero3-offload, but parameters each in a block of its own, and the buffers that DeepSpeed
  // makes all the same.
  EXPECT_EQ(p.pool("host_pinned")->peak.value,
            p2(4 * kN) + p2(2 * kN) + p2_by_tensor(2) + 5 * 2 * 100'000'000 + 2 * kN);
}

// The fp32 gradients of a whole bucket are on the GPU before the first leaves. The worst moment is
// that of the last one's norm: what came back, and in double what is not yet in fp32.
TEST(DrivePeak, HoldsABucketOfFp32Gradients) {
  std::int64_t wide = 0;
  for (const model::Tensor& tensor : model::all_tensors(shape_of_large_matrices())) {
    wide += r(4 * tensor.numel());
  }
  constexpr std::int64_t kLast = 8 * kMi;
  EXPECT_EQ(peak(on_drive({{"offload_param", "none"}}), "gpu"),
            kWorkspace + kBucket + r(2 * kLarge) + r(2 * kLarge) + wide - r(4 * kLast) +
                r(2 * kLast) + r(8 * kLast));
}

// --- Llama-2 7B (6.74 B parameters, 7 sub-groups of 1e9), GiB, beside what was worked out by hand

constexpr double kGibibyte = 1 << 30;
constexpr double kB = 6.738415616e9;

study::Prediction llama(std::string_view plan, const Given& options = {},
                        Precision precision = Precision::kBf16Mixed) {
  static const model::Shape shape = model::read_config(OFFSIM_SOURCE_DIR "/models/llama-2-7b.json");
  Workload w{.micro_batch = 1, .sequence = 2048, .checkpointing = Checkpointing::kFull};
  w.precision = precision;
  return study::predict(job(plan, w, options, shape));
}
double host_gib(const study::Prediction& p) {
  return static_cast<double>(p.pool("host")->peak.value) / kGibibyte;
}

// fp32 gradients 7 x 4, 16-bit parameters and gradients 16 each; master and moments 12 N; cached
// blocks 16.5.
TEST(Llama7B, OfZero3OffloadHoldsWhatIsWorkedOut) {
  EXPECT_NEAR(host_gib(llama("zero3-offload")), 28 + 16 + 16 + 12 * kB / kGibibyte + 16.5, 0.1);
  EXPECT_NEAR(28 + 16 + 16 + 12 * kB / kGibibyte, 135, 0.5);
}

// 16 N; with its rounding tensor by tensor.
TEST(Llama7B, OfFsdp2IsHundredGiBAndRounding) {
  EXPECT_NEAR(16 * kB / kGibibyte, 100, 0.5);
  const double held = host_gib(llama("fsdp2-offload"));
  EXPECT_GT(held, 100);
  EXPECT_LT(held, 100 + 50);  // of the pinned half at most a doubling
}

TEST(Llama7B, OfTorchaoInBf16IsFiftyGiBAndRounding) {
  EXPECT_NEAR(8 * kB / kGibibyte, 50, 0.5);
  const double held = host_gib(llama("torchao-offload", {}, Precision::kBf16));
  EXPECT_GT(held, 50);
  EXPECT_LT(held, 50 + 25);
}

// 16 GB and more of swap buffers, as much of 16-bit gradients; five buffers of the embedding and
// one of the largest sub-group; the 2 GB that may stay in CPU memory.
TEST(Llama7B, OfZeroInfinityHoldsItsBuffers) {
  const double held = host_gib(llama("zero-infinity", {{"param_buffer_count", "40"}})) -
                      80 * 131'072'000.0 / kGibibyte;
  EXPECT_NEAR(held, 16 * 1.03e9 / kGibibyte + 16 + 2 * 1.03e9 / kGibibyte + 2, 0.7);
}

// Link bytes a parameter: six down; two of gradients and four of parameters up, less the last layer
// and the head that are kept at the turn (prefetches count on more). Drive: 20 read, 18 written.
TEST(Llama7B, MovesWhatIsWorkedOut) {
  const Given plain{{"stage3_prefetch_bucket_size", "0"}};
  const auto zero3 = llama("zero3-offload", plain).totals;
  EXPECT_LT(llama("zero3-offload").totals.h2d_bytes, zero3.h2d_bytes);
  EXPECT_EQ(zero3.d2h_bytes, 6 * kB);
  constexpr double kLayer = 202'383'360, kHead = 131'072'000;
  EXPECT_NEAR(zero3.h2d_bytes, 6 * kB - 2 * (kLayer + kHead), 0.01 * kB);
  Given buffers = plain;
  buffers["param_buffer_count"] = "40";
  const auto drive = llama("zero-infinity", buffers).totals;
  EXPECT_NEAR(drive.nvme_read_bytes, 20 * kB - 2 * (kLayer + kHead), 0.01 * kB);
  EXPECT_NEAR(drive.nvme_write_bytes, 18 * kB, 0.001 * kB);
  const auto fsdp = llama("fsdp2-offload").totals;
  EXPECT_EQ(fsdp.d2h_bytes, 4 * kB);
  EXPECT_EQ(fsdp.h2d_bytes, 8 * kB - 4 * (2 * kHead + 4096));  // the root comes once
  const auto torchao = llama("torchao-offload", {}, Precision::kBf16).totals;
  EXPECT_EQ(torchao.d2h_bytes, 2 * kB);
  EXPECT_EQ(torchao.h2d_bytes, 2 * kB);
}

}  // namespace
}  // namespace offsim::plans::zero3_memory_test
