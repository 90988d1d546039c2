// Copies over the link, as nvbandwidth measures them: behind a held stream, between events. Small
// copies are timed as a train of them in one stream, so a point holds what one adds to a stream.
// Pageable copies block the host and are timed by its clock; their memory is not in the caches, as
// a step's is not: the driver's copy from a warm buffer is up to twice as fast.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gpu_benches.h"
#include "kernels/host/host.h"
#include "kernels/host/pool.h"

namespace offsim::kernels::gpu_bench {

namespace {

using gpu::DeviceBuffer;
using gpu::PinnedBuffer;
using gpu::Stream;
using gpu::Timer;

constexpr std::int64_t kKi = std::int64_t{1} << 10;
constexpr std::int64_t kMi = std::int64_t{1} << 20;
constexpr std::int64_t kGi = std::int64_t{1} << 30;

void copy_async(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind,
                cudaStream_t stream) {
  gpu::check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream), "copying");
}

// Plain memory, faulted in by the thread that makes it.
class Pageable {
 public:
  explicit Pageable(std::int64_t bytes) : data_(std::malloc(static_cast<std::size_t>(bytes))) {
    if (data_ == nullptr) {
      throw std::runtime_error("no memory for a copy's buffer");
    }
    std::memset(data_, 1, static_cast<std::size_t>(bytes));
  }
  ~Pageable() { std::free(data_); }
  Pageable(const Pageable&) = delete;
  Pageable& operator=(const Pageable&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

// Pageable memory in turn, so much of it that the caches have forgotten what comes round again.
class Walk {
 public:
  explicit Walk(std::int64_t most) : bytes_(most + uncached_bytes()), memory_(bytes_) {}
  std::byte* next(std::int64_t bytes) {
    constexpr std::int64_t kGap = 8 * kMi;  // so small ones come round as seldom
    if (place_ + bytes > bytes_) {
      place_ = 0;
    }
    std::byte* const at = static_cast<std::byte*>(memory_.data()) + place_;
    place_ += bytes + kGap;
    return at;
  }

 private:
  std::int64_t bytes_, place_ = 0;
  Pageable memory_;
};

// A device and a host buffer for each direction.
struct Ends {
  Ends(std::int64_t bytes, int node)
      : down(static_cast<std::size_t>(bytes)),
        up(down.size()),
        host_down(down.size(), node),
        host_up(down.size(), node) {}
  DeviceBuffer down, up;            // D2H reads the first, H2D writes the second
  PinnedBuffer host_down, host_up;  // likewise D2H writes the first, H2D reads the second

  void d2h(std::int64_t bytes, cudaStream_t stream) const {
    copy_async(host_down.data(), down.data(), bytes, cudaMemcpyDeviceToHost, stream);
  }
  void h2d(std::int64_t bytes, cudaStream_t stream) const {
    copy_async(up.data(), host_up.data(), bytes, cudaMemcpyHostToDevice, stream);
  }
  void queue(const std::string& direction, std::int64_t bytes, cudaStream_t stream) const {
    direction == "h2d" ? h2d(bytes, stream) : d2h(bytes, stream);
  }
  // Random bytes go down and, from the same memory, up again: throws when others arrive.
  void verify(std::int64_t bytes, std::uint32_t seed, cudaStream_t stream) const;
};

void wrong_bytes(const void* data, std::int64_t bytes, std::uint32_t seed, cudaStream_t stream) {
  const std::int64_t wrong = gpu::count_wrong(data, static_cast<std::size_t>(bytes), seed, stream);
  if (wrong != 0) {
    throw std::runtime_error("a copy of " + std::to_string(bytes) + " bytes has " +
                             std::to_string(wrong) + " wrong words");
  }
}

void Ends::verify(std::int64_t bytes, std::uint32_t seed, cudaStream_t stream) const {
  const auto size = static_cast<std::size_t>(bytes);
  gpu::fill_words(down.data(), size, seed, stream);
  gpu::check(cudaMemsetAsync(up.data(), 0xff, size, stream), "clearing");
  d2h(bytes, stream);
  copy_async(up.data(), host_down.data(), bytes, cudaMemcpyHostToDevice, stream);
  wrong_bytes(up.data(), bytes, seed, stream);
  // And what H2D reads is random too.
  copy_async(host_up.data(), down.data(), bytes, cudaMemcpyDeviceToHost, stream);
  gpu::check(cudaMemsetAsync(up.data(), 0xff, size, stream), "clearing");
  h2d(bytes, stream);
  wrong_bytes(up.data(), bytes, seed, stream);
}

std::vector<std::int64_t> sizes(const Run& run) {
  std::vector<std::int64_t> out;
  const std::int64_t most = run.quick() ? 256 * kMi : 1024 * kMi;
  for (std::int64_t bytes = 4 * kKi; bytes <= most; bytes *= run.quick() ? 16 : 4) {
    out.push_back(bytes);
  }
  return out;
}

int samples_of(const Run& run) { return run.quick() ? 5 : 9; }

// Work on two streams that begins together behind the hold and ends when both are done.
class Pair {
 public:
  std::vector<double> time(const std::function<void(cudaStream_t)>& first,
                           const std::function<void(cudaStream_t)>& second, int samples) {
    const auto both = [&] {
      fork_.record(timer_.stream());
      gpu::check(cudaStreamWaitEvent(second_, fork_, 0), "waiting for an event");
      second(second_);
      first(timer_.stream());
      join_.record(second_);
      gpu::check(cudaStreamWaitEvent(timer_.stream(), join_, 0), "waiting for an event");
    };
    std::vector<double> out;
    for (int i = 0; i <= samples; ++i) {
      const double seconds = timer_.held(both);
      if (i > 0) {  // the first warms up
        out.push_back(seconds);
      }
    }
    return out;
  }
  Timer& timer() { return timer_; }

 private:
  Timer timer_;
  Stream second_;
  gpu::Event fork_{cudaEventDisableTiming}, join_{cudaEventDisableTiming};
};

void divide(std::vector<double>& samples, double by) {
  for (double& sample : samples) {
    sample /= by;
  }
}

At place(const char* direction, const char* memory, std::int64_t bytes, int node) {
  return {{"direction", std::string(direction)},
          {"memory", std::string(memory)},
          {"bytes", bytes},
          {"node", std::int64_t{node}}};
}

void pinned_points(const Run& run, Pair& pair, int node) {
  const std::vector<std::int64_t> all = sizes(run);
  const Ends ends(all.back(), node);
  ends.verify(all.back(), 1, pair.timer().stream());
  Timer& timer = pair.timer();
  for (const std::int64_t bytes : all) {
    ends.verify(bytes, static_cast<std::uint32_t>(bytes), timer.stream());
    const int train = static_cast<int>(std::clamp<std::int64_t>(32 * kMi / bytes, 1, 32));
    const auto trained = [&](const char* direction) {
      return [&ends, direction, bytes, train](cudaStream_t stream) {
        for (int i = 0; i < train; ++i) {
          ends.queue(direction, bytes, stream);
        }
      };
    };
    for (const char* direction : {"h2d", "d2h"}) {
      std::vector<double> samples;
      for (int i = 0; i <= samples_of(run); ++i) {
        const double seconds = timer.held([&] { trained(direction)(timer.stream()); });
        if (i > 0) {  // the first warms up
          samples.push_back(seconds / train);
        }
      }
      run.point(place(direction, "pinned", bytes, node), std::move(samples));
    }
    std::vector<double> both = pair.time(trained("h2d"), trained("d2h"), samples_of(run));
    divide(both, train);
    run.point(place("both", "pinned", bytes, node), std::move(both));
  }
}

void pageable_points(const Run& run, int node) {
  const std::vector<std::int64_t> all = sizes(run);
  const Stream stream;
  const DeviceBuffer device(static_cast<std::size_t>(all.back()));
  std::unique_ptr<Walk> host;
  gpu::on_node(node, [&] { host = std::make_unique<Walk>(all.back()); });
  for (const std::int64_t bytes : all) {
    const int calls = static_cast<int>(std::clamp<std::int64_t>(kGi / bytes, 4, 16));
    const auto seconds = [&](const auto& body) {
      return on_cores(calls, [&] {
        const double start = now();
        body();
        return now() - start;
      });
    };
    const auto down = [&] {
      std::byte* const to = host->next(bytes);
      copy_async(to, device.data(), bytes, cudaMemcpyDeviceToHost, stream);
      stream.synchronize();
      return to;
    };
    const auto up_from = [&](const std::byte* from) {
      copy_async(device.data(), from, bytes, cudaMemcpyHostToDevice, stream);
      stream.synchronize();
    };
    // Random bytes go down and, from the same memory, up again.
    const auto size = static_cast<std::size_t>(bytes);
    gpu::fill_words(device.data(), size, 3, stream);
    const std::byte* const sent = down();
    gpu::check(cudaMemsetAsync(device.data(), 0xff, size, stream), "clearing");
    up_from(sent);
    wrong_bytes(device.data(), bytes, 3, stream);
    run.mean_point(place("d2h", "pageable", bytes, node), seconds(down));
    run.mean_point(place("h2d", "pageable", bytes, node),
                   seconds([&] { up_from(host->next(bytes)); }));
  }
}

}  // namespace

void copy(const Run& run) {
  for (const int node : gpu::numa_nodes()) {
    {
      Pair pair;
      pinned_points(run, pair, node);
    }
    pageable_points(run, node);
  }
}

void copy_call(const Run& run) {
  constexpr int kCalls = 200;  // the queue holds them
  constexpr std::int64_t kBytes = 64 * kKi;
  const Stream stream;
  const Ends ends(kBytes, -1);
  ends.verify(kBytes, 1, stream);
  for (const char* direction : {"h2d", "d2h"}) {
    std::vector<double> samples;
    for (int sample = 0; sample < 10; ++sample) {
      stream.synchronize();
      const double begin = now();
      for (int i = 0; i < kCalls; ++i) {
        ends.queue(direction, kBytes, stream);
      }
      if (sample > 0) {  // the first warms up
        samples.push_back((now() - begin) / kCalls);
      }
    }
    stream.synchronize();
    run.point({{"direction", std::string(direction)}}, std::move(samples));
  }
}

void two_streams(const Run& run) {
  Pair pair;
  const Ends first(256 * kMi, -1), second(256 * kMi, -1);
  first.verify(256 * kMi, 1, pair.timer().stream());
  second.verify(256 * kMi, 2, pair.timer().stream());
  for (const std::int64_t bytes : {16 * kMi, 256 * kMi}) {
    for (const char* direction : {"h2d", "d2h"}) {
      const auto of = [&](const Ends& ends) {
        return [&ends, direction, bytes](cudaStream_t stream) {
          ends.queue(direction, bytes, stream);
        };
      };
      run.point({{"direction", std::string(direction)}, {"bytes", bytes}},
                pair.time(of(first), of(second), samples_of(run)));
    }
  }
}

void small_copies(const Run& run) {
  constexpr std::int64_t kBytes = 64 * kKi, kCount = 256;
  Timer timer;
  const Ends ends(kBytes, -1);
  ends.verify(kBytes, 1, timer.stream());
  for (const char* direction : {"h2d", "d2h"}) {
    std::vector<double> samples;
    for (int i = 0; i <= samples_of(run); ++i) {
      const double seconds = timer.held([&] {
        for (std::int64_t j = 0; j < kCount; ++j) {
          ends.queue(direction, kBytes, timer.stream());
        }
      });
      if (i > 0) {  // the first warms up
        samples.push_back(seconds);
      }
    }
    run.point({{"direction", std::string(direction)}, {"bytes", kBytes}, {"count", kCount}},
              std::move(samples));
  }
}

}  // namespace offsim::kernels::gpu_bench
