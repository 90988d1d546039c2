// Kernels of a replay that are bound by memory or by addresses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace offsim::kernels {

// Reads `half` bytes and writes as many, 16 at a time; of them `indexed` elements of two bytes each
// by an address computed from row and column, as broadcast and strided kernels do. No bytes: a
// kernel all the same.
void replay_elementwise(const std::byte* from, std::byte* to, std::int64_t half,
                        std::int64_t indexed, cudaStream_t stream);

// Fused Adam; all four arrays have fp32 numbers or all have bf16.
void replay_adam(std::byte* p, const std::byte* g, std::byte* m, std::byte* v,
                 std::int64_t elements, bool wide, cudaStream_t stream);

}  // namespace offsim::kernels
