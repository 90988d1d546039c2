#include "sim/plans/nvme.h"

#include <algorithm>
#include <utility>

#include "sim/model/tensors.h"
#include "sim/plans/deepspeed.h"

namespace offsim::plans {

using runtime::Buffer;
using runtime::Lane;
using runtime::Recorder;
using runtime::Space;

namespace {

// Beyond what any drive needs to hide its latency.
constexpr std::int64_t kFullQueue = kGiB;

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
                                   std::vector<std::int64_t> on_drive)
    : gpu_(gpu),
      in_flight_(aio_in_flight(job.options)),
      components_(drive_components(job.options)),
      on_drive_(std::move(on_drive)),
      read_(on_drive_.size()),
      reads_(gpu.io_queue("parameter reads")),
      writes_(gpu.io_queue("parameter writes")) {
  make_pool(job);
  std::int64_t elements = 0;
  for (const std::int64_t n : on_drive_) {
    elements += n;
  }
  gpu.allocate_exact(Space::kNvme, Bytes(2 * elements), "parameters");
}

void ParameterSwapper::make_pool(const Job& job) {
  const std::int64_t count = job.options.count("param_buffer_count");
  std::int64_t elements = 0;
  if (components_.adaptive_pool) {
    const std::vector<model::Tensor> layer = model::layer_tensors(job.shape);
    const auto matrices = std::ranges::count_if(layer, &model::Tensor::is_matrix);
    const std::int64_t layers = std::max<std::int64_t>(1, (count + matrices - 1) / matrices);
    const auto add = [&](const std::vector<model::Tensor>& tensors, std::int64_t times) {
      for (const model::Tensor& tensor : tensors) {
        if (std::ranges::find(on_drive_, tensor.numel()) != on_drive_.end()) {
          free_buffers_[tensor.numel()] += times;
          elements += times * tensor.numel();
        }
      }
    };
    add(layer, layers);
    add(model::outer_tensors(job.shape), 1);
  } else {
    const std::int64_t usual = std::max<std::int64_t>(100'000'000, std::ranges::max(on_drive_));
    free_buffers_[0] = count;
    elements = count * job.options.count("param_buffer_size", usual);
  }
  gpu_.allocate_exact(Space::kPinned, Bytes(2 * elements), "parameter swap buffers");
}

std::int64_t& ParameterSwapper::free_buffers(std::size_t parameter) {
  return free_buffers_[components_.adaptive_pool ? on_drive_[parameter] : 0];
}

bool ParameterSwapper::in_memory(std::size_t parameter) const {
  return on_drive_[parameter] == 0 || read_[parameter];
}

bool ParameterSwapper::start_read(std::size_t parameter) {
  if (free_buffers(parameter) == 0) {
    return false;
  }
  --free_buffers(parameter);
  read_[parameter] = true;
  gpu_.read(reads_, Bytes(2 * on_drive_[parameter]), in_flight_, "parameters from the drive");
  return true;
}

Space ParameterSwapper::bring(std::size_t parameter) {
  if (on_drive_[parameter] == 0) {
    return Space::kPinned;
  }
  if (!read_[parameter] && !start_read(parameter)) {
    throw InputError({}, "DeepSpeed stops with 'Not enough buffers' for parameters on the drive",
                     "expected a larger param_buffer_count");
  }
  gpu_.sync(reads_);
  return Space::kPageable;
}

void ParameterSwapper::drop(std::size_t parameter) {
  if (read_[parameter]) {
    read_[parameter] = false;
    ++free_buffers(parameter);
  }
}

void ParameterSwapper::write_back(std::int64_t elements) {
  gpu_.cpu(components_.narrow_states ? "copy_bf16" : "cast_f32_bf16", elements, "cast to 16 bits");
  gpu_.write(writes_, Bytes(2 * elements), in_flight_, "parameters to the drive");
  gpu_.sync(writes_);
}

OptimizerSwapper::OptimizerSwapper(const Job& job, Recorder& gpu, std::int64_t elements,
                                   std::int64_t largest)
    : gpu_(gpu),
      in_flight_(aio_in_flight(job.options)),
      state_bytes_(drive_components(job.options).state_bytes()),
      least_bytes_(least_swapped_bytes(job.options)),
      buffer_elements_(largest),
      buffers_(job.options.count("buffer_count")),
      locked_(job.options.version("deepspeed_version") >= kLockedSwapBuffersSince),
      pipeline_read_(job.options.flag("pipeline_read")),
      pipeline_write_(job.options.flag("pipeline_write")),
      reads_(gpu.io_queue(pipeline_read_ || pipeline_write_ ? "optimizer reads" : "optimizer I/O")),
      writes_(pipeline_read_ || pipeline_write_ ? gpu.io_queue("optimizer writes") : reads_) {
  for (std::int64_t i = 0; i < buffers_; ++i) {
    const Bytes bytes(state_bytes_ * largest);
    locked_ || drive_components(job.options).exact_pinned
        ? gpu.allocate_exact(Space::kPinned, bytes, "optimizer swap buffers")
        : gpu.allocate(Space::kPinned, bytes, "optimizer swap buffers");
  }
  gpu.allocate_exact(Space::kNvme, Bytes(3 * state_bytes_ * elements), "optimizer states");
  gpu.allocate_exact(Space::kNvme, Bytes(state_bytes_ * elements), "fp32 gradients");
}

bool OptimizerSwapper::swaps(std::int64_t sub_group_elements) const {
  return state_bytes_ * sub_group_elements >= least_bytes_;
}

void OptimizerSwapper::gradient_out(Lane stream, std::int64_t elements, Buffer gradient) {
  if (state_bytes_ * elements < least_bytes_) {
    small_.push_back(gradient);
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
  gpu_.copy_d2h(stream, locked_ ? Space::kPageable : Space::kPinned, Bytes(state_bytes_ * elements),
                "fp32 gradients", {.blocking = true});
  gpu_.free(gradient);
}

void OptimizerSwapper::read_states(std::int64_t elements) {
  gpu_.read(reads_, Bytes(3 * state_bytes_ * elements), in_flight_,
            "optimizer states from the drive");
  if (!pipeline_read_ && !pipeline_write_) {
    gpu_.sync(reads_);
  }
  gpu_.read(reads_, Bytes(state_bytes_ * elements), in_flight_, "gradients from the drive");
}

void OptimizerSwapper::swap_in(std::int64_t elements, std::int64_t next) {
  if (gradients_out_) {  // the rest of them
    gpu_.write(writes_, Bytes(state_bytes_ * in_buffer_), in_flight_, "gradients to the drive");
    gpu_.sync(writes_);
    gradients_out_ = false;
  }
  if (!prefetched_) {
    read_states(elements);
  }
  gpu_.sync(reads_);
  prefetched_ = pipeline_read_ && next > 0;
  if (prefetched_) {
    read_states(next);
  }
}

void OptimizerSwapper::swap_out(std::int64_t elements, bool last) {
  if (last_write_) {
    gpu_.sync(*last_write_);
    last_write_.reset();
  }
  gpu_.write(writes_, Bytes(3 * state_bytes_ * elements), in_flight_,
             "optimizer states to the drive");
  if (pipeline_write_ && !last) {
    last_write_ = gpu_.record(writes_);
  } else {
    gpu_.sync(writes_);
  }
}

void OptimizerSwapper::end_step() {
  for (const Buffer buffer : small_) {
    gpu_.free(buffer);
  }
  small_.clear();
}

}  // namespace offsim::plans
