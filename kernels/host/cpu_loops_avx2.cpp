#if defined(__x86_64__)
#include "kernels/host/cpu_loop_bodies.h"

namespace offsim::kernels {

const CpuLoop* avx2_loops() { return kLoops; }

}  // namespace offsim::kernels
#endif
