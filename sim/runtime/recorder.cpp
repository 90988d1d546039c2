#include "sim/runtime/recorder.h"

#include <utility>

#include "sim/base/error.h"
#include "sim/engine/graph.h"

namespace offsim::runtime {

using engine::index;

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

Lane Recorder::io_queue(std::string_view name) {
  program_.lanes.push_back({std::string(name), LaneKind::kIoQueue});
  return Lane(program_.lanes.size() - 1);
}

WorkId Recorder::work(const model::Work& work) {
  const auto [found, added] = works_.try_emplace(work.name, WorkId(program_.works.size()));
  if (added) {
    program_.works.push_back(work);
  }
  SIM_ASSERT(program_.works[index(found->second)] == work, "works of one name are one work");
  return found->second;
}

void Recorder::launch(WorkId work, Lane stream) {
  SIM_ASSERT(program_.lanes.at(index(stream)).kind == LaneKind::kStream, "kernels run on streams");
  program_.calls.emplace_back(Launch{stream, work});
}

void Recorder::launch(WorkOfSize make, std::int64_t size, Lane stream) {
  const auto [found, added] = sized_works_[make].try_emplace(size);
  if (added) {
    found->second = work(make(size));
  }
  launch(found->second, stream);
}

void Recorder::copy(const Copy& call) {
  SIM_ASSERT(call.bytes >= 0 && call.pieces >= 1, "a copy has a size and at least one piece");
  if (call.bytes > 0) {
    program_.calls.emplace_back(call);
  }
}

void Recorder::copy_h2d(Lane stream, Space from, Bytes bytes, std::string_view what,
                        CopyOptions options) {
  copy({stream, from, Space::kGpu, options.mover, options.blocking, bytes.value, options.pieces,
        options.into, text(what)});
}

void Recorder::copy_d2h(Lane stream, Space to, Bytes bytes, std::string_view what,
                        CopyOptions options) {
  copy({stream, Space::kGpu, to, options.mover, options.blocking, bytes.value, options.pieces,
        options.into, text(what)});
}

namespace {

std::string_view cast_kernel(const Recorder::Conversion& numbers) {
  SIM_ASSERT(numbers.from_bytes != numbers.to_bytes, "a conversion changes the type");
  return numbers.from_bytes > numbers.to_bytes ? "cast_f32_bf16" : "cast_bf16_f32";
}

}  // namespace

void Recorder::convert_d2h(Lane stream, Conversion numbers, std::string_view what) {
  const Bytes crossing(numbers.elements * numbers.from_bytes);
  const Buffer temporary = allocate(Space::kPageable, crossing, "temporaries of copies");
  copy_d2h(stream, Space::kPageable, crossing, what, {.blocking = true, .into = temporary});
  cpu(cast_kernel(numbers), numbers.elements, what);
  free(temporary);
}

void Recorder::convert_h2d(Lane stream, Conversion numbers, std::string_view what) {
  const Bytes crossing(numbers.elements * numbers.to_bytes);
  const Buffer temporary = allocate(Space::kPageable, crossing, "temporaries of copies");
  cpu(cast_kernel(numbers), numbers.elements, what, {.into = temporary});
  copy_h2d(stream, Space::kPageable, crossing, what, {.blocking = true});
  free(temporary);
}

void Recorder::io(const Io& call) {
  SIM_ASSERT(program_.lanes.at(index(call.queue)).kind == LaneKind::kIoQueue && call.in_flight > 0,
             "a request goes to a queue of I/O");
  if (call.bytes > 0) {
    program_.calls.emplace_back(call);
  }
}

void Recorder::read(Lane queue, Bytes bytes, Bytes in_flight, std::string_view what, bool to_gpu) {
  io({queue, false, to_gpu, bytes.value, in_flight.value, text(what)});
}

void Recorder::write(Lane queue, Bytes bytes, Bytes in_flight, std::string_view what, bool to_gpu) {
  io({queue, true, to_gpu, bytes.value, in_flight.value, text(what)});
}

void Recorder::collective(const Collective& call) {
  SIM_ASSERT(program_.lanes.at(index(call.stream)).kind == LaneKind::kStream && call.ranks > 1,
             "several GPUs, each on a stream");
  if (call.bytes > 0) {
    program_.calls.emplace_back(call);
  }
}

void Recorder::all_gather(Lane stream, Bytes whole, int ranks, std::string_view what) {
  collective({stream, Collective::Kind::kAllGather, whole.value, ranks, text(what)});
}

void Recorder::reduce_scatter(Lane stream, Bytes whole, int ranks, std::string_view what) {
  collective({stream, Collective::Kind::kReduceScatter, whole.value, ranks, text(what)});
}

void Recorder::cpu(std::string_view kernel, std::int64_t elements, std::string_view what,
                   CpuOptions options) {
  const LaneKind kind = program_.lanes.at(index(options.thread)).kind;
  SIM_ASSERT(kind == LaneKind::kHostThread || kind == LaneKind::kWorker,
             "CPU work runs on a thread");
  program_.calls.emplace_back(CpuWork{options.thread, text(kernel), elements, options.calls,
                                      options.threads, text(what), options.into});
}

void Recorder::host_busy(HostTask task, std::int64_t count, std::string_view what) {
  program_.calls.emplace_back(HostBusy{task, text(what), count});
}

Event Recorder::record(Lane lane) {
  const Event event{program_.events++};
  program_.calls.emplace_back(Record{lane, event});
  return event;
}

void Recorder::wait(Lane lane, Event event) { program_.calls.emplace_back(Wait{lane, event}); }

void Recorder::sync_device() { program_.calls.emplace_back(SyncDevice{}); }

Buffer Recorder::allocate(Space space, Bytes bytes, std::string_view tag, Lane issuer) {
  const Bytes asked = bytes;
  if (space == Space::kGpu) {
    return allocate_exact(space, round_up(bytes, rounding_.gpu), tag, issuer);
  }
  if (space == Space::kPinned && rounding_.pinned_power_of_two) {
    bytes = power_of_two(bytes);
  }
  const Buffer buffer = allocate_exact(space, bytes, tag, issuer);
  std::get<Allocate>(program_.calls.back()).rounding = (bytes - asked).value;
  return buffer;
}

Buffer Recorder::allocate_exact(Space space, Bytes bytes, std::string_view tag, Lane issuer) {
  SIM_ASSERT(bytes.value >= 0, "a buffer has a size");
  const Buffer buffer{program_.buffers++};
  sizes_.push_back(bytes.value);
  program_.calls.emplace_back(Allocate{issuer, buffer, text(tag), space, bytes.value});
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
