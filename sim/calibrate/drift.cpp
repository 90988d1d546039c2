#include "sim/calibrate/drift.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/calibrate/fits.h"

namespace offsim::calibrate {

namespace {

constexpr double kTolerated = 0.10;
constexpr double kTimesNoise = 3;

}  // namespace

bool Drift::drifted() const {
  return std::abs(median - 1) > std::max(kTolerated, kTimesNoise * noise);
}

std::vector<Drift> drifts(const Records& then, const Records& now) {
  std::map<std::pair<std::string, std::string>, const Point*> new_points;
  for (const Point& p : now.points) {
    new_points[{p.bench, p.where()}] = &p;
  }
  std::vector<Drift> out;
  std::map<std::string, std::vector<double>> speeds, noises;
  for (const Point& old : then.points) {
    if (old.unit == "B" && old.word("what") != "total") {
      continue;  // what is free at the moment
    }
    const auto found = new_points.find({old.bench, old.where()});
    if (found == new_points.end()) {
      continue;
    }
    const double speed =
        old.unit == "s" ? old.value / found->second->value : found->second->value / old.value;
    auto drift = std::ranges::find(out, old.bench, &Drift::bench);
    if (drift == out.end()) {
      out.emplace_back();
      out.back().bench = old.bench;
      drift = std::prev(out.end());
    }
    speeds[old.bench].push_back(speed);
    noises[old.bench].push_back(std::hypot(old.spread, found->second->spread));
    ++drift->points;
    if (drift->where.empty() || std::abs(std::log(speed)) > std::abs(std::log(drift->worst))) {
      drift->worst = speed;
      drift->where = old.where();
    }
  }
  for (Drift& drift : out) {
    drift.median = median(speeds[drift.bench]);
    drift.noise = median(noises[drift.bench]);
  }
  return out;
}

}  // namespace offsim::calibrate
