// Gradients of DeepSpeed's stage 2 with the optimizer on the CPU, from the hook to the host
// (runtime/zero/stage_1_and_2.py).
//
// A hook copies its gradient into a bucket; a full one is flushed: averaged, then every tensor is
// accumulated through the GPU (m > 0 or not the last micro-batch), and on the last micro-batch its
// norm is taken in double, it is checked for infinities (the host reads the answer: it waits for
// the stream, once a tensor), cast to fp32 and sent. With overlap on a stream of their own, with a
// second bucket. D2H bytes a parameter: 4 for k = 1, else 2k + 4; H2D 2(k-1).
#pragma once

#include <functional>
#include <vector>

#include "sim/model/tensors.h"
#include "sim/plans/job.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

class Zero2Gradients {
 public:
  struct Settings {
    std::int64_t bucket_elements;
    bool overlap = false;
    runtime::Space host = runtime::Space::kPinned;
    bool in_16_bits = false;  // the paper's: leave as they are, nobody waits
    bool transposed = false;  // ZenFlow's: matrices go into the bucket by columns
  };
  Zero2Gradients(runtime::Recorder& gpu, const Settings& settings);

  runtime::Lane reduction() const { return reduction_; }
  void begin(bool first, bool last) {  // a micro-batch
    first_ = first;
    last_ = last;
  }
  void allocate_buckets();  // unless the first gradient is to make them
  void free_buckets();
  void reduce(const model::Tensor& tensor);
  void flush();

  using Tensors = std::vector<model::Tensor>;
  // Called for what is in a bucket once it is averaged, on the reduction's stream.
  void on_full(std::function<void(const Tensors&)> call) { on_full_ = std::move(call); }
  // fp32 gradients go to memory that is not pinned any more.
  void unpin_fp32() { fp32_host_ = runtime::Space::kPageable; }

 private:
  void into_bucket(const model::Tensor& tensor);
  void send(std::int64_t n);

  runtime::Recorder& gpu_;
  Settings settings_;
  runtime::Lane reduction_;
  runtime::Space fp32_host_;
  std::function<void(const Tensors&)> on_full_;
  bool first_ = true, last_ = true;
  std::vector<runtime::Buffer> buckets_, loose_;
  Tensors in_bucket_;
  std::int64_t in_bucket_elements_ = 0;
};

// What stage 2 keeps beside its fp32 gradients from the start of training on: all parameters on the
// GPU; of those that are trained the fp32 master, the staging copy, the buffers of accumulation.
void place_zero2(const Job& job, runtime::Recorder& gpu, runtime::Space master, runtime::Space host,
                 bool staging);

// The host reads whether the step may be done, and goes through its tensors.
void begin_zero2_step(const Job& job, runtime::Recorder& gpu);

// A step since 0.17, by the host alone: unscale, Adam, cast to the staging copy, that to the GPU.
void update_zero2(const Job& job, runtime::Recorder& gpu, runtime::Space host);

}  // namespace offsim::plans
