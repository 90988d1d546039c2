// CPU kernels while copies run over the link, and those copies: who gets how much of the host's
// memory. The copies begin before the kernel and end after it; a sample of a copy is one that ran
// wholly inside the kernel's passes.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gpu_benches.h"
#include "kernels/host/cpu_kernels.h"
#include "kernels/host/pool.h"

namespace offsim::kernels::gpu_bench {

namespace {

constexpr std::int64_t kElements = std::int64_t{128} << 20;
constexpr std::size_t kCopyBytes = std::size_t{256} << 20;

// Four arrays of floats, written first by the threads that work on them.
class Arrays {
 public:
  explicit Arrays(Pool& pool) {
    for (auto& array : arrays_) {
      array.reset(new float[static_cast<std::size_t>(kElements)]);
    }
    pool.run(pool.size(), [&](int index) {
      const Part part = part_of(kElements, index, pool.size());
      auto state = static_cast<std::uint32_t>(part.begin) * 2654435761u + 1u;
      for (std::int64_t i = part.begin; i < part.end; ++i) {
        for (std::size_t array = 0; array < arrays_.size(); ++array) {
          state = state * 1664525u + 1013904223u;
          const float value = static_cast<float>(state >> 8) * 0x1p-24F;  // [0, 1)
          arrays_[array][static_cast<std::size_t>(i)] = array == 3 ? value : value - 0.5F;
        }
      }
    });
  }
  CpuBuffers buffers() const {
    CpuBuffers out;
    out.out = arrays_[0].get();
    out.in = arrays_[1].get();
    out.m = arrays_[2].get();
    out.v = arrays_[3].get();
    return out;
  }

 private:
  std::array<std::unique_ptr<float[]>, 4> arrays_;
};

struct Copied {
  double begin, end;  // of the host's clock: when the copy before was seen to end, and this one
  double seconds;     // between their events
};

// Buffers of one direction, whose random bytes are copied over and over by a thread of its own.
class Copier {
 public:
  explicit Copier(bool h2d) : h2d_(h2d), device_(kCopyBytes), host_(kCopyBytes) {
    gpu::fill_words(device_.data(), kCopyBytes, kSeed, stream_);
    copy(false);
    stream_.synchronize();
    if (h2d_) {
      gpu::check(cudaMemsetAsync(device_.data(), 0xff, kCopyBytes, stream_), "clearing");
      stream_.synchronize();
    } else {
      std::memset(host_.data(), 0xff, kCopyBytes);
    }
  }
  ~Copier() { stop(); }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  void start() {
    stopped_ = false;
    done_ = 0;
    ends_.clear();
    error_ = nullptr;
    thread_ = std::thread([this] {
      try {
        loop();
      } catch (...) {
        error_ = std::current_exception();
        done_ = 1;
      }
    });
    while (done_ == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void stop() {
    stopped_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  // Throws when other bytes than were sent arrived. Requires: stopped after a copy.
  void verify() {
    if (!h2d_) {
      gpu::check(cudaMemsetAsync(device_.data(), 0xff, kCopyBytes, stream_), "clearing");
      copy(true);  // what arrived on the host
    }
    if (gpu::count_wrong(device_.data(), kCopyBytes, kSeed, stream_) != 0) {
      throw std::runtime_error("a copy beside a CPU kernel did not arrive");
    }
  }
  // Bytes a second of each copy between two times. Requires: stopped.
  std::vector<double> rates(double from, double to) const {
    if (error_) {
      std::rethrow_exception(error_);
    }
    std::vector<double> out;
    for (const Copied& copied : ends_) {
      if (copied.begin >= from && copied.end <= to) {
        out.push_back(static_cast<double>(kCopyBytes) / copied.seconds);
      }
    }
    return out;
  }
  const char* direction() const { return h2d_ ? "h2d" : "d2h"; }

 private:
  static constexpr std::uint32_t kSeed = 9;

  void copy(bool h2d) const {
    void* to = h2d ? device_.data() : host_.data();
    const void* from = h2d ? host_.data() : device_.data();
    gpu::check(cudaMemcpyAsync(to, from, kCopyBytes,
                               h2d ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream_),
               "copying");
  }

  // Two copies are queued at a time; waiting sleeps, so it takes no core from the kernel.
  void loop() {
    double before = 0;
    for (std::size_t i = 0; !stopped_; ++i) {
      copy(h2d_);
      events_[i % 3].record(stream_);
      if (i > 0) {
        const gpu::Event& last = events_[(i + 2) % 3];
        gpu::check(cudaEventSynchronize(last), "waiting for a copy");
        const double end = now();
        if (i > 1) {
          ends_.push_back({before, end, seconds_between(events_[(i + 1) % 3], last)});
          ++done_;
        }
        before = end;
      }
    }
    stream_.synchronize();
  }

  bool h2d_;
  gpu::DeviceBuffer device_;
  gpu::PinnedBuffer host_;
  gpu::Stream stream_;
  std::array<gpu::Event, 3> events_{gpu::Event(cudaEventBlockingSync),
                                    gpu::Event(cudaEventBlockingSync),
                                    gpu::Event(cudaEventBlockingSync)};
  std::thread thread_;
  std::atomic<bool> stopped_{false};
  std::atomic<int> done_{0};
  std::vector<Copied> ends_;
  std::exception_ptr error_;
};

struct Case {
  const char* kernel;
  int threads;
  const char* copies;
};

std::vector<Case> cases_of(const Run& run, int cores) {
  std::vector<int> threads{cores};
  for (const int part : {2, 4}) {
    if (cores / part >= 1 && cores / part < threads.back()) {
      threads.push_back(cores / part);
    }
  }
  std::vector<Case> cases;
  for (const char* kernel : {"adam_f32", "mul_f32", "copy_f32"}) {
    for (const int count : threads) {
      for (const char* copies : {"none", "h2d", "d2h", "both"}) {
        const bool corner = std::strcmp(copies, "none") == 0 || std::strcmp(copies, "both") == 0;
        if (!run.quick() || (corner && count == cores)) {
          cases.push_back({kernel, count, copies});
        }
      }
    }
  }
  return cases;
}

At place(const Case& c, const char* what) {
  return {{"kernel", std::string(c.kernel)},
          {"threads", std::int64_t{c.threads}},
          {"copies", std::string(c.copies)},
          {"what", std::string(what)}};
}

}  // namespace

void beside_copies(const Run& run) {
  Pool pool;
  const Arrays arrays(pool);
  Copier h2d(true), d2h(false);
  CpuArguments arguments;
  arguments.scale = -1.0F;  // as random afterwards, and neither shrinking nor growing
  for (const Case& c : cases_of(run, pool.size())) {
    const CpuKernel& kernel = find_cpu_kernel(c.kernel);
    std::vector<Copier*> copiers;
    for (Copier* copier : {&h2d, &d2h}) {
      if (std::strcmp(c.copies, "both") == 0 || std::strcmp(c.copies, copier->direction()) == 0) {
        copiers.push_back(copier);
        copier->start();
      }
    }
    const auto pass = [&] {
      run_cpu_kernel(kernel, arrays.buffers(), kElements, pool, c.threads, arguments);
    };
    pass();  // warm
    const double begin = now();
    std::vector<double> samples = time_host(pass, {0, 3, 25, run.quick() ? 0.1 : 0.2});
    const double end = now();
    for (Copier* copier : copiers) {
      copier->stop();
    }
    run.point(place(c, "kernel"), std::move(samples));
    for (Copier* copier : copiers) {
      copier->verify();
      At at = place(c, "copy");
      at.emplace_back("direction", std::string(copier->direction()));
      std::vector<double> rates = copier->rates(begin, end);
      if (!rates.empty()) {  // a link so slow that no copy fits between two passes
        run.point(std::move(at), std::move(rates), Unit::kBytesPerSecond);
      }
    }
  }
}

}  // namespace offsim::kernels::gpu_bench
