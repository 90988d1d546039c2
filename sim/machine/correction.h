// A formula corrected by measured points: least squares first, then the nearest points' residuals.
//
//   t = t_formula x exp(sum of constants[i] x feature[i] + r(where))
//   r = inverse-distance mean (weights 1 / d^3) of the points' residuals in three log coordinates
//
// Features outside the range of the measured points are held at its border. Without points the
// constants stand alone. Source: method of Shepard (1968). Left out: noise of the points; a
// measured shape is returned as measured.
#pragma once

#include <array>
#include <vector>

namespace offsim::machine {

using Coordinates = std::array<double, 3>;

struct Sample {
  std::vector<double> features;  // the first is 1
  Coordinates where{};
  double log_ratio = 0;  // log(measured time / formula)
};

struct Correction {
  struct Point {
    Coordinates where{};
    double residual = 0;
  };
  std::vector<double> constants;
  std::vector<double> least, most;  // of each feature
  std::vector<Point> points;

  double factor(const std::vector<double>& features, const Coordinates& where) const;
};

// Requires: at least as many samples as features, all of one length.
Correction fit_correction(const std::vector<Sample>& samples);

}  // namespace offsim::machine
