#include "sim/machine/figure.h"

#include <algorithm>
#include <cmath>

namespace offsim::machine {

std::string_view source_name(Source source) {
  switch (source) {
    case Source::kMeasured:
      return "measured";
    case Source::kDatasheet:
      return "datasheet";
    case Source::kPublished:
      return "published";
    case Source::kAssumed:
      return "assumed";
  }
  return "";
}

double default_spread(Source source) {
  switch (source) {
    case Source::kMeasured:
      return 0.03;
    case Source::kDatasheet:
      return 0.05;
    case Source::kPublished:
      return 0.10;
    case Source::kAssumed:
      return 0.25;
  }
  return 0;
}

double Curve::at(double where) const {
  SIM_ASSERT(!x.empty() && x.size() == y.size(), "a curve has a y for each x, and at least one");
  if (where <= x.front()) {
    return y.front();
  }
  if (where >= x.back()) {
    return y.back();
  }
  const auto above = static_cast<std::size_t>(std::ranges::upper_bound(x, where) - x.begin());
  const std::size_t below = above - 1;
  const double share = std::log(where / x[below]) / std::log(x[above] / x[below]);
  return y[below] + share * (y[above] - y[below]);
}

}  // namespace offsim::machine
