// The loops of the CPU kernels, once for each instruction set. Their files are compiled with flags
// of their own: nothing that another file could share (a template of the library, an inline
// function) may be made in them, or a machine without AVX-512 might run into it.
#pragma once

#include "kernels/host/cpu_kernels.h"

namespace offsim::kernels {

struct CpuLoop {
  CpuKernel kernel;
  double (*pass)(const CpuBuffers& buffers, Part part, const CpuArguments& arguments);
};

constexpr int kCpuLoops = 18;
// Arrays of kCpuLoops, in one order.
const CpuLoop* generic_loops();
#if defined(__x86_64__)
const CpuLoop* avx2_loops();
const CpuLoop* avx512_loops();
#endif

}  // namespace offsim::kernels
