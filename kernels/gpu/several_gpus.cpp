// Several GPUs of one host: copies of all of them at once, and from one to another.
#include <cuda_runtime.h>

#include <cstring>
#include <memory>
#include <stdexcept>

#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gpu_benches.h"

namespace offsim::kernels::gpu_bench {

namespace {

constexpr std::size_t kBytes = std::size_t{256} << 20;
constexpr int kCopies = 4;  // a sample: 1 GiB a direction and GPU

void use(int device) { gpu::check(cudaSetDevice(device), "choosing a GPU"); }

// The first GPU is what all other benches use.
struct FirstAgain {
  ~FirstAgain() { cudaSetDevice(0); }
};

// Random words that go out with the copies. Requires: the GPU is the current one.
struct Gpu {
  Gpu() : device_up(kBytes), device_down(kBytes), host_up(kBytes), host_down(kBytes) {
    gpu::fill_words(device_down.data(), kBytes, 5, down);
    gpu::check(
        cudaMemcpyAsync(host_up.data(), device_down.data(), kBytes, cudaMemcpyDeviceToHost, down),
        "copying");
    down.synchronize();
  }
  gpu::DeviceBuffer device_up, device_down;
  gpu::PinnedBuffer host_up, host_down;
  gpu::Stream up, down;

  void queue(bool h2d, bool d2h) const {
    for (int i = 0; i < kCopies; ++i) {
      if (h2d) {
        gpu::check(
            cudaMemcpyAsync(device_up.data(), host_up.data(), kBytes, cudaMemcpyHostToDevice, up),
            "copying");
      }
      if (d2h) {
        gpu::check(cudaMemcpyAsync(host_down.data(), device_down.data(), kBytes,
                                   cudaMemcpyDeviceToHost, down),
                   "copying");
      }
    }
  }
  void wait() const {
    up.synchronize();
    down.synchronize();
  }
};

// Bytes a second of what `queue` puts on the GPUs until `wait` returns, by the host's clock.
std::vector<double> rates(const Run& run, double bytes, const std::function<void()>& queue,
                          const std::function<void()>& wait) {
  Repeat repeat;
  repeat.least = repeat.most = run.quick() ? 3 : 7;
  std::vector<double> samples = time_host(
      [&] {
        queue();
        wait();
      },
      repeat);
  for (double& sample : samples) {
    sample = bytes / sample;
  }
  return samples;
}

}  // namespace

void gpus_at_once(const Run& run) {
  const FirstAgain after;
  std::vector<std::unique_ptr<Gpu>> gpus;
  const int count = gpu::gpu_count();
  for (int n = 1; n <= count; ++n) {
    use(n - 1);
    gpus.push_back(std::make_unique<Gpu>());
    if (n != 1 && n % 2 != 0 && n != count) {
      continue;  // pairs share a switch or a root port more often than three do
    }
    for (const char* direction : {"h2d", "d2h", "both"}) {
      const bool h2d = std::strcmp(direction, "d2h") != 0;
      const bool d2h = std::strcmp(direction, "h2d") != 0;
      const double bytes =
          static_cast<double>(kBytes) * kCopies * n * ((h2d ? 1 : 0) + (d2h ? 1 : 0));
      const auto each = [&](const std::function<void(const Gpu&)>& body) {
        return [&gpus, body] {
          for (std::size_t i = 0; i < gpus.size(); ++i) {
            use(static_cast<int>(i));
            body(*gpus[i]);
          }
        };
      };
      run.point({{"direction", std::string(direction)},
                 {"gpus", std::int64_t{n}},
                 {"bytes", static_cast<std::int64_t>(kBytes)}},
                rates(run, bytes, each([&](const Gpu& gpu) { gpu.queue(h2d, d2h); }),
                      each([](const Gpu& gpu) { gpu.wait(); })),
                Unit::kBytesPerSecond);
    }
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    use(static_cast<int>(i));
    if (gpu::count_wrong(gpus[i]->device_up.data(), kBytes, 5, gpus[i]->up) != 0) {
      throw std::runtime_error("a copy to GPU " + std::to_string(i) + " did not arrive");
    }
  }
}

void peer_copy(const Run& run) {
  const FirstAgain after;
  int direct = 0;
  gpu::check(cudaDeviceCanAccessPeer(&direct, 0, 1), "asking whether GPUs reach each other");
  for (int device = 0; device < 2 && direct != 0; ++device) {
    use(device);
    const cudaError_t result = cudaDeviceEnablePeerAccess(1 - device, 0);
    if (result == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
    } else {
      gpu::check(result, "letting one GPU reach another");
    }
  }
  use(0);
  const Gpu zero;
  use(1);
  const Gpu one;
  const auto send = [](const gpu::DeviceBuffer& to, int to_gpu, const gpu::DeviceBuffer& from,
                       int from_gpu, cudaStream_t stream) {
    use(from_gpu);
    for (int i = 0; i < kCopies; ++i) {
      gpu::check(cudaMemcpyPeerAsync(to.data(), to_gpu, from.data(), from_gpu, kBytes, stream),
                 "copying from one GPU to another");
    }
  };
  for (const bool both : {false, true}) {
    const double bytes = static_cast<double>(kBytes) * kCopies * (both ? 2 : 1);
    run.point({{"direction", std::string(both ? "both" : "one")},
               {"gpus", std::int64_t{2}},
               {"direct", std::int64_t{direct}},
               {"bytes", static_cast<std::int64_t>(kBytes)}},
              rates(
                  run, bytes,
                  [&] {
                    send(one.device_up, 1, zero.device_down, 0, zero.down);
                    if (both) {
                      send(zero.device_up, 0, one.device_down, 1, one.down);
                    }
                  },
                  [&] {
                    zero.wait();
                    one.wait();
                  }),
              Unit::kBytesPerSecond);
  }
  use(1);
  if (gpu::count_wrong(one.device_up.data(), kBytes, 5, one.up) != 0) {
    throw std::runtime_error("a copy from one GPU to another did not arrive");
  }
}

}  // namespace offsim::kernels::gpu_bench
