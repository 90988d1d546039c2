// Host memory that is new when the GPU copies into it, and memory that is pinned.
//
// A blocking copy of fp32 from the GPU into a bf16 tensor of the CPU is, in PyTorch: a temporary of
// plain memory, the copy into it, the cast on the CPU, the release. Where the allocator gives such
// a size back to the system (above a threshold of at most 32 MiB), every page is new each time.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gpu_benches.h"
#include "kernels/host/cpu_kernels.h"
#include "kernels/host/pool.h"

namespace offsim::kernels::gpu_bench {

namespace {

constexpr std::int64_t kMi = std::int64_t{1} << 20;

struct Free {
  void operator()(void* data) const { std::free(data); }
};
using Plain = std::unique_ptr<void, Free>;

// As a framework's allocator for the CPU does it: aligned to 64 bytes, from the C library.
Plain plain(std::int64_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, 64, static_cast<std::size_t>(bytes)) != 0) {
    throw std::runtime_error("no memory for a copy's buffer");
  }
  return Plain(data);
}

void copy_down(void* to, const gpu::DeviceBuffer& from, std::int64_t bytes) {
  gpu::check(cudaMemcpy(to, from.data(), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost),
             "copying from the GPU");
}

gpu::DeviceBuffer random_floats(std::int64_t elements) {
  gpu::DeviceBuffer buffer(static_cast<std::size_t>(elements) * sizeof(float));
  const gpu::Stream stream;
  gpu::fill_normal(buffer.data(), gpu::Type::kFp32, static_cast<std::size_t>(elements), 1, stream);
  stream.synchronize();
  return buffer;
}

// The upper half of a float's bits, rounded to the nearest even one.
std::uint16_t bf16_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void check_cast(const std::uint16_t* cast, const gpu::DeviceBuffer& from) {
  std::vector<float> values(1000);
  copy_down(values.data(), from, static_cast<std::int64_t>(values.size() * sizeof(float)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (cast[i] != bf16_of(values[i])) {
      throw std::runtime_error("the cast of a copied tensor is wrong");
    }
  }
}

}  // namespace

void fresh_copy(const Run& run) {
  std::vector<std::int64_t> sizes{4 * kMi, 16 * kMi, 31 * kMi, 33 * kMi, 64 * kMi, 256 * kMi};
  if (!run.quick()) {
    sizes.push_back(1024 * kMi);
  }
  const gpu::DeviceBuffer device = random_floats(sizes.back() / 4);
  for (const std::int64_t bytes : sizes) {
    std::vector<double> warm;
    std::vector<double> fresh = on_cores(run.quick() ? 2 : 4, [&] {
      const Plain host = plain(bytes);
      const auto seconds = [&] {
        const double begin = now();
        copy_down(host.get(), device, bytes);
        return now() - begin;
      };
      const double first = seconds();
      warm.push_back(seconds());
      return first;
    });
    run.mean_point({{"bytes", bytes}, {"state", std::string("fresh")}}, std::move(fresh));
    run.mean_point({{"bytes", bytes}, {"state", std::string("warm")}}, std::move(warm));
  }
}

void blocking_cast(const Run& run) {
  std::vector<std::int64_t> sizes{kMi, 4 * kMi, 7 * kMi, 16 * kMi, 64 * kMi};
  if (run.quick()) {
    sizes = {kMi, 16 * kMi, 64 * kMi};
  }
  const gpu::DeviceBuffer device = random_floats(sizes.back());
  const Plain to = plain(2 * sizes.back());
  std::memset(to.get(), 1, static_cast<std::size_t>(2 * sizes.back()));
  Pool pool;
  const CpuKernel& kernel = find_cpu_kernel("cast_f32_bf16");
  for (const std::int64_t elements : sizes) {
    for (const int threads : {1, pool.size()}) {
      const auto whole = [&] {
        const Plain temporary = plain(4 * elements);
        copy_down(temporary.get(), device, 4 * elements);
        CpuBuffers buffers;
        buffers.out = to.get();
        buffers.in = temporary.get();
        run_cpu_kernel(kernel, buffers, elements, pool, threads);
      };
      const Repeat repeat{elements <= 16 * kMi ? 1 : 0, run.quick() ? 2 : 3, 9, 0.1};
      run.point({{"elements", elements}, {"threads", std::int64_t{threads}}},
                time_host(whole, repeat));
      check_cast(static_cast<const std::uint16_t*>(to.get()), device);
      if (pool.size() == 1) {
        break;  // one thread is all
      }
    }
  }
}

namespace {

// Seconds of pinning new memory, or of freeing it.
void pinned_points(const Run& run, bool allocation) {
  for (const std::int64_t bytes : {16 * kMi, 256 * kMi, 1024 * kMi}) {
    std::vector<double> samples;
    const int wanted = run.quick() ? (bytes > 256 * kMi ? 1 : 2) : 4;
    for (int sample = 0; sample < wanted; ++sample) {
      void* data = nullptr;
      const double begin = now();
      gpu::check(cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocDefault),
                 "allocating pinned memory");
      const double allocated = now();
      gpu::check(cudaFreeHost(data), "freeing pinned memory");
      samples.push_back(allocation ? allocated - begin : now() - allocated);
    }
    run.point({{"bytes", bytes}}, std::move(samples));
  }
}

}  // namespace

void pinned_alloc(const Run& run) { pinned_points(run, true); }
void pinned_free(const Run& run) { pinned_points(run, false); }

}  // namespace offsim::kernels::gpu_bench
