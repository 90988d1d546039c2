// What the host pays for calls to the driver, and the GPU for going from one stream to another.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gpu_benches.h"

namespace offsim::kernels::gpu_bench {

namespace {

// Host seconds a call of a thousand in a row. The GPU is idle before; it must keep up, or the host
// would wait for room in the queue: each of these calls costs the GPU less than the host.
std::vector<double> host_seconds(const gpu::Stream& stream, const std::function<void()>& call,
                                 int calls = 1000) {
  std::vector<double> samples;
  for (int sample = 0; sample < 10; ++sample) {
    stream.synchronize();
    const double begin = now();
    for (int i = 0; i < calls; ++i) {
      call();
    }
    if (sample > 0) {  // the first warms up
      samples.push_back((now() - begin) / calls);
    }
  }
  stream.synchronize();
  return samples;
}

}  // namespace

void gpu_memory(const Run& run) {
  gpu::check(cudaFree(nullptr), "making a context");
  std::size_t free = 0, total = 0;
  gpu::check(cudaMemGetInfo(&free, &total), "asking for the free memory");
  const auto point = [&](const char* what, std::size_t bytes) {
    run.point({{"what", std::string(what)}}, {static_cast<double>(bytes)}, Unit::kBytes);
  };
  point("total", total);
  point("free", free);
  // Of ours alone where nobody else uses the GPU; what the driver keeps for itself is in it.
  point("context", total - free);
}

void launch(const Run& run) {
  const gpu::Stream stream;
  gpu::empty_kernel(stream);
  run.point({{"how", std::string("plain")}},
            host_seconds(stream, [&] { gpu::empty_kernel(stream); }));
  const gpu::Graph graph(stream, [&] { gpu::empty_kernel(stream); });
  // A graph costs the GPU more than a kernel: fewer of them, which the queue holds.
  run.point({{"how", std::string("graph")}}, host_seconds(
                                                 stream, [&] { graph.launch(stream); }, 200));
}

void event_record(const Run& run) {
  const gpu::Stream stream;
  const gpu::Event event(cudaEventDisableTiming);
  run.point({}, host_seconds(stream, [&] { event.record(stream); }));
}

void event_wait(const Run& run) {
  constexpr int kCalls = 200;
  const gpu::Stream stream, other;
  const gpu::Event event(cudaEventDisableTiming);
  gpu::Hold hold;
  gpu::empty_kernel(other);
  std::vector<double> samples;
  for (int sample = 0; sample < 10; ++sample) {
    hold.start(other);  // waiting for what has happened would be nothing to do
    event.record(other);
    const double begin = now();
    for (int i = 0; i < kCalls; ++i) {
      gpu::check(cudaStreamWaitEvent(stream, event, 0), "waiting for an event");
    }
    if (sample > 0) {  // the first warms up
      samples.push_back((now() - begin) / kCalls);
    }
    hold.release();
    stream.synchronize();
    other.synchronize();
  }
  run.point({}, std::move(samples));
}

void synchronize(const Run& run) {
  const gpu::Stream stream;
  gpu::empty_kernel(stream);
  run.point({}, host_seconds(stream, [&] { stream.synchronize(); }));
}

void stream_switch(const Run& run) {
  constexpr int kPairs = 50;
  gpu::Timer timer;
  const gpu::Stream other;
  const gpu::Event there(cudaEventDisableTiming), back(cudaEventDisableTiming);
  gpu::empty_kernel(other);
  gpu::empty_kernel(timer.stream());
  other.synchronize();
  timer.stream().synchronize();
  const auto on_one = [&] {
    for (int i = 0; i < kPairs; ++i) {
      gpu::empty_kernel(timer.stream());
      gpu::empty_kernel(timer.stream());
    }
  };
  const auto on_two = [&] {
    for (int i = 0; i < kPairs; ++i) {
      gpu::empty_kernel(timer.stream());
      there.record(timer.stream());
      gpu::check(cudaStreamWaitEvent(other, there, 0), "waiting for an event");
      gpu::empty_kernel(other);
      back.record(other);
      gpu::check(cudaStreamWaitEvent(timer.stream(), back, 0), "waiting for an event");
    }
  };
  std::vector<double> samples;
  for (int sample = 0; sample < 12; ++sample) {
    const double one = timer.held(on_one);
    const double two = timer.held(on_two);
    if (sample > 1) {
      samples.push_back(std::max(0.0, two - one) / (2 * kPairs));  // two switches a pair
    }
  }
  run.point({}, std::move(samples));
}

void kernel_floor(const Run& run) {
  gpu::Timer timer;
  gpu::Timing timing;
  timing.graph_calls = 100;
  run.point({}, timer.per_call([&](int) { gpu::empty_kernel(timer.stream()); }, timing));
}

}  // namespace offsim::kernels::gpu_bench
