// Small things that every plan's loop does.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "sim/model/tensors.h"
#include "sim/plans/job.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

// Enters a phase; a loop with phase_sync synchronises the device first (workload key phase_sync).
inline void enter(const Job& job, runtime::Recorder& gpu, runtime::Phase phase) {
  if (job.workload.phase_sync) {
    gpu.sync_device();
  }
  gpu.phase(phase);
}

inline void end_step(const Job& job, runtime::Recorder& gpu) {
  if (job.workload.phase_sync) {
    gpu.sync_device();
  }
  gpu.end_step();
}

// A system's steps; `step` is told which is the first.
template <class System>
void record_steps(System&& system, int steps) {
  for (int step = 0; step < steps; ++step) {
    system.step(step == 0);
  }
}

// A tensor of one stream that another uses is dropped (PyTorch's record_stream): its block is free
// once the user has come so far, at once when they are one.
inline void free_beside(runtime::Recorder& gpu, runtime::Buffer buffer, runtime::Lane owner,
                        runtime::Lane user) {
  owner == user ? gpu.free(buffer) : gpu.free_after(buffer, user);
}

// Bytes of a frozen parameter as it is loaded: 16 bits, but where everything is fp32.
inline std::int64_t frozen_width(const Job& job) {
  return job.workload.precision == Precision::kFp32 ? 4 : 2;
}

// What cuBLAS takes with the first product and keeps.
inline void place_workspace(const Job& job, runtime::Recorder& gpu) {
  gpu.allocate(runtime::Space::kGpu, job.machine.framework.gpu_workspace.value,
               "workspace of matrix products");
}

// Parameters on the GPU, one block of each kind; quantised ones with their constants.
inline void place_on_gpu(const Job& job, runtime::Recorder& gpu, std::int64_t trained_width) {
  gpu.allocate(runtime::Space::kGpu, numbers(job.shape, {trained_width, frozen_width(job)}),
               "parameters");
  if (const Bytes bytes = constants(job.shape); bytes.value > 0) {
    gpu.allocate(runtime::Space::kGpu, bytes, "constants of quantisation");
  }
}

// A Work's name must say its size: works are interned by name.
inline std::string sized(std::string_view what, std::int64_t elements,
                         std::string_view unit = "elements") {
  return fmt::format("{} ({} {})", what, elements, unit);
}

// Of `tensors` tensors, a kernel each; pieces of one size may have different numbers of them.
inline model::Work add_gradients(std::int64_t elements, std::size_t tensors, std::int64_t width) {
  return model::elementwise(
      sized("add gradients", elements, fmt::format("elements in {} tensors", tensors)), elements,
      3.0 * static_cast<double>(width), static_cast<int>(tensors));
}

// A tied head's share, so many bytes, into the embedding's gradient.
inline model::Work add_tied_gradient(Bytes share) {
  return model::elementwise("add tied gradient", share.value, 3, 1);
}

}  // namespace offsim::plans
