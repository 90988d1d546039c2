// DeepSpeed stage 3 up to the optimizer: where things live, and forward and backward under its
// hooks (source: runtime/zero/stage3.py, parameter_offload.py). What follows, the optimizer's step,
// is the plan's: zero3-offload, superoffload.
//
// Bytes a parameter, one GPU (n parameters):
//   16-bit parameters     2n  GPU in one piece; or CPU in one piece, pinned whatever pin_memory
//                             says, rounded to a power of two, and the blocks in which they were
//                             first pinned stay cached; or NVMe: max_in_cpu elements are such a
//                             piece, for the first sub-groups as long as they fit; of the others
//                             small tensors have a block each on the CPU
//   fp32 master           4n  GPU; or CPU, pageable; or NVMe
//   fp32 gradient         4n  a block a sub-group on the CPU, pinned with pin_memory; on the GPU it
//                             appears in the step; or NVMe
//   16-bit gradients      2n  where the optimizer is (of NVMe: the CPU)
//   Adam's m and v        8n  from the first step on, where the master is (pageable)
// Frozen parameters (adapters) have none but the first row, 2 bytes each where parameters are: on
// the CPU a block each, pinned with pin_memory. They are in no sub-group. Of 4-bit ones (QLoRA)
// DeepSpeed sees their storage, four in a 16-bit element; their constants stay on the GPU.
// Checkpoints on the host: checkpoint_offload.h.
// GPU beside: the bucket of reduce_bucket_size 16-bit elements, and gathered parameters
// (gather_window.h). A sub-group closes when it has sub_group_size elements or more. With ratio < 1
// (Twin-Flow) some sub-groups keep their optimizer on the GPU: the last ones before 0.18, since
// then the first.
#pragma once

#include <optional>
#include <vector>

#include "sim/plans/gather_window.h"
#include "sim/plans/gpu_model.h"
#include "sim/plans/nvme.h"
#include "sim/plans/stage3_gradients.h"

namespace offsim::plans {

Tier tier(const std::string& device);  // "none", "cpu" or "nvme"

struct SubGroup {
  std::int64_t elements = 0;
  std::int64_t tensors = 0;
  Tier optimizer = Tier::kGpu;
  bool in_piece = true;                // its 16-bit parameters, wherever that piece is
  std::int64_t elements_on_drive = 0;  // of its 16-bit parameters
};

// As DeepSpeed makes them of the parameters in the order of registration, and the range of those
// whose optimizer Twin-Flow keeps on the GPU.
std::vector<SubGroup> make_sub_groups(const Job& job);
struct Range {
  std::size_t from, to;
};
Range kept_on_gpu(const Job& job, std::size_t sub_groups);

class Stage3 {
 public:
  // `optimizer`: where states are unless Twin-Flow keeps them on the GPU.
  Stage3(const Job& job, runtime::Recorder& gpu, Tier optimizer);

  // Forward and backward of every micro-batch.
  void micro_steps();
  // Everything is released; m and v appear in the first step.
  void begin_optimizer(bool first);
  void end_optimizer();

  const std::vector<SubGroup>& sub_groups() const { return sub_groups_; }
  std::size_t sub_group_of(std::size_t parameter) const { return sub_group_of_[parameter]; }
  Tier parameters() const { return parameters_; }
  bool offloaded() const { return optimizer_ != Tier::kGpu; }
  runtime::Lane reduction() const { return reduction_; }
  Stage3Gradients& gradients() { return *gradients_; }
  OptimizerSwapper* optimizer_swapper() { return swap_optimizer_ ? &*swap_optimizer_ : nullptr; }
  ParameterSwapper* parameter_swapper() { return swap_parameters_ ? &*swap_parameters_ : nullptr; }

 private:
  void number_parameters();
  void number_sub_groups();
  void choose_tiers();
  void choose_homes();
  bool worth_a_request(std::size_t parameter) const;
  void make_window();
  void place();
  void place_host();
  void place_parameters_on_host();
  void make_swappers();
  void run(GpuModel::Pass pass, std::int64_t piece);
  bool saves_weights(GpuModel::Pass pass, std::int64_t piece, const model::Module& module) const;
  void backward_module(const model::Module& module, const std::vector<std::int32_t>& ids);
  void add_gradients(const std::vector<std::int32_t>& ids);

  const Job& job_;
  runtime::Recorder& gpu_;
  GpuModel model_;
  Tier parameters_, optimizer_;
  bool pinned_, overlap_;
  bool views_;  // Linears save views of gathered weights
  // Of every parameter, in the order of registration. Elements of 16 bits.
  std::vector<std::int64_t> elements_;
  std::vector<bool> trained_;
  std::vector<std::vector<std::vector<std::int32_t>>> ids_;  // by piece, module: its parameters
  std::vector<SubGroup> sub_groups_;
  std::vector<std::size_t> sub_group_of_;  // 0 of those that are frozen
  std::vector<runtime::Space> homes_;      // of every parameter
  runtime::Lane gather_, reduction_;
  std::optional<ParameterSwapper> swap_parameters_;
  std::optional<OptimizerSwapper> swap_optimizer_;
  std::optional<GatherWindow> window_;
  std::optional<Stage3Gradients> gradients_;
};

}  // namespace offsim::plans
