// What each pool holds in each phase of a run, tag by tag: which phase decides, and for what.
//
// Phases: initialise (everything placed before the first step), the first step's forward and
// backward (all its micro-batches), its optimizer (which makes Adam's states), and the steps after
// it. A phase's column is what the pool holds at that phase's peak, so it adds up to it.
//   load   before that, of each rank on the host: the whole model as its file has it, 2 or 4 B a
//          parameter, unless it is made in shards (zero.Init, FSDP's meta device): assumed, since
//          it is the script's and not the plan's
//   save   after that: what gathering the parameters for a file adds. Stage 3 gathers all 16-bit
//          parameters on the host (stage3_gather_16bit_weights_on_model_save), others copy a
//          tensor at a time: assumed
// DeepSpeed's own estimators (estimate_zero2_model_states_mem_needs and its zero3 sibling,
// runtime/zero of 0.19.6), with P parameters, L of the largest module by itself (the embedding),
// one GPU, and a factor b = 1.5 for buffers; bytes:
//   stage 2, optimizer on the CPU         GPU 2 P           host 16 P b
//   stage 3, both on the CPU              GPU 4 L           host 18 P b
//   stage 3, optimizer on the CPU         GPU 4 L + 2 P     host 16 P b
//   stage 3, neither                      GPU 4 L + 18 P    host 4 L b, without zero.Init 4 P b
// They know model states alone: no activations, buckets, gathered parameters, pinned rounding; and
// no drive, which they take for the host.
// Left out: several GPUs in these estimators.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plans/job.h"
#include "sim/study/predict.h"

namespace offsim::study {

inline constexpr std::array<std::string_view, 4> kLedgerPhases{"initialise", "first fwd, bwd",
                                                               "first optimizer", "later steps"};

struct LedgerTag {
  std::string tag;
  std::array<Bytes, kLedgerPhases.size()> held;  // at the phase's peak
};

struct LedgerPool {
  std::string name;             // as of PoolReport, without host_pinned, which is a part of host
  std::vector<LedgerTag> tags;  // largest first
  std::array<Bytes, kLedgerPhases.size()> peak;
  std::size_t worst() const;  // the phase with the largest peak, the first of equals
};

struct DeepspeedEstimate {
  std::string gpu_terms, host_terms;  // "4 B x the largest layer + 2 B x parameters"
  Bytes gpu, host;
};

struct MemoryLedger {
  std::int64_t parameters = 0;
  std::vector<LedgerPool> pools;
  Bytes load_least, load_most;  // of all ranks, on the host
  Bytes save;                   // beside what later steps hold at their end, on the host
  bool gathers = false;         // save: all parameters, not a tensor
  std::optional<DeepspeedEstimate> deepspeed;  // of its plans
};

// Requires: `run` is of the job, as predict() gives it.
MemoryLedger memory_ledger(const plans::Job& job, const Run& run);

}  // namespace offsim::study
