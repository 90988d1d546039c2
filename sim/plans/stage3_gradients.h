// Gradients in DeepSpeed's stage 3: from the hook on a parameter to where the optimizer reads them
// (source: runtime/zero/stage3.py, reduce_independent_p_g_buckets_and_remove_grads to
// partition_grads; one GPU).
//
// A gradient is copied into the bucket on the reduction stream; a bucket that would overflow is
// reduced first: concatenated, divided, and then tensor by tensor
//   optimizer on the GPU   copied into the 16-bit partition (m = 0) or added to it
//   offloaded, m = 0       D2H 2 B a parameter into the host's 16-bit partition, and H2D 2 B back
//   offloaded, m > 0       H2D 2 B, GPU addition, D2H 2 B
//   and in the last micro-batch: norm in double; then the fp32 gradient: before 0.15.4 a blocking
//   copy that changes the type (2 B cross into a new pageable temporary, the CPU casts), since then
//   a GPU cast and a D2H of 4 B, which blocks before 0.19.5; of a drive, those of a bucket together
//   once all are cast (OptimizerSwapper).
// Without pinned memory every one of these copies keeps the host. At most two buckets are under
// way. At the end of every backward the host waits for the reduction stream. Left out: one more
// copy on the CPU in 0.15.4 to 0.16.2.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "sim/plans/job.h"
#include "sim/plans/nvme.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

enum class Tier : std::uint8_t { kGpu, kCpu, kNvme };

class Stage3Gradients {
 public:
  struct Parameter {
    std::int64_t elements = 0;
    std::size_t sub_group = 0;
    Tier optimizer = Tier::kGpu;  // where the states of its sub-group are
  };
  // `offloaded`: offload_optimizer is not none. `swapper` where a sub-group is on the drive.
  Stage3Gradients(const Job& job, runtime::Recorder& gpu, runtime::Lane reduction, bool offloaded,
                  bool pinned, std::vector<Parameter> parameters, OptimizerSwapper* swapper);

  void begin_micro_step(std::int64_t micro) { micro_ = micro; }
  // The hook: `gradient` holds it and is given back here.
  void add(std::size_t parameter, runtime::Buffer gradient);
  // The end of a backward.
  void finish();
  // Called in the last micro-batch after a bucket, with the parameters whose fp32 gradients were
  // sent.
  void on_sent(std::function<void(const std::vector<std::size_t>& parameters)> call) {
    sent_ = std::move(call);
  }
  // The host's fp32 gradients were pinned, but are no longer.
  void unpin_fp32() { fp32_host_ = runtime::Space::kPageable; }

 private:
  struct Entry {
    std::size_t parameter;
    std::optional<runtime::Buffer> loose;  // not copied into the bucket
  };
  struct Cast {
    Parameter parameter;
    runtime::Buffer gradient;
  };
  bool boundary() const;
  runtime::Space host() const;
  void reduce();
  void partition(std::size_t parameter);
  void accumulate(std::int64_t elements);
  void send_fp32(const Parameter& parameter);
  void send_to_drive();

  const Job& job_;
  runtime::Recorder& gpu_;
  runtime::Lane reduction_;
  bool offloaded_, pinned_, converts_, blocks_, contiguous_;
  std::int64_t bucket_elements_;
  std::vector<Parameter> parameters_;
  OptimizerSwapper* swapper_;
  std::function<void(const std::vector<std::size_t>&)> sent_;
  runtime::Space fp32_host_;
  std::int64_t micro_ = 0;
  std::vector<Entry> bucket_;
  std::vector<Cast> to_drive_;  // of the bucket that is reduced
  std::int64_t in_bucket_ = 0;
  std::deque<runtime::Event> under_way_;
};

}  // namespace offsim::plans
