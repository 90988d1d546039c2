// Do times of a long replay keep their microseconds?
#include "kernels/replay/event_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace offsim::kernels::event_times_test {
namespace {

// A GPU that counts nanoseconds and, as CUDA, tells differences as float milliseconds.
float told(std::int64_t from, std::int64_t to) {
  return static_cast<float>(static_cast<double>(to - from) / 1e6);
}

// Half an hour of kernels of 7.531 ms on one stream, each after a copy's end on another, which is
// 3 s ahead.
std::vector<std::int64_t> half_an_hour() {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 1; i * 7'531'000 < 1'800'000'000'000; ++i) {
    out.push_back(i * 7'531'000 + 3'000'000'000);
    out.push_back(i * 7'531'000);
  }
  return out;
}

TEST(EventTimes, ADifferenceKeepsItsMicroseconds) {
  const std::vector<std::int64_t> points = half_an_hour();
  const std::vector<double> times =
      event_times(static_cast<std::uint32_t>(points.size()), 100,
                  [&](auto from, auto to) { return told(from ? points[*from] : 0, points[to]); });
  ASSERT_EQ(times.size(), points.size());
  double worst = 0, worst_far = 0;  // of a kernel's duration
  for (std::size_t i = 3; i < points.size(); i += 2) {
    worst = std::max(worst, std::abs(times[i] - times[i - 2] - 7.531e-3));
    const float far = told(0, points[i]) - told(0, points[i - 2]);
    worst_far = std::max(worst_far, std::abs(static_cast<double>(far) / 1e3 - 7.531e-3));
  }
  EXPECT_LT(worst, 0.5e-6);
  EXPECT_GT(worst_far, 50e-6);  // measured from the first one
  // And half an hour is half an hour.
  EXPECT_NEAR(times[1], 100 + 7.531e-3, 0.2e-6);
  EXPECT_NEAR(times.back(), 100 + static_cast<double>(points.back()) / 1e9, 100e-6);
}

}  // namespace
}  // namespace offsim::kernels::event_times_test
