#include "sim/import/batch.h"

#include <fmt/format.h>

#include "sim/base/config.h"

namespace offsim::imports {

Batch batch_of(const BatchKeys& keys) {
  Batch b;
  if (!keys.total && !keys.micro) {
    b.wrong = "neither train_batch_size nor train_micro_batch_size_per_gpu is given";
    b.expected = "DeepSpeed needs one of them";
    return b;
  }
  const bool all = keys.total && keys.micro && keys.accumulation;
  b.gpus = keys.gpus.value_or(1);
  if (all && !keys.gpus && *keys.micro > 0 && *keys.accumulation > 0) {
    const std::int64_t share = *keys.micro * *keys.accumulation;
    b.gpus = *keys.total % share == 0 && *keys.total > 0 ? *keys.total / share : 1;
  }
  SIM_ASSERT(b.gpus > 0, "a training has GPUs");
  b.micro = keys.micro.value_or(0);
  b.accumulation = keys.accumulation.value_or(1);
  if (keys.total && keys.micro && !keys.accumulation) {
    b.accumulation = *keys.micro > 0 ? *keys.total / *keys.micro / b.gpus : 0;
  } else if (!keys.micro) {
    b.micro = b.accumulation > 0 ? *keys.total / b.gpus / b.accumulation : 0;
  }
  const std::int64_t product = b.micro * b.accumulation * b.gpus;
  b.total = keys.total.value_or(product);
  if (product == 0 || product != b.total) {
    b.wrong = fmt::format("train_batch_size is {}, and micro-batch {} x accumulation {} x {} GPU{}",
                          b.total, b.micro, b.accumulation, b.gpus, b.gpus == 1 ? "" : "s");
    b.wrong += fmt::format(" is {}", product);
    b.expected = "expected the same, more than 0 (DeepSpeed divides without rounding up)";
  }
  return b;
}

}  // namespace offsim::imports
