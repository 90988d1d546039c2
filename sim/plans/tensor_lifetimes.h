// A step on the GPU as operations and the tensors that they use: what is there when, and when is
// nobody using it?
//
// Operations are forward and backward of each piece, micro-batch by micro-batch, then Adam of each
// piece. Tensors are those of a piece: its parameters, its gradients, its m and v, and what it
// saves for its backward (a checkpoint or all activations; logits and loss). The first two of
// Adam's and the parameters last from step to step; gradients from their first backward to Adam.
// Bytes a parameter in all: 16 with fp32 parameters (fp32, or bf16-mixed under autocast), 8 in
// bf16. A tied head computes with the embedding; its share of the gradient waits for the
// embedding's backward, in every micro-batch.
// Left out: tensors inside a piece one by one; under autocast with checkpointing the 16-bit weights
// live for an operation, not to the end of the forward.
#pragma once

#include <string_view>
#include <vector>

#include "sim/model/work.h"
#include "sim/plans/job.h"
#include "sim/plans/migration_planner.h"
#include "sim/runtime/program.h"

namespace offsim::plans {

struct Operation {
  runtime::Phase phase;
  std::vector<model::Work> works;
  Bytes transient;                     // while it runs
  std::vector<std::size_t> uses = {};  // tensors
};

struct TensorLife {
  std::string_view tag;
  Bytes size;
  bool lasts;                           // from step to step; else from its first use to its last
  std::vector<std::int64_t> used = {};  // operations
};

struct StepLifetimes {
  std::vector<Operation> operations;
  std::vector<TensorLife> tensors;
};

StepLifetimes step_lifetimes(const Job& job);

// Where a tensor is not used for long enough to leave and come back: three operations.
std::vector<InactivePeriod> inactive_periods(const StepLifetimes& step);

// Bytes during each operation when nothing moves.
std::vector<Bytes> resident_bytes(const StepLifetimes& step);

}  // namespace offsim::plans
