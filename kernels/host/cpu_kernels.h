// CPU kernels of a training step: one pass over N elements, written as loops that the compiler
// makes vectors of, once for AVX-512, once for AVX2 and once for any processor; the best that the
// machine has is chosen when the program runs.
//
// Stores are plain ones: a line that is only written is read first (copy, cast, zero, triad), as in
// PyTorch's and DeepSpeed's kernels. Arithmetic is in fp32; bf16 is rounded to nearest even.
//
//   name                       out          in   m, v   B an element read plus written
//   adam_f32                   p f32        f32  f32    28
//   adam_mixed                 p bf16       bf16 f32    22   DeepSpeed's Adam with bf16 parameters
//   adam_bf16                  p bf16       bf16 bf16   14   torch's fused Adam in bf16
//   cast_f32_bf16              bf16         f32         6
//   cast_bf16_f32              f32          bf16        6
//   mul_T       out *= s       T                        2 sizes of T
//   add_T       out += in      T            T           3 sizes
//   copy_T      out = in       T            T           2 sizes
//   zero_T      out = 0        T                        1 size
//   norm_T      sum of squares              T           1 size
//   isfinite_T  any inf, nan                T           1 size
//   triad_f32   out = in + s m f32          f32  m f32  12
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/host/pool.h"

namespace offsim::kernels {

enum class Isa : std::uint8_t { kGeneric, kAvx2, kAvx512 };
std::string_view name_of(Isa isa);  // "generic", "avx2", "avx512"
std::vector<Isa> usable_isas();     // of this machine, the best last
Isa best_isa();

struct CpuKernel {
  std::string_view name;
  // Bytes an element of each buffer, 0 for one that is not used.
  int out = 0, in = 0, m = 0, v = 0;
  int moved = 0;  // bytes an element read plus written; not those of lines read to be written
};
const std::vector<CpuKernel>& cpu_kernels();
// Throws std::runtime_error for a name that is none of them.
const CpuKernel& find_cpu_kernel(std::string_view name);

struct CpuBuffers {
  void* out = nullptr;
  const void* in = nullptr;
  void* m = nullptr;
  void* v = nullptr;
};

// AdamW's step: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
// p = p (1 - rate decay) - rate/(1-b1^t) m / (sqrt(v / (1-b2^t)) + epsilon).
struct AdamStep {
  float rate = 1e-4F, beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F, decay = 0.01F;
  int step = 1;  // t
};

struct CpuArguments {
  float scale = 1;  // s of mul and triad
  AdamStep adam;
};

// One pass over `elements` on at most `threads` of the pool, split statically, 32768 a thread
// or more (as torch's parallel loops); few elements are done by the caller. Returns the sum of
// squares of norm, 1 or 0 of isfinite (1: something is not finite), 0 of others. Requires: buffers
// of the kernel's sizes that do not overlap, aligned to their elements.
double run_cpu_kernel(const CpuKernel& kernel, const CpuBuffers& buffers, std::int64_t elements,
                      Pool& pool, int threads, const CpuArguments& arguments = {});
// The same with one instruction set, on the calling thread.
double run_cpu_kernel(const CpuKernel& kernel, const CpuBuffers& buffers, std::int64_t elements,
                      Isa isa, const CpuArguments& arguments = {});

// Random data of `elements` through the kernel and through a scalar loop in double: throws
// std::runtime_error with kernel and element where they differ by more than rounding.
void check_cpu_kernel(const CpuKernel& kernel, Isa isa, std::int64_t elements);

}  // namespace offsim::kernels
