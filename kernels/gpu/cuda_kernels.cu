#include "kernels/gpu/cuda_kernels.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/gpu/cuda.h"

namespace offsim::kernels {

namespace {

constexpr unsigned kThreads = 256;

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((threads + kThreads - 1) / kThreads, 1, 1 << 20));
}

__device__ std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::int64_t thread_count() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

__global__ void stream_words(const uint4* from, uint4* to, std::int64_t packs) {
  for (std::int64_t i = thread_index(); i < packs; i += thread_count()) {
    to[i] = from[i];
  }
}

// Four elements a thread, each with its own division and an offset for each tensor, as frameworks'
// kernels with computed addresses have; then what is left of the bytes, 16 at a time.
struct Rows {
  std::uint32_t rows, columns, out, x;  // strides
};
__global__ void index_words(const std::uint16_t* from, std::uint16_t* to, std::uint32_t elements,
                            Rows rows, const uint4* rest_from, uint4* rest_to, std::int64_t packs) {
  const std::uint32_t first = blockIdx.x * kThreads * 4 + threadIdx.x;
  for (std::uint32_t j = 0; j < 4; ++j) {
    const std::uint32_t i = first + j * kThreads;
    if (i < elements) {
      std::uint32_t row = i / rows.columns;
      const std::uint32_t column = i - row * rows.columns;
      while (row >= rows.rows) {  // more elements than bytes: again over the same ones
        row -= rows.rows;
      }
      to[row * rows.out + column] = from[row * rows.x + column];
    }
  }
  for (std::int64_t i = thread_index(); i < packs; i += thread_count()) {
    rest_to[i] = rest_from[i];
  }
}

// The same arithmetic as kernels/gpu's Adam at its first step.
template <typename T>
__global__ void adam(T* p, const T* g, T* m, T* v, std::int64_t elements) {
  constexpr std::int64_t kPack = 16 / sizeof(T);
  for (std::int64_t i = thread_index() * kPack; i < elements; i += thread_count() * kPack) {
    T ps[kPack], gs[kPack], ms[kPack], vs[kPack];
    *reinterpret_cast<uint4*>(ps) = *reinterpret_cast<const uint4*>(p + i);
    *reinterpret_cast<uint4*>(gs) = *reinterpret_cast<const uint4*>(g + i);
    *reinterpret_cast<uint4*>(ms) = *reinterpret_cast<const uint4*>(m + i);
    *reinterpret_cast<uint4*>(vs) = *reinterpret_cast<const uint4*>(v + i);
#pragma unroll
    for (std::int64_t j = 0; j < kPack; ++j) {
      const float gradient = static_cast<float>(gs[j]);
      const float mean = 0.9F * static_cast<float>(ms[j]) + 0.1F * gradient;
      const float square = 0.999F * fabsf(static_cast<float>(vs[j])) + 0.001F * gradient * gradient;
      ps[j] = static_cast<T>(static_cast<float>(ps[j]) * (1 - 1e-5F) -
                             1e-3F * (mean / 0.1F) / (sqrtf(square / 0.001F) + 1e-8F));
      ms[j] = static_cast<T>(mean);
      vs[j] = static_cast<T>(square);
    }
    *reinterpret_cast<uint4*>(p + i) = *reinterpret_cast<const uint4*>(ps);
    *reinterpret_cast<uint4*>(m + i) = *reinterpret_cast<const uint4*>(ms);
    *reinterpret_cast<uint4*>(v + i) = *reinterpret_cast<const uint4*>(vs);
  }
}

}  // namespace

void replay_elementwise(const std::byte* from, std::byte* to, std::int64_t half,
                        std::int64_t indexed, cudaStream_t stream) {
  const std::int64_t elements =
      std::min(indexed, static_cast<std::int64_t>(UINT32_MAX / 2)) / 8 * 8;
  const std::int64_t columns = std::min({elements, half / 2 / 8 * 8, std::int64_t{4096}});
  if (columns > 0) {
    const std::int64_t rows =
        std::max<std::int64_t>(1, std::min((elements + columns - 1) / columns, half / 2 / columns));
    const std::int64_t done = rows * columns * 2;
    const auto stride = static_cast<std::uint32_t>(columns);
    // Four a thread, all of them: no thread takes a second turn.
    const auto blocks = static_cast<unsigned>((elements / 4 + kThreads - 1) / kThreads);
    index_words<<<std::max(blocks, 1U), kThreads, 0, stream>>>(
        reinterpret_cast<const std::uint16_t*>(from), reinterpret_cast<std::uint16_t*>(to),
        static_cast<std::uint32_t>(elements),
        Rows{static_cast<std::uint32_t>(rows), stride, stride, stride},
        reinterpret_cast<const uint4*>(from + done), reinterpret_cast<uint4*>(to + done),
        (half - done) / 16);
  } else {
    const std::int64_t packs = half / 16;
    stream_words<<<blocks_for(packs), kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(from),
                                                             reinterpret_cast<uint4*>(to), packs);
  }
  gpu::check(cudaGetLastError(), "launching an elementwise kernel");
}

void replay_adam(std::byte* p, const std::byte* g, std::byte* m, std::byte* v,
                 std::int64_t elements, bool wide, cudaStream_t stream) {
  if (wide) {
    adam<float><<<blocks_for(elements / 4), kThreads, 0, stream>>>(
        reinterpret_cast<float*>(p), reinterpret_cast<const float*>(g), reinterpret_cast<float*>(m),
        reinterpret_cast<float*>(v), elements / 4 * 4);
  } else {
    adam<__nv_bfloat16><<<blocks_for(elements / 8), kThreads, 0, stream>>>(
        reinterpret_cast<__nv_bfloat16*>(p), reinterpret_cast<const __nv_bfloat16*>(g),
        reinterpret_cast<__nv_bfloat16*>(m), reinterpret_cast<__nv_bfloat16*>(v), elements / 8 * 8);
  }
  gpu::check(cudaGetLastError(), "launching Adam");
}

}  // namespace offsim::kernels
