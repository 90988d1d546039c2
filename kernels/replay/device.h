// What a replay asks of a GPU. One implementation uses CUDA (gpu/cuda_device.cpp), one in the tests
// pretends.
//
// Streams are named by their lane. A point is a place in a stream's order with a time stamp: an
// event of CUDA that is recorded once. A flag is a word that the host sets and streams wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/replay/program.h"

namespace offsim::kernels {

struct MemoryUse {
  std::string pool;        // gpu, pinned, pageable, drive
  std::int64_t bytes = 0;  // that the replay works in
  std::int64_t held = 0;   // that the program holds at its peak
};

class Device {
 public:
  virtual ~Device() = default;

  // Once, before all others: makes streams, memory and whatever the kernels need.
  virtual void prepare(const Program& program, std::uint32_t points, std::uint32_t flags) = 0;

  // When all else is prepared: ties the GPU's clock to the host's.
  virtual void start() = 0;

  // By the issuing thread alone.
  virtual void launch(std::uint32_t stream, std::uint32_t work, std::size_t kernel) = 0;  // one
  virtual void copy_to_gpu(std::uint32_t stream, const std::byte* from, std::int64_t bytes) = 0;
  virtual void copy_to_host(std::uint32_t stream, std::byte* to, std::int64_t bytes) = 0;
  virtual void mark(std::uint32_t stream, std::uint32_t point) = 0;
  virtual void wait_point(std::uint32_t stream, std::uint32_t point) = 0;
  virtual void wait_flag(std::uint32_t stream, std::uint32_t flag) = 0;
  virtual void synchronize_stream(std::uint32_t stream) = 0;

  // By any thread. Requires: the point was marked.
  virtual void set_flag(std::uint32_t flag) = 0;
  virtual void synchronize_point(std::uint32_t point) = 0;

  // When the streams reached the first `count` points, on the host's clock (now()). Requires: they
  // have.
  virtual std::vector<double> seconds(std::uint32_t count) = 0;

  // Pinned memory, as large as any piece of a copy between pinned memory and the GPU.
  virtual std::byte* pinned() = 0;
  virtual std::int64_t pinned_bytes() const = 0;
  virtual std::vector<MemoryUse> memory() const = 0;
};

// Throws std::runtime_error "no GPU: ..." where there is none.
std::unique_ptr<Device> make_cuda_device();

}  // namespace offsim::kernels
