// Do the fitted models give back what a machine that obeys them would show?
#include "sim/calibrate/fits.h"

#include <gtest/gtest.h>

#include <cmath>

namespace offsim::calibrate::fits_test {
namespace {

TEST(Fits, ALineGivesBackItsStartAndRate) {
  // 2 us, then 10 bytes a microsecond.
  const Line line = fit_line({{10, 3e-6}, {100, 12e-6}, {1000, 102e-6}});
  EXPECT_NEAR(line.start, 2e-6, 1e-12);
  EXPECT_NEAR(line.rate, 1e7, 1);
  EXPECT_NEAR(line.residual, 0, 1e-9);
}

TEST(Fits, ALineNeverStartsBelowZero) {
  const Line line = fit_line({{10, 1e-6}, {100, 20e-6}});
  EXPECT_EQ(line.start, 0);
  // Least squares of relative errors through the origin: slopes 0.1 and 0.2 a unit (us), errors
  // over y: s = (10 + 5) / (100 + 25) = 0.12 us a byte.
  EXPECT_NEAR(1 / line.rate, 0.12e-6, 1e-12);
  EXPECT_GT(line.residual, 0.1);
}

TEST(Fits, OnePointIsARateWithoutAStart) {
  const Line line = fit_line({{100, 1e-6}});
  EXPECT_EQ(line.start, 0);
  EXPECT_NEAR(line.rate, 1e8, 1e-3);
}

TEST(Fits, MoreThreadsAreNeverSlower) {
  const Points speeds = rising({{1, 1}, {2, 4}, {4, 2}, {8, 5}});
  EXPECT_EQ(speeds, (Points{{1, 1}, {2, 3}, {4, 3}, {8, 5}}));
}

TEST(Fits, ContentionFindsTheCapacityAndTheWeight) {
  // 120 GB/s in all, a DMA byte counts half. Kernel alone 90, copies 55 one way, 45 each both ways.
  // One copy: 120 = k + k / 2, k = 80, copy 40. Both: k + 2 k / 2 = 120, k = 60, copies 30 each.
  // A slower kernel of 70 keeps its 70: its copy takes the 35 of its level, which rises to 50.
  const Contention fit = fit_contention(
      {{90e9, 55e9, 1, 80e9, 40e9}, {90e9, 45e9, 2, 60e9, 30e9}, {70e9, 55e9, 1, 70e9, 50e9}});
  EXPECT_NEAR(fit.dram, 120e9, 3e9);
  EXPECT_NEAR(fit.dma_weight, 0.5, 0.051);
  EXPECT_LT(fit.residual, 0.03);
}

TEST(Fits, LeavingOneOutIsOffByWhatTheOthersDoNotSay) {
  // Three shapes at one place, ten per cent slower than the formula, and one far away that is
  // twice as slow: left out, it is asked from the others' 1.1.
  const auto sample = [](double where, double ratio) {
    return machine::Sample{{1}, {where, 0, 0}, std::log(ratio)};
  };
  const double error =
      leave_one_out({sample(0, 1.1), sample(0.001, 1.1), sample(0.002, 1.1), sample(50, 2)});
  // The far one: 1.1 / 2 - 1 = -0.45; the near ones have two like them beside: hardly off.
  EXPECT_NEAR(error, 0.45 / 4, 0.01);
}

TEST(Fits, TheMedianOfAnEvenNumberIsBetweenTheMiddleTwo) {
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({9, 1, 3}), 3);
}

}  // namespace
}  // namespace offsim::calibrate::fits_test
