// The benches of benches.h as functions, one file a subject.
#pragma once

#include "kernels/bench.h"
#include "kernels/gpu/benches.h"

namespace offsim::kernels::gpu_bench {

#define OFFSIM_BENCH(name, group, sentence) void name(const Run& run);
OFFSIM_GPU_BENCHES(OFFSIM_BENCH)
#undef OFFSIM_BENCH

}  // namespace offsim::kernels::gpu_bench
