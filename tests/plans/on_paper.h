// A machine on which a step can be computed on paper, in microseconds.
//
// Every kernel takes 100 us, however small, so a piece of work takes 100 us a launch. The host
// needs 1 us a launch, 2 us a copy, 1 us a tensor. The link moves 10 GB/s each way after 5 us (5
// GB/s pageable), the CPU 4 G elements a second (norms 1 G).
#pragma once

#include "tests/plans/jobs.h"

namespace offsim::plans {

inline constexpr double kKernel = 100, kLaunch = 1, kCall = 2, kTensor = 1, kLatency = 5;
inline constexpr double kExact = 1e-3;  // us: 1e-9 s
inline constexpr double kTensors = 21;

inline constexpr double kLayer = 36'992, kEmbedding = 256 * 64, kHead = 64 + 256 * 64,
                        kAll = 2 * kLayer + kEmbedding + kHead;

inline double link(double bytes) { return bytes / 10e3; }  // us
inline double pageable(double bytes) { return bytes / 5e3; }
inline double cpu(double elements) { return elements / 4e3; }
inline double one_core(double elements) { return elements / 1e3; }

inline machine::Machine paper_machine() {
  machine::Machine m = runtime::synthetic_machine();
  m.accelerator.kernel_floor = runtime::known<Seconds>(kKernel * runtime::kMicro);
  m.framework.launch = m.framework.launch_forward = m.framework.launch_backward =
      runtime::known<Seconds>(kLaunch * runtime::kMicro);
  m.framework.copy_call = runtime::known<Seconds>(kCall * runtime::kMicro);
  m.framework.optimizer_tensor = runtime::known<Seconds>(kTensor * runtime::kMicro);
  m.framework.checkpoint_call = runtime::known<Seconds>(5 * runtime::kMicro);
  m.framework.launch_queue = 10'000;
  return m;
}

inline Workload sixteen_tokens() { return {.micro_batch = 1, .sequence = 16}; }

// Microseconds on the GPU of the pieces: embedding, layer, head and loss; forward and backward.
struct Times {
  double embedding, layer, head, head_backward, layer_backward, embedding_backward, recompute;
  double launches;  // of a forward and a backward, of two layers

  explicit Times(model::Numerics numerics) {
    const model::Pieces p = model::pieces(tiny_shape(), sixteen_tokens().batch(), numerics);
    const auto of = [](const model::Work& work) {
      return kKernel * static_cast<double>(work.launches());
    };
    embedding = of(p.embedding.forward);
    layer = of(p.layers.back().forward);
    head = of(p.head.forward);
    head_backward = of(p.head.backward);
    layer_backward = of(p.layers.back().backward);
    embedding_backward = of(p.embedding.backward);
    recompute = of(p.layers.back().recompute);
    launches = (forward() + backward()) / kKernel;
  }
  double forward() const { return embedding + 2 * layer + head; }
  double backward() const { return head_backward + 2 * layer_backward + embedding_backward; }
};

inline double step_us(const Job& job) { return study::predict(job).step.value / runtime::kMicro; }

inline Job on_paper(std::string_view plan, const Workload& workload, const Given& options = {},
                    const machine::Machine& machine = paper_machine()) {
  return job(plan, workload, options, tiny_shape(), machine);
}

}  // namespace offsim::plans
