// Searches over whole numbers: up to some number all are good, and none after it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace offsim::study {

// The last that is good, by bisection. Requires: `good` is, `bad` is not.
template <class Good>
std::int64_t last_good(std::int64_t good, std::int64_t bad, const Good& is_good) {
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (is_good(middle) ? good : bad) = middle;
  }
  return good;
}

// The same from 1 to `most`, by doubling first: what is large is dear to ask for. 0: none.
template <class Good>
std::int64_t largest_good(std::int64_t most, const Good& is_good) {
  std::int64_t good = 0, bad = 1;
  while (bad <= most && is_good(bad)) {
    good = bad;
    bad *= 2;
  }
  return last_good(good, std::min(bad, most + 1), is_good);
}

}  // namespace offsim::study
