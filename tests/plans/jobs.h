// Jobs for the tests of plans: a model of two layers, on the machine of round numbers unless told
// otherwise.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "sim/model/tensors.h"
#include "sim/plans/plan.h"
#include "sim/study/predict.h"
#include "tests/runtime/synthetic.h"

namespace offsim::plans {

using Given = std::map<std::string, std::string>;

// Parameters: a layer has 2 x 64 x 64 (q, o) + 2 x 64 x 32 (k, v) + 3 x 64 x 128 + 2 x 64 = 36,992
// in nine tensors; the model 2 of those, 256 x 64 embedding, 64 norm, 256 x 64 head: 106,816 in 21
// tensors.
inline model::Shape tiny_shape(std::int64_t layers = 2) {
  model::Shape s;
  s.name = "tiny";
  s.layers = layers;
  s.hidden = 64;
  s.heads = 4;
  s.kv_heads = 2;
  s.head_dim = 16;
  s.kinds.front().ffn = 128;
  s.vocabulary = 256;
  s.max_sequence = 4096;
  return s;
}

// One whose matrices are worth a request of a drive (1 MiB), in 16 bits too; norms are not. A layer
// has 4 x 2^20 (q, k, v, o) + 3 x 2^22 + 2 x 1,024, embedding and head 2^23 each.
inline model::Shape shape_of_large_matrices(std::int64_t layers = 2) {
  model::Shape s = tiny_shape(layers);
  s.name = "large matrices";
  s.hidden = 1024;
  s.heads = s.kv_heads = 16;
  s.head_dim = 64;
  s.kinds.front().ffn = 4096;
  s.vocabulary = 8192;
  return s;
}

// A machine and a precision that the plan does not refuse.
inline machine::Machine usual_machine(std::string_view plan) {
  machine::Machine m = plan == "mlx" ? runtime::unified_machine() : runtime::synthetic_machine();
  if (plan == "coherent-offload") {
    m.link->page_fault = runtime::known<Seconds>(20 * runtime::kMicro);
  }
  if (plan == "teraio") {  // some of the tiny model's six layers must leave
    m.accelerator.memory = runtime::known_bytes(12 * kMiB);
  }
  return m;
}
inline Precision usual_precision(std::string_view plan) {
  return plan == "mlx" ? Precision::kBf16 : Precision::kBf16Mixed;
}

inline Job job(std::string_view plan, Workload workload = {}, const Given& options = {},
               model::Shape shape = tiny_shape(),
               machine::Machine machine = runtime::synthetic_machine()) {
  const Plan& found = find_plan(plan, {});
  Job out{std::move(shape), workload, std::move(machine), &found,
          Options(found.options, found.name)};
  for (const auto& [name, value] : options) {
    out.options.set(name, value, {});
  }
  return out;
}

// A job's program and what became of it.
struct Predicted {
  study::Prediction prediction;
  study::Run run;
};
inline Predicted predicted(const Job& job) {
  Predicted out;
  out.prediction = study::predict(job, std::nullopt, &out.run);
  return out;
}

inline runtime::Program recorded(const Job& job) {
  const bool fp16 = job.workload.precision == Precision::kFp16Mixed;
  runtime::Recorder recorder(
      {job.machine.framework.gpu_rounding.value.value, job.machine.framework.pinned_power_of_two},
      fp16 ? runtime::Half::kFp16 : runtime::Half::kBf16);
  job.plan->record(job, recorder, job.plan->steps);
  return std::move(recorder).finish();
}

}  // namespace offsim::plans
