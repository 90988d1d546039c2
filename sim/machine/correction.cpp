#include "sim/machine/correction.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>

#include "sim/base/error.h"

namespace offsim::machine {

namespace {

double squared_distance(const Coordinates& a, const Coordinates& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return sum;
}

}  // namespace

double Correction::factor(const std::vector<double>& features, const Coordinates& where) const {
  SIM_ASSERT(features.size() == constants.size(), "one constant a feature");
  double log_factor = 0;
  for (std::size_t i = 0; i < features.size(); ++i) {
    log_factor += constants[i] * std::clamp(features[i], least[i], most[i]);
  }
  double weights = 0;
  double residuals = 0;
  for (const Point& point : points) {
    // The small number lets a measured shape weigh a million times its neighbours, without a zero.
    const double distance = std::sqrt(squared_distance(point.where, where) + 1e-6);
    const double weight = 1 / (distance * distance * distance);
    weights += weight;
    residuals += weight * point.residual;
  }
  return std::exp(log_factor + (points.empty() ? 0 : residuals / weights));
}

Correction fit_correction(const std::vector<Sample>& samples) {
  SIM_ASSERT(!samples.empty(), "a fit needs samples");
  const auto rows = static_cast<Eigen::Index>(samples.size());
  const auto columns = static_cast<Eigen::Index>(samples.front().features.size());
  SIM_ASSERT(rows >= columns, "at least as many samples as features");
  Eigen::MatrixXd features(rows, columns);
  Eigen::VectorXd targets(rows);
  for (Eigen::Index row = 0; row < rows; ++row) {
    const Sample& sample = samples[static_cast<std::size_t>(row)];
    features.row(row) = Eigen::Map<const Eigen::RowVectorXd>(sample.features.data(), columns);
    targets(row) = sample.log_ratio;
  }
  // Of a rank-deficient set (one head size only) this takes the smallest constants.
  const Eigen::VectorXd constants = features.completeOrthogonalDecomposition().solve(targets);
  const Eigen::VectorXd residuals = targets - features * constants;

  Correction out;
  out.constants.assign(constants.begin(), constants.end());
  for (Eigen::Index column = 0; column < columns; ++column) {
    out.least.push_back(features.col(column).minCoeff());
    out.most.push_back(features.col(column).maxCoeff());
  }
  for (Eigen::Index row = 0; row < rows; ++row) {
    out.points.push_back({samples[static_cast<std::size_t>(row)].where, residuals(row)});
  }
  return out;
}

}  // namespace offsim::machine
