// Layers as they were profiled and marked in memory on the H200: hardware/measured/raw.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/work.h"

namespace offsim::model {

inline constexpr Batch kBatch{8, 1024};
inline constexpr std::int64_t kLayers = 4;

// One of the configurations of kernels/measure_torch.py.
Shape shape_of(const std::string& name);

struct Profile {
  double launches = 0;  // all of a pass
  double products = 0;
  double other_s = 0;  // of kernels that are neither products nor attention
};

// A measured model of kLayers layers on kBatch, and what is modelled of it.
struct Case {
  std::string name, mode;           // mode: autocast or bf16
  std::vector<std::int64_t> marks;  // allocated before each layer, and behind the last
  double before = 0, after_forward = 0;
  Profile forward, backward;
  Pieces pieces;

  // Bytes that each layer's forward left allocated. In pure bf16 the first and the last one's also
  // hold the residual stream's tensor for a caller's local variable, so the least is the steady
  // one.
  std::int64_t least_step() const;

  template <class Of>
  double pass(Of of) const {
    return static_cast<double>(of(pieces.embedding)) +
           static_cast<double>(kLayers) * static_cast<double>(of(pieces.layers.back())) +
           static_cast<double>(of(pieces.head));
  }
};

// Of a file of hardware/measured/raw, with or without checkpointing.
std::vector<Case> profiled(const std::string& file, bool checkpointing);

// What the H200 of that file moves and finds (its elementwise records), without any fit to the
// layers.
double other_seconds(const Work& work);

std::int64_t products(const Work& work);  // launches

}  // namespace offsim::model
