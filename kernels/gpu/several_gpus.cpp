// Several GPUs of one host: copies of all of them at once, and from one to another.
#include <cuda_runtime.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

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
  // Whatever is copied to it next is what arrives there.
  void clear() const {
    gpu::check(cudaMemsetAsync(device_up.data(), 0xff, kBytes, up), "clearing");
    up.synchronize();
    std::memset(host_down.data(), 0xff, kBytes);
  }
  // Throws when other words than those of all of them arrived on the GPU.
  void expect_up(const char* what) const {
    if (gpu::count_wrong(device_up.data(), kBytes, 5, up) != 0) {
      throw std::runtime_error(std::string(what) + " did not arrive");
    }
  }
  // The same of the host's memory, which goes to the GPU for it.
  void expect_down(const char* what) const {
    gpu::check(
        cudaMemcpyAsync(device_up.data(), host_down.data(), kBytes, cudaMemcpyHostToDevice, up),
        "copying");
    expect_up(what);
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
    const auto each = [&](const std::function<void(const Gpu&)>& body) {
      return [&gpus, body] {
        for (std::size_t i = 0; i < gpus.size(); ++i) {
          use(static_cast<int>(i));
          body(*gpus[i]);
        }
      };
    };
    each([](const Gpu& gpu) { gpu.clear(); })();
    each([](const Gpu& gpu) { gpu.queue(true, true); })();
    each([](const Gpu& gpu) {
      gpu.wait();
      gpu.expect_up("a copy to a GPU");
      gpu.expect_down("a copy from a GPU");
    })();
    for (const char* direction : {"h2d", "d2h", "both"}) {
      const bool h2d = std::strcmp(direction, "d2h") != 0;
      const bool d2h = std::strcmp(direction, "h2d") != 0;
      const double bytes =
          static_cast<double>(kBytes) * kCopies * n * ((h2d ? 1 : 0) + (d2h ? 1 : 0));
      run.point({{"direction", std::string(direction)},
                 {"gpus", std::int64_t{n}},
                 {"bytes", static_cast<std::int64_t>(kBytes)}},
                rates(run, bytes, each([&](const Gpu& gpu) { gpu.queue(h2d, d2h); }),
                      each([](const Gpu& gpu) { gpu.wait(); })),
                Unit::kBytesPerSecond);
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
    const auto queue = [&] {
      send(one.device_up, 1, zero.device_down, 0, zero.down);
      if (both) {
        send(zero.device_up, 0, one.device_down, 1, one.down);
      }
    };
    const auto wait = [&] {
      zero.wait();
      one.wait();
    };
    for (const Gpu* gpu : {&zero, &one}) {
      use(gpu == &zero ? 0 : 1);
      gpu->clear();
    }
    queue();
    wait();
    use(1);
    one.expect_up("a copy from one GPU to another");
    if (both) {
      use(0);
      zero.expect_up("a copy from one GPU to another");
    }
    run.point({{"direction", std::string(both ? "both" : "one")},
               {"gpus", std::int64_t{2}},
               {"direct", std::int64_t{direct}},
               {"bytes", static_cast<std::int64_t>(kBytes)}},
              rates(run, bytes, queue, wait), Unit::kBytesPerSecond);
  }
}

}  // namespace offsim::kernels::gpu_bench
