#include "kernels/bench.h"

namespace offsim::kernels {

std::vector<Bench> storage_benches() { return {}; }

}  // namespace offsim::kernels
