#include "sim/plans/checkpoint_offload.h"

#include <algorithm>

#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"
#include "sim/plans/nvme.h"
#include "sim/plans/plan.h"

namespace offsim::plans {

using runtime::kCompute;
using runtime::Recorder;
using runtime::Space;

namespace {

constexpr std::int64_t kFreeBlocksAtMost = 64;  // max_cpu_buffer_pool_count

bool as_the_paper(const Job& job) {
  return job.options.has("variant") && job.options.text("variant") == "paper";
}

bool offloads_checkpoints(const Job& job) {
  return job.options.has("cpu_checkpointing") && job.options.flag("cpu_checkpointing") &&
         job.workload.checkpointing == Checkpointing::kFull && !as_the_paper(job);
}

model::Work copy_partition(std::int64_t n) {
  return model::elementwise(sized("copy partition of checkpoint", n), n, 4, 1);
}

}  // namespace

void add_checkpoint_offload_options(std::vector<OptionSpec>& options) {
  using Kind = OptionSpec::Kind;
  options.push_back(
      {"cpu_checkpointing", Kind::kFlag, "false", "",
       "checkpoints go to host memory, of layers that call deepspeed.checkpointing.checkpoint; "
       "Hugging Face's own gradient_checkpointing ignores it"});
  options.push_back(
      {"partition_activations", Kind::kFlag, "false", "",
       "with cpu_checkpointing: blocking copies to pageable memory, as all before 0.19.6"});
}

void check_checkpoint_offload(const Job& job, std::vector<std::string>& warnings) {
  if (as_the_paper(job)) {
    warn_without_effect(warnings, job, "the paper's variant has no checkpoints in host memory",
                        {"cpu_checkpointing", "partition_activations"});
    return;
  }
  if (!job.options.flag("cpu_checkpointing")) {
    warn_without_effect(warnings, job, "one GPU has one partition", {"partition_activations"});
    return;
  }
  if (!offloads_checkpoints(job)) {
    warn_without_effect(warnings, job, "checkpointing is none",
                        {"cpu_checkpointing", "partition_activations"});
    return;
  }
  if (job.workload.activation_offload != ActivationOffload::kNone) {
    throw InputError(job.options.place("cpu_checkpointing"),
                     "cpu_checkpointing and activation_offload would both move checkpoints",
                     "expected one of them");
  }
  warnings.emplace_back(
      "cpu_checkpointing is of layers that call deepspeed.checkpointing.checkpoint: Hugging Face's "
      "own gradient_checkpointing ignores it");
  if (job.machine.accelerator.unified) {
    warnings.push_back(
        fmt::format("cpu_checkpointing frees nothing: it copies within the one memory of {}",
                    job.machine.name));
  }
}

CheckpointOffload::Kind CheckpointOffload::kind_of(const Job& job) {
  if (!offloads_checkpoints(job)) {
    return Kind::kNone;
  }
  const bool early = job.options.has("deepspeed_version") &&
                     job.options.version("deepspeed_version") < kCheckpointStreamSince;
  return early || job.options.flag("partition_activations") ? Kind::kBlocking : Kind::kStreamed;
}

CheckpointOffload::CheckpointOffload(const Job& job, Recorder& gpu, Bytes checkpoint)
    : gpu_(gpu),
      kind_(kind_of(job)),
      bytes_(checkpoint),
      partitions_(active() && job.options.flag("partition_activations")),
      exact_pinned_(drive_components(job.options).exact_pinned),
      stream_(kind_ == Kind::kStreamed ? gpu.stream("checkpoints") : kCompute),
      checkpoints_(static_cast<std::size_t>(job.shape.layers)) {}

void CheckpointOffload::before_forward(std::size_t layer) {
  Checkpoint& checkpoint = checkpoints_[layer];
  checkpoint.gpu = gpu_.allocate(Space::kGpu, bytes_, "checkpoints");
  if (kind_ == Kind::kStreamed) {
    return;
  }
  if (!partitions_) {
    copy_down(checkpoint);
    return;
  }
  const runtime::Buffer partition = gpu_.allocate(Space::kGpu, bytes_, "checkpoints");
  gpu_.launch(copy_partition, bytes_.value / 2);
  copy_down(checkpoint);
  gpu_.free(partition);
}

void CheckpointOffload::copy_down(Checkpoint& checkpoint) {
  checkpoint.host = gpu_.allocate(Space::kPageable, bytes_, "checkpoints");
  gpu_.copy_d2h(kCompute, Space::kPageable, bytes_, "checkpoints",
                {.blocking = true, .into = checkpoint.host});
}

void CheckpointOffload::after_forward(std::size_t layer) {
  if (kind_ == Kind::kBlocking) {
    gpu_.free(*checkpoints_[layer].gpu);
    checkpoints_[layer].gpu.reset();
    return;
  }
  if (layer >= 2) {
    Checkpoint& left = checkpoints_[layer - 2];
    gpu_.free_after(*left.gpu, stream_);
    left.gpu.reset();
  }
  if (layer >= 1) {
    send(checkpoints_[layer - 1]);
  }
}

void CheckpointOffload::send(Checkpoint& checkpoint) {
  gpu_.wait(stream_, gpu_.record(kCompute));
  take_host_block(checkpoint);
  gpu_.copy_d2h(stream_, Space::kPinned, bytes_, "checkpoints");
  checkpoint.sent = gpu_.record(stream_);
}

void CheckpointOffload::take_host_block(Checkpoint& checkpoint) {
  if (!checkpoint.host) {
    checkpoint.host = exact_pinned_ ? gpu_.allocate_exact(Space::kPinned, bytes_, "checkpoints")
                                    : gpu_.allocate(Space::kPinned, bytes_, "checkpoints");
  }
  if (free_blocks_ > 0) {
    --free_blocks_;
    return;
  }
  const runtime::Buffer pageable = gpu_.allocate(Space::kPageable, bytes_, "checkpoints");
  gpu_.cpu("copy_bf16", bytes_.value / 2, "pin a checkpoint's block");
  gpu_.free(pageable);
}

void CheckpointOffload::restore(std::size_t layer) {
  Checkpoint& checkpoint = checkpoints_[layer];
  if (checkpoint.sent) {
    free_blocks_ = std::min(free_blocks_ + 1, kFreeBlocksAtMost);
  }
  if (checkpoint.gpu) {
    if (checkpoint.sent) {
      gpu_.wait(kCompute, *checkpoint.sent);
    }
    return;
  }
  checkpoint.gpu = gpu_.allocate(Space::kGpu, bytes_, "checkpoints");
  if (kind_ == Kind::kBlocking) {
    gpu_.copy_h2d(kCompute, Space::kPageable, bytes_, "checkpoints", {.blocking = true});
    gpu_.free(*checkpoint.host);
    return;
  }
  gpu_.copy_h2d(stream_, Space::kPinned, bytes_, "checkpoints");
  gpu_.wait(kCompute, gpu_.record(stream_));
  checkpoint.returned = true;
}

// A tensor that the other stream used as well is free when that has come so far.
void CheckpointOffload::drop(std::size_t layer) {
  Checkpoint& checkpoint = checkpoints_[layer];
  if (checkpoint.returned) {
    gpu_.free_after(*checkpoint.gpu, kCompute);
  } else {
    checkpoint.sent ? gpu_.free_after(*checkpoint.gpu, stream_) : gpu_.free(*checkpoint.gpu);
  }
  checkpoint.gpu.reset();
  checkpoint.sent.reset();
  checkpoint.returned = false;
}

}  // namespace offsim::plans
