// Does stage 3 move exactly the bytes of DeepSpeed's, wherever parameters and optimizer are, and
// execute the model's operations?
//
// N parameters, M of them in matrices, which are worth a request of the drive; k micro-batches.
// Bytes a parameter:
//   parameters not on the GPU   to the GPU 2 a fetch: twice a micro-batch, the head once
//   optimizer not on the GPU    to the GPU 2 k of gradients; to the host 2 k + 4, or 2 k + 2 before
//                               0.15.4 with the optimizer on the CPU
//   write-back                  to the GPU 2 with the optimizer elsewhere and parameters on it; to
//                               the host 4 the other way
//   drive                       optimizer: 12 read and written, and 4 of matrices; parameters: 2 of
//                               matrices a fetch read, 2 written
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/plans/calls.h"

namespace offsim::plans::zero3_bytes_test {
namespace {

// As shape_of_large_matrices, with a head that is larger than the layers: from one use of its layer
// to the next the last one's parameters are far, and those of a recomputed layer near.
constexpr std::int64_t kMi = 1 << 20;
constexpr std::int64_t kLayerMatrices = 16 * kMi, kLayerNorms = 2 * 1024;
constexpr std::int64_t kEmbedding = 32 * kMi, kHead = 32 * kMi, kFinalNorm = 1024;
model::Shape shape_of_a_large_head(std::int64_t layers = 2) {
  model::Shape s = shape_of_large_matrices(layers);
  s.vocabulary = 32 * 1024;
  return s;
}
constexpr std::int64_t kMatrices = 2 * kLayerMatrices + kEmbedding + kHead;
constexpr std::int64_t kAll = kMatrices + 2 * kLayerNorms + kFinalNorm;
constexpr const char* kNear = "4e7";

// No prefetch, no persistence: a parameter is fetched when it is used and kept for a near use.
const Given kByHand{{"stage3_prefetch_bucket_size", "0"},
                    {"stage3_param_persistence_threshold", "0"},
                    {"stage3_max_reuse_distance", kNear},
                    {"max_in_cpu", "0"},
                    {"param_buffer_count", "16"}};

Job asked(const Workload& w, Given options) {
  options.insert(kByHand.begin(), kByHand.end());
  return job("zero3-offload", w, options, shape_of_a_large_head());
}

struct Tiers {
  std::string optimizer, parameters;
};

class Zero3Bytes : public testing::TestWithParam<std::tuple<std::int64_t, std::string, Tiers>> {
 protected:
  std::int64_t k() const { return std::get<0>(GetParam()); }
  const std::string& version() const { return std::get<1>(GetParam()); }
  const std::string& optimizer() const { return std::get<2>(GetParam()).optimizer; }
  const std::string& parameters() const { return std::get<2>(GetParam()).parameters; }
  Workload workload(Checkpointing checkpointing = Checkpointing::kFull) const {
    return {.micro_batch = 1,
            .sequence = 64,
            .accumulation = k(),
            .checkpointing = checkpointing,
            .precision = Precision::kBf16Mixed};
  }
  Job job_of(const Workload& w, Given more = {}) const {
    more.insert({{"deepspeed_version", version()},
                 {"offload_optimizer", optimizer()},
                 {"offload_param", parameters()}});
    return asked(w, more);
  }
};

std::string named(const testing::TestParamInfo<Zero3Bytes::ParamType>& of) {
  const auto& [k, version, tiers] = of.param;
  return "k" + std::to_string(k) + (version == "0.14.5" ? "_old_" : "_new_") + tiers.optimizer +
         "_" + tiers.parameters;
}
INSTANTIATE_TEST_SUITE_P(
    Steps, Zero3Bytes,
    testing::Combine(testing::Values(1, 2, 4), testing::Values("0.14.5", "0.19.6"),
                     testing::Values(Tiers{"none", "none"}, Tiers{"none", "cpu"},
                                     Tiers{"none", "nvme"}, Tiers{"cpu", "none"},
                                     Tiers{"cpu", "cpu"}, Tiers{"cpu", "nvme"},
                                     Tiers{"nvme", "none"}, Tiers{"nvme", "cpu"},
                                     Tiers{"nvme", "nvme"})),
    named);

// Forward and backward, and with checkpointing the recomputation right before: the embedding, the
// layers and the final norm are fetched twice a micro-batch, the head for both at once.
constexpr std::int64_t kFetched = 2 * (kAll - kHead) + kHead;
constexpr std::int64_t kFetchedMatrices = 2 * (kMatrices - kHead) + kHead;

TEST_P(Zero3Bytes, OverTheLink) {
  const bool offloaded = optimizer() != "none", away = parameters() != "none";
  std::int64_t up = (away ? 2 * k() * kFetched : 0) + (offloaded ? 2 * k() * kAll : 0);
  std::int64_t down = offloaded ? 2 * k() * kAll : 0;
  if (offloaded) {
    down += (version() == "0.14.5" && optimizer() == "cpu" ? 2 : 4) * kAll;
    up += away ? 0 : 2 * kAll;
  } else {
    down += away ? 4 * kAll : 0;
  }
  const auto check = [&](Checkpointing checkpointing, const Given& options) {
    const auto t = study::predict(job_of(workload(checkpointing), options)).totals;
    EXPECT_EQ(t.h2d_bytes, static_cast<double>(up));
    EXPECT_EQ(t.d2h_bytes, static_cast<double>(down));
  };
  check(Checkpointing::kFull, {});
  check(Checkpointing::kNone, {});
  check(Checkpointing::kFull, {{"pin_memory", "false"}});
  check(Checkpointing::kFull, {{"pin_memory", "true"}, {"overlap_comm", "false"}});
}

TEST_P(Zero3Bytes, OfTheDrive) {
  std::int64_t read = 0, written = 0;
  if (optimizer() == "nvme") {
    read += 12 * kAll + 4 * kMatrices;
    written += 12 * kAll + 4 * kMatrices;
  }
  if (parameters() == "nvme") {
    read += 2 * k() * kFetchedMatrices;
    written += 2 * kMatrices;
  }
  const auto t = study::predict(job_of(workload())).totals;
  EXPECT_EQ(t.nvme_read_bytes, static_cast<double>(read));
  EXPECT_EQ(t.nvme_write_bytes, static_cast<double>(written));
}

// Elements by kernel, in the last step.
std::map<std::string, std::int64_t> cpu_kernels(const Job& of) {
  std::map<std::string, std::int64_t> elements;
  const runtime::Program program = recorded(of);
  for (const Call& call : step_of(program)) {
    if (const auto* work = std::get_if<runtime::CpuWork>(&call)) {
      elements[std::string(program.text(work->kernel))] += work->elements;
    }
  }
  return elements;
}

// Unscale and Adam of all parameters where the optimizer is not on the GPU; a cast of all unless
// both are; before 0.15.4 another, of the gradients, on their way to the CPU.
TEST_P(Zero3Bytes, ArePassedOverByTheseKernelsOfTheCpu) {
  std::map<std::string, std::int64_t> expected;
  if (optimizer() != "none") {
    expected["mul_f32"] = expected["adam_deepspeed_f32"] = kAll;
  }
  if (optimizer() != "none" || parameters() != "none") {
    expected["cast_f32_bf16"] = kAll;
  }
  if (optimizer() == "cpu" && version() == "0.14.5") {
    expected["cast_bf16_f32"] = kAll;
  }
  EXPECT_EQ(cpu_kernels(job_of(workload())), expected);
}

TEST_P(Zero3Bytes, AndOperationsAreThoseOfTheModelOnTheGpu) {
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
    const Workload w = workload(checkpointing);
    EXPECT_DOUBLE_EQ(
        study::predict(job_of(w)).totals.executed.value,
        study::predict(job("native", w, {}, shape_of_a_large_head())).totals.executed.value);
  }
}

// --- versions

double down(const char* version) {
  return study::predict(asked({.sequence = 64}, {{"deepspeed_version", version}})).totals.d2h_bytes;
}

TEST(Zero3Versions, CastGradientsOnTheGpuSince0_15_4) {
  EXPECT_EQ(down("0.15.3"), 4.0 * kAll);
  EXPECT_EQ(down("0.15.4"), 6.0 * kAll);
}

// --- what is kept at the turn from forward to backward

constexpr std::int64_t kLayer = kLayerMatrices + kLayerNorms;
constexpr std::int64_t kOuter = kHead + kFinalNorm;

// Elements that are fetched in a micro-batch of eight layers.
std::int64_t fetched(Checkpointing checkpointing, std::int64_t distance) {
  Given options = kByHand;
  options["stage3_max_reuse_distance"] = std::to_string(distance);
  options["offload_optimizer"] = "none";
  const Workload w{.micro_batch = 1, .sequence = 64, .checkpointing = checkpointing};
  const auto t = study::predict(job("zero3-offload", w, options, shape_of_a_large_head(8))).totals;
  return static_cast<std::int64_t>(t.h2d_bytes) / 2;
}

// The layer after which j layers follow: in between the later layers are used three times each (or,
// without recomputation, twice), final norm and head twice, and the layer's other parameters once;
// so it is kept, parameter by parameter, from that distance on.
TEST(Zero3Turn, KeepsALayerWhoseNextUseIsNear) {
  constexpr std::int64_t kDown = 4 * kMi;  // of down_proj, the last module of a layer
  for (const std::int64_t j : {0, 1, 2}) {
    const std::int64_t checkpointed = 3 * j * kLayer + 2 * kOuter + kLayer - kDown;
    EXPECT_EQ(fetched(Checkpointing::kFull, checkpointed) -
                  fetched(Checkpointing::kFull, checkpointed + 1),
              3 * kDown)
        << j;
    const std::int64_t plain = 2 * j * kLayer + 2 * kOuter;
    EXPECT_EQ(fetched(Checkpointing::kNone, plain) - fetched(Checkpointing::kNone, plain + 1),
              kDown)
        << j;
  }
}

// A small model whose parameters are all near is fetched once a micro-batch.
TEST(Zero3Turn, KeepsAllOfASmallModel) {
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
    EXPECT_EQ(fetched(checkpointing, 1'000'000'000), 8 * kLayer + kEmbedding + kOuter);
  }
}

// Persistent parameters come once a step, whatever the micro-batches.
TEST(Zero3Persistent, ParametersComeOnceAStep) {
  for (const std::int64_t k : {1, 3}) {
    Given options = kByHand;
    options["stage3_param_persistence_threshold"] = "1024";
    options["offload_optimizer"] = "none";
    const Workload w{
        .micro_batch = 1, .sequence = 64, .accumulation = k, .checkpointing = Checkpointing::kFull};
    const auto t = study::predict(asked(w, options)).totals;
    EXPECT_EQ(t.h2d_bytes, 2.0 * static_cast<double>(k * kFetchedMatrices + kAll - kMatrices));
  }
}

}  // namespace
}  // namespace offsim::plans::zero3_bytes_test
