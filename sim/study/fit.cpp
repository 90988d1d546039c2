#include "sim/study/fit.h"

#include <algorithm>

#include "sim/model/tensors.h"
#include "sim/plans/plan.h"
#include "sim/study/limits.h"
#include "sim/study/predict.h"
#include "sim/study/search.h"

namespace offsim::study {

namespace {

// Predictions of one job, varied.
class Varied {
 public:
  Varied(const plans::Job& job, const std::function<void()>& tried) : job_(job), tried_(tried) {}

  plans::Job& job() { return job_; }
  // Refused is no fit.
  bool fits() {
    if (tried_) {
      tried_();
    }
    stops_ = kRefused;
    if (!can_be_asked(job_)) {
      return false;
    }
    try {
      const Prediction p = predict(job_);
      stops_.clear();
      for (const PoolReport& pool : p.pools) {
        if (stops_.empty() && (!pool.fits() || pool.may_swap())) {
          stops_ = pool.name;
        }
      }
      return stops_.empty();
    } catch (const InputError&) {
      return false;
    }
  }
  const std::string& stops() const { return stops_; }

 private:
  plans::Job job_;
  const std::function<void()>& tried_;
  std::string stops_;
};

// Bytes of all memories and drives: 16-bit parameters are somewhere.
double room(const machine::Machine& m) {
  double bytes = static_cast<double>((m.accelerator.memory.value + m.host.memory.value).value);
  for (const machine::Drive& drive : m.drives) {
    bytes += static_cast<double>(drive.capacity.value.value);
  }
  return bytes;
}

}  // namespace

Fit fit(const plans::Job& job, const std::vector<model::Shape>& models,
        const std::function<void()>& tried) {
  Fit out;
  try {
    job.plan->check(job);
  } catch (const InputError& error) {
    out.refused = error.what();
    return out;
  }
  Varied batches(job, tried);
  out.micro_batch = largest_good(kMostBatch, [&](std::int64_t micro_batch) {
    batches.job().workload.micro_batch = micro_batch;
    const bool fits = batches.fits();
    out.stops = fits ? out.stops : batches.stops();
    return fits;
  });
  Varied sequences(job, tried);
  std::int64_t longest = kMostSequence;
  if (job.shape.positions > 0) {
    longest = std::min(longest, job.shape.max_sequence);
  }
  out.sequence = kSequenceStep * largest_good(longest / kSequenceStep, [&](std::int64_t steps) {
                   sequences.job().workload.sequence = kSequenceStep * steps;
                   return sequences.fits();
                 });
  Varied shapes(job, tried);
  const auto fits = [&](const model::Shape& shape) {
    shapes.job().shape = shape;
    shapes.job().shape.adapters = job.shape.adapters;
    return 2 * static_cast<double>(model::parameters(shape)) < room(job.machine) && shapes.fits();
  };
  const auto found = std::find_if(models.rbegin(), models.rend(), fits);
  out.model = found == models.rend() ? "" : found->name;
  return out;
}

}  // namespace offsim::study
