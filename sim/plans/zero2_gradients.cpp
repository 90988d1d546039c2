#include "sim/plans/zero2_gradients.h"

#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"

namespace offsim::plans {

using model::Tensor;
using runtime::Buffer;
using runtime::kCompute;
using runtime::Recorder;
using runtime::Space;

namespace {

model::Work into_bucket_by_columns(std::int64_t n) {
  return {sized("gradient into bucket by columns", n),
          {{.bytes = 4 * n, .indexed = n}, {.bytes = 4 * n}}};
}
model::Work norm_and_check(std::int64_t n) {
  model::Work work = norm_in_double(n);
  const model::Work check = check_finite(n);
  work.name = sized("norm in double and check for infinities", n);
  work.kernels.insert(work.kernels.end(), check.kernels.begin(), check.kernels.end());
  return work;
}
model::Work accumulate_gradient(std::int64_t n) {
  return model::elementwise(sized("accumulate", n), n, 6, 1);
}

}  // namespace

Zero2Gradients::Zero2Gradients(Recorder& gpu, const Settings& settings)
    : gpu_(gpu),
      settings_(settings),
      reduction_(settings.overlap ? gpu.stream("reduction") : kCompute),
      fp32_host_(settings.host) {}

void Zero2Gradients::allocate_buckets() {
  for (int i = 0; i < (settings_.overlap ? 2 : 1); ++i) {
    buckets_.push_back(
        gpu_.allocate(Space::kGpu, Bytes(2 * settings_.bucket_elements), "gradient bucket"));
  }
}

void Zero2Gradients::free_buckets() {
  for (const Buffer bucket : buckets_) {
    gpu_.free(bucket);
  }
  buckets_.clear();
}

// The hook on a gradient: into the bucket, which is flushed first when it would overflow.
void Zero2Gradients::reduce(const Tensor& tensor) {
  const std::int64_t n = tensor.numel();
  const Buffer gradient = gpu_.allocate(Space::kGpu, Bytes(2 * n), "gradients");
  if (buckets_.empty()) {
    allocate_buckets();
  }
  if (n > settings_.bucket_elements) {  // reduced alone, where it is
    flush();
    in_bucket_.push_back(tensor);
    loose_.push_back(gradient);
    flush();
    return;
  }
  if (in_bucket_elements_ + n > settings_.bucket_elements) {
    flush();
  }
  into_bucket(tensor);
  gpu_.free(gradient);
  in_bucket_.push_back(tensor);
  in_bucket_elements_ += n;
}

void Zero2Gradients::into_bucket(const Tensor& tensor) {
  const std::int64_t n = tensor.numel();
  if (settings_.transposed && tensor.is_matrix) {
    const Buffer turned = gpu_.allocate(Space::kGpu, Bytes(2 * n), "gradients");
    gpu_.launch(into_bucket_by_columns, n);
    gpu_.free(turned);
  } else {
    gpu_.launch(gradient_into_bucket, n);
  }
}

void Zero2Gradients::flush() {
  if (in_bucket_.empty()) {
    return;
  }
  const std::int64_t n = count(in_bucket_);
  if (settings_.overlap) {  // the compute stream waits for the bucket before, the reduction for
                            // these gradients
    gpu_.wait(kCompute, gpu_.record(reduction_));
    gpu_.wait(reduction_, gpu_.record(kCompute));
  }
  if (!settings_.in_16_bits) {  // the paper's one GPU has nothing to average with
    gpu_.launch(average, n, reduction_);
  }
  if (on_full_) {
    on_full_(in_bucket_);
  }
  for (const Tensor& tensor : in_bucket_) {
    send(tensor.numel());
  }
  for (const Buffer gradient : loose_) {
    free_beside(gpu_, gradient, kCompute, reduction_);
  }
  loose_.clear();
  in_bucket_.clear();
  in_bucket_elements_ = 0;
}

// One gradient on its way to the host (async_accumulate_grad_in_cpu_via_gpu,
// copy_grads_in_partition).
void Zero2Gradients::send(std::int64_t n) {
  const std::string_view what = settings_.in_16_bits ? "gradients" : "accumulated gradients";
  if (!first_ || !last_ || settings_.in_16_bits) {
    if (!first_) {
      gpu_.copy_h2d(reduction_, settings_.host, Bytes(2 * n), what);
      gpu_.launch(accumulate_gradient, n, reduction_);
    }
    gpu_.copy_d2h(reduction_, settings_.host, Bytes(2 * n), what);
  }
  if (last_ && !settings_.in_16_bits) {
    // The norm's temporaries take 8 bytes an element, the check's 11, the cast's 4: one after the
    // other, in the same place.
    gpu_.free(gpu_.allocate(Space::kGpu, Bytes(11 * n), "gradient temporaries"));
    gpu_.launch(norm_and_check, n, reduction_);
    gpu_.sync(reduction_);  // Python tests the answer
    gpu_.launch(cast_to_fp32, n, reduction_);
    gpu_.copy_d2h(reduction_, fp32_host_, Bytes(4 * n), "fp32 gradients");
  }
}

void place_zero2(const Job& job, Recorder& gpu, Space master, Space host, bool staging) {
  const std::int64_t n = model::trained_parameters(job.shape);
  place_on_gpu(job, gpu, 2);
  place_workspace(job, gpu);
  gpu.allocate(master, Bytes(4 * n), "fp32 master");
  if (staging) {
    gpu.allocate(host, Bytes(2 * n), "16-bit staging copy");
  }
  const Bytes largest(2 * model::largest_trained_tensor(job.shape).numel());
  gpu.allocate(host, largest, "16-bit gradient buffer");
  gpu.allocate(Space::kGpu, largest, "16-bit gradient buffer");
  if (job.workload.accumulation > 1) {
    for (const Tensor& tensor : model::trained(model::all_tensors(job.shape))) {
      gpu.allocate(host, Bytes(2 * tensor.numel()), "accumulated gradients");
    }
  }
}

void begin_zero2_step(const Job& job, Recorder& gpu) {
  gpu.read_result();  // the overflow flag
  const std::vector<Tensor> trained = model::trained(model::all_tensors(job.shape));
  gpu.host_busy(runtime::HostTask::kStepTensor, std::ssize(trained), "step's Python, a parameter");
}

void update_zero2(const Job& job, Recorder& gpu, Space host) {
  const std::int64_t n = model::trained_parameters(job.shape);
  begin_zero2_step(job, gpu);
  gpu.cpu("mul_f32", n, "unscale and clip");
  gpu.cpu("adam_deepspeed_f32", n, "Adam");
  gpu.cpu("cast_f32_bf16", n, "cast to 16 bits");
  gpu.copy_h2d(kCompute, host, Bytes(2 * n), "parameters");
}

}  // namespace offsim::plans
