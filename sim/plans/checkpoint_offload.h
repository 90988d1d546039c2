// DeepSpeed's checkpoints in host memory: activation_checkpointing.cpu_checkpointing (source:
// runtime/activation_checkpointing/checkpointing.py, offload_activations.py).
//
// A checkpoint is the 16-bit input of a layer, 2 T h bytes; a micro-batch has L of them.
//   since 0.19.6    both directions on a stream of their own, host memory pinned. Behind a layer's
//                   forward its checkpoint is the newest, which stays on the GPU; the one before
//                   begins to leave when the forward is done, and is dropped two checkpoints
//                   later. Backward: the newest is there, the one before is taken from what has
//                   not been dropped, each of the others comes back when its layer asks for it;
//                   compute waits, the host does not. D2H of L - 1, H2D of L - 2, host: L - 1
//                   blocks. DeepSpeed keeps 64 free ones for the next forward; of the others
//                   PyTorch keeps the pinned blocks, and each is made from a pageable one again
//   before, and with partition_activations
//                   D2H into a new pageable tensor before the layer's forward, H2D before its
//                   recomputation, both keep the host. D2H of L, H2D of L. Partitions are of the
//                   one GPU: a copy on the GPU that is sent instead
// A dropped checkpoint's memory is free once its copy is done: a host that is layers ahead of the
// GPU finds it taken. DeepSpeed recomputes a whole layer, also its last product, and holds the
// result meanwhile. It is models that call deepspeed.checkpointing.checkpoint: Hugging Face's own
// gradient_checkpointing does not. Left out: the same for these
// (get_checkpoint_hidden_states_offloading_ctx_manager); that PyTorch waits for such copies before
// it runs out of memory; further blocks when a forward is issued before the copies of the last
// backward are done; one number a checkpoint that stays on the GPU; contiguous_memory_optimization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/plans/job.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

// Appends what the plans of DeepSpeed have of it.
void add_checkpoint_offload_options(std::vector<OptionSpec>& options);
// Refuses activation_offload beside it; appends what has no effect, and of which models it is.
void check_checkpoint_offload(const Job& job, std::vector<std::string>& warnings);

class CheckpointOffload {
 public:
  // `checkpoint`: its bytes. Does nothing for a plan without these options.
  CheckpointOffload(const Job& job, runtime::Recorder& gpu, Bytes checkpoint);

  bool active() const { return kind_ != Kind::kNone; }
  // Around a layer's forward, in their order; then around its backward.
  void before_forward(std::size_t layer);
  void after_forward(std::size_t layer);
  void restore(std::size_t layer);
  void drop(std::size_t layer);

 private:
  enum class Kind : std::uint8_t { kNone, kBlocking, kStreamed };
  struct Checkpoint {
    std::optional<runtime::Buffer> gpu, host;
    std::optional<runtime::Event> sent;
    bool returned = false;
  };
  static Kind kind_of(const Job& job);
  void copy_down(Checkpoint& checkpoint);
  void send(Checkpoint& checkpoint);
  void take_host_block(Checkpoint& checkpoint);

  runtime::Recorder& gpu_;
  Kind kind_;
  Bytes bytes_;
  bool partitions_, exact_pinned_;
  runtime::Lane stream_;
  std::vector<Checkpoint> checkpoints_;
  std::int64_t free_blocks_ = 0;
};

}  // namespace offsim::plans
