// The clocks of cuda.h, and the kernels that they and every bench need.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "kernels/gpu/cuda.h"

namespace offsim::kernels::gpu {

namespace {

__device__ std::uint64_t nanoseconds() {
  std::uint64_t time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void spin(volatile int* words) {
  const std::uint64_t begin = nanoseconds();
  while (words[0] == 0) {
    if (nanoseconds() - begin > 2'000'000'000ull) {
      words[1] = 1;
      return;
    }
  }
}

__host__ __device__ std::uint32_t hash(std::uint32_t x, std::uint32_t seed) {
  x += seed * 0x9e3779b9u;
  x ^= x >> 16;
  x *= 0x21f0aaadu;
  x ^= x >> 15;
  x *= 0x735a2d97u;
  return x ^ (x >> 15);
}

__device__ std::size_t thread_index() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::size_t thread_count() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

// Box and Muller's method: two hashes make a normal number.
__device__ float normal(std::size_t i, std::uint32_t seed) {
  const auto low = static_cast<std::uint32_t>(i);
  const auto high = static_cast<std::uint32_t>(i >> 32) * 0x85ebca6bu;
  const float u = (static_cast<float>(hash(low ^ high, seed)) + 1.0f) * 2.3283064e-10f;
  const float v = static_cast<float>(hash(low ^ high, seed + 1)) * 2.3283064e-10f;
  return sqrtf(-2.0f * __logf(fminf(u, 1.0f))) * __cosf(6.2831853f * v);
}

template <typename T>
__global__ void normal_kernel(T* data, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = thread_index(); i < count; i += thread_count()) {
    data[i] = static_cast<T>(normal(i, seed));
  }
}

__global__ void words_kernel(std::uint32_t* data, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = thread_index(); i < count; i += thread_count()) {
    data[i] = hash(static_cast<std::uint32_t>(i), seed);
  }
}

__global__ void wrong_kernel(const std::uint32_t* data, std::size_t count, std::uint32_t seed,
                             unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (std::size_t i = thread_index(); i < count; i += thread_count()) {
    mine += data[i] != hash(static_cast<std::uint32_t>(i), seed);
  }
  if (mine > 0) {
    atomicAdd(wrong, mine);
  }
}

__global__ void shortest() {}

unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>(std::clamp<std::size_t>((count + 255) / 256, 1, 4096));
}

}  // namespace

Hold::Hold() : words_(2 * sizeof(int)) {}

// Were something still held here (an exception), it goes on before the words are freed.
Hold::~Hold() { release(); }

void Hold::start(cudaStream_t stream) {
  auto* words = reinterpret_cast<volatile int*>(words_.data());
  words[0] = 0;
  words[1] = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  spin<<<1, 1, 0, stream>>>(words);
  check(cudaGetLastError(), "holding a stream");
}

void Hold::release() {
  *reinterpret_cast<volatile int*>(words_.data()) = 1;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Hold::check_held() const {
  if (reinterpret_cast<volatile int*>(words_.data())[1] != 0) {
    throw std::runtime_error("the host took more than 2 s to queue the work");
  }
}

double Timer::held(const std::function<void()>& queue) {
  hold_.start(stream_);
  try {
    begin_.record(stream_);
    queue();
    end_.record(stream_);
  } catch (...) {
    hold_.release();
    throw;
  }
  hold_.release();
  stream_.synchronize();
  hold_.check_held();
  return seconds_between(begin_, end_);
}

double Timer::loose(const std::function<void()>& before, const std::function<void()>& queue) {
  before();
  begin_.record(stream_);
  queue();
  end_.record(stream_);
  stream_.synchronize();
  return seconds_between(begin_, end_);
}

std::vector<double> Timer::per_call(const std::function<void(int)>& call, const Timing& timing) {
  call(0);  // loads the kernel
  stream_.synchronize();
  int next = 0;
  const auto calls = [&](int count) {
    for (int i = 0; i < count; ++i) {
      call(next++);
    }
  };
  const auto timed = [&](const std::function<void()>& queue) {
    return timing.hold ? held(queue) : loose([&] { call(next++); }, queue);
  };
  double once = timed([&] { calls(1); });
  if (once < 5e-3) {  // a short one again: the card may have been asleep
    once = std::max(timed([&] { calls(3); }) / 3, 1e-7);
  }
  std::vector<double> samples;
  const auto sample = [&](const std::function<void()>& queue, int count) {
    const int wanted = static_cast<int>(timing.seconds / (once * count));
    const int most = std::clamp(wanted, timing.samples, 25);
    queue();  // warm
    for (int i = 0; i < most; ++i) {
      samples.push_back(timed(queue) / count);
    }
  };
  if (once < timing.graph_below) {
    const Graph graph(stream_, [&] { calls(timing.graph_calls); });
    sample([&] { graph.launch(stream_); }, timing.graph_calls);
  } else {
    const int count = std::clamp(static_cast<int>(timing.seconds / timing.samples / once), 1, 200);
    sample([&] { calls(count); }, count);
  }
  return samples;
}

void fill_normal(void* data, Type type, std::size_t elements, std::uint32_t seed, cudaStream_t s) {
  const unsigned blocks = blocks_for(elements);
  switch (type) {
    case Type::kBf16:
      normal_kernel<<<blocks, 256, 0, s>>>(static_cast<__nv_bfloat16*>(data), elements, seed);
      break;
    case Type::kFp16:
      normal_kernel<<<blocks, 256, 0, s>>>(static_cast<__half*>(data), elements, seed);
      break;
    case Type::kTf32:
    case Type::kFp32:
      normal_kernel<<<blocks, 256, 0, s>>>(static_cast<float*>(data), elements, seed);
      break;
  }
  check(cudaGetLastError(), "filling memory");
}

void fill_words(void* data, std::size_t bytes, std::uint32_t seed, cudaStream_t stream) {
  const std::size_t count = bytes / 4;
  words_kernel<<<blocks_for(count), 256, 0, stream>>>(static_cast<std::uint32_t*>(data), count,
                                                      seed);
  check(cudaGetLastError(), "filling memory");
}

std::int64_t count_wrong(const void* data, std::size_t bytes, std::uint32_t seed, cudaStream_t s) {
  const DeviceBuffer sum(sizeof(unsigned long long));
  check(cudaMemsetAsync(sum.data(), 0, sum.size(), s), "clearing a counter");
  const std::size_t count = bytes / 4;
  auto* wrong = reinterpret_cast<unsigned long long*>(sum.data());
  wrong_kernel<<<blocks_for(count), 256, 0, s>>>(static_cast<const std::uint32_t*>(data), count,
                                                 seed, wrong);
  check(cudaGetLastError(), "checking memory");
  unsigned long long host = 0;
  check(cudaMemcpyAsync(&host, wrong, sizeof host, cudaMemcpyDeviceToHost, s), "checking memory");
  check(cudaStreamSynchronize(s), "checking memory");
  return static_cast<std::int64_t>(host);
}

void empty_kernel(cudaStream_t stream) {
  shortest<<<1, 1, 0, stream>>>();
  check(cudaGetLastError(), "launching a kernel");
}

}  // namespace offsim::kernels::gpu
