// The CUDA runtime as values that clean up after themselves, and clocks for what a GPU does.
//
// Method, as nvbandwidth's: a spinning kernel holds the stream until all work is queued, so that
// the host's launches are no part of the time; events bracket the work; several samples, of which
// the reader takes the median. Nothing of the card's settings is changed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace offsim::kernels::gpu {

// Throws std::runtime_error "WHAT: the driver's words".
void check(cudaError_t result, const char* what);

// "no GPU: the driver's words", or nothing when there is one.
std::optional<std::string> no_gpu();
int gpu_count();  // 0 without a driver

enum class Type : std::uint8_t { kBf16, kFp16, kTf32, kFp32 };
std::string_view name_of(Type type);
std::size_t bytes_of(Type type);  // of an element

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }
  void record(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};
// Requires: both are timed and have happened.
double seconds_between(const Event& from, const Event& to);

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Page-locked host memory, allocated (which faults it in) by a thread bound to a NUMA node.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes, int node = -1);  // -1: wherever the thread runs
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// NUMA nodes that have processors, from /sys; {0} where it does not tell.
std::vector<int> numa_nodes();
// Runs `body` in a thread bound to the node (-1: unbound), its device that of the caller. What the
// body throws is thrown here.
void on_node(int node, const std::function<void()>& body);

// What was queued while a stream was captured, launched as one.
class Graph {
 public:
  Graph(cudaStream_t stream, const std::function<void()>& queue);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const;

 private:
  cudaGraphExec_t exec_ = nullptr;
};

// Holds a stream: what is queued behind start() runs after release(). It gives up by itself after
// two seconds, so nothing hangs. Requires: what is queued behind it ran once before (loading a
// kernel or allocating waits for the device).
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  void start(cudaStream_t stream);
  void release();
  void check_held() const;  // throws when it gave up. Requires: the stream was synchronised

 private:
  PinnedBuffer words_;  // [0]: go on; [1]: gave up
};

// How a call is timed.
struct Timing {
  double seconds = 0.03;       // in all samples together
  int samples = 5;             // at least
  double graph_below = 60e-6;  // shorter calls are timed inside a graph
  int graph_calls = 20;        // that many of them
  // Without: for what is too much to wait behind a held stream, a graph of more than 500 kernels.
  bool hold = true;
};

// A stream with its clock.
class Timer {
 public:
  const Stream& stream() const { return stream_; }
  // Seconds on the GPU of what `queue` puts into stream(). Requires: fewer than 500 entries, all of
  // which ran once before.
  double held(const std::function<void()>& queue);
  // The same without the hold: the GPU does what `before` queues while the host queues the rest.
  double loose(const std::function<void()>& before, const std::function<void()>& queue);
  // Seconds a call, in samples: call(i) queues the i-th call into stream(). Warms up first.
  std::vector<double> per_call(const std::function<void(int)>& call, const Timing& timing = {});

 private:
  Stream stream_;
  Hold hold_;
  Event begin_, end_;
};

// Random data, never zeros (they draw less power and run faster). Normal with deviation 1; words of
// a hash, which count_wrong finds again.
void fill_normal(void* data, Type type, std::size_t elements, std::uint32_t seed, cudaStream_t s);
void fill_words(void* data, std::size_t bytes, std::uint32_t seed, cudaStream_t stream);
// Words of device memory that are not what fill_words wrote.
std::int64_t count_wrong(const void* data, std::size_t bytes, std::uint32_t seed, cudaStream_t s);

void empty_kernel(cudaStream_t stream);  // the shortest kernel that does anything

}  // namespace offsim::kernels::gpu
