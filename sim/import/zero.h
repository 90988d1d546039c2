// The zero_optimization block: which plan it is, and that plan's options.
#pragma once

#include "sim/import/block.h"
#include "sim/import/deepspeed.h"

namespace offsim::imports {

// What the rest of the file says that a plan needs.
struct Rest {
  bool wide = false;           // neither fp16 nor bf16
  std::optional<double> clip;  // gradient_clipping where it is said
  Place clip_at;
  Block* aio = nullptr;
};

// Requires: `zero` exists or not, its table is zero_block().
void read_zero(Block& zero, std::int64_t stage, const Rest& rest, const Around& around,
               Findings& findings, study::GivenPlan& plan);

}  // namespace offsim::imports
