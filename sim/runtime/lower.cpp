#include "sim/runtime/lower.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <type_traits>
#include <unordered_map>

#include "sim/base/error.h"
#include "sim/engine/time.h"
#include "sim/machine/cost.h"
#include "sim/runtime/price.h"
#include "sim/runtime/resources.h"

namespace offsim::runtime {

namespace {

using engine::ActivityId;
using engine::At;
using engine::LabelId;
using engine::PoolId;
using engine::TagId;

using engine::index;

// The state of the walk over the calls.
class Lowering {
 public:
  Lowering(const Program& program, const machine::Machine& machine, const Background& background)
      : program_(program),
        machine_(machine),
        resources_(builder_, machine, background),
        pending_(program.lanes.size()),
        events_(program.events, kNotRecorded),
        buffers_(program.buffers),
        labels_(program.texts.size()),
        tags_(program.texts.size()),
        single_shares_(machine.figures.size() + 1, kUnknown) {
    out_.unified = machine.accelerator.unified;
    add_pools();
    reserve(program.calls.size());
    for (const model::Work& work : program.works) {
      WorkPrice price = price_work(machine, work, program.half);
      const std::uint32_t rests_on = shares(price.shares);
      works_.push_back({std::move(price), rests_on, builder_.label(work.name)});
    }
    no_figure_ = shares({});
    origin_ = add_activity(kHost, {.cause = cause(Cause::kJoin)}, no_figure_);
    for (auto& pending : pending_) {
      pending = {origin_};
    }
  }

  Lowered run() && {
    out_.totals.emplace_back();
    for (const Call& call : program_.calls) {
      std::visit([this](const auto& c) { take(c); }, call);
      ++call_;
    }
    out_.totals.pop_back();
    out_.graph = std::move(builder_).build();
    return std::move(out_);
  }

 private:
  struct BufferState {
    Space space = Space::kGpu;
    std::int64_t bytes = 0;
    std::int64_t rounding = 0;  // of these
    std::int64_t fresh = 0;     // bytes whose pages nobody has touched
    bool mapped = false;        // a mapping of its own, given back on free
    TagId tag{};
  };
  struct PricedWork {
    WorkPrice price;
    std::uint32_t rests_on;
    LabelId label;
  };
  using Pending = std::vector<ActivityId>;
  static constexpr ActivityId kNotRecorded{std::numeric_limits<std::uint32_t>::max()};
  static constexpr std::uint32_t kUnknown = std::numeric_limits<std::uint32_t>::max();

  static std::uint8_t cause(Cause c) { return static_cast<std::uint8_t>(c); }
  StepTotals& totals() { return out_.totals.back(); }

  // Most calls become an activity, a launch three at most; each comes after two others or fewer.
  void reserve(std::size_t calls) {
    const std::size_t activities = calls + calls / 4;
    builder_.reserve(activities, 2 * activities);
    out_.rests_on.reserve(activities);
    out_.lane.reserve(activities);
    out_.call.reserve(activities);
  }

  void add_pools() {
    const std::int64_t gpu = machine_.accelerator.memory.value.value;
    const std::int64_t host = machine_.host.memory.value.value;
    // Capacities are checked by whoever reads the peaks (fixed bytes count too); pools are
    // unlimited here.
    if (out_.unified) {
      out_.gpu = out_.host = builder_.add_pool("unified");
    } else {
      out_.gpu = builder_.add_pool("gpu");
      out_.host = builder_.add_pool("host");
    }
    SIM_ASSERT(gpu > 0 && host > 0, "memories have a size");
    out_.host_pinned = builder_.add_pool("host_pinned");
    out_.nvme = builder_.add_pool("nvme");
    heap_free_ = builder_.tag("C library heap, free");
    rounding_tag_ = builder_.tag("pinned rounding");
  }

  // Words are looked up once. Nothing is labelled with the empty text, LabelId{0}.
  LabelId label(Text text) {
    LabelId& known = labels_[index(text)];
    if (known == LabelId{}) {
      known = builder_.label(program_.text(text));
    }
    return known;
  }
  TagId tag(Text text) {
    std::optional<TagId>& known = tags_[index(text)];
    if (!known) {
      known = builder_.tag(program_.text(text));
    }
    return *known;
  }

  std::uint32_t shares(const FigureShares& s) {
    out_.figure_shares.push_back(s);
    return static_cast<std::uint32_t>(out_.figure_shares.size() - 1);
  }
  std::uint32_t share_of(machine::FigureId figure) {
    // kNoFigure, -1, has the first place.
    std::uint32_t& known = single_shares_[static_cast<std::size_t>(static_cast<int>(figure) + 1)];
    if (known == kUnknown) {
      known = shares({{figure, 1.0}});
    }
    return known;
  }

  ActivityId add_activity(Lane lane, engine::Activity activity, std::uint32_t rests_on) {
    activity.phase = static_cast<std::uint8_t>(phase_);
    const ActivityId id = builder_.add(activity);
    out_.rests_on.push_back(rests_on);
    out_.lane.push_back(static_cast<std::uint32_t>(lane));
    out_.call.push_back(call_);
    return id;
  }

  void after(const Pending& before, ActivityId activity) {
    for (const ActivityId b : before) {
      builder_.edge(b, activity);
    }
  }

  // The one activity that stands for where a lane is; joins what it waits for.
  ActivityId position(Lane lane) {
    Pending& pending = pending_[index(lane)];
    if (pending.size() > 1) {
      const ActivityId join = add_activity(lane, {.cause = cause(Cause::kJoin)}, no_figure_);
      after(pending, join);
      pending.assign(1, join);
    }
    return pending.front();
  }

  void append(Lane lane, ActivityId activity) {
    Pending& pending = pending_[index(lane)];
    after(pending, activity);
    pending.assign(1, activity);
  }

  // The host spends `seconds`; the figure says on what that rests.
  void host_spends(Seconds seconds, LabelId what, machine::FigureId figure) {
    append(kHost, add_activity(kHost,
                               {.latency = engine::to_picoseconds(seconds),
                                .label = what,
                                .cause = cause(Cause::kHostThread)},
                               share_of(figure)));
  }

  machine::Known<Seconds> launch_seconds() const {
    switch (phase_) {
      case Phase::kForward:
        return machine_.framework.launch_forward;
      case Phase::kBackward:
        return machine_.framework.launch_backward;
      default:
        return machine_.framework.launch;
    }
  }

  void take(const Launch& launch) {
    const auto& [price, rests_on, name] = works_[index(launch.work)];
    const auto one = launch_seconds();
    const std::int64_t launches = std::max<std::int64_t>(1, price.launches);
    wait_for_queue(launches);
    host_spends(one.value, name, one.figure);
    const ActivityId kernels = add_activity(launch.stream,
                                            {.amount = price.seconds.value,
                                             .demand = resources_.kernel(),
                                             .label = name,
                                             .cause = cause(Cause::kGpuCompute)},
                                            rests_on);
    builder_.edge(pending_[index(kHost)].front(), kernels);
    append(launch.stream, kernels);
    if (launches > 1) {
      host_spends(one.value * static_cast<double>(launches - 1), name, one.figure);
    }
    launched_ += launches;
    in_flight_.push_back({launched_, launch.stream, kernels});
    totals().executed += price.flops;
  }

  // The host cannot issue launch c before launch c - queue is done, on whichever stream. Streams
  // are orders, so the last of a row on one stands for those before it.
  void wait_for_queue(std::int64_t launches) {
    const std::int64_t oldest = launched_ + launches - machine_.framework.launch_queue;
    Pending& host = pending_[index(kHost)];
    std::optional<Lane> stream;
    for (; !in_flight_.empty() && in_flight_.front().launched <= oldest; in_flight_.pop_front()) {
      if (in_flight_.front().stream == stream) {
        host.back() = in_flight_.front().kernels;
      } else {
        host.push_back(in_flight_.front().kernels);
      }
      stream = in_flight_.front().stream;
    }
  }

  void take(const Copy& copy) {
    const bool h2d = copy.to == Space::kGpu;
    const bool pageable = copy.from == Space::kPageable || copy.to == Space::kPageable;
    const auto pieces = static_cast<double>(copy.pieces);
    const auto call = machine_.framework.copy_call;
    if (copy.mover == Mover::kEngine) {
      host_spends(call.value * pieces, label(copy.what), call.figure);
    }
    if (copy.into) {  // by the driver, once the stream has come so far
      pending_[index(copy.stream)].push_back(position(kHost));
      touch(copy.stream, *copy.into, 1, label(copy.what));
    }
    const CopyPrice price =
        price_copy(machine_, h2d, pageable, Bytes(copy.bytes), copy.pieces, copy.mover);
    const ActivityId transfer = add_activity(copy.stream,
                                             {.amount = static_cast<double>(copy.bytes),
                                              .demand = resources_.copy(h2d, pageable, price.rate),
                                              .latency = engine::to_picoseconds(price.latency),
                                              .label = label(copy.what),
                                              .cause = cause(h2d ? Cause::kH2d : Cause::kD2h)},
                                             share_of(price.figure));
    builder_.edge(position(kHost), transfer);
    append(copy.stream, transfer);
    if (copy.blocking || pageable) {
      pending_[index(kHost)].push_back(transfer);
    }
    (h2d ? totals().h2d_bytes : totals().d2h_bytes) += static_cast<double>(copy.bytes);
    totals().dram_bytes += static_cast<double>(copy.bytes) * resources_.dram_per_byte(pageable);
  }

  void take(const CpuWork& work) {
    const std::int64_t calls = std::max<std::int64_t>(1, work.calls);
    const double each = static_cast<double>(work.elements) / static_cast<double>(calls);
    if (work.elements <= 0) {
      return;
    }
    if (work.thread != kHost) {  // handed over by the host
      pending_[index(work.thread)].push_back(position(kHost));
    }
    const int threads = work.threads > 0 ? work.threads : machine_.host.cores;
    if (work.into) {
      touch(work.thread, *work.into, threads, label(work.what));
    }
    const std::string_view kernel = program_.text(work.kernel);
    const machine::CpuWork price = machine::cpu_kernel(machine_, kernel, each, threads);
    const auto elements = static_cast<double>(work.elements);
    append(work.thread, add_activity(work.thread,
                                     {.amount = elements,
                                      .demand = resources_.cpu(price),
                                      .label = label(work.what),
                                      .cause = cause(cause_of_kernel(kernel))},
                                     share_of(price.figure)));
    totals().dram_bytes += elements * price.dram_bytes_per_element;
  }

  void touch(Lane thread, Buffer buffer, int threads, LabelId what) {
    BufferState& state = buffers_[index(buffer)];
    if (state.fresh == 0) {
      return;
    }
    const machine::Cost cost = machine::fresh_pages(machine_, Bytes(state.fresh), threads);
    append(thread, add_activity(thread,
                                {.latency = engine::to_picoseconds(cost.time),
                                 .label = what,
                                 .cause = cause(Cause::kPageFaults)},
                                share_of(cost.figure)));
    state.fresh = 0;
  }

  void take(const Io& io) {
    SIM_ASSERT(!machine_.drives.empty(), "a plan asks for a drive where there is one");
    const machine::Drive& drive = machine_.drives.front();
    const auto call = machine_.framework.copy_call;
    host_spends(call.value, label(io.what), call.figure);
    const machine::DriveRate price = io.write ? drive_write(drive, Bytes(io.in_flight), 1)
                                              : drive_read(drive, Bytes(io.in_flight), 1);
    const ActivityId transfer = add_activity(io.queue,
                                             {.amount = static_cast<double>(io.bytes),
                                              .demand = resources_.io(io, price.rate),
                                              .label = label(io.what),
                                              .cause = cause(Cause::kNvme)},
                                             share_of(price.figure));
    builder_.edge(pending_[index(kHost)].front(), transfer);
    append(io.queue, transfer);
    const auto bytes = static_cast<double>(io.bytes);
    (io.write ? totals().nvme_write_bytes : totals().nvme_read_bytes) += bytes;
    totals().dram_bytes += io.to_gpu ? 0 : bytes;
  }

  void take(const Collective& c) {
    const auto call = machine_.framework.collective_call;
    host_spends(call.value, label(c.what), call.figure);
    const CollectivePrice price = price_collective(machine_, Bytes(c.bytes), c.ranks);
    const ActivityId transfer = add_activity(c.stream,
                                             {.amount = static_cast<double>(price.crossing.value),
                                              .demand = resources_.collective(price.rate),
                                              .latency = engine::to_picoseconds(price.latency),
                                              .label = label(c.what),
                                              .cause = cause(Cause::kCollective)},
                                             share_of(price.figure));
    builder_.edge(pending_[index(kHost)].front(), transfer);
    append(c.stream, transfer);
    totals().peer_bytes += static_cast<double>(price.crossing.value);
  }

  void take(const HostBusy& busy) {
    const auto one = host_task(machine_.framework, busy.task);
    host_spends(one.value * static_cast<double>(busy.count), label(busy.what), one.figure);
  }

  void take(const Record& record) { events_[index(record.event)] = position(record.lane); }

  void take(const Wait& wait) {
    const ActivityId event = events_[index(wait.event)];
    SIM_ASSERT(event != kNotRecorded, "an event is recorded before it is waited for");
    pending_[index(wait.lane)].push_back(event);
  }

  void take(const SyncDevice&) {
    for (std::size_t lane = 0; lane < program_.lanes.size(); ++lane) {
      if (program_.lanes[lane].kind == LaneKind::kStream) {
        pending_[index(kHost)].push_back(position(Lane(lane)));
      }
    }
  }

  PoolId pool_of(Space space) const {
    switch (space) {
      case Space::kGpu:
        return out_.gpu;
      case Space::kNvme:
        return out_.nvme;
      default:
        return out_.host;
    }
  }

  // `sign`: 1 or -1. What an allocator rounds up is held under a tag of its own.
  void change(ActivityId where, const BufferState& buffer, std::int64_t sign) {
    const auto hold = [&](PoolId pool) {
      builder_.change(where, At::kFinish, pool, buffer.tag,
                      sign * (buffer.bytes - buffer.rounding));
      if (buffer.rounding > 0) {
        builder_.change(where, At::kFinish, pool, rounding_tag_, sign * buffer.rounding);
      }
    };
    hold(pool_of(buffer.space));
    if (buffer.space == Space::kPinned) {
      hold(out_.host_pinned);
    }
  }

  void take(const Allocate& call) {
    BufferState& buffer = buffers_[index(call.buffer)];
    buffer = {
        .space = call.space, .bytes = call.bytes, .rounding = call.rounding, .tag = tag(call.tag)};
    const ActivityId where = position(call.issuer);
    if (call.space == Space::kPageable) {
      buffer.mapped = call.bytes >= machine_.framework.map_threshold.value.value;
      const std::int64_t from_heap = buffer.mapped ? 0 : std::min(heap_free_bytes_, call.bytes);
      buffer.fresh = call.bytes - from_heap;
      if (from_heap > 0) {
        builder_.change(where, At::kFinish, out_.host, heap_free_, -from_heap);
        heap_free_bytes_ -= from_heap;
      }
    }
    change(where, buffer, 1);
  }

  void take(const Free& call) {
    const BufferState& buffer = buffers_[index(call.buffer)];
    ActivityId where = position(call.issuer);
    if (call.used_by) {
      const ActivityId user = position(*call.used_by);
      const ActivityId join = add_activity(call.issuer, {.cause = cause(Cause::kJoin)}, no_figure_);
      builder_.edge(where, join);
      builder_.edge(user, join);
      where = join;
    }
    if (buffer.space == Space::kPageable && buffer.mapped) {
      const machine::Cost cost = machine::release_pages(machine_, Bytes(buffer.bytes));
      const ActivityId release = add_activity(call.issuer,
                                              {.latency = engine::to_picoseconds(cost.time),
                                               .label = builder_.label("give pages back"),
                                               .cause = cause(Cause::kPageFaults)},
                                              share_of(cost.figure));
      append(call.issuer, release);
      where = release;
    }
    change(where, buffer, -1);
    if (buffer.space == Space::kPageable && !buffer.mapped) {
      builder_.change(where, At::kFinish, out_.host, heap_free_, buffer.bytes);
      heap_free_bytes_ += buffer.bytes;
    }
  }

  void take(const EnterPhase& enter) {
    phase_ = enter.phase;
    // What is allocated next belongs to this phase, and so does the activity that it hangs on.
    append(kHost, add_activity(kHost, {.cause = cause(Cause::kJoin)}, no_figure_));
  }

  void take(const EndStep&) {
    const ActivityId end = add_activity(kHost, {.cause = cause(Cause::kJoin)}, no_figure_);
    for (const Pending& pending : pending_) {
      after(pending, end);
    }
    out_.step_ends.push_back(end);
    out_.totals.emplace_back();
  }

  const Program& program_;
  const machine::Machine& machine_;
  engine::GraphBuilder builder_;
  Resources resources_;
  Lowered out_;
  std::vector<Pending> pending_;    // by lane: what its next activity comes after
  std::vector<ActivityId> events_;  // by Event: where its lane was
  std::vector<BufferState> buffers_;
  std::vector<PricedWork> works_;             // by WorkId
  std::vector<LabelId> labels_;               // by Text
  std::vector<std::optional<TagId>> tags_;    // by Text
  std::vector<std::uint32_t> single_shares_;  // by figure
  struct Issued {
    std::int64_t launched;  // kernels up to and with these
    Lane stream;
    ActivityId kernels;
  };
  std::deque<Issued> in_flight_;
  std::int64_t launched_ = 0;
  std::int64_t heap_free_bytes_ = 0;
  TagId heap_free_{}, rounding_tag_{};
  std::uint32_t no_figure_ = 0;
  std::uint32_t call_ = 0;  // the one that is taken
  ActivityId origin_{};
  Phase phase_ = Phase::kSetup;
};

}  // namespace

Lowered lower(const Program& program, const machine::Machine& machine,
              const Background& background) {
  return Lowering(program, machine, background).run();
}

}  // namespace offsim::runtime
