#include "kernels/gpu/gemm.h"

#include <stdexcept>
#include <string>

namespace offsim::kernels::gpu {

namespace {

void check_lt(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
  }
}

cudaDataType_t data_type(Type type) {
  return type == Type::kBf16 ? CUDA_R_16BF : type == Type::kFp16 ? CUDA_R_16F : CUDA_R_32F;
}

// The library's matrices lie column by column: ours, read so, are transposed.
cublasLtMatrixLayout_t layout_of(Type type, std::int64_t rows, std::int64_t columns,
                                 std::int64_t batch, std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_lt(cublasLtMatrixLayoutCreate(&layout, data_type(type), static_cast<std::uint64_t>(columns),
                                      static_cast<std::uint64_t>(rows), columns),
           "describing a matrix");
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    const std::int64_t step = stride > 0 ? stride : rows * columns;
    check_lt(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count),
             "describing a batch");
    check_lt(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &step, sizeof step),
             "describing a batch");
  }
  return layout;
}

std::string in_words(const GemmShape& s) {
  return "product of " + std::to_string(s.m) + " x " + std::to_string(s.k) + " and " +
         std::to_string(s.k) + " x " + std::to_string(s.n) + " (" + std::string(name_of(s.type)) +
         ", " + std::string(name_of(s.layout)) + ")";
}

std::size_t bytes(const GemmShape& s, std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(s.batch * rows * columns) * bytes_of(s.type);
}

}  // namespace

std::string_view name_of(Layout layout) {
  return layout == Layout::kNn ? "nn" : layout == Layout::kNt ? "nt" : "tn";
}

std::size_t bytes_a(const GemmShape& s) { return bytes(s, s.m, s.k); }
std::size_t bytes_b(const GemmShape& s) { return bytes(s, s.k, s.n); }
std::size_t bytes_c(const GemmShape& s) { return bytes(s, s.m, s.n); }
double flops(const GemmShape& s) {
  return 2.0 * static_cast<double>(s.batch) * static_cast<double>(s.m) * static_cast<double>(s.n) *
         static_cast<double>(s.k);
}

Lt::Lt() : workspace_(std::size_t{32} << 20) {
  check_lt(cublasLtCreate(&handle_), "starting cuBLASLt");
}
Lt::~Lt() { cublasLtDestroy(handle_); }

struct Gemm::Plan {
  Plan(const Lt& library, const GemmShape& shape);
  ~Plan();
  void choose(const GemmShape& shape);

  const Lt& lt;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

Gemm::Plan::Plan(const Lt& library, const GemmShape& s) : lt(library) {
  const auto compute = s.type == Type::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check_lt(cublasLtMatmulDescCreate(&product, compute, CUDA_R_32F), "describing a product");
  // Transposed, C' = B' A': the library's first operand is B.
  const cublasOperation_t first = s.layout == Layout::kNt ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = s.layout == Layout::kTn ? CUBLAS_OP_T : CUBLAS_OP_N;
  check_lt(
      cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
      "describing a product");
  check_lt(
      cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
      "describing a product");
  const bool turned_a = s.layout == Layout::kTn;
  const bool turned_b = s.layout == Layout::kNt;
  a = layout_of(s.type, turned_a ? s.k : s.m, turned_a ? s.m : s.k, s.batch, s.stride_a);
  b = layout_of(s.type, turned_b ? s.n : s.k, turned_b ? s.k : s.n, s.batch, s.stride_b);
  c = layout_of(s.type, s.m, s.n, s.batch, s.stride_c);
  choose(s);
}

void Gemm::Plan::choose(const GemmShape& shape) {
  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm");
  const std::size_t most = lt.workspace().size();
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                       sizeof most);
  // What has strides may begin anywhere in a larger array.
  const std::uint32_t aligned = shape.stride_a > 0 ? 16 : 256;
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &aligned, sizeof aligned);
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(lt.handle(), product, b, a, c, c,
                                                               preference, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  check_lt(status, in_words(shape).c_str());
  if (found == 0) {
    throw std::runtime_error(in_words(shape) + ": cuBLASLt has no algorithm");
  }
  algorithm = result.algo;
}

Gemm::Plan::~Plan() {
  for (cublasLtMatrixLayout_t layout : {a, b, c}) {
    if (layout != nullptr) {
      cublasLtMatrixLayoutDestroy(layout);
    }
  }
  if (product != nullptr) {
    cublasLtMatmulDescDestroy(product);
  }
}

Gemm::Gemm(const Lt& lt, const GemmShape& shape) : plan_(std::make_unique<Plan>(lt, shape)) {}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;

void Gemm::run(const void* a, const void* b, void* c, cudaStream_t stream, float alpha,
               float beta) const {
  const DeviceBuffer& space = plan_->lt.workspace();
  check_lt(
      cublasLtMatmul(plan_->lt.handle(), plan_->product, &alpha, b, plan_->b, a, plan_->a, &beta, c,
                     plan_->c, c, plan_->c, &plan_->algorithm, space.data(), space.size(), stream),
      "queueing a product");
}

}  // namespace offsim::kernels::gpu
