// zenflow: stage 2 whose most important gradient columns are updated on the GPU after every
// micro-batch, the rest on the CPU once an interval (source: DeepSpeed 0.19.6, runtime/zenflow,
// ops/adam/zenflow_torch_adam.py, csrc/adam/cpu_adam_impl.cpp).
//
// DeepSpeed sets gradient_accumulation_steps to update_interval: a step here is an interval, its
// micro-batches are the workload's accumulation, and rates are means over short and long ones.
// GPU, 16-bit, beside stage 2's: of a share topk_ratio of the columns of each matrix, and of all
// vectors, m and v (4 B); their gradients (2 B) until they are used.
// Backward, beside stage 2's (zero2_gradients.h): gradients of matrices go into the bucket by
// columns; of an averaged bucket the chosen columns are taken out, and updated at once (torch's
// foreach AdamW, whose step counts are on the GPU and read one by one, twice: the stream is waited
// for), or kept, with a copy of the old numbers, when the micro-batch is the interval's last.
// update_interval auto adds up all gradients' sizes and the host compares them, a matrix at a time;
// how long an interval is then, depends on the gradients.
// Where columns are chosen anew (once, or with select_strategy step every select_interval), the
// host first copies the 16-bit parameters into the master, and column sums are ranked.
// Step, once an interval: as stage 2's, then the chosen columns from their old numbers.
// overlap_step: Adam in a process of its own, on the cores that pt_reserved_cores_perc leaves; two
// fp32 gradients, two sets of m and v in turn, and a copy of the master that Adam's result is
// written to as well (12 B). The host waits for the update of the interval before (of the one
// before that without warm-up: two waits are skipped at the start, and never made up for), casts
// that copy into a new temporary and sends it, blocking; then unscales and submits. What is shared
// with the process is pinned no more, its pinned blocks stay cached: gradients leave by pageable
// copies.
// Left out: stage 3, zeroing m and v at a choice, `offload` of the selective states, auto_ratio,
// several GPUs, memory of the second process itself.
#include <algorithm>
#include <cmath>
#include <deque>

#include "sim/plans/checkpoint_offload.h"
#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/gpu_model.h"
#include "sim/plans/plans.h"
#include "sim/plans/zero2_gradients.h"

namespace offsim::plans {

using model::Kernel;
using model::Tensor;
using model::Work;
using runtime::Buffer;
using runtime::Event;
using runtime::kCompute;
using runtime::Lane;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;
using Tensors = Zero2Gradients::Tensors;

namespace {

// --- what becomes of the chosen columns, kernel by kernel

Work choose_columns(std::int64_t n) {  // abs(), sum(1), topk(), sort() and their copies
  return {sized("choose columns", n), {{.bytes = 4 * n}, {.bytes = 2 * n}, {.count = 8}}};
}
Work take_gradient(std::int64_t s) {  // by index, into the buffer, and a clone
  return {sized("take chosen gradient", s),
          {{.bytes = 4 * s, .indexed = s}, {.bytes = 4 * s}, {.bytes = 4 * s}}};
}
// And abs().sum() of all and of the chosen ones.
Work take_and_add_up(std::int64_t n, std::int64_t s) {
  Work work = take_gradient(s);
  work.name = fmt::format("take chosen gradient and add up sizes ({} of {} elements)", s, n);
  for (const Kernel& kernel : std::initializer_list<Kernel>{
           {.bytes = 4 * n}, {.bytes = 2 * n}, {.bytes = 4 * s}, {.bytes = 2 * s}, {.count = 8}}) {
    work.kernels.push_back(kernel);
  }
  return work;
}
Work keep_numbers(std::int64_t s) {
  return {sized("keep chosen numbers", s), {{.bytes = 4 * s, .indexed = s}, {.bytes = 4 * s}}};
}
// Count, decay, lerp of m, mul and addcmul of v, sqrt, div, add, addcdiv, in 16 bits.
Work selective_adam(std::int64_t s, const std::string& of_what) {
  return {fmt::format("selective Adam ({})", of_what),
          {{},
           {.bytes = 4 * s},
           {.bytes = 6 * s},
           {.bytes = 4 * s},
           {.bytes = 6 * s},
           {.bytes = 4 * s},
           {.bytes = 4 * s},
           {.bytes = 4 * s},
           {.bytes = 8 * s}}};
}
Kernel take_or_put_numbers(std::int64_t s) { return {.bytes = 4 * s, .indexed = s}; }
Kernel restore_numbers(std::int64_t s) { return {.bytes = 4 * s}; }

// overlap_step: of how many intervals the updates are not waited for, from the beginning on.
int updates_under_way(const Job& job) {
  return job.options.count("full_warm_up_rounds") > 0 ? 1 : 2;
}
// Once an interval, as the reported step does.
bool selects_each_step(const Job& job) {
  return job.options.text("select_strategy") == "step" &&
         job.options.count("select_interval", 0) == job.workload.accumulation;
}
// Steps before their temporaries of copies are no longer new memory.
int steps_to_fill(const Job& job) {
  return zenflow_meets_next(job) ? updates_under_way(job) : selects_each_step(job) ? 1 : 0;
}

class ZenFlow {
 public:
  ZenFlow(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        model_(job, gpu, numerics_of(job.workload.precision, true)),
        parameters_(model::parameters(job.shape)),
        tensors_(model::all_tensors(job.shape)),
        ratio_(job.options.number("topk_ratio")),
        auto_(job.options.text("update_interval") == "auto"),
        selects_again_(selects_each_step(job)),
        beside_(job.options.flag("overlap_step")),
        overlap_(job.options.flag("overlap_comm")),
        host_(job.options.flag("pin_memory") ? Space::kPinned : Space::kPageable),
        gradients_(gpu, {.bucket_elements = job.options.count("reduce_bucket_size"),
                         .overlap = overlap_,
                         .host = host_,
                         .transposed = true}) {
    gradients_.on_full([this](const Tensors& bucket) { select(bucket); });
    place_zero2(job, gpu, host_, host_, true);
    gpu_.allocate(host_, Bytes(4 * parameters_), "fp32 gradients");
    if (beside_) {
      process_ = gpu.worker("optimizer process");
      gpu_.allocate(Space::kPageable, Bytes(4 * parameters_), "fp32 gradients");
      const auto cores = static_cast<double>(job.machine.host.cores);
      const int reserved =
          static_cast<int>(std::ceil(job.options.number("pt_reserved_cores_perc") * cores));
      if (0 < reserved && reserved < job.machine.host.cores) {  // else both have all
        training_threads_ = reserved;
        process_threads_ = job.machine.host.cores - reserved;
      }
    }
  }

  void step(bool first) {
    const std::int64_t k = job_.workload.accumulation;
    const auto run = [this](GpuModel::Pass pass, std::int64_t piece) {
      model_.launch(pass, piece);
      if (pass == GpuModel::Pass::kGradients) {
        for (const Tensor& tensor : model_.tensors(piece)) {
          gradients_.reduce(tensor);
        }
      }
    };
    if (first) {
      gpu_.allocate(Space::kGpu, Bytes(4 * chosen(tensors_)), "selective Adam states");
    }
    for (std::int64_t micro = 0; micro < k; ++micro) {
      last_ = micro + 1 == k;
      chooses_ = micro == 0 && (first || selects_again_);
      bucket_ = 0;
      gradients_.begin(micro == 0, last_);
      enter(job_, gpu_, Phase::kForward);
      model_.forward(run);
      enter(job_, gpu_, Phase::kBackward);
      if (chooses_ && !first) {
        refresh_master();
      }
      model_.backward(run);
      gradients_.flush();
      if (overlap_) {
        gpu_.sync_device();
      }
      gradients_.free_buckets();
    }
    enter(job_, gpu_, Phase::kOptimizer);
    if (first) {
      gpu_.allocate(Space::kPageable, Bytes((beside_ ? 16 : 8) * parameters_), "Adam states");
    }
    beside_ ? exchange(first) : update_zero2(job_, gpu_, host_);
    update_chosen(tensors_, "all columns", kCompute);
    end_step(job_, gpu_);
  }

 private:
  // Whole columns; vectors as they are.
  std::int64_t chosen(const Tensor& t) const {
    return t.is_matrix ? static_cast<std::int64_t>(ratio_ * static_cast<double>(t.cols)) * t.rows
                       : t.numel();
  }
  std::int64_t chosen(const Tensors& tensors) const {
    std::int64_t sum = 0;
    for (const Tensor& tensor : tensors) {
      sum += chosen(tensor);
    }
    return sum;
  }
  Buffer hold(std::int64_t bytes, std::string_view tag) {
    return gpu_.allocate(Space::kGpu, Bytes(bytes), tag);
  }
  void brief(std::int64_t bytes, std::string_view tag) { gpu_.free(hold(bytes, tag)); }

  // average_tensor: of a bucket.
  void select(const Tensors& bucket) {
    const Lane lane = gradients_.reduction();
    for (const Tensor& tensor : bucket) {
      if (chooses_ && tensor.is_matrix) {
        brief(2 * tensor.numel(), "selection temporaries");
        gpu_.launch(choose_columns, tensor.numel(), lane);
      }
    }
    brief(2 * chosen(bucket), "selection temporaries");
    for (const Tensor& tensor : bucket) {
      const std::int64_t s = chosen(tensor);
      kept_.push_back(hold(2 * s, "chosen gradients"));
      if (auto_ && tensor.is_matrix) {
        brief(2 * tensor.numel(), "selection temporaries");
        gpu_.launch(take_and_add_up(tensor.numel(), s), lane);
        gpu_.sync(lane);  // Python compares
      } else {
        gpu_.launch(take_gradient, s, lane);
      }
      if (last_) {
        kept_.push_back(hold(2 * s, "chosen numbers"));
        gpu_.launch(keep_numbers, s, lane);
      }
    }
    if (!last_) {
      update_chosen(bucket, fmt::format("bucket {}", ++bucket_), lane);
    }
  }

  void update_chosen(const Tensors& of, const std::string& of_what, Lane lane) {
    const Buffer numbers = hold(2 * chosen(of), "chosen numbers");
    Work take{fmt::format("take chosen numbers ({})", of_what), {}};
    Work update = selective_adam(chosen(of), of_what);
    for (const Tensor& tensor : of) {
      take.kernels.push_back(take_or_put_numbers(chosen(tensor)));
      if (last_) {
        take.kernels.push_back(restore_numbers(chosen(tensor)));
      }
      if (tensor.is_matrix) {
        update.kernels.push_back(take_or_put_numbers(chosen(tensor)));
      }
    }
    gpu_.launch(take, lane);
    const auto items = 2 * std::ssize(of);
    gpu_.copy_d2h(lane, Space::kPageable, Bytes(2 * items), "step counts", {.pieces = items});
    brief(2 * chosen(of), "selection temporaries");
    gpu_.launch(update, lane);
    free_beside(gpu_, numbers, kCompute, lane);
    for (const Buffer buffer : kept_) {
      free_beside(gpu_, buffer, kCompute, lane);
    }
    kept_.clear();
  }

  // sync_fp32_param_from_gpu.
  void refresh_master() {
    gpu_.convert_d2h(kCompute, {parameters_, 2, 4}, "parameters for the master");
    gpu_.cpu("copy_f32", parameters_, "into the master", {.threads = training_threads_});
  }

  // The Parallel optimizer's step: the process's last result, and its next work.
  void exchange(bool first) {
    begin_zero2_step(job_, gpu_);
    if (updates_.size() == static_cast<std::size_t>(updates_under_way(job_))) {
      gpu_.sync(updates_.front());
      updates_.pop_front();
      const Buffer temporary =
          gpu_.allocate(Space::kPageable, Bytes(2 * parameters_), "temporaries of copies");
      gpu_.cpu("cast_f32_bf16", parameters_, "cast to 16 bits",
               {.threads = training_threads_, .into = temporary});
      gpu_.copy_h2d(kCompute, Space::kPageable, Bytes(2 * parameters_), "parameters",
                    {.blocking = true});
      gpu_.free(temporary);
    }
    if (first) {
      share_memory();
    }
    gpu_.cpu("mul_f32", parameters_, "unscale and clip", {.threads = training_threads_});
    const Recorder::CpuOptions there{.thread = process_, .threads = process_threads_};
    gpu_.cpu("adam_deepspeed_f32", parameters_, "Adam", there);
    gpu_.cpu("copy_f32", parameters_, "copy of the master", there);
    updates_.push_back(gpu_.record(process_));
  }

  // Master, both gradients and the copy; what was pinned stays so, unused.
  void share_memory() {
    gpu_.allocate(Space::kPageable, Bytes(4 * parameters_), "copy of the master");
    if (host_ == Space::kPinned) {
      gpu_.allocate(Space::kPageable, Bytes(4 * parameters_), "shared fp32 master");
      gpu_.allocate(Space::kPageable, Bytes(4 * parameters_), "shared fp32 gradients");
    }
    gradients_.unpin_fp32();
  }

  const Job& job_;
  Recorder& gpu_;
  GpuModel model_;
  std::int64_t parameters_;
  Tensors tensors_;
  double ratio_;
  bool auto_, selects_again_, beside_, overlap_;
  Space host_;
  Zero2Gradients gradients_;
  Lane process_{};
  int training_threads_ = 0, process_threads_ = 0;  // 0: all cores
  bool last_ = true, chooses_ = false;
  int bucket_ = 0;             // of the micro-batch
  std::vector<Buffer> kept_;   // gradients and old numbers of chosen columns
  std::deque<Event> updates_;  // submitted, not waited for
};

void refuse(const Job& job, std::string_view option, std::string_view expected) {
  throw InputError(job.options.place(option),
                   fmt::format("zenflow.{} is {}", option, job.options.text(option)),
                   std::string(expected));
}

// As configure_zenflow refuses them, and what is not modelled.
void check_intervals(const Job& job) {
  const Options& options = job.options;
  const std::int64_t k = job.workload.accumulation;
  const bool by_steps = options.text("select_strategy") == "step";
  const bool number = options.text("select_interval") != "auto";
  if (options.text("select_strategy") == "auto" && number) {
    refuse(job, "select_interval",
           "expected auto, or select_strategy step: auto would set it to 1");
  }
  if (options.text("select_strategy") != "auto" && !number) {
    refuse(
        job, "select_interval",
        fmt::format("expected a number with select_strategy {}", options.text("select_strategy")));
  }
  if (options.count("update_interval", k) != k) {
    refuse(job, "update_interval",
           fmt::format("expected the workload's accumulation, {}: DeepSpeed sets the one to the "
                       "other",
                       k));
  }
  // Others make DeepSpeed update on the CPU between: intervals that differ are not modelled.
  if (by_steps && options.count("select_interval", k) % k != 0) {
    refuse(job, "select_interval",
           fmt::format("expected a multiple of the update_interval, {}", k));
  }
}

}  // namespace

std::vector<OptionSpec> zenflow_options() {
  using Kind = OptionSpec::Kind;
  std::vector<OptionSpec> options{
      {"topk_ratio",
       Kind::kNumber,
       "0.1",
       "",
       "of the columns of each matrix are updated on the GPU, every micro-batch",
       {},
       0,
       1},
      {"select_strategy",
       Kind::kChoice,
       "auto",
       "",
       "choose columns anew every select_interval micro-batches (step) or epochs; auto: each epoch",
       {"auto", "step", "epoch"}},
      {"select_interval",
       Kind::kCount,
       "auto",
       "micro-batches or epochs",
       "between choices of columns; in the step that is reported if it is the update_interval",
       {},
       1},
      {"update_interval",
       Kind::kCount,
       "auto",
       "micro-batches",
       "between updates on the CPU: the workload's accumulation; auto watches gradients, too",
       {},
       1},
      {"full_warm_up_rounds", Kind::kCount, "0", "micro-batches",
       "with full updates at first; without any, overlap_step waits for an update later"},
      {"overlap_step", Kind::kFlag, "false", "",
       "Adam in a process of its own beside the next interval"},
      {"pt_reserved_cores_perc",
       Kind::kNumber,
       "0.5",
       "",
       "overlap_step: of the cores stay with the training process",
       {},
       0,
       1},
      {"pin_memory", Kind::kFlag, "true", "", "pinned host buffers, until they are shared"},
      {"overlap_comm", Kind::kFlag, "false", "",
       "reduce and offload gradients on a stream of their own, with a second bucket"},
      {"reduce_bucket_size",
       Kind::kCount,
       "5e8",
       "elements",
       "GPU bucket of gradients, flushed when full",
       {},
       1},
  };
  add_checkpoint_offload_options(options);
  return options;
}

std::vector<std::string> check_zenflow(const Job& job) {
  require_precision(
      job, {Precision::kBf16Mixed, Precision::kFp16Mixed},
      "bf16-mixed or fp16-mixed: fp32 masters on the CPU, 16-bit parameters on the GPU");
  refuse_adapters(job, "its columns are of trained matrices");
  refuse_experts(job, "it turns gradients over, and those of experts have three dimensions");
  refuse_activation_offload(job, "hooks on saved tensors beside its columns are not modelled");
  check_intervals(job);
  std::vector<std::string> warnings;
  check_checkpoint_offload(job, warnings);
  const Options& options = job.options;
  if (!options.flag("overlap_step")) {
    warn_without_effect(warnings, job, "only overlap_step's process is affected by it",
                        {"full_warm_up_rounds", "pt_reserved_cores_perc"});
  }
  if (options.text("select_strategy") == "epoch") {
    warn_without_effect(warnings, job, "the step that is reported begins no epoch",
                        {"select_strategy", "select_interval"});
  } else if (options.text("select_strategy") == "step" &&
             options.count("select_interval", 0) != job.workload.accumulation) {
    warn_without_effect(warnings, job, "the step that is reported chooses no columns",
                        {"select_strategy", "select_interval"});
  }
  return warnings;
}

// Adam's process works on while the next interval begins.
bool zenflow_meets_next(const Job& job) { return job.options.flag("overlap_step"); }

void record_zenflow(const Job& job, Recorder& gpu, int steps) {
  record_steps(ZenFlow(job, gpu), steps + steps_to_fill(job));
}

}  // namespace offsim::plans
