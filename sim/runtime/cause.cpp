#include "sim/runtime/cause.h"

#include <array>

#include "sim/engine/graph.h"

namespace offsim::runtime {

using engine::index;

std::string_view cause_key(Cause cause) {
  static constexpr std::array<std::string_view, kCauses> kKeys{
      "gpu_compute", "h2d",  "d2h",         "cpu_optimizer", "cpu_clip", "cpu_copy",
      "nvme",        "host", "page_faults", "collective",    "join"};
  return kKeys[index(cause)];
}

std::string_view cause_title(Cause cause) {
  static constexpr std::array<std::string_view, kCauses> kTitles{"GPU compute",
                                                                 "copies to the GPU",
                                                                 "copies to the host",
                                                                 "CPU optimizer",
                                                                 "clip and unscale on the CPU",
                                                                 "CPU copies and casts",
                                                                 "NVMe",
                                                                 "host thread",
                                                                 "page faults",
                                                                 "collectives",
                                                                 "waiting"};
  return kTitles[index(cause)];
}

std::string_view phase_name(Phase phase) {
  static constexpr std::array<std::string_view, 4> kNames{"setup", "forward", "backward",
                                                          "optimizer"};
  return kNames[index(phase)];
}

Cause cause_of_kernel(std::string_view kernel) {
  if (kernel.starts_with("adam")) {
    return Cause::kCpuOptimizer;
  }
  const bool clip =
      kernel.starts_with("norm") || kernel.starts_with("mul") || kernel.starts_with("isinf");
  return clip ? Cause::kCpuClip : Cause::kCpuCopy;
}

}  // namespace offsim::runtime
