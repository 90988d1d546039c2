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
// parameter leaves the GPU; nothing is written then. The locked buffers are not registered with
// CUDA: copies from them are pageable.
// Optimizer: p, m, v and the gradient of a sub-group, 4 B each. Gradients go out during the last
// backward: blocking D2H into the current buffer, an asynchronous write when it is full, the host
// waiting for all writes when no buffer is free; tensors under 1 MiB stay on the GPU as fp32. In
// the step, a sub-group after the other:
//   plain        read p, m, v (12 B), wait; read g (4 B), wait; Adam; write p, m, v (12 B), wait
//   pipeline_read    the next sub-group's reads are submitted as soon as this one's have come
//   pipeline_write   a write is waited for only before the next one
// The buffers were pinned by PyTorch (a power of two, at DMA rate) before 0.19.4, locked and
// pageable since (#8212). Left out: GPUDirect (use_gds), fast initialisation.
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
  // `on_drive`: by parameter, its elements when it lives on the drive, else 0.
  ParameterSwapper(const Job& job, runtime::Recorder& gpu, std::vector<std::int64_t> on_drive);

  // Its home is memory, or its read was submitted.
  bool in_memory(std::size_t parameter) const;
  // Submits its read; false when no buffer is free.
  bool start_read(std::size_t parameter);
  // Host waits until it is in memory. Returns what kind of memory that is for a copy.
  runtime::Space bring(std::size_t parameter);
  // It left the GPU: its buffer is free.
  void drop(std::size_t parameter);
  // After Adam of a sub-group: cast and written, the host waiting.
  void write_back(std::int64_t elements);

 private:
  void make_pool(const Job& job);
  std::int64_t& free_buffers(std::size_t parameter);

  runtime::Recorder& gpu_;
  Bytes in_flight_;
  DriveComponents components_;
  std::vector<std::int64_t> on_drive_;
  std::vector<bool> read_;
  std::map<std::int64_t, std::int64_t> free_buffers_;  // by class, or all under 0
  runtime::Lane reads_, writes_;
};

class OptimizerSwapper {
 public:
  // `largest`: elements of the largest sub-group.
  OptimizerSwapper(const Job& job, runtime::Recorder& gpu, std::int64_t elements,
                   std::int64_t largest);

  bool swaps(std::int64_t sub_group_elements) const;
  std::int64_t state_bytes() const { return state_bytes_; }
  // The gradient of a tensor, in state_bytes a number, leaves the GPU on `stream`, where `gradient`
  // holds it; small ones stay.
  void gradient_out(runtime::Lane stream, std::int64_t elements, runtime::Buffer gradient);
  // Sub-groups in their order: p, m, v, g are in memory once swap_in returns. `next`: elements of
  // the one after it, 0 when it is the last.
  void swap_in(std::int64_t elements, std::int64_t next);
  void swap_out(std::int64_t elements, bool last);
  // The step is over: gradients that had stayed on the GPU are gone.
  void end_step();

 private:
  void read_states(std::int64_t elements);

  runtime::Recorder& gpu_;
  Bytes in_flight_;
  std::int64_t state_bytes_, least_bytes_;
  std::int64_t buffer_elements_, buffers_;
  bool locked_, pipeline_read_, pipeline_write_;
  runtime::Lane reads_, writes_;
  std::int64_t in_buffer_ = 0, free_buffers_ = 0;  // of the gradients on their way out
  bool gradients_out_ = false;
  bool prefetched_ = false;
  std::optional<runtime::Event> last_write_;
  std::vector<runtime::Buffer> small_;
};

}  // namespace offsim::plans
