// A DeepSpeed configuration: from its tree to a plan, its options and the batch.
//
//   stage 0, or 1 and 2 without offload   native (one GPU shares nothing out)
//   stage 1 and 2, offload_optimizer      zero2-offload; zenflow with that block
//   stage 3                               zero3-offload, also with nothing offloaded;
//                                         zero-infinity where something is on NVMe;
//                                         superoffload with super_offload and the CPU
#pragma once

#include <optional>

#include "sim/import/findings.h"
#include "sim/import/trainer.h"

namespace offsim::imports {

// What is known beside the file.
struct Around {
  Trainer* trainer = nullptr;
  bool hugging_face = false;  // the Trainer or Accelerate fills "auto"
  study::GivenWorkload flags;
  std::optional<study::Given> gpus;                 // processes, of the launcher
  std::optional<study::Given> launchers_precision;  // Accelerate's mixed_precision
  std::optional<bool> zero_init;                    // Accelerate's zero3_init_flag
  std::string version;                              // "0.19.6"
  bool version_given = false;
  const model::Shape* shape = nullptr;

  std::optional<study::Given> trainers_precision() const {
    return trainer != nullptr ? trainer->precision() : std::nullopt;
  }
  // The Trainer's where one of its arguments says, else the launcher's.
  std::optional<study::Given> precision() const {
    const auto trainers = trainers_precision();
    return trainers ? trainers : launchers_precision;
  }
};

// Fills `plan` and `workload` (micro_batch, accumulation, gpus, precision).
void read_deepspeed(const Node& root, Around around, Findings& findings, study::GivenPlan& plan,
                    study::GivenWorkload& workload);

}  // namespace offsim::imports
