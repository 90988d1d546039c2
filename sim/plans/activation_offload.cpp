#include "sim/plans/activation_offload.h"

#include "sim/plans/common.h"

namespace offsim::plans {

using model::SavedTensor;
using runtime::Recorder;
using runtime::Space;

namespace {

constexpr std::size_t kStashed = 5;         // max_fwd_stash_size
constexpr std::int64_t kLeastBytes = 1024;  // min_offload_size

}  // namespace

ActivationHooks::ActivationHooks(const Job& job, Recorder& gpu)
    : gpu_(gpu),
      kind_(job.workload.activation_offload),
      stream_(kind_ == ActivationOffload::kStreamed ? gpu.stream("activations")
                                                    : runtime::kCompute) {}

bool ActivationHooks::stays(const SavedTensor& tensor) const {
  return kind_ == ActivationOffload::kStreamed && (tensor.parameter || tensor.bytes < kLeastBytes);
}

void ActivationHooks::pack(Place place, const std::vector<SavedTensor>& tensors) {
  std::vector<Tensor>& kept = tensors_[place];
  if (kept.empty()) {
    for (const SavedTensor& tensor : tensors) {
      if (!stays(tensor)) {
        kept.push_back({tensor.bytes, std::nullopt, std::nullopt, {}});
      }
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    send(kept[i]);
    if (kind_ == ActivationOffload::kStreamed) {
      stash_.emplace_back(place, i);
      if (stash_.size() > kStashed) {
        const auto& [at, index] = stash_.front();
        leave_behind(tensors_[at][index]);
        stash_.pop_front();
      }
    }
  }
}

void ActivationHooks::send(Tensor& tensor) {
  const Bytes bytes(tensor.bytes);
  if (kind_ == ActivationOffload::kSaveOnCpu) {
    tensor.host = gpu_.allocate(Space::kPageable, bytes, "activations");
    gpu_.copy_d2h(runtime::kCompute, Space::kPageable, bytes, "activations",
                  {.blocking = true, .into = tensor.host});
    return;
  }
  if (!tensor.host) {
    tensor.host = gpu_.allocate(Space::kPinned, bytes, "activations");
  }
  if (kind_ == ActivationOffload::kSaveOnCpuPinned) {
    gpu_.copy_d2h(runtime::kCompute, Space::kPinned, bytes, "activations", {.blocking = true});
    return;
  }
  tensor.gpu = gpu_.allocate(Space::kGpu, bytes, "activations");
  gpu_.wait(stream_, gpu_.record(runtime::kCompute));
  gpu_.copy_d2h(stream_, Space::kPinned, bytes, "activations");
  tensor.sent = gpu_.record(stream_);
}

void ActivationHooks::leave_behind(Tensor& tensor) {
  gpu_.wait(runtime::kCompute, tensor.sent);
  gpu_.free(*tensor.gpu);
  tensor.gpu.reset();
}

void ActivationHooks::leave_all_behind_but(Place place) {
  for (const auto& [at, index] : stash_) {
    if (at != place) {
      leave_behind(tensors_[at][index]);
    }
  }
  stash_.clear();
}

void ActivationHooks::unpack(Place place) {
  leave_all_behind_but(place);
  bool waits = false;
  for (Tensor& tensor : tensors_[place]) {
    if (tensor.gpu) {
      continue;
    }
    const Bytes bytes(tensor.bytes);
    const bool pageable = kind_ == ActivationOffload::kSaveOnCpu;
    tensor.gpu = gpu_.allocate(Space::kGpu, bytes, "activations");
    gpu_.copy_h2d(stream_, pageable ? Space::kPageable : Space::kPinned, bytes, "activations",
                  {.blocking = pageable});
    waits = kind_ == ActivationOffload::kStreamed;
    if (pageable) {
      gpu_.free(*tensor.host);
    }
  }
  if (waits) {
    gpu_.wait(runtime::kCompute, gpu_.record(stream_));
  }
}

void ActivationHooks::drop(Place place) {
  if (kind_ != ActivationOffload::kStreamed) {
    free_after_use(place);
    return;
  }
  end_backward();
  used_ = {place, gpu_.record(runtime::kCompute)};
}

// The stream of copies waits for who used what came last, and may take its memory then.
void ActivationHooks::end_backward() {
  if (used_) {
    gpu_.wait(stream_, used_->by);
    free_after_use(used_->place);
    used_.reset();
  }
}

void ActivationHooks::free_after_use(Place place) {
  for (Tensor& tensor : tensors_[place]) {
    gpu_.free(*tensor.gpu);
    tensor.gpu.reset();
  }
}

}  // namespace offsim::plans
