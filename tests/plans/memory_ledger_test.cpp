// Does every phase say what is held in it, and does the ledger agree with the prediction?
#include "sim/study/memory_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plans/held.h"

namespace offsim::plans::memory_ledger_test {
namespace {

using study::kLedgerPhases;
using study::LedgerPool;

study::MemoryLedger ledger(const Job& job) {
  study::Run run;
  study::predict(job, {}, &run);
  return study::memory_ledger(job, run);
}

const LedgerPool& pool(const study::MemoryLedger& of, std::string_view name) {
  return *std::ranges::find(of.pools, name, &LedgerPool::name);
}

Bytes held(const LedgerPool& in, std::string_view tag, std::size_t phase) {
  const auto found = std::ranges::find(in.tags, tag, &study::LedgerTag::tag);
  return found == in.tags.end() ? Bytes(0) : found->held[phase];
}

// A column adds up to its peak, and the largest is the prediction's, of every plan.
TEST(MemoryLedger, AddsUpToThePrediction) {
  for (const Plan& plan : registry()) {
    machine::Machine m =
        plan.name == "mlx" ? runtime::unified_machine() : runtime::synthetic_machine();
    if (plan.name == "coherent-offload") {
      m.link->page_fault = runtime::known<Seconds>(1e-6);
    }
    Workload w = few_tokens();
    w.precision = plan.name == "mlx" ? Precision::kBf16 : w.precision;
    w.accumulation = plan.name == "superoffload" ? 1 : 2;
    const Job of = job(std::string(plan.name), w, {}, tiny_shape(), m);
    const study::Prediction p = study::predict(of);
    for (const LedgerPool& in : ledger(of).pools) {
      SCOPED_TRACE(std::string(plan.name) + ", " + in.name);
      EXPECT_EQ(in.peak[in.worst()], p.pool(in.name)->peak);
      for (std::size_t phase = 0; phase < kLedgerPhases.size(); ++phase) {
        Bytes sum(0);
        for (const study::LedgerTag& tag : in.tags) {
          sum += tag.held[phase];
        }
        EXPECT_EQ(sum, in.peak[phase]) << kLedgerPhases[phase];
      }
    }
  }
}

// Adam's states come with the first optimizer step, not before; all else of the host is there.
TEST(MemoryLedger, AdamsStatesComeWithTheFirstOptimizerStep) {
  const study::MemoryLedger of = ledger(job("zero2-offload", few_tokens()));
  const LedgerPool& host = pool(of, "host");
  const Bytes states(8 * Tiny::all);
  EXPECT_EQ(held(host, "Adam states", 0), Bytes(0));
  EXPECT_EQ(held(host, "Adam states", 1), Bytes(0));
  EXPECT_EQ(held(host, "Adam states", 2), states);
  EXPECT_EQ(held(host, "Adam states", 3), states);
  EXPECT_EQ(host.peak[2] - host.peak[0], states);
  EXPECT_EQ(held(host, "fp32 master", 0), Bytes(4 * Tiny::all));
}

// What an allocator rounds a pinned block up by has a line of its own.
TEST(MemoryLedger, PinnedRoundingIsWhatNobodyAskedFor) {
  const study::MemoryLedger of = ledger(job("zero2-offload", few_tokens()));
  const std::int64_t n = Tiny::all, largest = 2 * Tiny::largest;
  const std::int64_t rounded = 2 * (p2(4 * n) - 4 * n) + p2(2 * n) - 2 * n + p2(largest) - largest;
  EXPECT_EQ(held(pool(of, "host"), "pinned rounding", 0), Bytes(rounded));
  const Job pageable = job("zero2-offload", few_tokens(), {{"pin_memory", "false"}});
  EXPECT_EQ(held(pool(ledger(pageable), "host"), "pinned rounding", 0), Bytes(0));
}

// The estimators of DeepSpeed 0.19.6 by hand.
TEST(MemoryLedger, HasWhatDeepspeedsEstimatorsSay) {
  const auto estimate = [](const std::string& plan, const Given& options) {
    return ledger(job(plan, few_tokens(), options)).deepspeed;
  };
  const std::int64_t n = Tiny::all, largest = Tiny::largest;
  const auto stage2 = estimate("zero2-offload", {});
  EXPECT_EQ(stage2->gpu, Bytes(2 * n));
  EXPECT_EQ(stage2->host, Bytes(24 * n));  // 16 x 1.5
  const auto both = estimate("zero3-offload", {});
  EXPECT_EQ(both->gpu, Bytes(4 * largest));
  EXPECT_EQ(both->host, Bytes(27 * n));
  const auto optimizer = estimate("zero3-offload", {{"offload_param", "none"}});
  EXPECT_EQ(optimizer->gpu, Bytes(4 * largest + 2 * n));
  EXPECT_EQ(optimizer->host, Bytes(24 * n));
  const auto neither =
      estimate("zero3-offload", {{"offload_param", "none"}, {"offload_optimizer", "none"}});
  EXPECT_EQ(neither->gpu, Bytes(4 * largest + 18 * n));
  EXPECT_EQ(neither->host, Bytes(6 * largest));
  const auto super = estimate("superoffload", {{"offload_param", "cpu"}});
  ASSERT_TRUE(super.has_value());
  EXPECT_EQ(super->gpu_terms, both->gpu_terms) << "it keeps parameters where its option says";
  EXPECT_EQ(estimate("superoffload", {})->gpu_terms, optimizer->gpu_terms);
  EXPECT_FALSE(estimate("native", {}).has_value());
}

// The whole model in each rank's memory; stage 3 gathers it again for a file.
TEST(MemoryLedger, LoadsAndSavesWhole) {
  const study::MemoryLedger three = ledger(job("zero3-offload", few_tokens()));
  EXPECT_EQ(three.load_least, Bytes(2 * Tiny::all));
  EXPECT_EQ(three.load_most, Bytes(4 * Tiny::all));
  EXPECT_EQ(three.save, Bytes(2 * Tiny::all));
  EXPECT_EQ(ledger(job("zero2-offload", few_tokens())).save, Bytes(4 * Tiny::largest));
}

}  // namespace
}  // namespace offsim::plans::memory_ledger_test
