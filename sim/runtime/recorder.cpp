#include "sim/runtime/recorder.h"

#include <utility>

#include "sim/base/error.h"

namespace offsim::runtime {

namespace {

template <class Id>
std::size_t index(Id id) {
  return static_cast<std::size_t>(id);
}

}  // namespace

Recorder::Recorder(Rounding rounding, Half half) : rounding_(rounding) {
  program_.half = half;
  program_.lanes = {{"host", LaneKind::kHostThread}, {"compute", LaneKind::kStream}};
}

Lane Recorder::stream(std::string_view name) {
  program_.lanes.push_back({std::string(name), LaneKind::kStream});
  return Lane(program_.lanes.size() - 1);
}

Lane Recorder::worker(std::string_view name) {
  program_.lanes.push_back({std::string(name), LaneKind::kWorker});
  return Lane(program_.lanes.size() - 1);
}

WorkId Recorder::work(const model::Work& work) {
  const auto [found, added] = works_.try_emplace(work.name, WorkId(program_.works.size()));
  if (added) {
    program_.works.push_back(work);
  }
  return found->second;
}

void Recorder::launch(WorkId work, Lane stream) {
  SIM_ASSERT(program_.lanes.at(index(stream)).kind == LaneKind::kStream, "kernels run on streams");
  program_.calls.emplace_back(Launch{stream, work});
}

void Recorder::copy(Copy call) {
  SIM_ASSERT(call.bytes >= 0 && call.pieces >= 1, "a copy has a size and at least one piece");
  if (call.bytes > 0) {
    program_.calls.emplace_back(std::move(call));
  }
}

void Recorder::copy_h2d(Lane stream, Space from, Bytes bytes, std::string_view what,
                        CopyOptions options) {
  copy({stream, from, Space::kGpu, bytes.value, options.pieces, options.blocking,
        std::string(what)});
}

void Recorder::copy_d2h(Lane stream, Space to, Bytes bytes, std::string_view what,
                        CopyOptions options) {
  copy({stream, Space::kGpu, to, bytes.value, options.pieces, options.blocking, std::string(what)});
}

void Recorder::cpu(std::string_view kernel, std::int64_t elements, std::string_view what,
                   CpuOptions options) {
  SIM_ASSERT(program_.lanes.at(index(options.thread)).kind != LaneKind::kStream,
             "CPU work runs on a thread");
  program_.calls.emplace_back(CpuWork{options.thread, std::string(kernel), elements, options.calls,
                                      options.threads, options.into, std::string(what)});
}

void Recorder::host_busy(HostTask task, std::int64_t count, std::string_view what) {
  program_.calls.emplace_back(HostBusy{task, count, std::string(what)});
}

Event Recorder::record(Lane lane) {
  const Event event{program_.events++};
  program_.calls.emplace_back(Record{lane, event});
  return event;
}

void Recorder::wait(Lane lane, Event event) { program_.calls.emplace_back(Wait{lane, event}); }

void Recorder::sync_device() { program_.calls.emplace_back(SyncDevice{}); }

Buffer Recorder::allocate(Space space, Bytes bytes, std::string_view tag, Lane issuer) {
  if (space == Space::kGpu) {
    bytes = round_up(bytes, rounding_.gpu);
  } else if (space == Space::kPinned && rounding_.pinned_power_of_two) {
    bytes = power_of_two(bytes);
  }
  return allocate_exact(space, bytes, tag, issuer);
}

Buffer Recorder::allocate_exact(Space space, Bytes bytes, std::string_view tag, Lane issuer) {
  SIM_ASSERT(bytes.value >= 0, "a buffer has a size");
  const Buffer buffer{program_.buffers++};
  sizes_.push_back(bytes.value);
  program_.calls.emplace_back(Allocate{issuer, buffer, space, bytes.value, std::string(tag)});
  return buffer;
}

void Recorder::free(Buffer buffer, Lane issuer) {
  SIM_ASSERT(sizes_.at(index(buffer)) >= 0, "a buffer is freed once");
  sizes_[index(buffer)] = -1;
  program_.calls.emplace_back(Free{issuer, buffer, std::nullopt});
}

void Recorder::free_after(Buffer buffer, Lane used_by, Lane issuer) {
  SIM_ASSERT(sizes_.at(index(buffer)) >= 0, "a buffer is freed once");
  sizes_[index(buffer)] = -1;
  program_.calls.emplace_back(Free{issuer, buffer, used_by});
}

Bytes Recorder::size(Buffer buffer) const { return Bytes(sizes_.at(index(buffer))); }

void Recorder::phase(Phase phase) { program_.calls.emplace_back(EnterPhase{phase}); }

void Recorder::end_step() {
  program_.calls.emplace_back(EndStep{});
  ++program_.steps;
}

Program Recorder::finish() && { return std::move(program_); }

}  // namespace offsim::runtime
