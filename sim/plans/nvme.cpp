#include "sim/plans/nvme.h"

#include <algorithm>
#include <utility>

#include "sim/model/tensors.h"
#include "sim/plans/deepspeed.h"

namespace offsim::plans {

using runtime::Buffer;
using runtime::kCompute;
using runtime::Lane;
using runtime::Recorder;
using runtime::Space;

namespace {

// Beyond what any drive needs to hide its latency.
constexpr std::int64_t kFullQueue = kGiB;

bool locks_buffers(const Options& options) {
  return options.version("deepspeed_version") >= kLockedSwapBuffersSince;
}

// A buffer of requests: locked, or pinned by PyTorch.
void pin(Recorder& gpu, const Options& options, Bytes bytes, std::string_view tag) {
  if (locks_buffers(options) || drive_components(options).exact_pinned) {
    gpu.allocate_exact(Space::kPinned, bytes, tag);
  } else {
    gpu.allocate(Space::kPinned, bytes, tag);
  }
}

}  // namespace

DriveComponents drive_components(const Options& options) {
  if (!options.has("pool")) {
    return {};
  }
  return {.adaptive_pool = options.text("pool") == "adaptive",
          .exact_pinned = options.text("allocator") == "exact",
          .raw_engine = options.text("engine") == "raw",
          .fused_check = options.text("overflow_check") == "fused",
          .narrow_states = options.text("optimizer_states") == "bf16"};
}

Bytes aio_in_flight(const Options& options) {
  if (drive_components(options).raw_engine) {
    return Bytes(kFullQueue);
  }
  const std::int64_t bytes = options.count("aio_block_size") * options.count("aio_queue_depth") *
                             options.count("aio_intra_op_parallelism");
  return Bytes(options.flag("aio_overlap_events") ? bytes : std::max<std::int64_t>(1, bytes / 2));
}

std::int64_t least_swapped_bytes(const Options& options) {
  return std::max(kMiB, options.count("aio_block_size"));
}

ParameterSwapper::ParameterSwapper(const Job& job, Recorder& gpu,
                                   std::vector<std::int64_t> on_drive, std::int64_t largest)
    : gpu_(gpu),
      in_flight_(aio_in_flight(job.options)),
      adaptive_pool_(drive_components(job.options).adaptive_pool),
      locked_(locks_buffers(job.options)),
      on_drive_(std::move(on_drive)),
      held_(on_drive_.size(), Held::kOnDrive) {
  make_pool(job);
  std::int64_t elements = 0;
  for (const std::int64_t n : on_drive_) {
    elements += n;
  }
  if (largest > 0) {
    pin(gpu, job.options, Bytes(2 * largest), "parameter write buffer");
  }
  if (elements > 0) {
    gpu.allocate_exact(Space::kNvme, Bytes(2 * elements), "parameters");
    reads_ = gpu.io_queue("parameter reads");
    writes_ = gpu.io_queue("parameter writes");
  }
}

Space ParameterSwapper::buffers() const { return locked_ ? Space::kPageable : Space::kPinned; }

void ParameterSwapper::make_pool(const Job& job) {
  const std::int64_t count = job.options.count("param_buffer_count");
  std::int64_t elements = 0;
  if (adaptive_pool_) {
    // Of a size as many buffers as the kind of layer needs that needs most.
    const auto buffers = [&](const std::vector<model::Tensor>& tensors, std::int64_t times) {
      std::map<std::int64_t, std::int64_t> of_size;
      for (const model::Tensor& tensor : tensors) {
        if (std::ranges::find(on_drive_, tensor.numel()) != on_drive_.end()) {
          of_size[tensor.numel()] += times;
        }
      }
      return of_size;
    };
    for (const model::Shape::Alike& alike : job.shape.different_layers()) {
      const std::vector<model::Tensor> layer = model::layer_tensors(job.shape, alike.layer);
      const auto matrices = std::ranges::count_if(layer, &model::Tensor::is_matrix);
      const std::int64_t layers = std::max<std::int64_t>(1, (count + matrices - 1) / matrices);
      for (const auto& [size, times] : buffers(layer, layers)) {
        free_buffers_[size] = std::max(free_buffers_[size], times);
      }
    }
    for (const auto& [size, times] : buffers(model::outer_tensors(job.shape), 1)) {
      free_buffers_[size] += times;
    }
    for (const auto& [size, times] : free_buffers_) {
      elements += size * times;
    }
  } else {
    const std::int64_t usual = std::max<std::int64_t>(100'000'000, std::ranges::max(on_drive_));
    free_buffers_[0] = count;
    elements = count * job.options.count("param_buffer_size", usual);
  }
  pin(gpu_, job.options, Bytes(2 * elements), "parameter swap buffers");
}

std::int64_t& ParameterSwapper::free_buffers(std::size_t parameter) {
  return free_buffers_[adaptive_pool_ ? on_drive_[parameter] : 0];
}

bool ParameterSwapper::start_read(std::size_t parameter) {
  if (free_buffers(parameter) == 0) {
    return false;
  }
  --free_buffers(parameter);
  held_[parameter] = Held::kComing;
  coming_.push_back(parameter);
  gpu_.read(reads_, Bytes(2 * on_drive_[parameter]), in_flight_, "parameters from the drive");
  return true;
}

// _ensure_availability_of_partitioned_params: whoever waits for a read waits for all of them.
void ParameterSwapper::bring(const std::vector<std::size_t>& parameters) {
  for (const std::size_t parameter : parameters) {
    if (!in_memory(parameter) && !start_read(parameter)) {
      throw InputError({}, "DeepSpeed stops with 'Not enough buffers' for parameters on the drive",
                       "expected a larger param_buffer_count, or a smaller "
                       "stage3_max_reuse_distance: what stays on the GPU keeps its buffer");
    }
  }
  if (std::ranges::any_of(parameters,
                          [this](std::size_t p) { return held_[p] == Held::kComing; })) {
    gpu_.sync(reads_);
    for (const std::size_t parameter : std::exchange(coming_, {})) {
      if (held_[parameter] == Held::kComing) {  // else it was dropped meanwhile
        held_[parameter] = Held::kInMemory;
      }
    }
  }
}

void ParameterSwapper::drop(std::size_t parameter) {
  held_[parameter] = Held::kOnDrive;
  ++free_buffers(parameter);
}

void ParameterSwapper::write_back(std::int64_t elements) {
  gpu_.write(writes_, Bytes(2 * elements), in_flight_, "parameters to the drive");
  gpu_.sync(writes_);
}

OptimizerSwapper::OptimizerSwapper(const Job& job, Recorder& gpu,
                                   const std::vector<std::int64_t>& sub_groups,
                                   std::int64_t gradients)
    : gpu_(gpu),
      in_flight_(aio_in_flight(job.options)),
      state_bytes_(drive_components(job.options).state_bytes()),
      least_bytes_(least_swapped_bytes(job.options)),
      buffers_(job.options.count("buffer_count")),
      locked_(locks_buffers(job.options)),
      pipeline_read_(job.options.flag("pipeline_read")),
      pipeline_write_(job.options.flag("pipeline_write")),
      reads_(gpu.io_queue(pipelined() ? "optimizer reads" : "optimizer I/O")),
      writes_(pipelined() ? gpu.io_queue("optimizer writes") : reads_) {
  std::int64_t elements = 0;
  for (const std::int64_t n : sub_groups) {
    sub_groups_.push_back({n, 0, {}});
    elements += n;
    buffer_elements_ = std::max(buffer_elements_, n);
  }
  for (std::int64_t i = 0; i < buffers_; ++i) {
    pin(gpu, job.options, Bytes(state_bytes_ * buffer_elements_), "optimizer swap buffers");
  }
  gpu.allocate_exact(Space::kNvme, Bytes(3 * state_bytes_ * elements), "optimizer states");
  gpu.allocate_exact(Space::kNvme, Bytes(state_bytes_ * gradients), "fp32 gradients");
}

Space OptimizerSwapper::buffers() const { return locked_ ? Space::kPageable : Space::kPinned; }

std::size_t OptimizerSwapper::after(std::size_t sub_group) const {
  do {
    ++sub_group;
  } while (sub_group < sub_groups_.size() && sub_groups_[sub_group].elements == 0);
  return sub_group;
}

void OptimizerSwapper::gradient_out(Lane stream, std::size_t sub_group, std::int64_t elements,
                                    Buffer gradient) {
  SubGroup& group = sub_groups_[sub_group];
  if (state_bytes_ * elements < least_bytes_) {
    group.small.push_back({elements, gradient});
    return;
  }
  if (!gradients_out_) {
    gradients_out_ = true;
    free_buffers_ = buffers_ - 1;
    in_buffer_ = 0;
  }
  if (in_buffer_ + elements > buffer_elements_) {
    gpu_.write(writes_, Bytes(state_bytes_ * in_buffer_), in_flight_, "gradients to the drive");
    if (free_buffers_ == 0) {
      gpu_.sync(writes_);
      free_buffers_ = buffers_;
    }
    --free_buffers_;
    in_buffer_ = 0;
  }
  in_buffer_ += elements;
  group.written += elements;
  gpu_.copy_d2h(stream, buffers(), Bytes(state_bytes_ * elements), "fp32 gradients",
                {.blocking = true});
  gpu_.free(gradient);
}

void OptimizerSwapper::read_states(std::size_t sub_group) {
  SubGroup& group = sub_groups_[sub_group];
  const auto wait = [this] {
    if (!pipelined()) {
      gpu_.sync(reads_);
    }
  };
  gpu_.read(reads_, Bytes(3 * state_bytes_ * group.elements), in_flight_,
            "optimizer states from the drive");
  wait();
  gpu_.read(reads_, Bytes(state_bytes_ * std::exchange(group.written, 0)), in_flight_,
            "gradients from the drive");
  wait();
  for (const Small& small : std::exchange(group.small, {})) {
    gpu_.copy_d2h(kCompute, buffers(), Bytes(state_bytes_ * small.elements), "fp32 gradients",
                  {.blocking = true});
    gpu_.free(small.gradient);
  }
}

void OptimizerSwapper::swap_in(std::size_t sub_group) {
  if (gradients_out_) {  // the rest of them
    gpu_.write(writes_, Bytes(state_bytes_ * in_buffer_), in_flight_, "gradients to the drive");
    gpu_.sync(writes_);
    gradients_out_ = false;
  }
  if (!prefetched_) {
    read_states(sub_group);
  }
  gpu_.sync(reads_);
  prefetched_ = pipeline_read_ && after(sub_group) < sub_groups_.size();
  if (prefetched_) {
    read_states(after(sub_group));
  }
}

void OptimizerSwapper::swap_out(std::size_t sub_group) {
  if (last_write_) {
    gpu_.sync(*last_write_);
    last_write_.reset();
  }
  gpu_.write(writes_, Bytes(3 * state_bytes_ * sub_groups_[sub_group].elements), in_flight_,
             "optimizer states to the drive");
  if (pipeline_write_ && after(sub_group) < sub_groups_.size()) {
    last_write_ = gpu_.record(writes_);
  } else {
    gpu_.sync(writes_);
  }
}

}  // namespace offsim::plans
