// Does Ratel's planner keep what pays, and no more than there is room for?
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/plans/ratel_planner.h"

namespace offsim::plans::ratel_planner_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kGiga = 1e9;
Bytes gb(double n) { return Bytes(static_cast<std::int64_t>(n * kGiga)); }

// A GPU that needs 10 s and 30 s, of which 10 s are recomputation; 10 GB of weights; 20 GB/s each
// way; drives so fast that they do not matter. Forward: 10 s for 200 GB. Backward: A + 14 GB at
// 20 GB/s.
SwapProfile bound_by_the_gpu() {
  SwapProfile p;
  p.forward = Seconds(10);
  p.backward = Seconds(30);
  p.weights = gb(10);
  p.checkpoints = gb(4);
  p.host_room = gb(1000);
  p.drive_room = gb(1000);
  p.to_host = p.to_gpu = BytesPerSecond(20 * kGiga);
  p.read = p.write = BytesPerSecond(1000 * kGiga);
  return p;
}

Bytes bytes_of(const std::vector<SwapCandidate>& all, const std::vector<std::size_t>& chosen) {
  Bytes sum;
  for (const std::size_t i : chosen) {
    sum += all[i].bytes;
  }
  return sum;
}
Seconds saved_by(const std::vector<SwapCandidate>& all, const std::vector<std::size_t>& chosen) {
  Seconds sum;
  for (const std::size_t i : chosen) {
    sum += all[i].saved;
  }
  return sum;
}

TEST(PredictedIteration, IsTheSlowestOfGpuLinkAndDriveInEachHalf) {
  SwapProfile p = bound_by_the_gpu();
  EXPECT_DOUBLE_EQ(predicted_iteration(p, gb(0), Seconds(0)).value, 40);
  EXPECT_DOUBLE_EQ(predicted_iteration(p, gb(100), Seconds(6)).value, 34);
  // 300 GB: 15.2 s of forward, 15.7 s of backward.
  EXPECT_DOUBLE_EQ(predicted_iteration(p, gb(300), Seconds(10)).value, 15.2 + 20);
  // A drive of 5 GB/s: 2 s; (70 + 70) / 5 s, of master, states and weights both ways.
  p.read = p.write = BytesPerSecond(5 * kGiga);
  EXPECT_DOUBLE_EQ(predicted_iteration(p, gb(0), Seconds(0)).value, 10 + 30);
  EXPECT_DOUBLE_EQ(predicted_iteration(p, gb(100), Seconds(6)).value, 10 + 28);
  // 54 of 104 GB are spilled: written in the forward beside the weights read, read in the backward.
  p.host_room = gb(50);
  EXPECT_DOUBLE_EQ(predicted_iteration(p, gb(100), Seconds(6)).value, 64 / 5.0 + 194 / 5.0);
}

TEST(ConvexSwap, TakesTheMostSecondsAByteFirstWhileItPays) {
  const std::vector<SwapCandidate> candidates{
      {gb(50), Seconds(1)}, {gb(50), Seconds(4)}, {gb(50), Seconds(2)}, {gb(50), Seconds(0)}};
  EXPECT_THAT(convex_swap(bound_by_the_gpu(), candidates), ElementsAre(1, 2, 0));
}

// The forward's 10 s carry 200 GB, 4 of checkpoints; beyond, each 50 GB cost 2.5 s.
TEST(ConvexSwap, StopsWhereTheLinkCostsMoreThanIsSaved) {
  const std::vector<SwapCandidate> candidates(6, {gb(49), Seconds(1.5)});
  EXPECT_THAT(convex_swap(bound_by_the_gpu(), candidates), ElementsAre(0, 1, 2, 3));
}

TEST(ConvexSwap, KeepsNothingWhereTheGpuIsNotTheLimit) {
  SwapProfile p = bound_by_the_gpu();
  p.read = p.write = BytesPerSecond(1 * kGiga);  // 140 s of states in the backward
  EXPECT_THAT(convex_swap(p, {{gb(1), Seconds(1)}}), IsEmpty());
}

TEST(ConvexSwap, KeepsWhatFitsToTheByte) {
  SwapProfile p = bound_by_the_gpu();
  p.drive_room = Bytes(0);
  const std::vector<SwapCandidate> candidates(2, {gb(10), Seconds(1)});
  p.host_room = gb(24);
  EXPECT_THAT(convex_swap(p, candidates), ElementsAre(0, 1));
  p.host_room = gb(24) - Bytes(1);
  EXPECT_THAT(convex_swap(p, candidates), ElementsAre(0));
}

// 18 GiB of checkpoints take the first second of the two; 20 GiB more the other.
TEST(OrderedSwap, FillsAShareOfTheForwardInTheOrderGiven) {
  SwapProfile p = bound_by_the_gpu();
  p.checkpoints = Bytes(18 * kGiB);
  const std::vector<SwapCandidate> candidates{
      {Bytes(10 * kGiB), Seconds(0)}, {Bytes(10 * kGiB), Seconds(9)}, {Bytes(1), Seconds(9)}};
  EXPECT_THAT(ordered_swap(p, 0.2, candidates), ElementsAre(0, 1));
  EXPECT_THAT(ordered_swap(p, 0.1, candidates), IsEmpty());
  EXPECT_THAT(ordered_swap(p, 0.3, candidates), ElementsAre(0, 1, 2));
}

SwapProfile any_profile() {
  SwapProfile p;
  const auto some = [](int most) { return static_cast<double>(*rc::gen::inRange(1, most)); };
  p.forward = Seconds(some(20));
  p.backward = p.forward * 3;
  p.weights = gb(some(100));
  p.checkpoints = gb(some(20));
  p.host_room = p.checkpoints + gb(some(200));
  p.drive_room = gb(some(200));
  p.to_host = p.to_gpu = BytesPerSecond(some(60) * kGiga);
  p.read = BytesPerSecond(some(40) * kGiga);
  p.write = BytesPerSecond(some(40) * kGiga);
  return p;
}
std::vector<SwapCandidate> any_candidates(const SwapProfile& p) {
  std::vector<SwapCandidate> candidates;
  const int n = *rc::gen::inRange(0, 12);
  for (int i = 0; i < n; ++i) {
    candidates.push_back(
        {gb(*rc::gen::inRange(1, 60)), p.forward * (*rc::gen::inRange(0, 100) / 100.0 / n)});
  }
  return candidates;
}

RC_GTEST_PROP(ConvexSwap, IsNeverSlowerThanNothingNorOverCapacity, ()) {
  const SwapProfile p = any_profile();
  const std::vector<SwapCandidate> all = any_candidates(p);
  const std::vector<std::size_t> chosen = convex_swap(p, all);
  RC_ASSERT(p.checkpoints + bytes_of(all, chosen) <= p.host_room + p.drive_room);
  RC_ASSERT(predicted_iteration(p, bytes_of(all, chosen), saved_by(all, chosen)) <=
            predicted_iteration(p, Bytes(0), Seconds(0)));
}

// The prediction is convex in what is kept of the best first, so stopping at the first rise is
// stopping at the least of all prefixes.
RC_GTEST_PROP(ConvexSwap, IsTheBestOfItsPrefixes, ()) {
  SwapProfile p = any_profile();
  p.drive_room = gb(100'000);
  std::vector<SwapCandidate> all(static_cast<std::size_t>(*rc::gen::inRange(1, 30)),
                                 {gb(3), p.forward / 30});
  const std::vector<std::size_t> chosen = convex_swap(p, all);
  const Seconds time = predicted_iteration(p, bytes_of(all, chosen), saved_by(all, chosen));
  Bytes kept;
  Seconds saved;
  for (const SwapCandidate& candidate : all) {
    kept += candidate.bytes;
    saved += candidate.saved;
    RC_ASSERT(time.value <= predicted_iteration(p, kept, saved).value * (1 + 1e-12));
  }
}

RC_GTEST_PROP(OrderedSwap, StaysInTheHost, ()) {
  const SwapProfile p = any_profile();
  const std::vector<SwapCandidate> all = any_candidates(p);
  RC_ASSERT(p.checkpoints + bytes_of(all, ordered_swap(p, 1000, all)) <= p.host_room);
}

}  // namespace
}  // namespace offsim::plans::ratel_planner_test
