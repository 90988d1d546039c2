// What a job's memory should hold: sizes of the tiny model and of allocations.
//
// The synthetic framework rounds GPU memory to 512 B and has a workspace of 1 MiB.
#pragma once

#include "tests/plans/jobs.h"

namespace offsim::plans {

// Elements of the tiny model: a layer, the embedding, the final norm and the head.
struct Tiny {
  static constexpr std::int64_t layer = 36'992;
  static constexpr std::int64_t embedding = 256 * 64;
  static constexpr std::int64_t head = 64 + 256 * 64;
  static constexpr std::int64_t all = 2 * layer + embedding + head;
  static constexpr std::int64_t largest = embedding;
};

inline constexpr std::int64_t kWorkspace = kMiB;

// As PyTorch's allocators round: GPU memory, and each pinned block to a power of two.
inline std::int64_t r(std::int64_t bytes) { return round_up(Bytes(bytes), 512).value; }
inline std::int64_t r(Bytes bytes) { return r(bytes.value); }
inline std::int64_t p2(std::int64_t bytes) { return power_of_two(Bytes(bytes)).value; }
// Of every tensor of the model, `width` bytes a number, in a pinned block of its own.
inline std::int64_t p2_by_tensor(std::int64_t width, const model::Shape& shape = tiny_shape()) {
  std::int64_t sum = 0;
  for (const model::Tensor& tensor : model::all_tensors(shape)) {
    sum += p2(width * tensor.numel());
  }
  return sum;
}

inline std::int64_t peak(const Job& job, std::string_view pool) {
  const study::Prediction p = study::predict(job);
  return p.pool(pool) != nullptr ? p.pool(pool)->peak.value : 0;
}

inline Workload few_tokens() { return {.micro_batch = 1, .sequence = 2}; }
inline Workload many_tokens(Checkpointing checkpointing = Checkpointing::kNone) {
  return {.micro_batch = 4, .sequence = 512, .checkpointing = checkpointing};
}
inline model::Pieces pieces(const Workload& w, model::Numerics numerics) {
  return model::pieces(tiny_shape(), w.batch(), numerics);
}

}  // namespace offsim::plans
