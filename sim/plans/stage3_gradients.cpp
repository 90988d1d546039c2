#include "sim/plans/stage3_gradients.h"

#include <algorithm>
#include <utility>

#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"

namespace offsim::plans {

using runtime::Buffer;
using runtime::kCompute;
using runtime::Lane;
using runtime::Recorder;
using runtime::Space;

namespace {

constexpr std::size_t kMostBucketsUnderWay = 2;
constexpr std::int64_t kNormChunk = 250'000'000;  // elements of _constant_buffered_norm2

model::Work keep_gradient(std::int64_t n) {
  return model::elementwise(sized("keep gradient", n), n, 4, 1);
}
model::Work add_gradient(std::int64_t n) {
  return model::elementwise(sized("add gradient", n), n, 6, 1);
}
model::Work copy_gradient(std::int64_t n) {
  return model::elementwise(sized("copy gradient", n), n, 4, 1);
}

}  // namespace

Stage3Gradients::Stage3Gradients(const Job& job, Recorder& gpu, Lane reduction, bool offloaded,
                                 bool pinned, std::vector<Parameter> parameters,
                                 OptimizerSwapper* swapper)
    : job_(job),
      gpu_(gpu),
      reduction_(reduction),
      offloaded_(offloaded),
      pinned_(pinned),
      converts_(job.options.version("deepspeed_version") < kGpuUpcastSince),
      blocks_(job.options.version("deepspeed_version") < kAsyncGradientSince),
      contiguous_(job.options.flag("contiguous_gradients")),
      bucket_elements_(job.options.count("reduce_bucket_size")),
      parameters_(std::move(parameters)),
      swapper_(swapper),
      fp32_host_(host()) {}

bool Stage3Gradients::boundary() const { return micro_ + 1 == job_.workload.accumulation; }
Space Stage3Gradients::host() const { return pinned_ ? Space::kPinned : Space::kPageable; }

void Stage3Gradients::add(std::size_t parameter, Buffer gradient) {
  const std::int64_t n = parameters_[parameter].elements;
  gpu_.host_busy(runtime::HostTask::kGradientHook, 1, "gradient hooks");
  if (!bucket_.empty() && in_bucket_ + n > bucket_elements_) {
    reduce();
  }
  gpu_.wait(reduction_, gpu_.record(kCompute));
  in_bucket_ += n;
  if (contiguous_ && in_bucket_ <= bucket_elements_) {
    gpu_.launch(gradient_into_bucket, n, reduction_);
    free_beside(gpu_, gradient, kCompute, reduction_);
    bucket_.push_back({parameter, std::nullopt});
  } else {
    bucket_.push_back({parameter, gradient});
  }
}

void Stage3Gradients::reduce() {
  if (under_way_.size() > kMostBucketsUnderWay) {
    gpu_.sync(under_way_.front());
    under_way_.pop_front();
  }
  // reduce_scatter_coalesced joins several tensors in a new one; a single one is taken as it is.
  std::optional<Buffer> joined;
  if (bucket_.size() > 1) {
    joined = gpu_.allocate(Space::kGpu, Bytes(2 * in_bucket_), "joined gradients");
    gpu_.launch(join_gradients, in_bucket_, reduction_);
  }
  gpu_.launch(average, in_bucket_, reduction_);
  std::ranges::sort(bucket_, {}, &Entry::parameter);
  for (const Entry& entry : bucket_) {
    partition(entry.parameter);
    if (entry.loose) {
      free_beside(gpu_, *entry.loose, kCompute, reduction_);
    }
  }
  send_to_drive();
  if (joined) {
    gpu_.free(*joined);
  }
  if (boundary() && sent_) {
    std::vector<std::size_t> parameters;
    for (const Entry& entry : bucket_) {
      parameters.push_back(entry.parameter);
    }
    sent_(parameters);
  }
  bucket_.clear();
  in_bucket_ = 0;
  under_way_.push_back(gpu_.record(reduction_));
}

void Stage3Gradients::partition(std::size_t parameter) {
  const Parameter& p = parameters_[parameter];
  const std::int64_t n = p.elements;
  if (!offloaded_) {
    gpu_.launch(micro_ == 0 ? keep_gradient : add_gradient, n, reduction_);
    return;
  }
  const Buffer back = gpu_.allocate(Space::kGpu, Bytes(2 * n), "gradient temporaries");
  accumulate(n);
  if (boundary()) {
    for (std::int64_t done = 0; done < n; done += kNormChunk) {
      const std::int64_t chunk = std::min(kNormChunk, n - done);
      gpu_.free(gpu_.allocate(Space::kGpu, Bytes(8 * chunk), "gradient temporaries"));
      gpu_.launch(norm_in_double, chunk, reduction_);
    }
    send_fp32(p);
  }
  gpu_.free(back);
}

void Stage3Gradients::accumulate(std::int64_t n) {
  if (micro_ == 0) {
    gpu_.copy_d2h(reduction_, host(), Bytes(2 * n), "16-bit gradients");
    gpu_.copy_h2d(reduction_, host(), Bytes(2 * n), "16-bit gradients back");
  } else {
    gpu_.copy_h2d(reduction_, host(), Bytes(2 * n), "16-bit gradients back");
    gpu_.launch(add_gradient, n, reduction_);
    gpu_.copy_d2h(reduction_, host(), Bytes(2 * n), "16-bit gradients");
  }
}

void Stage3Gradients::send_fp32(const Parameter& p) {
  const std::int64_t n = p.elements;
  if (p.optimizer == Tier::kCpu && converts_) {
    gpu_.convert_d2h(reduction_, {.elements = n, .from_bytes = 2, .to_bytes = 4}, "fp32 gradients");
    return;
  }
  if (p.optimizer == Tier::kGpu) {  // straight into the sub-group's gradient
    gpu_.launch(cast_to_fp32, n, reduction_);
    return;
  }
  const bool narrow = p.optimizer == Tier::kNvme && swapper_->state_bytes() == 2;
  const Buffer cast = gpu_.allocate(Space::kGpu, Bytes((narrow ? 2 : 4) * n), "fp32 gradients");
  gpu_.launch(narrow ? copy_gradient : cast_to_fp32, n, reduction_);
  if (p.optimizer == Tier::kNvme) {
    to_drive_.push_back({p, cast});
    return;
  }
  gpu_.copy_d2h(reduction_, fp32_host_, Bytes(4 * n), "fp32 gradients", {.blocking = blocks_});
  gpu_.free(cast);
}

void Stage3Gradients::send_to_drive() {
  for (const Cast& cast : std::exchange(to_drive_, {})) {
    swapper_->gradient_out(reduction_, cast.parameter.sub_group, cast.parameter.elements,
                           cast.gradient);
  }
}

void Stage3Gradients::finish() {
  if (!bucket_.empty()) {
    reduce();
  }
  gpu_.sync(reduction_);
  under_way_.clear();
}

}  // namespace offsim::plans
