#include "sim/machine/formulas.h"

#include <algorithm>
#include <cmath>

namespace offsim::machine {

namespace {

constexpr double kMemoryShare = 0.85;  // of the peak, which a product's operands reach

// Starts and ends of the kernels: best fits of the H200 records. Attention's backward is several.
constexpr double kProductStart = 2e-6;
constexpr double kForwardStart = 10e-6;
constexpr double kBackwardStart = 20e-6;

}  // namespace

Estimate product_estimate(const Product& product, double peak_flops_per_s,
                          double memory_bytes_per_s, double element_bytes) {
  const auto [m, k, n] = product;
  const double math = 2 * m * n * k / peak_flops_per_s;
  const double memory =
      element_bytes * (m * k + k * n + m * n) / (kMemoryShare * memory_bytes_per_s);
  Estimate out;
  out.seconds = kProductStart + std::max(math, memory);
  out.memory_bound = memory > math;
  out.features = {1, 1024 / k};
  out.where = {std::log(m), std::log(k), std::log(n)};
  return out;
}

double attention_flops(const Scores& s) {
  const double forward =
      4 * s.batch * s.heads * s.sequence * s.sequence * s.head_dim * (s.causal ? 0.5 : 1);
  return s.backward ? 2.5 * forward : forward;
}

Estimate attention_estimate(const Scores& s, double peak_flops_per_s) {
  Estimate out;
  out.seconds =
      (s.backward ? kBackwardStart : kForwardStart) + attention_flops(s) / peak_flops_per_s;
  out.features = {1, 1024 / s.sequence, std::log2(128 / s.head_dim)};
  out.where = {std::log(s.sequence), std::log(s.head_dim), std::log(s.batch * s.heads)};
  return out;
}

Correction unmeasured_product(double efficiency) {
  return {{-std::log(efficiency), 0.075}, {1, 0}, {1, 2}, {}};
}

Correction unmeasured_attention(double efficiency, bool backward) {
  const double short_sequence = backward ? 0.49 : 0.21;
  const double small_head = backward ? 0.16 : 0.21;
  return {{-std::log(efficiency), short_sequence, small_head}, {1, 0, -1}, {1, 2, 1}, {}};
}

}  // namespace offsim::machine
