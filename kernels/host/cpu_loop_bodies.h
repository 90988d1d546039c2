// The loops themselves, included once by each of cpu_loops_*.cpp. See cpu_loops.h: everything here
// is of one file.
#pragma once

#include "kernels/host/cpu_loops.h"

namespace offsim::kernels {

namespace {

#define OFFSIM_INLINE __attribute__((always_inline)) inline

struct Bf16 {
  std::uint16_t bits;
};

OFFSIM_INLINE float load(float x) { return x; }
OFFSIM_INLINE float load(Bf16 x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16);
}

OFFSIM_INLINE void store(float* at, float x) { *at = x; }
OFFSIM_INLINE void store(Bf16* at, float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  at->bits = static_cast<std::uint16_t>(x != x ? 0x7fc0U : rounded);
}

OFFSIM_INLINE std::uint32_t exponent(float x) {
  return __builtin_bit_cast(std::uint32_t, x) & 0x7f800000U;
}

template <typename P, typename State>
double adam(const CpuBuffers& buffers, Part part, const CpuArguments& arguments) {
  P* __restrict p = static_cast<P*>(buffers.out);
  const P* __restrict g = static_cast<const P*>(buffers.in);
  State* __restrict m = static_cast<State*>(buffers.m);
  State* __restrict v = static_cast<State*>(buffers.v);
  const AdamStep& adam = arguments.adam;
  const float beta1 = adam.beta1, beta2 = adam.beta2, epsilon = adam.epsilon;
  const float keep = 1 - adam.rate * adam.decay;
  double power1 = 1, power2 = 1;
  for (int i = 0; i < adam.step; ++i) {
    power1 *= static_cast<double>(beta1);
    power2 *= static_cast<double>(beta2);
  }
  const auto rate = static_cast<float>(static_cast<double>(adam.rate) / (1 - power1));
  const auto correction = static_cast<float>(1 / __builtin_sqrt(1 - power2));
#pragma omp simd
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    const float gradient = load(g[i]);
    const float first = beta1 * load(m[i]) + (1 - beta1) * gradient;
    const float second = beta2 * load(v[i]) + (1 - beta2) * gradient * gradient;
    const float divisor = __builtin_sqrtf(second) * correction + epsilon;
    store(&m[i], first);
    store(&v[i], second);
    store(&p[i], load(p[i]) * keep - rate * first / divisor);
  }
  return 0;
}

template <typename To, typename From>
double convert(const CpuBuffers& buffers, Part part, const CpuArguments&) {
  To* __restrict out = static_cast<To*>(buffers.out);
  const From* __restrict in = static_cast<const From*>(buffers.in);
#pragma omp simd
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    store(&out[i], load(in[i]));
  }
  return 0;
}

template <typename T>
double multiply(const CpuBuffers& buffers, Part part, const CpuArguments& arguments) {
  T* __restrict out = static_cast<T*>(buffers.out);
  const float scale = arguments.scale;
#pragma omp simd
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    store(&out[i], load(out[i]) * scale);
  }
  return 0;
}

template <typename T>
double add(const CpuBuffers& buffers, Part part, const CpuArguments&) {
  T* __restrict out = static_cast<T*>(buffers.out);
  const T* __restrict in = static_cast<const T*>(buffers.in);
#pragma omp simd
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    store(&out[i], load(out[i]) + load(in[i]));
  }
  return 0;
}

// Bits, not numbers: a copy that never changes what a NaN carries.
template <typename Word>
double copy(const CpuBuffers& buffers, Part part, const CpuArguments&) {
  Word* __restrict out = static_cast<Word*>(buffers.out);
  const Word* __restrict in = static_cast<const Word*>(buffers.in);
#pragma omp simd
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    out[i] = in[i];
  }
  return 0;
}

template <typename Word>
double zero(const CpuBuffers& buffers, Part part, const CpuArguments&) {
  Word* __restrict out = static_cast<Word*>(buffers.out);
#pragma omp simd
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    out[i] = 0;
  }
  return 0;
}

// Sums of 4096 squares in fp32, in as many lanes as a vector has, then in double.
template <typename T>
double norm(const CpuBuffers& buffers, Part part, const CpuArguments&) {
  constexpr std::int64_t kBlock = 4096;
  const T* __restrict in = static_cast<const T*>(buffers.in);
  double total = 0;
  for (std::int64_t begin = part.begin; begin < part.end; begin += kBlock) {
    const std::int64_t end = begin + kBlock < part.end ? begin + kBlock : part.end;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = begin; i < end; ++i) {
      const float x = load(in[i]);
      sum += x * x;
    }
    total += static_cast<double>(sum);
  }
  return total;
}

template <typename T>
double not_finite(const CpuBuffers& buffers, Part part, const CpuArguments&) {
  const T* __restrict in = static_cast<const T*>(buffers.in);
  std::uint32_t found = 0;
#pragma omp simd reduction(| : found)
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    found |= exponent(load(in[i])) == 0x7f800000U ? 1U : 0U;
  }
  return found;
}

double triad(const CpuBuffers& buffers, Part part, const CpuArguments& arguments) {
  float* __restrict out = static_cast<float*>(buffers.out);
  const float* __restrict in = static_cast<const float*>(buffers.in);
  const float* __restrict other = static_cast<const float*>(buffers.m);
  const float scale = arguments.scale;
#pragma omp simd
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    out[i] = in[i] + scale * other[i];
  }
  return 0;
}

// Those whose fp32 results are no bf16 come after all that read bf16, and zero last: a bench
// can run one after the other on the same data.
constexpr CpuLoop kLoops[kCpuLoops] = {
    {{"adam_bf16", 2, 2, 2, 2, 14}, adam<Bf16, Bf16>},
    {{"cast_f32_bf16", 2, 4, 0, 0, 6}, convert<Bf16, float>},
    {{"mul_bf16", 2, 0, 0, 0, 4}, multiply<Bf16>},
    {{"add_bf16", 2, 2, 0, 0, 6}, add<Bf16>},
    {{"copy_bf16", 2, 2, 0, 0, 4}, copy<std::uint16_t>},
    {{"norm_bf16", 0, 2, 0, 0, 2}, norm<Bf16>},
    {{"isfinite_bf16", 0, 2, 0, 0, 2}, not_finite<Bf16>},
    {{"adam_mixed", 2, 2, 4, 4, 22}, adam<Bf16, float>},
    {{"adam_f32", 4, 4, 4, 4, 28}, adam<float, float>},
    {{"cast_bf16_f32", 4, 2, 0, 0, 6}, convert<float, Bf16>},
    {{"mul_f32", 4, 0, 0, 0, 8}, multiply<float>},
    {{"add_f32", 4, 4, 0, 0, 12}, add<float>},
    {{"copy_f32", 4, 4, 0, 0, 8}, copy<std::uint32_t>},
    {{"norm_f32", 0, 4, 0, 0, 4}, norm<float>},
    {{"isfinite_f32", 0, 4, 0, 0, 4}, not_finite<float>},
    {{"triad_f32", 4, 4, 4, 0, 12}, triad},
    {{"zero_bf16", 2, 0, 0, 0, 2}, zero<std::uint16_t>},
    {{"zero_f32", 4, 0, 0, 0, 4}, zero<std::uint32_t>},
};

}  // namespace

}  // namespace offsim::kernels
