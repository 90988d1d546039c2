// Which tensors does each operation of a step use, when does nobody use one, and does memory add up
// to native's?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/plans/tensor_lifetimes.h"
#include "tests/plans/held.h"

namespace offsim::plans::tensor_lifetimes_test {
namespace {

using testing::ElementsAre;

StepLifetimes lifetimes(const Workload& w, std::int64_t layers = 2, bool tied = false) {
  model::Shape shape = tiny_shape(layers);
  shape.tied = tied;
  return step_lifetimes(job("teraio", w, {}, shape));
}

// Where the n-th tensor of a kind is used.
std::vector<std::int64_t> used(const StepLifetimes& step, std::string_view tag, int n) {
  for (const TensorLife& life : step.tensors) {
    if (life.tag == tag && n-- == 0) {
      return life.used;
    }
  }
  return {};
}

// Forward 0 to 3, backward 4 (head) to 7 (embedding), Adam 8 to 11.
TEST(Lifetimes, OfTwoLayers) {
  const StepLifetimes step = lifetimes(few_tokens());
  EXPECT_EQ(step.operations.size(), 12);
  EXPECT_THAT(used(step, "parameters", 1), ElementsAre(1, 6, 9));
  EXPECT_THAT(used(step, "gradients", 1), ElementsAre(6, 9));
  EXPECT_THAT(used(step, "Adam states", 1), ElementsAre(9));
  EXPECT_THAT(used(step, "activations", 0), ElementsAre(1, 6));
  EXPECT_THAT(used(step, "logits and loss", 0), ElementsAre(3, 4));
}

TEST(Lifetimes, OfATiedHeadAreTheEmbeddings) {
  const StepLifetimes step = lifetimes(few_tokens(), 2, true);
  EXPECT_THAT(used(step, "parameters", 0), ElementsAre(0, 3, 4, 7, 8));
  EXPECT_THAT(used(step, "gradients", 0), ElementsAre(7, 8));
  EXPECT_THAT(used(step, "gradients", 4), ElementsAre(4, 7)) << "the head's share";
}

// V h of width 4 or 2: in every micro-batch the head's share waits for the embedding's.
TEST(Lifetimes, OfATiedHeadAddItsShareOfTheGradient) {
  Workload w = few_tokens();
  w.accumulation = 2;
  for (const auto& [precision, width] :
       std::map<Precision, std::int64_t>{{Precision::kBf16Mixed, 4}, {Precision::kBf16, 2}}) {
    w.precision = precision;
    const StepLifetimes step = lifetimes(w, 2, true);
    const std::vector<model::Work>& last = step.operations[15].works;
    ASSERT_EQ(last.size(), 3);
    EXPECT_EQ(last[1].name, "add tied gradient");
    EXPECT_EQ(last[1].kernels.front().bytes, 3 * width * Tiny::embedding);
    EXPECT_THAT(used(step, "gradients", 5), ElementsAre(12, 15));
  }
}

TEST(Lifetimes, OfGradientsGoOnOverMicroBatches) {
  Workload w = few_tokens();
  w.accumulation = 2;
  const StepLifetimes step = lifetimes(w);
  EXPECT_THAT(used(step, "gradients", 1), ElementsAre(6, 14, 17));
  EXPECT_THAT(used(step, "activations", 2), ElementsAre(9, 14)) << "of the second micro-batch";
}

// The first layer's, of three operations and more: parameters from 7 to 8 are too few; states from
// Adam to Adam.
TEST(InactivePeriods, AreBetweenUsesAndOverTheEndOfTheRound) {
  const StepLifetimes step = lifetimes(few_tokens());
  std::vector<std::tuple<std::string_view, std::int64_t, std::int64_t>> found;
  for (const InactivePeriod& p : inactive_periods(step)) {
    if (step.tensors[p.tensor].used.back() == 9 || step.tensors[p.tensor].used.back() == 6) {
      found.emplace_back(step.tensors[p.tensor].tag, p.from, p.to);
    }
  }
  EXPECT_THAT(found,
              ElementsAre(std::tuple("parameters", 2, 6), std::tuple("parameters", 10, 13),
                          std::tuple("Adam states", 10, 21), std::tuple("activations", 2, 6)));
}

// The head's Adam is the last operation: its states' period begins with the next round.
TEST(InactivePeriods, ThatBeginWithTheRoundAreCountedFromThere) {
  const StepLifetimes step = lifetimes(few_tokens());
  std::int64_t from = -1, to = -1;
  for (const InactivePeriod& p : inactive_periods(step)) {
    if (step.tensors[p.tensor].used == std::vector<std::int64_t>{11}) {
      from = p.from;
      to = p.to;
    }
  }
  EXPECT_EQ(from, 0);
  EXPECT_EQ(to, 11);
}

// Parameters, gradients, m and v; tensors of the tiny model are multiples of 512 B but for the
// head's.
TEST(Lifetimes, OfStatesAre16BytesAParameterInFp32And8InBf16) {
  for (const auto& [precision, bytes] :
       std::map<Precision, std::int64_t>{{Precision::kFp32, 16}, {Precision::kBf16, 8}}) {
    Workload w = few_tokens();
    w.precision = precision;
    std::int64_t sum = 0;
    for (const TensorLife& life : lifetimes(w).tensors) {
      const bool state = life.lasts || life.tag == "gradients";
      sum += state ? life.size.value : 0;
    }
    EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(bytes * Tiny::all), 16 * 512);
  }
}

// A layer's gradients are counted from the begin of its backward, not as they are made.
TEST(ResidentBytes, PeakAsNativeDoesButForGradientsOfALayer) {
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kBf16Mixed}) {
      Workload w = many_tokens(checkpointing);
      w.precision = precision;
      const std::int64_t native = peak(job("native", w), "gpu") - kWorkspace;
      const std::int64_t here = std::ranges::max(resident_bytes(lifetimes(w))).value;
      EXPECT_NEAR(static_cast<double>(here), static_cast<double>(native),
                  4.0 * Tiny::layer + 16 * 512)
          << to_string(precision) << to_string(checkpointing);
    }
  }
}

}  // namespace
}  // namespace offsim::plans::tensor_lifetimes_test
