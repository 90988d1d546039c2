// Two records of one machine beside each other: what has become faster or slower.
#pragma once

#include <string>
#include <vector>

#include "sim/calibrate/records.h"

namespace offsim::calibrate {

// One bench over the points that both records have. Speeds: 2 is twice as fast now; of a size
// (memory, a threshold) twice as much.
struct Drift {
  std::string bench;
  std::size_t points = 0;
  double median = 1;  // speed now over speed then
  double worst = 1;   // the point furthest from 1
  std::string where;  // that point
  double noise = 0;   // the median of the points' spreads, both runs'
  // More than 10 % and more than three times the noise.
  bool drifted() const;
};

// In the order of `then`.
std::vector<Drift> drifts(const Records& then, const Records& now);

}  // namespace offsim::calibrate
