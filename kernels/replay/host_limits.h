// How much host memory a replay works in.
#pragma once

#include <cstdint>

namespace offsim::kernels {

// Caches hold a tenth of this at most; making it takes a second or two.
inline std::int64_t arena_limit() { return std::int64_t{4} << 30; }

// An arena that stands for `held` bytes: as large, within limits. Reads what the machine has free.
std::int64_t arena_bytes(std::int64_t held);

}  // namespace offsim::kernels
