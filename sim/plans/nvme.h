// DeepSpeed's drive tier: what of the parameters and the optimizer's states lives on NVMe and how
// it comes and goes (source: runtime/swap_tensor/*.py, csrc/aio; ZeRO-Infinity, arXiv 2104.07857).
//
// A handle does one request after the other; `in_flight` = threads x queue depth x block bytes are
// under way at a time, half of that on average when a batch is waited for before the next is
// submitted (overlap_events false). Direct I/O through locked buffers.
//
// Parameters: a 16-bit parameter of at least max(1 MiB, block) bytes whose sub-group is beyond
// max_in_cpu is read into one of buffer_count buffers of buffer_size elements when it is fetched,
// the host waiting, or before that when a prefetch asked for it. The buffer is given back when the
// parameter leaves the GPU; nothing is written then. After Adam of a sub-group its parameters are
// cast into a buffer of 2 B an element of the largest sub-group and written, the host waiting.
// Optimizer: p, m, v and the gradient of a sub-group, 4 B each; a sub-group of less than
// max(1 MiB, block) stays in CPU memory. Gradients go out in the last backward, when their bucket
// is reduced: blocking D2H into the current buffer, an asynchronous write when it is full, the host
// waiting for all writes when no buffer is free; tensors under 1 MiB stay on the GPU as fp32 and
// come with their sub-group. In the step, a sub-group after the other:
//   plain        read p, m, v (12 B), wait; read g (4 B), wait; Adam; write p, m, v (12 B), wait
//   pipeline_read    the next sub-group's reads are submitted as soon as this one's have come
//   pipeline_write   a write is waited for only before the next one
// All these buffers were pinned by PyTorch (a power of two, at DMA rate) before 0.19.4; since then
// they are locked, which CUDA does not know of: copies are pageable (#8212). Left out: GPUDirect
// (use_gds), fast initialisation, the alignment of requests.
//
// MemAscend (memascend.cpp) replaces parts of it: DriveComponents.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/plans/job.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

struct DriveComponents {
  // Parameters' buffers by class instead of all alike: a class is the parameters of one size. Each
  // has as many buffers as layers in flight need, which are as many as the buffers of the other
  // pool would serve, at least one; embedding and head have one each.
  bool adaptive_pool = false;
  bool exact_pinned = false;   // pinned memory by the byte, and none of it cached
  bool raw_engine = false;     // blocks of the device without a file system, always a full queue
  bool fused_check = false;    // one pass over the gradients, priced as the pass that zeroes them
  bool narrow_states = false;  // p, m, v and the gradient 2 B each

  std::int64_t state_bytes() const { return narrow_states ? 2 : 4; }
};
// All as ZeRO-Infinity has it unless the plan has options for them.
DriveComponents drive_components(const Options& options);

// What every handle is made with.
Bytes aio_in_flight(const Options& options);
// The smallest tensor that is worth a request.
std::int64_t least_swapped_bytes(const Options& options);

class ParameterSwapper {
 public:
  // `on_drive`: by parameter, its elements when it lives on the drive, else 0. `largest`: elements
  // of the largest sub-group that is written, 0 when none is.
  ParameterSwapper(const Job& job, runtime::Recorder& gpu, std::vector<std::int64_t> on_drive,
                   std::int64_t largest);

  // What its buffers are for a copy.
  runtime::Space buffers() const;
  // It is in memory, or its read was submitted.
  bool in_memory(std::size_t parameter) const { return held_[parameter] != Held::kOnDrive; }
  // Submits its read; false when no buffer is free.
  bool start_read(std::size_t parameter);
  // Host waits until all of these are in memory.
  void bring(const std::vector<std::size_t>& parameters);
  // It left the GPU: its buffer is free.
  void drop(std::size_t parameter);
  // After Adam of a sub-group and a cast, the host waiting.
  void write_back(std::int64_t elements);

 private:
  enum class Held : std::uint8_t { kOnDrive, kComing, kInMemory };

  void make_pool(const Job& job);
  std::int64_t& free_buffers(std::size_t parameter);

  runtime::Recorder& gpu_;
  Bytes in_flight_;
  bool adaptive_pool_, locked_;
  std::vector<std::int64_t> on_drive_;
  std::vector<Held> held_;
  std::vector<std::size_t> coming_;                    // since the last wait for reads
  std::map<std::int64_t, std::int64_t> free_buffers_;  // by class, or all under 0
  runtime::Lane reads_ = runtime::kHost, writes_ = runtime::kHost;
};

class OptimizerSwapper {
 public:
  // `sub_groups`: elements of each, 0 for one that is not on the drive. `gradients`: elements of
  // tensors whose gradients are worth a request.
  OptimizerSwapper(const Job& job, runtime::Recorder& gpu,
                   const std::vector<std::int64_t>& sub_groups, std::int64_t gradients);

  std::int64_t state_bytes() const { return state_bytes_; }
  // The gradient of a tensor, in state_bytes a number, leaves the GPU on `stream`, where `gradient`
  // holds it; small ones stay.
  void gradient_out(runtime::Lane stream, std::size_t sub_group, std::int64_t elements,
                    runtime::Buffer gradient);
  // Sub-groups on the drive, in their order: p, m, v, g are in memory once swap_in returns.
  void swap_in(std::size_t sub_group);
  void swap_out(std::size_t sub_group);

 private:
  struct Small {
    std::int64_t elements;
    runtime::Buffer gradient;
  };
  struct SubGroup {
    std::int64_t elements = 0;
    std::int64_t written = 0;  // elements of its gradients, in this step
    std::vector<Small> small;  // its gradients that stayed on the GPU
  };

  bool pipelined() const { return pipeline_read_ || pipeline_write_; }
  runtime::Space buffers() const;
  // The next sub-group on the drive; their number when there is none.
  std::size_t after(std::size_t sub_group) const;
  void read_states(std::size_t sub_group);

  runtime::Recorder& gpu_;
  Bytes in_flight_;
  std::int64_t state_bytes_, least_bytes_;
  std::vector<SubGroup> sub_groups_;
  std::int64_t buffer_elements_ = 0, buffers_;
  bool locked_, pipeline_read_, pipeline_write_;
  runtime::Lane reads_, writes_;
  std::int64_t in_buffer_ = 0, free_buffers_ = 0;  // of the gradients on their way out
  bool gradients_out_ = false;
  bool prefetched_ = false;
  std::optional<runtime::Event> last_write_;
};

}  // namespace offsim::plans
