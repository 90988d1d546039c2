#include "sim/plans/stage3.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "sim/plans/common.h"
#include "sim/plans/deepspeed.h"

namespace offsim::plans {

using model::Module;
using model::Tensor;
using runtime::kCompute;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

Tier tier(const std::string& device) {
  return device == "none" ? Tier::kGpu : (device == "cpu" ? Tier::kCpu : Tier::kNvme);
}

namespace {

using ModuleIds = std::vector<std::vector<std::int32_t>>;  // by module: its parameters

// Counted from 0. A module's tensors have its name in theirs; `backward` has them in the order of
// backward, which is that of registration from the end.
ModuleIds number_modules(const std::vector<Module>& modules, const std::vector<Tensor>& backward) {
  ModuleIds ids(modules.size());
  for (std::size_t i = 0; i < backward.size(); ++i) {
    const std::string name = "." + backward[backward.size() - 1 - i].name + ".";
    for (std::size_t m = 0; m < modules.size(); ++m) {
      if (name.find("." + modules[m].name + ".") != std::string::npos) {
        ids[m].push_back(static_cast<std::int32_t>(i));
      }
    }
  }
  return ids;
}

}  // namespace

// _create_fp16_sub_groups.
std::vector<SubGroup> make_sub_groups(const Job& job) {
  const std::int64_t size = job.options.count("sub_group_size");
  std::vector<SubGroup> groups;
  SubGroup open;
  model::for_each_tensor(job.shape, [&](const Tensor& tensor) {
    if (!tensor.trained) {
      return;
    }
    open.elements += tensor.numel();
    open.tensors += 1;
    if (open.elements >= size) {
      groups.push_back(std::exchange(open, {}));
    }
  });
  if (open.tensors > 0) {
    groups.push_back(open);
  }
  return groups;
}

// subgroup_to_device: both ways of rounding as they are.
Range kept_on_gpu(const Job& job, std::size_t sub_groups) {
  const auto count = static_cast<double>(sub_groups);
  const double ratio = job.options.number("ratio");
  if (job.options.version("deepspeed_version") >= kEarlySubGroupsOnGpuSince) {
    return {0, static_cast<std::size_t>((1 - ratio) * count)};
  }
  return {static_cast<std::size_t>(ratio * count), sub_groups};
}

Stage3::Stage3(const Job& job, Recorder& gpu, Tier optimizer)
    : job_(job),
      gpu_(gpu),
      model_(job, gpu, numerics_of(job.workload.precision, true)),
      parameters_(tier(job.options.text("offload_param"))),
      optimizer_(optimizer),
      pinned_(job.options.flag("pin_memory",
                               job.options.version("deepspeed_version") >= kPinnedByDefaultSince)),
      overlap_(job.options.flag("overlap_comm")),
      views_(!job.options.flag("zero_init")),
      sub_groups_(make_sub_groups(job)),
      gather_(overlap_ ? gpu.stream("gather") : kCompute),
      reduction_(overlap_ ? gpu.stream("reduction") : kCompute) {
  number_parameters();
  number_sub_groups();
  choose_tiers();
  choose_homes();
  place();
  make_swappers();
  make_window();
}

// Pieces that are alike have one list of modules, whose names are compared once.
void Stage3::number_parameters() {
  std::unordered_map<const std::vector<Module>*, ModuleIds> of_modules;
  for (std::int64_t piece = 0; piece <= model_.head(); ++piece) {
    const std::vector<Module>& modules = model_.modules(piece);
    const std::vector<Tensor>& tensors = model_.tensors(piece);
    const auto [known, added] = of_modules.try_emplace(&modules);
    if (added) {
      known->second = number_modules(modules, tensors);
    }
    const auto first = static_cast<std::int32_t>(elements_.size());
    ModuleIds& ids = ids_.emplace_back(known->second);
    for (std::size_t m = 0; m < modules.size(); ++m) {
      for (std::int32_t& id : ids[m]) {
        id += first;
      }
      if (modules[m].tied) {
        ids[m] = {0};  // the embedding, the first of all
      }
    }
    for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) {
      elements_.push_back((numbers(*tensor, {2, 2}).value + 1) / 2);
      trained_.push_back(tensor->trained);
    }
  }
}

void Stage3::number_sub_groups() {
  std::size_t group = 0;
  std::int64_t in_group = 0;
  sub_group_of_.assign(elements_.size(), 0);
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    if (!trained_[i]) {
      continue;
    }
    if (in_group == sub_groups_[group].tensors) {
      ++group;
      in_group = 0;
    }
    sub_group_of_[i] = group;
    ++in_group;
  }
}

// Which sub-groups keep their optimizer on the GPU, and which are too small for the drive.
void Stage3::choose_tiers() {
  const Range on_gpu = kept_on_gpu(job_, sub_groups_.size());
  const std::int64_t width = drive_components(job_.options).state_bytes();
  for (std::size_t i = 0; i < sub_groups_.size(); ++i) {
    SubGroup& group = sub_groups_[i];
    group.optimizer = i >= on_gpu.from && i < on_gpu.to ? Tier::kGpu : optimizer_;
    if (group.optimizer == Tier::kNvme &&
        width * group.elements < least_swapped_bytes(job_.options)) {
      group.optimizer = Tier::kCpu;
    }
  }
}

bool Stage3::worth_a_request(std::size_t parameter) const {
  return 2 * elements_[parameter] >= least_swapped_bytes(job_.options);
}

// _create_fp16_partitions_with_defragmentation: where the first sub-groups end decides, so that
// none fits behind one that does not.
void Stage3::choose_homes() {
  homes_.assign(elements_.size(), parameters_ == Tier::kGpu ? Space::kGpu : Space::kPinned);
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    if (parameters_ == Tier::kCpu && !trained_[i] && !pinned_) {
      homes_[i] = Space::kPageable;
    }
  }
  if (parameters_ != Tier::kNvme) {
    return;
  }
  std::int64_t end = 0;
  for (SubGroup& group : sub_groups_) {
    end += group.elements;
    group.in_piece = end <= job_.options.count("max_in_cpu");
  }
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    SubGroup& group = sub_groups_[sub_group_of_[i]];
    if (group.in_piece) {
      continue;
    }
    homes_[i] = worth_a_request(i) ? Space::kNvme : (pinned_ ? Space::kPinned : Space::kPageable);
    group.elements_on_drive += homes_[i] == Space::kNvme ? elements_[i] : 0;
  }
}

void Stage3::place() {
  const std::int64_t n = model::trained_parameters(job_.shape);
  place_workspace(job_, gpu_);
  if (job_.options.flag("contiguous_gradients")) {
    gpu_.allocate(Space::kGpu, Bytes(2 * job_.options.count("reduce_bucket_size")),
                  "gradient bucket");
  }
  if (parameters_ == Tier::kGpu) {
    place_on_gpu(job_, gpu_, 2);
  } else if (const Bytes bytes = constants(job_.shape); bytes.value > 0) {
    gpu_.allocate(Space::kGpu, bytes, "constants of quantisation");
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
  const DriveComponents components = drive_components(job_.options);
  const auto allocate = [&](Space space, Bytes bytes, std::string_view tag) {
    components.exact_pinned ? gpu_.allocate_exact(space, bytes, tag)
                            : gpu_.allocate(space, bytes, tag);
  };
  for (const SubGroup& group : sub_groups_) {
    if (group.optimizer == Tier::kCpu) {
      const Bytes bytes(components.state_bytes() * group.elements);
      allocate(Space::kPageable, bytes, "fp32 master");
      allocate(host, bytes, "fp32 gradients");
    }
  }
  if (offloaded()) {
    allocate(host, Bytes(2 * model::trained_parameters(job_.shape)), "16-bit gradients");
  }
  if (parameters_ != Tier::kGpu) {
    place_parameters_on_host();
  }
}

// Each parameter that is not worth a request was in a block of its own first; moved into the one
// piece, a pinned block stays cached for ever.
void Stage3::place_parameters_on_host() {
  const bool exact = drive_components(job_.options).exact_pinned;
  const auto pin = [&](Bytes bytes, std::string_view tag) {
    exact ? gpu_.allocate_exact(Space::kPinned, bytes, tag)
          : gpu_.allocate(Space::kPinned, bytes, tag);
  };
  const bool drive = parameters_ == Tier::kNvme;
  const std::int64_t all = model::trained_parameters(job_.shape);
  const std::int64_t piece = drive ? std::min(all, job_.options.count("max_in_cpu")) : all;
  if (piece > 0) {
    pin(Bytes(2 * piece), "parameters");
  }
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    const Bytes bytes(2 * elements_[i]);
    if (drive && worth_a_request(i)) {
      continue;
    }
    if (trained_[i] && sub_groups_[sub_group_of_[i]].in_piece) {
      if (pinned_ && !exact) {
        pin(bytes, "cached blocks of initialisation");
      }
    } else if (homes_[i] == Space::kPinned) {
      pin(bytes, "parameters");
    } else {
      gpu_.allocate(Space::kPageable, bytes, "parameters");
    }
  }
}

void Stage3::make_swappers() {
  std::vector<std::int64_t> swapped;
  std::int64_t largest = 0, gradients = 0;
  bool written = false;
  for (const SubGroup& group : sub_groups_) {
    swapped.push_back(group.optimizer == Tier::kNvme ? group.elements : 0);
    largest = std::max(largest, group.elements);
    written = written || !group.in_piece;
  }
  const std::int64_t width = drive_components(job_.options).state_bytes();
  std::vector<std::int64_t> on_drive;
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    on_drive.push_back(homes_[i] == Space::kNvme ? elements_[i] : 0);
    if (swapped[sub_group_of_[i]] > 0 &&
        width * elements_[i] >= least_swapped_bytes(job_.options)) {
      gradients += elements_[i];
    }
  }
  if (std::ranges::max(swapped) > 0) {
    swap_optimizer_.emplace(job_, gpu_, swapped, gradients);
  }
  if (parameters_ == Tier::kNvme) {
    swap_parameters_.emplace(job_, gpu_, std::move(on_drive), written ? largest : 0);
  }
}

void Stage3::make_window() {
  const Options& options = job_.options;
  std::vector<GatherWindow::Parameter> gathered;
  std::vector<Stage3Gradients::Parameter> reduced;
  const std::int64_t threshold = options.count("stage3_param_persistence_threshold");
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    gathered.push_back({elements_[i], elements_[i] <= threshold, homes_[i]});
    reduced.push_back({elements_[i], sub_group_of_[i], sub_groups_[sub_group_of_[i]].optimizer});
  }
  const GatherWindow::Limits limits{options.count("stage3_prefetch_bucket_size"),
                                    options.count("stage3_max_live_parameters"),
                                    options.count("stage3_max_reuse_distance")};
  const bool early = options.version("deepspeed_version") < kSlowerHooksSince;
  window_.emplace(gpu_, gather_,
                  early ? runtime::HostTask::kModuleHookEarly : runtime::HostTask::kModuleHook,
                  limits, std::move(gathered), parameter_swapper());
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

// A piece under hooks, module by module. A gradient's hook comes with its module's backward, but
// the embedding's when what a tied head had added is there too.
void Stage3::run(GpuModel::Pass pass, std::int64_t piece) {
  const std::vector<Module>& modules = model_.modules(piece);
  const auto& ids = ids_[static_cast<std::size_t>(piece)];
  if (pass == GpuModel::Pass::kBackward) {
    for (std::size_t i = modules.size(); i-- > 0;) {
      backward_module(modules[i], ids[i]);
      if (piece != 0 && !modules[i].tied) {
        add_gradients(ids[i]);
      }
    }
  } else if (pass == GpuModel::Pass::kGradients) {
    for (std::size_t i = modules.size(); piece == 0 && i-- > 0;) {
      add_gradients(ids[i]);
    }
  } else {
    for (std::size_t i = 0; i < modules.size(); ++i) {
      window_->enter(ids[i], modules[i].borders);
      model_.launch_module(pass == GpuModel::Pass::kForward ? modules[i].forward
                                                            : modules[i].recompute);
      window_->leave(ids[i], saves_weights(pass, piece, modules[i]));
    }
  }
}

// Linears with autograd recording: checkpointed layers record when they are recomputed. Nobody
// saves what has no backward, below the first adapter.
bool Stage3::saves_weights(GpuModel::Pass pass, std::int64_t piece, const Module& module) const {
  const bool layer = piece > 0 && piece < model_.head();
  const bool records = pass == GpuModel::Pass::kRecompute || !layer ||
                       job_.workload.checkpointing == Checkpointing::kNone;
  return views_ && records && piece > 0 && module.linear() && !module.backward.kernels.empty();
}

// What is below the first adapter has no backward, and no hook before one.
void Stage3::backward_module(const Module& module, const std::vector<std::int32_t>& ids) {
  if (job_.shape.adapters.any() && module.backward.kernels.empty()) {
    return;
  }
  window_->enter(ids, module.borders);
  model_.launch_module(module.backward);
  window_->leave(ids);
}

void Stage3::add_gradients(const std::vector<std::int32_t>& ids) {
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    const auto parameter = static_cast<std::size_t>(*id);
    if (!trained_[parameter]) {
      continue;
    }
    gradients_->add(parameter,
                    gpu_.allocate(Space::kGpu, Bytes(2 * elements_[parameter]), "gradients"));
  }
}

void Stage3::begin_optimizer(bool first) {
  window_->release_all();
  if (!first) {
    return;
  }
  const std::int64_t width = drive_components(job_.options).state_bytes();
  for (const SubGroup& group : sub_groups_) {
    if (group.optimizer != Tier::kNvme) {
      gpu_.allocate(group.optimizer == Tier::kGpu ? Space::kGpu : Space::kPageable,
                    Bytes(2 * width * group.elements), "Adam states");
    }
  }
}

void Stage3::end_optimizer() { window_->gather_persistent(); }

}  // namespace offsim::plans
