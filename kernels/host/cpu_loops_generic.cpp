#include "kernels/host/cpu_loop_bodies.h"

namespace offsim::kernels {

const CpuLoop* generic_loops() { return kLoops; }

}  // namespace offsim::kernels
