// DeepSpeed's arithmetic of batches (runtime/config.py):
//
//   train_batch_size = micro-batch x accumulation x data-parallel GPUs
//
// What is missing is derived with floor division; what then does not multiply out is refused, as
// DeepSpeed's assertion does. Where all three are given and the GPUs are not, they follow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace offsim::imports {

struct BatchKeys {
  std::optional<std::int64_t> total, micro, accumulation, gpus;
};
struct Batch {
  std::int64_t total = 0, micro = 0, accumulation = 0, gpus = 1;
  std::string wrong, expected;  // empty where it works out
};
Batch batch_of(const BatchKeys& keys);

}  // namespace offsim::imports
