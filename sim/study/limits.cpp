#include "sim/study/limits.h"

#include <algorithm>

namespace offsim::study {

double StepSize::share() const {
  return std::max(passes / kMostPasses, positions / kMostPositions);
}

std::int64_t widest_ffn(const model::Shape& shape) {
  return std::ranges::max(shape.kinds, {}, &model::LayerKind::ffn).ffn;
}

StepSize step_size(const model::Shape& shape, const plans::Workload& work) {
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  StepSize size;
  size.weight = (work.activation_offload == plans::ActivationOffload::kNone ? 1 : 6) *
                (shape.adapters.any() ? 2 : 1);
  size.passes = size.weight * d(shape.layers) * d(work.accumulation);
  size.positions = d(work.sequence) * d(work.accumulation);
  const double a_token =
      d(shape.layers) *
          (64 * d(shape.hidden + shape.query_width() + shape.value_width() + shape.adapters.rank +
                  (shape.latent ? shape.latent->q_rank + shape.latent->kv_rank : 0)) +
           32 * d(widest_ffn(shape)) +
           (shape.writes_scores() ? 16 * d(shape.heads) * d(work.sequence) : 0)) +
      32 * d(shape.vocabulary);
  size.bytes = a_token * d(work.micro_batch) * d(work.sequence);
  return size;
}

bool can_be_asked(const plans::Job& job) {
  const plans::Workload& work = job.workload;
  const StepSize size = step_size(job.shape, work);
  return work.micro_batch <= kMostBatch && work.sequence <= kMostSequence &&
         work.accumulation <= kMostAccumulation && work.gpus <= kMostGpus &&
         work.micro_batch <= kMostTokens / work.sequence / work.accumulation && size.share() <= 1 &&
         size.bytes <= kMostBytes;
}

bool can_be_searched(const plans::Job& job) {
  return kSearchSteps * step_size(job.shape, job.workload).share() <= kMostOfSearch;
}

}  // namespace offsim::study
