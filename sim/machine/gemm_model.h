// Time of a matrix product from tiles, waves and memory, corrected by measured points.
//
// C[m x n] = A[m x k] B[k x n]. Tiles of 128 x 256 (either way round) run in waves over the multiprocessors (plans.md D.1):
//   t_math = waves x 2 x 128 x 256 x k / (peak / SMs x efficiency),   waves = ceil(tiles / SMs)
//   t = overhead + max(t_math, 2 (mk + kn + mn) / (bandwidth x share))
// With measured points the constants are fitted by least squares in log time, and the formula is multiplied by exp(r), where r
// interpolates the points' log residuals with inverse-distance weights in (log m, log k, log n). Points below 60 us are not used:
// they time the launch. Left out: the layout of the operands (no difference in our records), split-K.
#pragma once

#include <vector>

namespace offsim::machine {

struct GemmPoint {
  double m = 0, k = 0, n = 0;
  double seconds = 0;
};

// What the formula needs of the accelerator, in base units.
struct GemmMachine {
  double peak_flops_per_s = 0;
  double memory_bytes_per_s = 0;
  int multiprocessors = 0;
  double efficiency = 0;        // of large products
  double overhead_s = 0;
  double element_bytes = 2;
};

struct GemmModel {
  double log_efficiency = 0;    // fitted: log t = log t_formula + c0 + c1 log2(waves, clamped) ...
  std::vector<double> fit;
  struct Residual {
    double log_m = 0, log_k = 0, log_n = 0, log_ratio = 0;
  };
  std::vector<Residual> residuals;

  bool measured() const { return !residuals.empty(); }
};

inline constexpr double kShortestGemmPoint = 60e-6;

double gemm_formula_s(const GemmMachine& machine, double m, double k, double n);
GemmModel fit_gemm(const GemmMachine& machine, const std::vector<GemmPoint>& points);
double gemm_seconds(const GemmMachine& machine, const GemmModel& model, double m, double k, double n);

}  // namespace offsim::machine
