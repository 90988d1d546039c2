// A job as it would run on a machine with something wrong: what a diagnosis tries, one at a time.
//
// Each is an edit of a machine's figures or of an option; nothing is said about how likely it is.
// Requires of all: 0 < share < 1; `job` has what is edited, or comes back as it was.
#pragma once

#include "sim/plans/job.h"

namespace offsim::study {

// CPU kernels of a process run on so many threads. Measured rates are lowered as cpu_kernel() does
// for fewer threads.
plans::Job with_threads(plans::Job job, int threads);
// PyTorch's Adam as a loop of operations in place of the fused or vectorised one.
plans::Job with_loop_adam(plans::Job job);
// Memory of half the channels, or of the other socket. What ran from the caches keeps its rate.
plans::Job with_dram(plans::Job job, double share);
// Every GPU's own link, pageable copies too. Left out: uplinks, which several GPUs share.
plans::Job with_link(plans::Job job, double share);
plans::Job with_pageable_memory(plans::Job job);
plans::Job with_drive(plans::Job job, double share);
// The GPU's clock: products and attention; its memory keeps its rate.
plans::Job with_gpu_clock(plans::Job job, double share);

}  // namespace offsim::study
