// Matrix products: the grid of a training step's linear layers, and one product cold and sustained.
//
// Operands and results rotate among as many sets as take twice the L2 (at most eight), since in a
// step the weights come from memory; both lie in arenas that all shapes share, so operands stay the
// random numbers that they were filled with.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gemm.h"
#include "kernels/gpu/gpu_benches.h"

namespace offsim::kernels::gpu_bench {

namespace {

using gpu::Gemm;
using gpu::GemmShape;
using gpu::Layout;
using gpu::Type;

constexpr double kMostFlops = 2e13;
constexpr std::array<std::int64_t, 6> kTokens{512, 1024, 2048, 4096, 8192, 16384};
constexpr std::array<std::array<std::int64_t, 2>, 20> kLinear{{
    {1024, 1024},  {1024, 4096},  {2048, 2048},  {2048, 5504},  {2048, 8192},
    {2560, 2560},  {2560, 6912},  {3072, 3072},  {3072, 8192},  {4096, 4096},
    {4096, 1024},  {4096, 11008}, {4096, 14336}, {3584, 18944}, {5120, 5120},
    {5120, 13824}, {8192, 8192},  {8192, 28672}, {2048, 32000}, {4096, 32000},
}};

std::vector<GemmShape> grid(Type type) {
  std::vector<GemmShape> shapes;
  for (const auto& [in, out] : kLinear) {
    for (const std::int64_t tokens : kTokens) {
      if (in * out > 200'000'000 && tokens > 8192) {
        continue;
      }
      for (const GemmShape& shape : {GemmShape{tokens, out, in, type, Layout::kNt},
                                     GemmShape{tokens, in, out, type, Layout::kNn},
                                     GemmShape{out, in, tokens, type, Layout::kTn}}) {
        if (gpu::flops(shape) <= kMostFlops) {
          shapes.push_back(shape);
        }
      }
    }
  }
  return shapes;
}

// Every `step`-th: no multiple of the three layouts nor of the six token counts, so all of them
// stay in. Requires: step is odd, and no multiple of three.
std::vector<GemmShape> thinned(const std::vector<GemmShape>& shapes, std::size_t step) {
  std::vector<GemmShape> kept;
  for (std::size_t i = step / 2; i < shapes.size(); i += step) {
    kept.push_back(shapes[i]);
  }
  return kept;
}

std::size_t rounded(std::size_t bytes) { return (bytes + 1023) / 1024 * 1024; }

// Memory that all shapes of one type share.
class Arenas {
 public:
  Arenas(const std::vector<GemmShape>& shapes, cudaStream_t stream) {
    std::size_t operands = 0, results = 0;
    for (const GemmShape& s : shapes) {
      operands = std::max(operands, rounded(gpu::bytes_a(s)) + rounded(gpu::bytes_b(s)));
      results = std::max(results, rounded(gpu::bytes_c(s)));
    }
    int l2 = 0;
    gpu::check(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0), "asking for the L2");
    rotate_ = 2 * static_cast<std::size_t>(std::max(l2, 1 << 20));
    operands_ = gpu::DeviceBuffer(std::max(operands, rotate_));
    results_ = gpu::DeviceBuffer(std::max(results, rotate_));
    const Type type = shapes.front().type;
    gpu::fill_normal(operands_.data(), type, operands_.size() / gpu::bytes_of(type), 1, stream);
    gpu::check(cudaStreamSynchronize(stream), "filling the operands");
  }

  void run(const Gemm& gemm, const GemmShape& s, int call, cudaStream_t stream) const {
    const std::size_t a = rounded(gpu::bytes_a(s)), b = rounded(gpu::bytes_b(s));
    const std::size_t c = rounded(gpu::bytes_c(s));
    const std::size_t sets = std::min({std::size_t{8}, operands_.size() / (a + b),
                                       results_.size() / c, rotate_ / (a + b + c) + 1});
    const std::size_t set = static_cast<std::size_t>(call) % sets;
    const std::byte* at = operands_.data() + set * (a + b);
    gemm.run(at, at + a, results_.data() + set * c, stream);
  }

  const gpu::DeviceBuffer& operands() const { return operands_; }
  const gpu::DeviceBuffer& results() const { return results_; }

 private:
  gpu::DeviceBuffer operands_, results_;
  std::size_t rotate_ = 0;
};

__device__ double value(const void* data, std::int64_t i, int type) {
  return type == 0   ? static_cast<double>(static_cast<const __nv_bfloat16*>(data)[i])
         : type == 1 ? static_cast<double>(static_cast<const __half*>(data)[i])
                     : static_cast<double>(static_cast<const float*>(data)[i]);
}

// Squares of the difference from a product in double, and of the product: a thread an element.
__global__ void compare(const void* a, const void* b, const void* c, GemmShape s, int type,
                        double* sums) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.m * s.n) {
    return;
  }
  const std::int64_t row = i / s.n, column = i % s.n;
  double sum = 0;
  for (std::int64_t k = 0; k < s.k; ++k) {
    const std::int64_t at_a = s.layout == Layout::kTn ? k * s.m + row : row * s.k + k;
    const std::int64_t at_b = s.layout == Layout::kNt ? column * s.k + k : k * s.n + column;
    sum += value(a, at_a, type) * value(b, at_b, type);
  }
  const double off = value(c, i, type) - sum;
  atomicAdd(&sums[0], off * off);
  atomicAdd(&sums[1], sum * sum);
}

// One small product of each layout, against a product in double.
void verify(const gpu::Lt& lt, const Arenas& arenas, Type type, cudaStream_t stream) {
  for (const Layout layout : {Layout::kNn, Layout::kNt, Layout::kTn}) {
    const GemmShape s{256, 384, 512, type, layout};
    arenas.run(Gemm(lt, s), s, 0, stream);
    const gpu::DeviceBuffer sums(2 * sizeof(double));
    gpu::check(cudaMemsetAsync(sums.data(), 0, sums.size(), stream), "clearing sums");
    auto* both = reinterpret_cast<double*>(sums.data());
    const std::byte* a = arenas.operands().data();
    const int kind = type == Type::kBf16 ? 0 : type == Type::kFp16 ? 1 : 2;
    compare<<<static_cast<unsigned>(s.m * s.n / 256), 256, 0, stream>>>(
        a, a + rounded(gpu::bytes_a(s)), arenas.results().data(), s, kind, both);
    gpu::check(cudaGetLastError(), "checking a product");
    double host[2] = {};
    gpu::check(cudaMemcpyAsync(host, both, sizeof host, cudaMemcpyDeviceToHost, stream),
               "checking a product");
    gpu::check(cudaStreamSynchronize(stream), "checking a product");
    const double error = std::sqrt(host[0] / host[1]);
    if (!(error < 1e-2)) {  // a NaN is wrong too
      throw std::runtime_error("products of " + std::string(name_of(type)) + " (" +
                               std::string(name_of(layout)) + ") are off by " +
                               std::to_string(error));
    }
  }
}

At place(const GemmShape& s) {
  return {{"m", s.m},
          {"n", s.n},
          {"k", s.k},
          {"type", std::string(name_of(s.type))},
          {"layout", std::string(name_of(s.layout))}};
}

// 0.1 s after a pause, and then seconds of it: how far the power limit takes the clock down.
constexpr std::int64_t kLarge = 8192;
const GemmShape kLargeProduct{kLarge, kLarge, kLarge, Type::kBf16, Layout::kNt};

At large_place() {
  return {{"m", kLarge}, {"n", kLarge}, {"k", kLarge}, {"type", std::string("bf16")}};
}

// Seconds a product in a loop of so many seconds, in groups of ten, and when each group ended.
// `between`: copies inside the GPU's memory after each group, 2 GiB read and written each.
struct Loop {
  std::vector<double> samples;
  std::vector<double> ends;
};
Loop loop(double pause, double seconds, int between = 0) {
  constexpr std::size_t kCopied = std::size_t{2} << 30;
  const gpu::Stream stream;
  const gpu::Lt lt;
  const Arenas arenas({kLargeProduct}, stream);
  const Gemm gemm(lt, kLargeProduct);
  const gpu::DeviceBuffer from(between > 0 ? kCopied : 1);
  const gpu::DeviceBuffer to(between > 0 ? kCopied : 1);
  gpu::fill_words(from.data(), from.size() / 4 * 4, 1, stream);
  arenas.run(gemm, kLargeProduct, 0, stream);
  stream.synchronize();
  std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  constexpr int kGroup = 10;
  // Two groups are queued at a time, so the stream never runs dry between them.
  std::array<gpu::Event, 3> begins;
  std::array<gpu::Event, 3> ends;
  const gpu::Event first;
  first.record(stream);
  Loop out;
  double end = 0;
  for (std::size_t group = 0; end < seconds; ++group) {
    begins[group % 3].record(stream);
    for (int i = 0; i < kGroup; ++i) {
      arenas.run(gemm, kLargeProduct, i, stream);
    }
    ends[group % 3].record(stream);
    for (int i = 0; i < between; ++i) {
      gpu::check(cudaMemcpyAsync(to.data(), from.data(), kCopied, cudaMemcpyDeviceToDevice, stream),
                 "copying between products");
    }
    if (group > 0) {
      const std::size_t last = (group + 2) % 3;
      gpu::check(cudaEventSynchronize(ends[last]), "waiting for products");
      out.samples.push_back(seconds_between(begins[last], ends[last]) / kGroup);
      end = seconds_between(first, ends[last]);
      out.ends.push_back(end);
    }
  }
  stream.synchronize();
  return out;
}

// The samples of the last second; of a run of one second the last half.
std::vector<double> at_the_end(const Loop& all, double seconds) {
  std::vector<double> last;
  for (std::size_t i = 0; i < all.samples.size(); ++i) {
    if (all.ends[i] > seconds - std::min(1.0, seconds / 2)) {
      last.push_back(all.samples[i]);
    }
  }
  return last;
}

}  // namespace

void gemm_burst(const Run& run) {
  run.point(large_place(), loop(run.quick() ? 0.3 : 1.0, 0.1).samples);
}

void gemm_sustained(const Run& run) {
  const double seconds = run.quick() ? 1.0 : 3.0;
  run.point(large_place(), at_the_end(loop(0, seconds), seconds));
}

// A training step draws less power than products alone: a third of its time goes to kernels that
// wait for memory.
void gemm_in_step(const Run& run) {
  constexpr int kCopies = 6;  // about 1 ms each, after products of about 14 ms
  const double seconds = run.quick() ? 1.0 : 3.0;
  run.point(large_place(), at_the_end(loop(0, seconds, kCopies), seconds));
}

void gemm(const Run& run) {
  gpu::Timer timer;
  const gpu::Lt lt;
  for (const Type type : {Type::kBf16, Type::kFp16, Type::kTf32, Type::kFp32}) {
    std::vector<GemmShape> shapes = grid(type);
    if (type != Type::kBf16) {
      shapes = thinned(shapes, run.quick() ? 71 : 11);
    } else if (run.quick()) {
      shapes = thinned(shapes, 5);
    }
    const Arenas arenas(shapes, timer.stream());
    verify(lt, arenas, type, timer.stream());
    gpu::Timing timing;
    timing.seconds = run.quick() ? 0.03 : 0.06;
    timing.samples = type == Type::kFp32 || run.quick() ? 3 : 5;
    for (const GemmShape& shape : shapes) {
      const Gemm product(lt, shape);
      run.point(place(shape),
                timer.per_call([&](int call) { arenas.run(product, shape, call, timer.stream()); },
                               timing));
    }
  }
}

}  // namespace offsim::kernels::gpu_bench
