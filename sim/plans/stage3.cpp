#include "sim/plans/stage3.h"

#include <algorithm>
#include <ranges>

#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"

namespace offsim::plans {

using model::Module;
using model::Tensor;
using runtime::Buffer;
using runtime::kCompute;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

Tier tier(const std::string& device) {
  return device == "none" ? Tier::kGpu : (device == "cpu" ? Tier::kCpu : Tier::kNvme);
}

namespace {

// The tensors of a module, by its name in theirs, as offsets into their list.
std::vector<std::int32_t> tensors_of(const Module& module, const std::vector<Tensor>& tensors,
                                     std::int32_t first) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (("." + tensors[i].name).find("." + module.name + ".") != std::string::npos) {
      ids.push_back(first + static_cast<std::int32_t>(i));
    }
  }
  return ids;
}

}  // namespace

Stage3::Stage3(const Job& job, Recorder& gpu, Tier optimizer)
    : job_(job),
      gpu_(gpu),
      model_(job, gpu, numerics_of(job.workload.precision, true)),
      parameters_(tier(job.options.text("offload_param"))),
      optimizer_(optimizer),
      pinned_(job.options.flag("pin_memory",
                               job.options.version("deepspeed_version") >= kPinnedByDefaultSince)),
      overlap_(job.options.flag("overlap_comm")),
      gather_(overlap_ ? gpu.stream("gather") : kCompute),
      reduction_(overlap_ ? gpu.stream("reduction") : kCompute) {
  number_parameters();
  make_sub_groups();
  place();
  make_window();
}

void Stage3::number_parameters() {
  const std::vector<Tensor> outer = model::outer_tensors(job_.shape);
  const std::vector<Tensor> layer = model::layer_tensors(job_.shape);
  std::vector<Tensor> embedding, rest;
  for (const Tensor& tensor : outer) {
    (tensor.group == model::Group::kEmbedding ? embedding : rest).push_back(tensor);
  }
  std::int32_t next = 0;
  const auto number = [&](std::int64_t piece, const std::vector<Tensor>& tensors) {
    for (const Module& module : model_.modules(piece)) {
      // The first of all is the embedding, which a tied head shares.
      ids_[static_cast<std::size_t>(piece)].push_back(
          module.tied ? std::vector<std::int32_t>{0} : tensors_of(module, tensors, next));
    }
    for (const Tensor& tensor : tensors) {
      elements_.push_back(tensor.numel());
    }
    next = static_cast<std::int32_t>(elements_.size());
  };
  ids_.resize(static_cast<std::size_t>(model_.head()) + 1);
  number(0, embedding);
  for (std::int64_t piece = 1; piece < model_.head(); ++piece) {
    number(piece, layer);
  }
  number(model_.head(), rest);
}

// _create_fp16_sub_groups, and which of them keep their optimizer on the GPU.
void Stage3::make_sub_groups() {
  const std::int64_t size = job_.options.count("sub_group_size");
  SubGroup open;
  std::vector<std::int64_t> largest;  // by sub-group: elements of a parameter
  for (const std::int64_t elements : elements_) {
    sub_group_of_.push_back(sub_groups_.size());
    largest.resize(sub_groups_.size() + 1);
    largest.back() = std::max(largest.back(), elements);
    open.elements += elements;
    open.tensors += 1;
    if (open.elements >= size) {
      sub_groups_.push_back(open);
      open = {};
    }
  }
  if (open.tensors > 0) {
    sub_groups_.push_back(open);
  }
  const auto count = static_cast<double>(sub_groups_.size());
  const double ratio = job_.options.number("ratio");
  const bool early = job_.options.version("deepspeed_version") >= kEarlySubGroupsOnGpuSince;
  const auto on_cpu = static_cast<std::size_t>(ratio * count);
  const auto on_gpu = static_cast<std::size_t>((1 - ratio) * count);
  std::int64_t in_memory = 0;
  for (std::size_t i = 0; i < sub_groups_.size(); ++i) {
    SubGroup& group = sub_groups_[i];
    const bool stays = early ? i < on_gpu : i >= on_cpu;
    group.optimizer = stays ? Tier::kGpu : optimizer_;
    if (parameters_ == Tier::kNvme) {
      const bool fits = in_memory + group.elements <= job_.options.count("max_in_cpu");
      in_memory += fits ? group.elements : 0;
      // One of parameters too small for the drive stays in memory whatever max_in_cpu says.
      group.parameters_on_drive = !fits && 2 * largest[i] >= least_swapped_bytes(job_.options);
    }
  }
}

void Stage3::place() {
  const std::int64_t n = model::parameters(job_.shape);
  gpu_.allocate(Space::kGpu, job_.machine.framework.gpu_workspace.value,
                "workspace of matrix products");
  gpu_.allocate(Space::kGpu, Bytes(2 * job_.options.count("reduce_bucket_size")),
                "gradient bucket");
  if (parameters_ == Tier::kGpu) {
    gpu_.allocate(Space::kGpu, Bytes(2 * n), "parameters");
  }
  if (!offloaded()) {
    gpu_.allocate(Space::kGpu, Bytes(2 * n), "16-bit gradients");
  }
  for (const SubGroup& group : sub_groups_) {
    if (group.optimizer == Tier::kGpu) {
      gpu_.allocate(Space::kGpu, Bytes(4 * group.elements), "fp32 master");
      if (offloaded()) {
        gpu_.allocate(Space::kGpu, Bytes(4 * group.elements), "fp32 gradients");
      }
    }
  }
  place_host();
}

void Stage3::place_host() {
  const Space host = pinned_ ? Space::kPinned : Space::kPageable;
  const bool exact = drive_components(job_.options).exact_pinned;
  const auto allocate = [&](Space space, Bytes bytes, std::string_view tag) {
    exact ? gpu_.allocate_exact(space, bytes, tag) : gpu_.allocate(space, bytes, tag);
  };
  std::int64_t in_memory = 0, swapped = 0, largest = 0;
  for (const SubGroup& group : sub_groups_) {
    in_memory += group.parameters_on_drive ? 0 : group.elements;
    largest = std::max(largest, group.elements);
    if (group.optimizer == Tier::kNvme) {
      swapped += group.elements;
    } else if (group.optimizer == Tier::kCpu) {
      allocate(Space::kPageable, Bytes(4 * group.elements), "fp32 master");
      allocate(host, Bytes(4 * group.elements), "fp32 gradients");
    }
  }
  if (offloaded()) {
    allocate(host, Bytes(2 * model::parameters(job_.shape)), "16-bit gradients");
  }
  if (parameters_ != Tier::kGpu && in_memory > 0) {
    allocate(Space::kPinned, Bytes(2 * in_memory), "parameters");
    if (pinned_ && !exact) {  // each was pinned by itself first: the blocks are cached for ever
      for (std::size_t i = 0; i < elements_.size(); ++i) {
        if (!sub_groups_[sub_group_of_[i]].parameters_on_drive) {
          gpu_.allocate(Space::kPinned, Bytes(2 * elements_[i]), "cached blocks of initialisation");
        }
      }
    }
  }
  if (swapped > 0) {
    swap_optimizer_.emplace(job_, gpu_, swapped, largest);
  }
}

void Stage3::make_window() {
  const Options& options = job_.options;
  std::vector<GatherWindow::Parameter> gathered;
  std::vector<Stage3Gradients::Parameter> reduced;
  std::vector<std::int64_t> on_drive;
  const std::int64_t threshold = options.count("stage3_param_persistence_threshold");
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    const SubGroup& group = sub_groups_[sub_group_of_[i]];
    gathered.push_back({elements_[i], elements_[i] <= threshold});
    reduced.push_back({elements_[i], group.optimizer});
    const bool swapped =
        group.parameters_on_drive && 2 * elements_[i] >= least_swapped_bytes(options);
    on_drive.push_back(swapped ? elements_[i] : 0);
  }
  if (std::ranges::any_of(on_drive, [](std::int64_t n) { return n > 0; })) {
    swap_parameters_.emplace(job_, gpu_, std::move(on_drive));
  }
  const GatherWindow::Limits limits{options.count("stage3_prefetch_bucket_size"),
                                    options.count("stage3_max_live_parameters"),
                                    options.count("stage3_max_reuse_distance")};
  const bool early = options.version("deepspeed_version") < kSlowerHooksSince;
  window_.emplace(gpu_, gather_,
                  early ? runtime::HostTask::kModuleHookEarly : runtime::HostTask::kModuleHook,
                  limits, std::move(gathered), parameters_ == Tier::kGpu, parameter_swapper());
  gradients_.emplace(job_, gpu_, reduction_, offloaded(), pinned_, std::move(reduced),
                     optimizer_swapper());
}

void Stage3::micro_steps() {
  const GpuModel::Run run = [this](GpuModel::Pass pass, std::int64_t piece) {
    this->run(pass, piece);
  };
  for (std::int64_t micro = 0; micro < job_.workload.accumulation; ++micro) {
    gradients_->begin_micro_step(micro);
    enter(job_, gpu_, Phase::kForward);
    window_->begin_micro_step();
    model_.forward(run);
    enter(job_, gpu_, Phase::kBackward);
    model_.backward(run);
    gradients_->finish();
  }
}

// A piece under hooks, module by module.
void Stage3::run(GpuModel::Pass pass, std::int64_t piece) {
  const std::vector<Module>& modules = model_.modules(piece);
  const auto& ids = ids_[static_cast<std::size_t>(piece)];
  if (pass == GpuModel::Pass::kBackward) {
    for (std::size_t i = modules.size(); i-- > 0;) {
      backward_module(modules[i], ids[i]);
    }
  } else if (pass != GpuModel::Pass::kGradients) {
    for (std::size_t i = 0; i < modules.size(); ++i) {
      window_->enter(ids[i], modules[i].borders);
      gpu_.launch(pass == GpuModel::Pass::kForward ? modules[i].forward : modules[i].recompute);
      window_->leave(ids[i]);
    }
  }
}

void Stage3::backward_module(const Module& module, const std::vector<std::int32_t>& ids) {
  window_->enter(ids, module.borders);
  gpu_.launch(module.backward);
  window_->leave(ids);
  if (module.tied) {
    return;  // the embedding's gradient, which comes whole with the embedding's backward
  }
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    const auto parameter = static_cast<std::size_t>(*id);
    gradients_->add(parameter,
                    gpu_.allocate(Space::kGpu, Bytes(2 * elements_[parameter]), "gradients"));
  }
}

void Stage3::begin_optimizer(bool first) {
  window_->release_all();
  if (!first) {
    return;
  }
  for (const SubGroup& group : sub_groups_) {
    if (group.optimizer != Tier::kNvme) {
      gpu_.allocate(group.optimizer == Tier::kGpu ? Space::kGpu : Space::kPageable,
                    Bytes(8 * group.elements), "Adam states");
    }
  }
}

void Stage3::end_optimizer() {
  if (swap_optimizer_) {
    swap_optimizer_->end_step();
  }
  window_->gather_persistent();
}

}  // namespace offsim::plans
