// Is the ledger right to the byte, to the picosecond and in the order of issue?
#include "sim/engine/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace offsim::engine::memory_test {
namespace {

using testing::ElementsAre;

// A chain of activities of 10 ps each; activity i runs from 10 i to 10 (i + 1) in phase i.
class Memory : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint8_t i = 0; i < 5; ++i) {
      builder.add({.latency = 10, .phase = i});
      if (i > 0) {
        builder.edge(ActivityId(i - 1U), ActivityId(i));
      }
    }
  }
  void change(std::uint32_t activity, At at, TagId tag, std::int64_t bytes) {
    builder.change(ActivityId(activity), at, gpu, tag, bytes);
  }
  void run() {
    graph = std::move(builder).build();
    timeline = simulate(graph);
  }
  MemoryLedger ledger(Window window = {}) {
    run();
    return account_memory(graph, timeline, window);
  }

  GraphBuilder builder;
  PoolId gpu = builder.add_pool("gpu", 100);
  TagId weights = builder.tag("weights");
  TagId grads = builder.tag("grads");
  ActivityGraph graph = GraphBuilder().build();
  Timeline timeline;
};

TEST_F(Memory, ThePeakHasItsTimePhaseAndComposition) {
  change(0, At::kStart, weights, 40);
  change(1, At::kFinish, grads, 50);
  change(2, At::kFinish, weights, -20);
  change(3, At::kFinish, weights, 20);  // as much again, but not for the first time
  change(4, At::kFinish, grads, -30);
  const MemoryLedger result = ledger();
  EXPECT_EQ(result.peaks[0].bytes, 90);
  EXPECT_EQ(result.peaks[0].time, 20);
  EXPECT_EQ(result.peaks[0].phase, 1);
  EXPECT_THAT(result.peaks[0].composition, ElementsAre(TagBytes{grads, 50}, TagBytes{weights, 40}));
  EXPECT_THAT(result.at_end, ElementsAre(60));
  EXPECT_FALSE(result.violation);
}

TEST_F(Memory, ExactlyTheCapacityFits) {
  change(0, At::kStart, weights, 60);
  change(1, At::kStart, grads, 40);
  EXPECT_FALSE(ledger().violation);
}

TEST_F(Memory, OneByteMoreDoesNot) {
  change(0, At::kStart, weights, 60);
  change(1, At::kStart, grads, 41);
  change(2, At::kStart, grads, 100);  // worse, but later
  const MemoryLedger result = ledger();
  ASSERT_TRUE(result.violation);
  EXPECT_EQ(result.violation->change, 1);
  EXPECT_EQ(result.violation->time, 10);
  EXPECT_EQ(result.violation->phase, 1);
  EXPECT_EQ(result.violation->needed_bytes, 101);
  EXPECT_THAT(result.violation->held, ElementsAre(TagBytes{weights, 60}));
  EXPECT_EQ(result.peaks[0].bytes, 201) << "the ledger goes on to say what would be needed";
}

TEST_F(Memory, AnAllocationIssuedBeforeAFreeAtTheSameInstantCountsBeforeIt) {
  change(0, At::kStart, weights, 60);
  change(1, At::kStart, grads, 60);  // both at 10 ps
  change(0, At::kFinish, weights, -60);
  const MemoryLedger result = ledger();
  ASSERT_TRUE(result.violation);
  EXPECT_EQ(result.violation->needed_bytes, 120);
}

TEST_F(Memory, AFreeIssuedBeforeAnAllocationAtTheSameInstantMakesRoom) {
  change(0, At::kStart, weights, 60);
  change(0, At::kFinish, weights, -60);
  change(1, At::kStart, grads, 60);
  const MemoryLedger result = ledger();
  EXPECT_FALSE(result.violation);
  EXPECT_EQ(result.peaks[0].bytes, 60);
}

TEST_F(Memory, TimeGoesBeforeIssueOrder) {
  change(3, At::kStart, weights, -30);
  change(0, At::kStart, weights, 30);
  run();
  EXPECT_THAT(pool_series(graph, timeline, gpu), ElementsAre(PoolSample{0, 30}, PoolSample{30, 0}));
}

TEST_F(Memory, TheSeriesHasOneSampleAnInstant) {
  change(0, At::kStart, weights, 60);
  change(0, At::kFinish, weights, -60);
  change(1, At::kStart, grads, 70);
  change(4, At::kFinish, grads, -70);
  run();
  EXPECT_THAT(pool_series(graph, timeline, gpu),
              ElementsAre(PoolSample{0, 60}, PoolSample{10, 70}, PoolSample{50, 0}));
}

TEST_F(Memory, AWindowCountsWhatIsHeldWhenItOpens) {
  change(0, At::kStart, weights, 80);    // at 0
  change(0, At::kFinish, weights, -50);  // at 10: 30 are left when the window opens
  change(2, At::kStart, grads, 10);      // at 20
  change(3, At::kStart, grads, 50);      // at 30, after it
  const MemoryLedger result = ledger({15, 25});
  EXPECT_EQ(result.peaks[0].bytes, 40);
  EXPECT_EQ(result.peaks[0].time, 20);
  EXPECT_THAT(result.peaks[0].composition, ElementsAre(TagBytes{weights, 30}, TagBytes{grads, 10}));
}

TEST_F(Memory, AWindowHasBothItsEnds) {
  change(0, At::kStart, weights, 20);
  change(1, At::kStart, weights, 30);  // at 10, where the window opens
  change(1, At::kStart, weights, -30);
  change(2, At::kStart, grads, 5);  // at 20, where it closes
  EXPECT_EQ(ledger({10, 20}).peaks[0].bytes, 50);
  EXPECT_EQ(account_memory(graph, timeline, {11, 20}).peaks[0].bytes, 25);
  EXPECT_EQ(account_memory(graph, timeline, {11, 19}).peaks[0].bytes, 20);
  EXPECT_EQ(account_memory(graph, timeline, {11, 19}).peaks[0].time, 11);
}

TEST_F(Memory, AViolationBeforeTheWindowIsStillOne) {
  change(0, At::kStart, weights, 101);
  change(0, At::kFinish, weights, -101);
  const MemoryLedger result = ledger({30, 50});
  EXPECT_TRUE(result.violation);
  EXPECT_EQ(result.peaks[0].bytes, 0);
}

TEST_F(Memory, PoolsAreApart) {
  const auto host = builder.add_pool("host");  // without a limit
  builder.change(ActivityId{2}, At::kStart, host, weights, std::int64_t{1} << 60);
  change(0, At::kStart, weights, 100);
  const MemoryLedger result = ledger();
  EXPECT_EQ(result.peaks[0].bytes, 100);
  EXPECT_EQ(result.peaks[1].bytes, std::int64_t{1} << 60);
  EXPECT_FALSE(result.violation);
}

TEST_F(Memory, FreeingMoreThanIsHeldIsABug) {
  change(0, At::kStart, weights, 20);
  change(1, At::kStart, weights, -21);
  EXPECT_THROW(ledger(), InternalError);
}

TEST_F(Memory, FreeingUnderAnotherTagIsABug) {
  change(0, At::kStart, weights, 20);
  change(1, At::kStart, grads, -20);
  EXPECT_THROW(ledger(), InternalError);
}

// Sections begin at activities 0, 1, 2 and 4: what is held when one begins counts for it, what was
// freed before it does not; one without a change holds what came before.
TEST_F(Memory, PeaksBySection) {
  change(0, At::kStart, weights, 10);
  change(0, At::kFinish, grads, 5);  // still of section 0, at the instant at which 1 begins
  change(1, At::kStart, grads, 20);
  change(1, At::kFinish, grads, -25);
  change(4, At::kStart, weights, -4);
  run();
  const auto peaks = peaks_by_section(graph, timeline,
                                      {ActivityId(0), ActivityId(1), ActivityId(2), ActivityId(4)});
  std::vector<std::int64_t> bytes;
  for (const auto& section : peaks) {
    bytes.push_back(section.front().bytes);
  }
  EXPECT_THAT(bytes, ElementsAre(15, 35, 10, 10));
  EXPECT_THAT(peaks[0].front().composition, ElementsAre(TagBytes{weights, 10}, TagBytes{grads, 5}));
  EXPECT_THAT(peaks[1].front().composition,
              ElementsAre(TagBytes{grads, 25}, TagBytes{weights, 10}));
  EXPECT_THAT(peaks[3].front().composition, ElementsAre(TagBytes{weights, 10}));
}

// 60 of weights and then 30 of gradients are shared, 25 of activations in between are not: whole,
// the first is most (60 + 25), then 90; thirds, 20 + 25 and then 30. Odd bytes are rounded up.
TEST_F(Memory, SharesEvenlyAtEveryInstant) {
  const TagId activations = builder.tag("activations");
  change(0, At::kStart, weights, 60);
  change(1, At::kStart, activations, 25);
  change(1, At::kFinish, activations, -25);
  change(2, At::kStart, grads, 30);
  run();
  const auto peak = [&](std::int64_t ways) {
    return peak_if_shared(graph, timeline, gpu, {weights, grads}, ways);
  };
  EXPECT_EQ(peak(1), 90);
  EXPECT_EQ(peak(3), 45);
  EXPECT_EQ(peak(7), 9 + 25);
}

}  // namespace
}  // namespace offsim::engine::memory_test
