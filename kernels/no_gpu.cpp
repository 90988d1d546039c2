// The benches of the GPU in a program that was built without CUDA: they say so.
#ifndef OFFSIM_CUDA
#include "kernels/bench.h"
#include "kernels/gpu/benches.h"

namespace offsim::kernels {

std::vector<Bench> gpu_benches() {
  const auto unavailable = [](const Options&) -> std::optional<std::string> {
    return "built without CUDA";
  };
  const auto nothing = [](const Run&) {};
#define OFFSIM_BENCH(name, group, sentence) {#name, Group::group, sentence, unavailable, nothing},
  return {OFFSIM_GPU_BENCHES(OFFSIM_BENCH)};
#undef OFFSIM_BENCH
}

std::string describe_gpu() { return "null"; }

}  // namespace offsim::kernels
#endif
