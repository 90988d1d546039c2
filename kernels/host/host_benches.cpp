#include "kernels/bench.h"

namespace offsim::kernels {

std::vector<Bench> host_benches() { return {}; }
std::string describe_host() { return "{}"; }

}  // namespace offsim::kernels
