#include "sim/calibrate/fits.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/error.h"

namespace offsim::calibrate {

namespace {

// What a kernel and each copy move when they share `dram`: the level rises until it is full.
std::pair<double, double> shared(const Contended& c, double dram, double weight) {
  if (c.kernel_alone + c.copies * c.copy_alone <= dram) {
    return {c.kernel_alone, c.copy_alone};
  }
  double low = 0;
  double high = c.kernel_alone + c.copies * c.copy_alone / weight;
  for (int i = 0; i < 60; ++i) {
    const double level = (low + high) / 2;
    const double taken =
        std::min(c.kernel_alone, level) + c.copies * std::min(c.copy_alone, weight * level);
    (taken < dram ? low : high) = level;
  }
  return {std::min(c.kernel_alone, low), std::min(c.copy_alone, weight * low)};
}

double squared_errors(const std::vector<Contended>& records, double dram, double weight) {
  double sum = 0;
  for (const Contended& c : records) {
    const auto [kernel, copy] = shared(c, dram, weight);
    sum += std::pow(std::log(kernel / c.kernel), 2) + std::pow(std::log(copy / c.copy), 2);
  }
  return sum;
}

}  // namespace

double median(std::vector<double> values) {
  SIM_ASSERT(!values.empty(), "a median needs a value");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Line fit_line(const Points& times) {
  SIM_ASSERT(!times.empty(), "a line needs a point");
  const auto rows = static_cast<Eigen::Index>(times.size());
  Eigen::MatrixXd terms(rows, 2);
  for (Eigen::Index i = 0; i < rows; ++i) {
    const auto& [x, y] = times[static_cast<std::size_t>(i)];
    terms.row(i) << 1 / y, x / y;  // each error over the time itself
  }
  const Eigen::VectorXd ones = Eigen::VectorXd::Ones(rows);
  Eigen::Vector2d solution = Eigen::Vector2d::Zero();
  if (rows > 1) {
    solution = terms.colPivHouseholderQr().solve(ones);
  }
  if (rows == 1 || solution(0) < 0 || solution(1) <= 0) {
    const Eigen::VectorXd slopes = terms.col(1);
    solution << 0, slopes.dot(ones) / slopes.squaredNorm();
  }
  const Eigen::VectorXd errors = terms * solution - ones;
  return {solution(0), 1 / solution(1),
          std::sqrt(errors.squaredNorm() / static_cast<double>(rows))};
}

Points rising(Points speeds) {
  struct Pool {
    double sum = 0;
    std::size_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const auto& point : speeds) {
    pools.push_back({point.second, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      pools[pools.size() - 2].sum += pools.back().sum;
      pools[pools.size() - 2].count += pools.back().count;
      pools.pop_back();
    }
  }
  std::size_t i = 0;
  for (const Pool& pool : pools) {
    for (std::size_t n = 0; n < pool.count; ++n) {
      speeds[i++].second = pool.mean();
    }
  }
  return speeds;
}

Contention fit_contention(const std::vector<Contended>& records) {
  SIM_ASSERT(!records.empty(), "contention needs a record");
  double most = 0;  // that anybody saw moved: the capacity is hardly below
  for (const Contended& c : records) {
    most = std::max(most, c.kernel + c.copies * c.copy);
  }
  Contention best;
  double least = std::numeric_limits<double>::infinity();
  for (double dram = most / 2; dram < most * 2; dram *= 1.02) {
    for (int twentieths = 2; twentieths <= 40; ++twentieths) {
      const double weight = twentieths / 20.0;
      if (const double error = squared_errors(records, dram, weight); error < least) {
        least = error;
        best = {dram, weight, std::sqrt(error / static_cast<double>(2 * records.size()))};
      }
    }
  }
  return best;
}

double leave_one_out(const std::vector<machine::Sample>& samples) {
  double sum = 0;
  for (std::size_t left = 0; left < samples.size(); ++left) {
    std::vector<machine::Sample> others = samples;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left));
    const machine::Sample& asked = samples[left];
    const double factor = machine::fit_correction(others).factor(asked.features, asked.where);
    sum += std::abs(factor / std::exp(asked.log_ratio) - 1);
  }
  return sum / static_cast<double>(samples.size());
}

}  // namespace offsim::calibrate
