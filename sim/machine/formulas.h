// The formulas of matrix products and attention, shared by the fit at load and by cost.h, where
// they are written out. Not public.
#pragma once

#include <vector>

#include "sim/machine/correction.h"
#include "sim/machine/figure.h"

namespace offsim::machine {

struct Product {
  double m = 0, k = 0, n = 0;
};

// What a formula gives of one shape before its correction.
struct Estimate {
  double seconds = 0;
  bool memory_bound = false;
  std::vector<double> features;
  Coordinates where{};
};

Estimate product_estimate(const Product& product, double peak_flops_per_s,
                          double memory_bytes_per_s, double element_bytes);

struct Scores {
  double batch = 0, heads = 0, sequence = 0, head_dim = 0;
  bool causal = true, backward = false;
};

double attention_flops(const Scores& scores);
Estimate attention_estimate(const Scores& scores, double peak_flops_per_s);

// Corrections of an accelerator that nobody measured: its efficiency at large shapes, and the loss
// at small ones that the H200 records show (hardware/measured).
Correction unmeasured_product(double efficiency);
Correction unmeasured_attention(double efficiency, bool backward);

}  // namespace offsim::machine
