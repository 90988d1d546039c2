// Why a moment of the step passes: the causes that reports and traces name, and the phases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/runtime/program.h"

namespace offsim::runtime {

// What an activity of the critical path stands for.
enum class Cause : std::uint8_t {
  kGpuCompute,
  kH2d,
  kD2h,
  kCpuOptimizer,
  kCpuClip,
  kCpuCopy,
  kNvme,
  kHostThread,
  kPageFaults,
  kCollective,
  kJoin
};
inline constexpr std::size_t kCauses = 11;
inline constexpr std::size_t kPhases = 4;        // of Phase
std::string_view cause_key(Cause cause);         // "gpu_compute": the JSON key
std::string_view cause_title(Cause cause);       // "GPU compute": for people
std::string_view phase_name(Phase phase);        // "forward"
Cause cause_of_kernel(std::string_view kernel);  // of a CPU kernel: "adam_deepspeed_f32"

}  // namespace offsim::runtime
