// When the points of a replay were reached, from times between two of them that are given as float
// milliseconds (cudaEventElapsedTime). A float has 24 bits: ten minutes are
// known to 60 us, half a second to 0.03 us. So a point is measured from one that is near it in
// time; of these there is one for each half second or so, each measured from the one before. Left
// out: the clocks of the GPU and of the host drift apart by microseconds a second.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

namespace offsim::kernels {

// `between`: milliseconds from a point, or from the base where none is named, to a point; negative
// where that came earlier. Seconds of the first `count`, on the clock that the base has a time of.
inline std::vector<double> event_times(
    std::uint32_t count, double base_seconds,
    const std::function<float(std::optional<std::uint32_t>, std::uint32_t)>& between) {
  constexpr double kFar = 0.5;                // seconds
  std::map<double, std::uint32_t> measurers;  // by their time
  std::vector<double> times;
  for (std::uint32_t point = 0; point < count; ++point) {
    double time = base_seconds + static_cast<double>(between({}, point)) / 1e3;
    double distance = 2 * kFar;
    if (!measurers.empty()) {
      auto near = measurers.lower_bound(time);
      if (near == measurers.end() ||
          (near != measurers.begin() && time - std::prev(near)->first < near->first - time)) {
        --near;
      }
      const double milliseconds = static_cast<double>(between(near->second, point));
      time = near->first + milliseconds / 1e3;
      distance = std::fabs(milliseconds) / 1e3;
    }
    if (distance > kFar) {
      measurers.emplace(time, point);
    }
    times.push_back(time);
  }
  return times;
}

}  // namespace offsim::kernels
