// Simulated time: an integer number of picoseconds since the start of the run.
//
// Integers make sums exact and two runs equal bit for bit. A picosecond is 1e-12 s; 2^63 of them
// are 106 days, and no run may be longer (kEndOfTime). Seconds become picoseconds in one place,
// to_picoseconds().
#pragma once

#include <cstdint>
#include <limits>

#include "sim/base/units.h"

namespace offsim::engine {

using Picoseconds = std::int64_t;

inline constexpr double kPicosecondsPerSecond = 1e12;
inline constexpr Picoseconds kEndOfTime = std::numeric_limits<Picoseconds>::max();

// The nearest picosecond, halves upwards; kEndOfTime when it is that or later (also for infinity).
// Requires: t is not negative and not NaN.
constexpr Picoseconds to_picoseconds(Seconds t) {
  const double picoseconds = t.value * kPicosecondsPerSecond + 0.5;
  // 2^63 is the first double that the integer cannot hold.
  return picoseconds < 0x1p63 ? static_cast<Picoseconds>(picoseconds) : kEndOfTime;
}

constexpr Seconds to_seconds(Picoseconds t) {
  return Seconds(static_cast<double>(t) / kPicosecondsPerSecond);
}

// a + b, or kEndOfTime when that is later. Requires: neither is negative.
constexpr Picoseconds later(Picoseconds a, Picoseconds b) {
  return a > kEndOfTime - b ? kEndOfTime : a + b;
}

// A closed stretch of simulated time; by default all of it.
struct Window {
  Picoseconds from = 0;
  Picoseconds to = kEndOfTime;
};

}  // namespace offsim::engine
