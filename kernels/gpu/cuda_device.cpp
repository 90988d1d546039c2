// A replay's device through CUDA: streams, events, copies, and kernels that move and compute as
// much as the program's.
//
// Memory is in two rings. Operands of products come from one that is only read, random numbers;
// results, copies to the GPU and elementwise kernels go through the other, where an elementwise
// kernel reads what was written before it, as in a step. Together they are as large as what the
// program holds, or as the card allows.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "kernels/bench.h"
#include "kernels/gpu/attention.h"
#include "kernels/gpu/cuda.h"
#include "kernels/gpu/gemm.h"
#include "kernels/gpu/cuda_kernels.h"
#include "kernels/replay/device.h"
#include "kernels/replay/event_times.h"
#include "kernels/replay/host_limits.h"

namespace offsim::kernels {

namespace {

using gpu::check;

constexpr std::int64_t kReserve = std::int64_t{3} << 30;  // of the card, for what CUDA needs itself
constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A part of the GPU's memory that is gone through again and again.
class Ring {
 public:
  Ring() = default;
  Ring(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* next(std::int64_t bytes) {
    const std::int64_t size = aligned(std::max<std::int64_t>(bytes, 1));
    if (size > bytes_) {
      throw std::logic_error("a kernel is larger than the memory made for it");
    }
    if (at_ + size > bytes_) {
      at_ = 0;
    }
    std::byte* const out = data_ + at_;
    at_ += size;
    return out;
  }
  // What was handed out last, at least so much; the ring's beginning where there is not.
  const std::byte* before(std::int64_t bytes) const {
    return data_ + std::max<std::int64_t>(0, at_ - aligned(bytes));
  }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t at_ = 0;
};

gpu::Type type_of(const Kernel& kernel) {
  switch (kernel.type) {
    case Kernel::Type::kBf16:
      return gpu::Type::kBf16;
    case Kernel::Type::kFp16:
      return gpu::Type::kFp16;
    case Kernel::Type::kFp32:
      break;
  }
  return gpu::Type::kFp32;
}

// What a kernel reads from the one ring and writes to the other.
struct Needs {
  std::int64_t source = 0, sink = 0;
};

// A stream with what its products share.
struct StreamState {
  gpu::Stream stream;
  gpu::Lt lt;
};

class CudaDevice final : public Device {
 public:
  CudaDevice() {
    if (const auto reason = gpu::no_gpu()) {
      throw std::runtime_error(*reason);
    }
  }
  ~CudaDevice() override {
    cudaDeviceSynchronize();  // a failure has been said already
    for (const cudaEvent_t event : points_) {
      cudaEventDestroy(event);
    }
  }

  void prepare(const Program& program, std::uint32_t points, std::uint32_t flags) override {
    program_ = &program;
    streams_.resize(program.lanes.size());
    for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
      if (program.lanes[lane].kind == LaneKind::kStream) {
        streams_[lane] = std::make_unique<StreamState>();
      }
    }
    plan_kernels();
    make_memory();
    points_.resize(points);
    for (cudaEvent_t& event : points_) {
      check(cudaEventCreateWithFlags(&event, cudaEventDefault), "making an event");
    }
    make_flags(flags);
  }

  // An event on an idle device between two readings of the host's clock, the closest of several.
  void start() override {
    check(cudaDeviceSynchronize(), "waiting for the GPU");
    const gpu::Stream stream;
    double closest = 1e9;
    for (int i = 0; i < 50; ++i) {
      auto event = std::make_unique<gpu::Event>();
      const double before = now();
      event->record(stream);
      stream.synchronize();
      const double apart = now() - before;
      if (apart < closest) {
        closest = apart;
        base_ = std::move(event);
        base_seconds_ = before + apart / 2;
      }
    }
  }

  void launch(std::uint32_t stream, std::uint32_t work, std::size_t index) override {
    const Kernel& kernel = program_->works[work].kernels[index];
    const cudaStream_t on = streams_[stream]->stream;
    switch (kernel.kind) {
      case Kernel::Kind::kGemm:
      case Kernel::Kind::kAttention:
        return plan(stream, kernel).run(source_, sink_, on);
      case Kernel::Kind::kElementwise: {
        const std::int64_t half = kernel.bytes / 2;
        const std::byte* const from = sink_.before(half);
        replay_elementwise(from, sink_.next(half), half, kernel.indexed, on);
        return;
      }
      case Kernel::Kind::kAdam: {
        const std::int64_t width = kernel.type == Kernel::Type::kFp32 ? 4 : 2;
        const std::int64_t bytes = aligned(kernel.elements * width);
        std::byte* const arrays = sink_.next(4 * bytes);
        replay_adam(arrays, arrays + bytes, arrays + 2 * bytes, arrays + 3 * bytes, kernel.elements,
                    width == 4, on);
        return;
      }
    }
  }

  void copy_to_gpu(std::uint32_t stream, const std::byte* from, std::int64_t bytes) override {
    check(cudaMemcpyAsync(sink_.next(bytes), from, static_cast<std::size_t>(bytes),
                          cudaMemcpyHostToDevice, streams_[stream]->stream),
          "copying to the GPU");
  }
  void copy_to_host(std::uint32_t stream, std::byte* to, std::int64_t bytes) override {
    check(cudaMemcpyAsync(to, source_.next(bytes), static_cast<std::size_t>(bytes),
                          cudaMemcpyDeviceToHost, streams_[stream]->stream),
          "copying to the host");
  }

  void mark(std::uint32_t stream, std::uint32_t point) override {
    check(cudaEventRecord(points_.at(point), streams_[stream]->stream), "recording an event");
  }
  void wait_point(std::uint32_t stream, std::uint32_t point) override {
    check(cudaStreamWaitEvent(streams_[stream]->stream, points_.at(point), 0),
          "waiting for an event");
  }
  void wait_flag(std::uint32_t stream, std::uint32_t flag) override {
    const auto address = reinterpret_cast<CUdeviceptr>(flags_.data()) + flag * sizeof(unsigned);
    const CUresult result =
        wait_value_(streams_[stream]->stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ);
    if (result != CUDA_SUCCESS) {
      throw std::runtime_error("a stream cannot wait for the host (cuStreamWaitValue32: " +
                               std::to_string(static_cast<int>(result)) + ")");
    }
  }
  void synchronize_stream(std::uint32_t stream) override { streams_[stream]->stream.synchronize(); }

  void set_flag(std::uint32_t flag) override {
    auto* const words = reinterpret_cast<unsigned*>(flags_.data());
    __atomic_store_n(words + flag, 1U, __ATOMIC_RELEASE);
  }
  void synchronize_point(std::uint32_t point) override {
    check(cudaEventSynchronize(points_.at(point)), "waiting for an event");
  }
  std::vector<double> seconds(std::uint32_t count) override {
    const auto between = [this](std::optional<std::uint32_t> from, std::uint32_t to) {
      float milliseconds = 0;
      const cudaEvent_t begin = from ? points_.at(*from) : static_cast<cudaEvent_t>(*base_);
      check(cudaEventElapsedTime(&milliseconds, begin, points_.at(to)), "reading an event");
      return milliseconds;
    };
    return event_times(count, base_seconds_, between);
  }

  std::byte* pinned() override { return pinned_.data(); }
  std::int64_t pinned_bytes() const override { return static_cast<std::int64_t>(pinned_.size()); }
  std::vector<MemoryUse> memory() const override {
    return {{"gpu", static_cast<std::int64_t>(memory_.size()), program_->peak.gpu},
            {"pinned", pinned_bytes(), program_->peak.pinned}};
  }

 private:
  // A product on memory of the rings, or attention on memory of its own.
  struct Plan {
    std::unique_ptr<gpu::Gemm> product;
    std::int64_t a = 0, b = 0, c = 0;  // bytes
    gpu::DeviceBuffer memory;
    std::unique_ptr<gpu::Attention> attention;

    void run(Ring& source, Ring& sink, cudaStream_t stream) const {
      if (attention) {
        attention->run(stream);
        return;
      }
      std::byte* const at = source.next(aligned(a) + b);
      product->run(at, at + aligned(a), sink.next(c), stream);
    }
  };
  using Key = std::tuple<std::uint32_t, int, int, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, bool>;

  static Key key_of(std::uint32_t stream, const Kernel& k) {
    const bool gemm = k.kind == Kernel::Kind::kGemm;
    return {stream,
            static_cast<int>(k.kind),
            static_cast<int>(k.type),
            gemm ? k.m : k.batch * k.heads,
            gemm ? k.n : k.sequence,
            gemm ? k.k : k.head_dim,
            gemm ? 0 : k.value_dim,
            gemm ? 0 : k.kv_heads,
            k.backward};
  }

  const Plan& plan(std::uint32_t stream, const Kernel& kernel) const {
    return plans_.at(key_of(stream, kernel));
  }

  void plan_kernels() {
    for (const Call& call : program_->calls) {
      if (call.kind != Call::Kind::kLaunch || !planned_.insert({call.lane, call.id}).second) {
        continue;
      }
      for (const Kernel& kernel : program_->works[call.id].kernels) {
        plan_kernel(call.lane, kernel);
      }
    }
    for (const Call& call : program_->calls) {
      if (call.kind == Call::Kind::kCopy) {
        std::int64_t& need = call.to == Tier::kGpu ? needs_.sink : needs_.source;
        const std::int64_t piece = (call.bytes + call.times - 1) / call.times;
        need = std::max(need, aligned(std::min(piece, arena_limit())));
      }
    }
  }

  void plan_kernel(std::uint32_t stream, const Kernel& kernel) {
    if (kernel.kind == Kernel::Kind::kElementwise) {
      needs_.sink = std::max(needs_.sink, 2 * aligned(kernel.bytes / 2 + 1));
      return;
    }
    if (kernel.kind == Kernel::Kind::kAdam) {
      needs_.sink = std::max(needs_.sink, 4 * aligned(4 * kernel.elements));
      return;
    }
    const auto [found, added] = plans_.try_emplace(key_of(stream, kernel));
    if (!added) {
      return;
    }
    Plan& plan = found->second;
    if (kernel.kind == Kernel::Kind::kAttention) {
      plan_attention(stream, kernel, plan);
      return;
    }
    const gpu::GemmShape shape{kernel.m, kernel.n, kernel.k, type_of(kernel), gpu::Layout::kNt};
    plan.a = static_cast<std::int64_t>(gpu::bytes_a(shape));
    plan.b = static_cast<std::int64_t>(gpu::bytes_b(shape));
    plan.c = static_cast<std::int64_t>(gpu::bytes_c(shape));
    needs_.source = std::max(needs_.source, 2 * kAlignment + plan.a + plan.b);
    needs_.sink = std::max(needs_.sink, aligned(plan.c));
    plan.product = std::make_unique<gpu::Gemm>(streams_[stream]->lt, shape);
  }

  // Heads of two widths as heads of one that take as many operations.
  void plan_attention(std::uint32_t stream, const Kernel& k, Plan& plan) {
    const std::int64_t even =
        k.backward ? (3 * k.head_dim + 2 * k.value_dim) / 5 : (k.head_dim + k.value_dim) / 2;
    const gpu::AttentionShape shape{k.batch, k.heads, k.sequence, (even + 7) / 8 * 8, k.backward};
    const std::size_t tensor = (gpu::attention_tensor_bytes(shape) + 255) / 256 * 256;
    plan.memory = gpu::DeviceBuffer(7 * tensor + gpu::attention_scratch_bytes(shape));
    const cudaStream_t on = streams_[stream]->stream;
    gpu::fill_normal(plan.memory.data(), gpu::Type::kBf16, plan.memory.size() / 2, 2, on);
    std::byte* const at = plan.memory.data();
    plan.attention = std::make_unique<gpu::Attention>(
        streams_[stream]->lt, shape,
        gpu::AttentionBuffers{at, at + tensor, at + 2 * tensor, at + 3 * tensor, at + 4 * tensor,
                              at + 5 * tensor, at + 6 * tensor, at + 7 * tensor},
        on);
  }

  void make_memory() {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for the GPU's memory");
    const std::int64_t most = static_cast<std::int64_t>(free) - kReserve;
    const std::int64_t needed = aligned(needs_.source) + aligned(needs_.sink);
    if (needed > most) {
      throw std::runtime_error("the largest kernels need " + std::to_string(needed >> 20) +
                               " MiB of the GPU, " +
                               std::to_string(std::max<std::int64_t>(0, most >> 20)) +
                               " are free; a smaller micro-batch or fewer layers fit");
    }
    const std::int64_t bytes = std::max(needed, std::min(program_->peak.gpu, most));
    const std::int64_t spare = (bytes - needed) / 2 / kAlignment * kAlignment;
    const std::int64_t source = aligned(needs_.source) + spare;
    memory_ = gpu::DeviceBuffer(static_cast<std::size_t>(bytes));
    const gpu::Stream stream;
    gpu::fill_normal(memory_.data(), gpu::Type::kBf16, memory_.size() / 2, 1, stream);
    stream.synchronize();
    source_ = Ring(memory_.data(), source);
    sink_ = Ring(memory_.data() + source, bytes - source);

    pinned_ = gpu::PinnedBuffer(static_cast<std::size_t>(arena_bytes(program_->peak.pinned)));
    for (std::size_t at = 0; at < pinned_.size(); at += memory_.size()) {
      check(cudaMemcpy(pinned_.data() + at, memory_.data(),
                       std::min(memory_.size(), pinned_.size() - at), cudaMemcpyDeviceToHost),
            "filling pinned memory");
    }
  }

  void make_flags(std::uint32_t flags) {
    flags_ = gpu::PinnedBuffer((static_cast<std::size_t>(flags) + 1) * sizeof(unsigned));
    std::fill_n(flags_.data(), flags_.size(), std::byte{0});
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    check(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &function, 12000,
                                           cudaEnableDefault, &found),
          "looking for cuStreamWaitValue32");
    if (found != cudaDriverEntryPointSuccess) {
      throw std::runtime_error("the driver has no cuStreamWaitValue32");
    }
    wait_value_ = reinterpret_cast<WaitValue>(function);
  }

  using WaitValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

  const Program* program_ = nullptr;
  std::vector<std::unique_ptr<StreamState>> streams_;  // by lane
  std::map<Key, Plan> plans_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> planned_;  // lane, work
  Needs needs_;
  gpu::DeviceBuffer memory_;
  Ring source_, sink_;
  gpu::PinnedBuffer pinned_, flags_;
  std::vector<cudaEvent_t> points_;
  std::unique_ptr<gpu::Event> base_;
  double base_seconds_ = 0;
  WaitValue wait_value_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device() { return std::make_unique<CudaDevice>(); }

}  // namespace offsim::kernels
