#include "kernels/gpu/cuda.h"

#include <sched.h>

#include <exception>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace offsim::kernels::gpu {

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    cudaGetLastError();  // it is told here, not again at the next launch
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
  }
}

std::optional<std::string> no_gpu() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) {
    cudaGetLastError();
    return std::string("no GPU: ") + cudaGetErrorString(result);
  }
  if (count == 0) {
    return "no GPU: the driver sees none";
  }
  return std::nullopt;
}

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

std::string_view name_of(Type type) {
  switch (type) {
    case Type::kBf16:
      return "bf16";
    case Type::kFp16:
      return "fp16";
    case Type::kTf32:
      return "tf32";
    case Type::kFp32:
      return "fp32";
  }
  throw std::logic_error("a type without a name");
}

std::size_t bytes_of(Type type) { return type == Type::kBf16 || type == Type::kFp16 ? 2 : 4; }

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::synchronize() const { check(cudaStreamSynchronize(stream_), "waiting for a stream"); }

Event::Event(unsigned flags) { check(cudaEventCreateWithFlags(&event_, flags), "making an event"); }
Event::~Event() { cudaEventDestroy(event_); }
void Event::record(cudaStream_t stream) const {
  check(cudaEventRecord(event_, stream), "recording an event");
}

double seconds_between(const Event& from, const Event& to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from, to), "reading events");
  return static_cast<double>(milliseconds) / 1e3;
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : size_(bytes) {
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), "allocating GPU memory");
  data_ = static_cast<std::byte*>(data);
}
DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PinnedBuffer::PinnedBuffer(std::size_t bytes, int node) : size_(bytes) {
  void* data = nullptr;
  const auto allocate = [&] {
    check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
          "allocating pinned memory");
  };
  if (node < 0) {
    allocate();
  } else {
    on_node(node, allocate);
  }
  data_ = static_cast<std::byte*>(data);
}
PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) {
    cudaFreeHost(data_);
  }
}
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

namespace {

// "0-3,8" as a set of processors; nothing when the node has none.
std::optional<cpu_set_t> processors_of(int node) {
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  cpu_set_t set;
  CPU_ZERO(&set);
  int from = 0;
  while (file >> from) {
    int to = from;
    if (file.peek() == '-') {
      file.ignore();
      file >> to;
    }
    for (int cpu = from; cpu <= to && cpu < CPU_SETSIZE; ++cpu) {
      CPU_SET(static_cast<unsigned>(cpu), &set);
    }
    if (file.peek() == ',') {
      file.ignore();
    }
  }
  return CPU_COUNT(&set) > 0 ? std::optional(set) : std::nullopt;
}

}  // namespace

std::vector<int> numa_nodes() {
  std::vector<int> nodes;
  for (int node = 0; node < 64; ++node) {
    if (processors_of(node)) {
      nodes.push_back(node);
    }
  }
  return nodes.empty() ? std::vector<int>{0} : nodes;
}

void on_node(int node, const std::function<void()>& body) {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the device");
  std::exception_ptr error;
  std::thread thread([&] {
    try {
      // A node that /sys does not name, or a container that refuses it: unbound then.
      if (const auto set = node < 0 ? std::nullopt : processors_of(node)) {
        sched_setaffinity(0, sizeof *set, &*set);
      }
      check(cudaSetDevice(device), "choosing the device");
      body();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) {
    std::rethrow_exception(error);
  }
}

Graph::Graph(cudaStream_t stream, const std::function<void()>& queue) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a graph");
  cudaGraph_t graph = nullptr;
  try {
    queue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "capturing a graph");
  const cudaError_t result = cudaGraphInstantiate(&exec_, graph, 0);
  cudaGraphDestroy(graph);
  check(result, "instantiating a graph");
}
Graph::~Graph() { cudaGraphExecDestroy(exec_); }
void Graph::launch(cudaStream_t stream) const {
  check(cudaGraphLaunch(exec_, stream), "launching a graph");
}

}  // namespace offsim::kernels::gpu
