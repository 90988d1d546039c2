#include "sim/plans/gather_window.h"

#include <algorithm>
#include <utility>

#include "sim/plans/common.h"

namespace offsim::plans {

using runtime::HostTask;
using runtime::kCompute;
using runtime::Lane;
using runtime::Recorder;
using runtime::Space;

GatherWindow::GatherWindow(Recorder& gpu, Lane gather, HostTask hook, Limits limits,
                           std::vector<Parameter> parameters, ParameterSwapper* swapper)
    : gpu_(gpu),
      gather_(gather),
      hook_(hook),
      limits_(limits),
      parameters_(std::move(parameters)),
      states_(parameters_.size()),
      swapper_(swapper) {}

// reset_step: the trace is complete after one forward and backward.
void GatherWindow::begin_micro_step() {
  if (visit_ > 0) {
    recording_ = false;
  }
  next_ = 0;
  visit_ = 0;
  live_ = 0;
  for (State& s : states_) {
    s.counted_on = kNever;
  }
}

void GatherWindow::record(const std::vector<ParameterId>& module, std::int32_t borders) {
  traversed_.insert(traversed_.end(), static_cast<std::size_t>(borders), recorded_);
  const std::int64_t visit = visit_ + borders - 1;
  for (const ParameterId id : module) {
    trace_.push_back({id, visit});
    state(id).visits.push_back(visit);
    recorded_ += parameter(id).elements;
  }
}

// fetch_sub_module, once a border: containers own nothing, but prefetch all the same.
void GatherWindow::enter(const std::vector<ParameterId>& module, std::int32_t borders) {
  if (recording_) {
    record(module, borders);
  }
  for (std::int32_t border = 1; border <= borders; ++border) {
    gpu_.host_busy(hook_, 1, "module hooks");
    if (border == borders) {
      fetch(missing(module));
      wait_for(module);
      take_from_queue(module);
    }
    prefetch();
    ++visit_;
  }
}

std::vector<GatherWindow::ParameterId> GatherWindow::missing(
    const std::vector<ParameterId>& module) {
  std::vector<ParameterId> ids;
  std::ranges::copy_if(module, std::back_inserter(ids),
                       [this](ParameterId id) { return !state(id).available; });
  return ids;
}

// One coalesced fetch: whoever waits for one of its parameters has waited for all.
void GatherWindow::fetch(std::vector<ParameterId> ids) {
  std::ranges::sort(ids);
  std::vector<std::size_t> on_drive;
  for (const ParameterId id : ids) {
    if (parameter(id).home == Space::kNvme) {
      on_drive.push_back(index(id));
    }
  }
  if (!on_drive.empty()) {
    swapper_->bring(on_drive);
  }
  for (const ParameterId id : ids) {
    State& s = state(id);
    s.available = s.in_flight = true;
    s.group = in_flight_.size();
    live_ += parameter(id).elements;
    elements_in_flight_ += parameter(id).elements;
    const Space home = parameter(id).home;
    if (home != Space::kGpu) {
      const Bytes bytes(2 * parameter(id).elements);
      s.buffer = gpu_.allocate(Space::kGpu, bytes, "gathered parameters");
      gpu_.copy_h2d(gather_, home == Space::kNvme ? swapper_->buffers() : home, bytes,
                    "parameters");
    }
  }
  if (!ids.empty()) {
    in_flight_.push_back(true);
  }
}

void GatherWindow::wait_for(const std::vector<ParameterId>& module) {
  for (const ParameterId id : module) {
    arrived(id);
    const bool waits = parameter(id).home != Space::kGpu || gather_ == kCompute;
    if (first_wait(state(id)) && waits) {
      gpu_.sync(gather_);
    }
  }
  gpu_.wait(kCompute, gpu_.record(gather_));
}

// Of its fetch.
bool GatherWindow::first_wait(const State& state) {
  const bool first = in_flight_[state.group];
  in_flight_[state.group] = false;
  return first;
}

void GatherWindow::arrived(ParameterId id) {
  if (std::exchange(state(id).in_flight, false)) {
    elements_in_flight_ -= parameter(id).elements;
  }
}

// The module's uses leave the queue, unless a prefetch took them already.
void GatherWindow::take_from_queue(const std::vector<ParameterId>& module) {
  if (recording_) {
    return;
  }
  auto left = std::ranges::count_if(
      module, [this](ParameterId id) { return state(id).counted_on < visit_; });
  for (; left > 0 && next_ < trace_.size(); --left, ++next_) {
    state(trace_[next_].parameter).counted_on = trace_[next_].visit;
  }
}

void GatherWindow::prefetch() {
  if (recording_) {
    return;
  }
  const std::int64_t room = std::min(limits_.max_live - live_, limits_.prefetch_bucket);
  std::vector<ParameterId> ids;
  for (std::int64_t collected = 0; next_ < trace_.size() && collected < room; ++next_) {
    const Use& use = trace_[next_];
    State& s = state(use.parameter);
    if (on_drive(use.parameter)) {
      break;  // the drive's reads keep the order
    }
    s.counted_on = std::max(s.counted_on, use.visit);
    if (!s.available && std::ranges::find(ids, use.parameter) == ids.end()) {
      ids.push_back(use.parameter);
      collected += parameter(use.parameter).elements;
    }
  }
  fetch(std::move(ids));
  if (swapper_ != nullptr) {
    read_ahead();
  }
}

bool GatherWindow::on_drive(ParameterId id) const {
  return parameter(id).home == Space::kNvme && !swapper_->in_memory(index(id));
}

// __prefetch_nvme_param_partitions: what is in memory counts too.
void GatherWindow::read_ahead() {
  std::int64_t considered = 0;
  for (std::size_t i = next_; i < trace_.size() && considered <= 2 * elements_in_flight_; ++i) {
    const ParameterId id = trace_[i].parameter;
    if (on_drive(id) && !swapper_->start_read(index(id))) {
      return;  // no buffer is free
    }
    considered += parameter(id).elements;
  }
}

bool GatherWindow::used_again_soon(ParameterId id) const {
  const State& s = states_[static_cast<std::size_t>(id)];
  const auto next = std::ranges::lower_bound(s.visits, visit_);
  if (next == s.visits.end()) {
    return false;
  }
  const std::int64_t distance =
      traversed_[static_cast<std::size_t>(*next)] - traversed_[static_cast<std::size_t>(visit_)];
  return distance < limits_.max_reuse_distance;
}

void GatherWindow::leave(const std::vector<ParameterId>& module, bool saved) {
  for (const ParameterId id : module) {
    state(id).saved = saved;
    free(state(id).view);  // of this module's forward; this was its backward
    const bool keep = !recording_ && (parameter(id).persistent || state(id).counted_on > visit_ ||
                                      used_again_soon(id));
    if (!keep) {
      release(id);
    }
  }
}

void GatherWindow::release(ParameterId id) {
  State& s = state(id);
  if (!s.available) {
    return;
  }
  s.available = false;
  arrived(id);
  in_flight_[s.group] = false;
  live_ -= parameter(id).elements;
  if (s.saved) {
    s.view = std::exchange(s.buffer, std::nullopt);
    s.saved = false;
  }
  free(s.buffer);
  if (parameter(id).home == Space::kNvme) {
    swapper_->drop(index(id));
  }
}

void GatherWindow::free(std::optional<runtime::Buffer>& buffer) {
  if (buffer) {
    free_beside(gpu_, *buffer, gather_, kCompute);
    buffer.reset();
  }
}

void GatherWindow::release_all() {
  for (std::size_t id = 0; id < states_.size(); ++id) {
    release(static_cast<ParameterId>(id));
  }
}

void GatherWindow::gather_persistent() {
  std::vector<ParameterId> ids;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].persistent) {
      ids.push_back(static_cast<ParameterId>(i));
    }
  }
  ids = missing(ids);
  fetch(ids);
  wait_for(ids);
}

}  // namespace offsim::plans
