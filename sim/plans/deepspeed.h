// What DeepSpeed's stages share: versions in which it changed, and the kernels of a gradient's way
// to the host (checked kernel by kernel in hardware/measured/raw/h200-layers.jsonl).
#pragma once

#include <cstdint>

#include "sim/model/work.h"

namespace offsim::plans {

// As Options::version gives them: 0.19.5 is 19005.
inline constexpr std::int64_t kGpuUpcastSince = 15004;  // #6670, October 2024: fp32 gradients
inline constexpr std::int64_t kStagingSince = 17000;    // #7309, May 2025: 16-bit staging copy
inline constexpr std::int64_t kEarlySubGroupsOnGpuSince = 18000;  // #7559, September 2025
// Measured are 0.14.5 and 0.19.6: when hooks became slower is not known.
inline constexpr std::int64_t kSlowerHooksSince = 18000;
inline constexpr std::int64_t kMasterPinnedByFlagSince = 18003;  // before, whatever pin_memory said
inline constexpr std::int64_t kLazyBucketsSince = 18003;         // made by the first gradient hook
inline constexpr std::int64_t kClippingByDefaultSince = 19003;   // #8068, June 2026: to a norm of 1
inline constexpr std::int64_t kLockedSwapBuffersSince = 19004;   // #8212, August 2026
inline constexpr std::int64_t kPinnedByDefaultSince = 19005;     // #8207, August 2026
inline constexpr std::int64_t kCheckpointStreamSince = 19006;    // #8282, August 2026
inline constexpr std::int64_t kAsyncGradientSince = 19005;       // #8207

model::Work norm_in_double(std::int64_t elements);  // g.double().norm(2)
model::Work check_finite(std::int64_t elements);    // float(), isnan(), isinf(), or, float(), max()
model::Work gradient_into_bucket(std::int64_t elements);
model::Work join_gradients(std::int64_t elements);
model::Work average(std::int64_t elements);
model::Work cast_to_fp32(std::int64_t elements);
model::Work cast_to_16_bits(std::int64_t elements);

}  // namespace offsim::plans
