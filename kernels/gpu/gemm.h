// Matrix products through cuBLASLt: the heuristic's first algorithm, 32 MiB of workspace, sums in
// fp32, the output of the operands' type. Left out: what a library would find by trying algorithms.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "kernels/gpu/cuda.h"

namespace offsim::kernels::gpu {

// C[m x n] = A[m x k] B[k x n], all row by row; how A and B lie in memory:
//   kNn  A as m x k, B as k x n    gradient of a linear layer's input
//   kNt  A as m x k, B as n x k    its forward product (weights lie as out x in)
//   kTn  A as k x m, B as k x n    gradient of its weights
enum class Layout : std::uint8_t { kNn, kNt, kTn };
std::string_view name_of(Layout layout);

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  Type type = Type::kBf16;
  Layout layout = Layout::kNn;
  // Several products of equal shape, and the elements from one to the next (0: one after another).
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
};
std::size_t bytes_a(const GemmShape& shape);
std::size_t bytes_b(const GemmShape& shape);
std::size_t bytes_c(const GemmShape& shape);
double flops(const GemmShape& shape);

// A handle of the library with its workspace: for one stream at a time.
class Lt {
 public:
  Lt();
  ~Lt();
  Lt(const Lt&) = delete;
  Lt& operator=(const Lt&) = delete;
  cublasLtHandle_t handle() const { return handle_; }
  const DeviceBuffer& workspace() const { return workspace_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
};

// A planned product: the algorithm is chosen once. Movable. Requires: `lt` outlives it, and its
// runs on several streams do not overlap (they share the workspace).
class Gemm {
 public:
  Gemm(const Lt& lt, const GemmShape& shape);  // throws when the library has no algorithm
  ~Gemm();
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;
  // C = alpha A B + beta C. Requires: addresses are multiples of 256 bytes, of 16 with strides.
  void run(const void* a, const void* b, void* c, cudaStream_t stream, float alpha = 1,
           float beta = 0) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace offsim::kernels::gpu
