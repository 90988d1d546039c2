// Is a job laid beside what it would really cost elsewhere, and does the balance tip where we say?
#include "sim/study/alternatives.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plans/held.h"

namespace offsim::plans::alternatives_test {
namespace {

using study::Alternative;
using study::BreakEven;
using study::CostStudy;
using study::Prediction;
using study::Way;

constexpr double kTokens = 10'000;

machine::Machine rented(double usd_per_hour, int gpus = 1) {
  machine::Machine m = runtime::joined_machine(gpus);
  m.price = machine::Price{UsdPerHour(usd_per_hour), "2026-01"};
  return m;
}

// 3 MiB of context and 1 MiB of workspace, and so much beside them.
machine::Machine small_machine(std::int64_t room, int gpus) {
  machine::Machine m = rented(2, gpus);
  m.accelerator.memory = runtime::known_bytes(4 * kMiB + room);
  return m;
}

CostStudy study_of(const Job& asked, const machine::Machine& other) {
  return study::cost_study(asked, "here", {{"there", other}}, {}, kTokens);
}

const Alternative& row(const CostStudy& study, std::string_view hardware, Way way) {
  return *std::ranges::find_if(study.rows, [&](const Alternative& candidate) {
    return candidate.hardware == hardware && candidate.way == way;
  });
}

Job offloaded(double usd_per_hour = 1) {
  return job("zero2-offload", few_tokens(), {}, tiny_shape(), rented(usd_per_hour));
}

// Most is held in the optimizer: 16 B of each of 106,816 parameters, 1,709,056 B. Halves take
// 854,528 B, thirds 569,686 B: between them lies the room.
constexpr std::int64_t kRoomOfThirds = 712'107;

TEST(Ideal, TakesTheFewestGpusWhoseSharesFit) {
  static_assert(16 * Tiny::all == 1'709'056);
  const CostStudy study = study_of(offloaded(), small_machine(kRoomOfThirds, 4));
  const Alternative& ideal = row(study, "there", Way::kIdeal);
  EXPECT_EQ(ideal.gpus, 3);
  EXPECT_EQ(ideal.machines(), 1);
  EXPECT_TRUE(ideal.possible());
  const Prediction one = study::predict(ideal.job);
  EXPECT_FALSE(one.feasible());
  EXPECT_DOUBLE_EQ(ideal.tokens_per_s(), 3 * one.tokens_per_s);
  EXPECT_EQ(ideal.tokens_per_step(), 3 * 2);
}

TEST(Ideal, SaysThatItWouldTakeMoreMachines) {
  const CostStudy study = study_of(offloaded(), small_machine(kRoomOfThirds, 2));
  const Alternative& ideal = row(study, "there", Way::kIdeal);
  EXPECT_EQ(ideal.gpus, 3);
  EXPECT_EQ(ideal.machines(), 2);
  EXPECT_FALSE(ideal.possible());
}

// No number of GPUs makes a workspace smaller.
TEST(Ideal, GivesUpWhereTheStatesAreNotWhatIsTooMuch) {
  const CostStudy study = study_of(offloaded(), small_machine(-1, 4));
  const Alternative& ideal = row(study, "there", Way::kIdeal);
  EXPECT_EQ(ideal.gpus, 0);
  EXPECT_FALSE(ideal.possible());
}

// Where activations do not fit, they are recomputed; that is said by the row's own job.
TEST(WithoutOffload, RecomputesOnlyWhereItMust) {
  Job asked = offloaded();
  asked.workload = many_tokens();
  const auto native = [&](Checkpointing checkpointing) {
    Workload w = asked.workload;
    w.checkpointing = checkpointing;
    return study::predict(job("native", w)).pool("gpu")->needed().value;
  };
  const std::int64_t kept = native(Checkpointing::kNone), made = native(Checkpointing::kFull);
  ASSERT_LT(made, kept);
  machine::Machine tight = rented(2);
  tight.accelerator.memory = runtime::known_bytes(made);
  EXPECT_EQ(row(study_of(asked, tight), "there", Way::kOneGpu).job.workload.checkpointing,
            Checkpointing::kFull);
  tight.accelerator.memory = runtime::known_bytes(kept);
  EXPECT_EQ(row(study_of(asked, tight), "there", Way::kOneGpu).job.workload.checkpointing,
            Checkpointing::kNone);
}

// A published claim: one GPU with offload, at 60 % of the speed of two GPUs, saves 25 %. By
// arithmetic: half the GPUs for 1 / 0.6 of the time cost 0.833 as much, and take 67 % longer.
TEST(Bill, HalfTheGpusAtSixTenthsOfTheSpeedSaveASixth) {
  Alternative one{.hardware = "one", .job = job("zero2-offload"), .price = UsdPerHour(3.35)};
  Alternative two{.hardware = "two", .job = job("native"), .gpus = 2, .price = UsdPerHour(3.35)};
  two.job.workload.gpus = 2;
  two.prediction.step = Seconds(1);
  two.prediction.tokens_per_s = 2048;
  one.prediction.step = Seconds(1024 / (0.6 * 2048));
  one.prediction.tokens_per_s = 0.6 * 2048;
  EXPECT_NEAR(1 - *one.usd_per_token() / *two.usd_per_token(), 0.167, 0.0005);
  const double tokens = 2048 * 3600;  // an hour of two GPUs
  const study::Bill longer = study::bill(one, tokens), shorter = study::bill(two, tokens);
  EXPECT_NEAR(shorter.usd->value, 2 * 3.35, 1e-9);
  EXPECT_NEAR(longer.usd->value, 3.35 / 0.6, 1e-9);
  EXPECT_NEAR(longer.time / shorter.time, 1 / 0.6, 1e-9);
}

TEST(Bill, IsOfWholeSteps) {
  Alternative a{.hardware = "one", .job = job("native", few_tokens()), .price = UsdPerHour(3600)};
  a.prediction.step = Seconds(0.5);
  const study::Bill bill = study::bill(a, 5);  // of 2 tokens a step
  EXPECT_EQ(bill.steps, 3);
  EXPECT_DOUBLE_EQ(bill.time.value, 1.5);
  EXPECT_DOUBLE_EQ(bill.usd->value, 1.5);
}

TEST(Rows, AreByDollarsAndWhatHasNoPriceOrDoesNotFitComesLast) {
  machine::Machine owned = rented(1);
  owned.price.reset();
  const CostStudy study = study::cost_study(
      offloaded(), "here",
      {{"small", small_machine(-1, 4)}, {"owned", owned}, {"dear", rented(1000)}}, {}, kTokens);
  std::vector<std::string> order;
  for (const Alternative& of : study.rows) {
    order.push_back(of.hardware + " " + std::string(of.job.plan->name));
  }
  EXPECT_EQ(order, (std::vector<std::string>{"here native", "here zero2-offload", "dear native",
                                             "owned native", "small native"}));
  EXPECT_EQ(study.asked, 1u);
}

double usd(const Job& job, double price) { return price / study::predict(job).tokens_per_s; }

Job with(Job job, std::int64_t accumulation) {
  job.workload.accumulation = accumulation;
  return job;
}

// The other machine's price is such that a token costs the same at ten micro-batches a step, but
// for 0.01 %: no dearer at ten, dearer at nine. The machine at hand holds a step with offload and
// buckets of 1000 elements, and not 16 B a parameter.
TEST(BreakEven, IsTheSmallestAccumulationThatIsNoDearer) {
  Job asked = job("zero2-offload", few_tokens(),
                  {{"reduce_bucket_size", "1000"}, {"allgather_bucket_size", "1000"}}, tiny_shape(),
                  rented(1));
  asked.machine.accelerator.memory = runtime::known_bytes(4 * kMiB + std::int64_t{12} * Tiny::all);
  const Job native = job("native", few_tokens());
  const double price = 1.0001 * usd(with(asked, 10), 1) / usd(with(native, 10), 1);
  const CostStudy study = study_of(asked, rented(price));
  ASSERT_TRUE(study.break_even);
  const BreakEven& even = *study.break_even;
  EXPECT_EQ(study.rows[even.against].hardware, "there");
  EXPECT_EQ(even.accumulation, 10);
  EXPECT_LE(usd(with(asked, 10), 1), usd(with(native, 10), price));
  EXPECT_GT(usd(with(asked, 9), 1), usd(with(native, 9), price));
}

TEST(BreakEven, SaysHowMuchDearerItStays) {
  const Job asked = offloaded(100);
  const Job native = job("native", few_tokens());
  const CostStudy study = study_of(asked, rented(1));
  ASSERT_TRUE(study.break_even);
  const BreakEven& even = *study.break_even;
  EXPECT_EQ(study.rows[even.against].hardware, "there");
  EXPECT_FALSE(even.accumulation);
  EXPECT_EQ(even.most, 256);
  EXPECT_EQ(even.nearest, even.most);
  EXPECT_DOUBLE_EQ(even.dearer,
                   usd(with(asked, even.most), 100) / usd(with(native, even.most), 1) - 1);
}

// At the price found both bills are the same.
TEST(BreakEven, HasThePriceAtWhichBothCostTheSame) {
  const Job asked = offloaded(100);
  const CostStudy study = study_of(asked, rented(1));
  const double hours = study::bill(study.rows[study.asked], kTokens).time.value / 3600;
  const double other = study::bill(row(study, "there", Way::kOneGpu), kTokens).usd->value;
  ASSERT_TRUE(study.break_even->price);
  EXPECT_NEAR(study.break_even->price->value, other / hours, 1e-12);
  const CostStudy again = study::cost_study(asked, "here", {}, study.break_even->price, kTokens);
  EXPECT_NEAR(study::bill(again.rows[again.asked], kTokens).usd->value, other, 1e-12);
}

// On one machine both pay the same price; without a price there is nothing to compare.
TEST(BreakEven, HasNoPriceOnTheSameMachineAndNothingWithoutPrices) {
  const CostStudy same = study::cost_study(offloaded(), "here", {}, {}, kTokens);
  ASSERT_TRUE(same.break_even);
  EXPECT_FALSE(same.break_even->price);
  const Job owned = job("zero2-offload", few_tokens());
  EXPECT_FALSE(study::cost_study(owned, "here", {}, {}, kTokens).break_even);
  const CostStudy there = study_of(owned, rented(1));
  EXPECT_TRUE(there.break_even->price);
  EXPECT_FALSE(there.break_even->has_accumulation);
}

// torchao refuses it with gradients that leave at once.
TEST(BreakEven, RepeatsWhyAJobDoesNotAccumulate) {
  const Job asked = job("torchao-offload", few_tokens(), {{"offload_gradients", "true"}},
                        tiny_shape(), rented(100));
  const CostStudy study = study_of(asked, rented(1));
  ASSERT_TRUE(study.break_even);
  EXPECT_FALSE(study.break_even->accumulation);
  EXPECT_NE(study.break_even->refused.find("does not work with accumulation"), std::string::npos);
}

// A native job is its own alternative; with activations offloaded it is not.
TEST(WithoutOffload, IsNotSaidTwice) {
  Job native = job("native", few_tokens());
  native.machine = rented(1);
  EXPECT_EQ(study::cost_study(native, "here", {}, {}, kTokens).rows.size(), 1u);
  native.workload.activation_offload = ActivationOffload::kSaveOnCpu;
  const CostStudy study = study::cost_study(native, "here", {}, {}, kTokens);
  EXPECT_EQ(row(study, "here", Way::kOneGpu).job.workload.activation_offload,
            ActivationOffload::kNone);
}

}  // namespace
}  // namespace offsim::plans::alternatives_test
