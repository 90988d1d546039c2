// Kernels bound by the GPU's memory or by their addresses: multiplication in place, sums over rows,
// a broadcast that computes its addresses, Adam, copies inside the memory.
//
// Those in place work on the same buffer again, so what fits the L2 stays there, as the output of
// one kernel of a training step is the input of the next.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gpu_benches.h"

namespace offsim::kernels::gpu_bench {

namespace {

using gpu::DeviceBuffer;
using gpu::Timer;
using gpu::Type;

constexpr std::int64_t kMi = std::int64_t{1} << 20;

__device__ std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::int64_t thread_count() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((threads + 255) / 256, 1, 1 << 20));
}

std::vector<std::int64_t> by_quarter(std::int64_t from, std::int64_t to, bool quick) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = from; size < to; size *= quick ? 16 : 4) {
    sizes.push_back(size);
  }
  sizes.push_back(to);
  return sizes;
}

DeviceBuffer random(Type type, std::int64_t bytes, std::uint32_t seed, cudaStream_t stream) {
  DeviceBuffer buffer(static_cast<std::size_t>(bytes));
  gpu::fill_normal(buffer.data(), type, buffer.size() / gpu::bytes_of(type), seed, stream);
  return buffer;
}

// Eight elements a thread: 16 bytes read, 16 written.
__global__ void multiply(uint4* data, std::int64_t count, float factor) {
  const std::int64_t i = thread_index();
  if (i < count) {
    uint4 words = data[i];
    auto* values = reinterpret_cast<__nv_bfloat162*>(&words);
    for (int j = 0; j < 4; ++j) {
      const float2 v = __bfloat1622float2(values[j]);
      values[j] = __floats2bfloat162_rn(v.x * factor, v.y * factor);
    }
    data[i] = words;
  }
}

// A block a row of 4096.
__global__ void sum_rows(const uint4* data, float* sums) {
  const uint4* row = data + static_cast<std::int64_t>(blockIdx.x) * (4096 / 8);
  float sum = 0;
  for (int part = 0; part < 2; ++part) {
    const uint4 words = row[part * 256 + threadIdx.x];
    const auto* values = reinterpret_cast<const __nv_bfloat162*>(&words);
    for (int j = 0; j < 4; ++j) {
      const float2 v = __bfloat1622float2(values[j]);
      sum += v.x + v.y;
    }
  }
  __shared__ float partial[8];
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_down_sync(0xffffffffu, sum, step);
  }
  if (threadIdx.x % 32 == 0) {
    partial[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < 8; ++warp) {
      sum += partial[warp];
    }
    sums[blockIdx.x] = sum;
  }
}

// out[row, column] = x[row, column] w[column], four elements a thread, each with its own division
// and an offset for each of the three tensors, as frameworks' kernels for broadcasts have.
struct Strides {
  std::uint32_t columns;
  std::uint32_t out[2], x[2], w[2];
};
__global__ void broadcast(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat16* w,
                          std::uint32_t count, Strides s) {
  const std::uint32_t first = blockIdx.x * blockDim.x * 4 + threadIdx.x;
  for (std::uint32_t j = 0; j < 4; ++j) {
    const std::uint32_t i = first + j * blockDim.x;
    if (i < count) {
      const std::uint32_t row = i / s.columns;
      const std::uint32_t column = i - row * s.columns;
      const float a = static_cast<float>(x[row * s.x[0] + column * s.x[1]]);
      const float b = static_cast<float>(w[row * s.w[0] + column * s.w[1]]);
      out[row * s.out[0] + column * s.out[1]] = static_cast<__nv_bfloat16>(a * b);
    }
  }
}

// A few elements, as floats.
template <typename T>
std::vector<float> read(const DeviceBuffer& buffer, std::int64_t first, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  gpu::check(cudaMemcpy(values.data(), reinterpret_cast<const T*>(buffer.data()) + first,
                        values.size() * sizeof(T), cudaMemcpyDeviceToHost),
             "reading results");
  std::vector<float> out;
  for (const T value : values) {
    out.push_back(static_cast<float>(value));
  }
  return out;
}

void expect_near(float want, float got, float tolerance, const char* what) {
  if (!(std::fabs(want - got) <= tolerance)) {  // a NaN is wrong too
    throw std::runtime_error(std::string(what) + " gives " + std::to_string(got) + " in place of " +
                             std::to_string(want));
  }
}

struct AdamStep {
  float rate = 1e-3F, beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F, decay = 0.01F;
  float correction1 = 0.1F, correction2 = 0.001F;  // 1 - beta^t at step 1
};
struct AdamValues {
  float p, m, v;
};
__host__ __device__ AdamValues adam_of(AdamValues old, float g, const AdamStep& s) {
  const float m = s.beta1 * old.m + (1 - s.beta1) * g;
  const float v = s.beta2 * old.v + (1 - s.beta2) * g * g;
  const float update = m / s.correction1 / (sqrtf(v / s.correction2) + s.epsilon);
  return {old.p * (1 - s.rate * s.decay) - s.rate * update, m, v};
}

template <typename T>
struct alignas(16) Pack {
  T values[16 / sizeof(T)];
};

// 16 bytes of each array a thread: parameters, gradients and both moments have one type.
template <typename T>
__global__ void adam_kernel(Pack<T>* p, const Pack<T>* g, Pack<T>* m, Pack<T>* v,
                            std::int64_t packs, AdamStep step) {
  for (std::int64_t i = thread_index(); i < packs; i += thread_count()) {
    Pack<T> ps = p[i], ms = m[i], vs = v[i];
    const Pack<T> gs = g[i];
#pragma unroll
    for (std::size_t j = 0; j < 16 / sizeof(T); ++j) {
      const AdamValues old{static_cast<float>(ps.values[j]), static_cast<float>(ms.values[j]),
                           static_cast<float>(vs.values[j])};
      const AdamValues next = adam_of(old, static_cast<float>(gs.values[j]), step);
      ps.values[j] = static_cast<T>(next.p);
      ms.values[j] = static_cast<T>(next.m);
      vs.values[j] = static_cast<T>(next.v);
    }
    p[i] = ps;
    m[i] = ms;
    v[i] = vs;
  }
}

// Parameters, gradients, moments; the second moments are squares, so none is negative.
template <typename T>
class AdamData {
 public:
  AdamData(std::int64_t elements, Type type, cudaStream_t stream) : elements_(elements) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      arrays_.push_back(random(type, elements * static_cast<std::int64_t>(sizeof(T)), i, stream));
    }
    arrays_.emplace_back(static_cast<std::size_t>(elements) * sizeof(T));
    gpu::check(cudaMemsetAsync(arrays_[3].data(), 0, arrays_[3].size(), stream), "clearing");
    queue(stream);  // makes them from the gradients
    gpu::check(cudaStreamSynchronize(stream), "filling Adam's arrays");
  }

  void queue(cudaStream_t stream) const {
    const std::int64_t packs = elements_ * static_cast<std::int64_t>(sizeof(T)) / 16;
    adam_kernel<T><<<blocks_for(packs), 256, 0, stream>>>(pack(0), pack(1), pack(2), pack(3), packs,
                                                          AdamStep{});
    gpu::check(cudaGetLastError(), "launching Adam");
  }

  // One more step here and on the host, on the first and the last thousand elements.
  void verify(cudaStream_t stream) const {
    const auto before = sample();
    queue(stream);
    gpu::check(cudaStreamSynchronize(stream), "checking Adam");
    const auto after = sample();
    for (std::size_t i = 0; i < before[0].size(); ++i) {
      const AdamValues want =
          adam_of({before[0][i], before[2][i], before[3][i]}, before[1][i], AdamStep{});
      compare(want.p, after[0][i]);
      compare(want.m, after[2][i]);
      compare(want.v, after[3][i]);
    }
  }

 private:
  Pack<T>* pack(std::size_t array) const {
    return reinterpret_cast<Pack<T>*>(arrays_[array].data());
  }

  std::vector<std::vector<float>> sample() const {
    std::vector<std::vector<float>> out;
    for (const DeviceBuffer& array : arrays_) {
      out.push_back(read<T>(array, 0, 1000));
      const std::vector<float> last = read<T>(array, elements_ - 1000, 1000);
      out.back().insert(out.back().end(), last.begin(), last.end());
    }
    return out;
  }

  static void compare(float want, float got) {
    const float tolerance = sizeof(T) == 2 ? 1e-2F : 1e-5F;
    expect_near(want, got, tolerance * (std::fabs(want) + 1e-2F), "Adam on the GPU");
  }

  std::int64_t elements_;
  std::vector<DeviceBuffer> arrays_;
};

template <typename T>
void adam_points(const Run& run, Type type, const char* name) {
  Timer timer;
  for (const std::int64_t elements : {16 * kMi, 256 * kMi}) {
    const AdamData<T> data(elements, type, timer.stream());
    data.verify(timer.stream());
    run.point({{"elements", elements}, {"type", std::string(name)}},
              timer.per_call([&](int) { data.queue(timer.stream()); }));
  }
}

}  // namespace

void elementwise(const Run& run) {
  Timer timer;
  constexpr std::int64_t kMost = 2048 * kMi;
  const DeviceBuffer data = random(Type::kBf16, kMost / 2, 1, timer.stream());
  gpu::Timing timing;
  timing.graph_below = 1;  // all of them
  timing.graph_calls = 20;
  for (const std::int64_t bytes : by_quarter(kMi / 4, kMost, run.quick())) {
    const std::int64_t packs = bytes / 2 / 16;
    const auto call = [&](int) {
      // Minus one: as random afterwards, and neither shrinking nor growing.
      multiply<<<blocks_for(packs), 256, 0, timer.stream()>>>(reinterpret_cast<uint4*>(data.data()),
                                                              packs, -1.0F);
      gpu::check(cudaGetLastError(), "launching a multiplication");
    };
    const std::int64_t last = bytes / 4 - 8;  // of elements, the last eight
    const std::vector<float> before = read<__nv_bfloat16>(data, last, 8);
    call(0);
    timer.stream().synchronize();
    const std::vector<float> after = read<__nv_bfloat16>(data, last, 8);
    for (std::size_t i = 0; i < before.size(); ++i) {
      expect_near(-before[i], after[i], 0, "a multiplication");
    }
    run.point({{"bytes", bytes}}, timer.per_call(call, timing));
  }
}

void reduction(const Run& run) {
  Timer timer;
  constexpr std::int64_t kMost = 1024 * kMi;
  const DeviceBuffer data = random(Type::kBf16, kMost, 1, timer.stream());
  const DeviceBuffer sums(static_cast<std::size_t>(kMost / 8192) * sizeof(float));
  for (const std::int64_t bytes : by_quarter(kMi, kMost, run.quick())) {
    const auto call = [&](int) {
      sum_rows<<<static_cast<unsigned>(bytes / 8192), 256, 0, timer.stream()>>>(
          reinterpret_cast<const uint4*>(data.data()), reinterpret_cast<float*>(sums.data()));
      gpu::check(cudaGetLastError(), "launching a reduction");
    };
    call(0);
    timer.stream().synchronize();
    const std::int64_t row = bytes / 8192 - 1;  // the last
    float want = 0;
    for (const float value : read<__nv_bfloat16>(data, row * 4096, 4096)) {
      want += value;
    }
    expect_near(want, read<float>(sums, row, 1).front(), 1e-2F, "a sum over a row");
    run.point({{"bytes", bytes}}, timer.per_call(call));
  }
}

void indexed(const Run& run) {
  Timer timer;
  constexpr std::int64_t kElements = 64 * kMi;
  constexpr std::uint32_t kColumns = 4096;
  const DeviceBuffer x = random(Type::kBf16, 2 * kElements, 1, timer.stream());
  const DeviceBuffer w = random(Type::kBf16, 2 * kColumns, 2, timer.stream());
  const DeviceBuffer out(x.size());
  const Strides strides{kColumns, {kColumns, 1}, {kColumns, 1}, {0, 1}};
  const auto call = [&](int) {
    broadcast<<<static_cast<unsigned>(kElements / 1024), 256, 0, timer.stream()>>>(
        reinterpret_cast<__nv_bfloat16*>(out.data()),
        reinterpret_cast<const __nv_bfloat16*>(x.data()),
        reinterpret_cast<const __nv_bfloat16*>(w.data()), static_cast<std::uint32_t>(kElements),
        strides);
    gpu::check(cudaGetLastError(), "launching a broadcast");
  };
  call(0);
  timer.stream().synchronize();
  const std::int64_t from = kElements - kColumns;  // the last row
  const std::vector<float> xs = read<__nv_bfloat16>(x, from, kColumns);
  const std::vector<float> ws = read<__nv_bfloat16>(w, 0, kColumns);
  const std::vector<float> got = read<__nv_bfloat16>(out, from, kColumns);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float want = xs[i] * ws[i];
    expect_near(want, got[i], 1e-2F * std::fabs(want) + 1e-6F, "a broadcast");
  }
  std::vector<double> samples = timer.per_call(call);
  for (double& sample : samples) {
    sample = static_cast<double>(kElements) / sample;
  }
  run.point({}, std::move(samples), Unit::kElementsPerSecond);
}

void gpu_adam(const Run& run) {
  adam_points<float>(run, Type::kFp32, "f32");
  adam_points<__nv_bfloat16>(run, Type::kBf16, "bf16");
}

void gpu_copy(const Run& run) {
  Timer timer;
  constexpr std::int64_t kMost = 1024 * kMi;
  const DeviceBuffer from(static_cast<std::size_t>(kMost)), to(from.size());
  gpu::fill_words(from.data(), from.size(), 7, timer.stream());
  for (const std::int64_t bytes : by_quarter(kMi, kMost, run.quick())) {
    const auto size = static_cast<std::size_t>(bytes);
    const auto call = [&](int) {
      gpu::check(
          cudaMemcpyAsync(to.data(), from.data(), size, cudaMemcpyDeviceToDevice, timer.stream()),
          "copying inside the GPU");
    };
    gpu::fill_words(to.data(), size, 8, timer.stream());
    call(0);
    if (gpu::count_wrong(to.data(), size, 7, timer.stream()) != 0) {
      throw std::runtime_error("a copy inside the GPU did not arrive");
    }
    run.point({{"bytes", bytes}}, timer.per_call(call));
  }
}

}  // namespace offsim::kernels::gpu_bench
