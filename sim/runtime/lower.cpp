#include "sim/runtime/lower.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>

#include "sim/base/error.h"
#include "sim/engine/time.h"
#include "sim/machine/cost.h"
#include "sim/runtime/price.h"

namespace offsim::runtime {

namespace {

using engine::ActivityId;
using engine::At;
using engine::DemandId;
using engine::PoolId;
using engine::ResourceId;

using engine::index;

// The state of the walk over the calls.
class Lowering {
 public:
  Lowering(const Program& program, const machine::Machine& machine)
      : program_(program),
        machine_(machine),
        pending_(program.lanes.size()),
        events_(program.events),
        buffers_(program.buffers) {
    out_.unified = machine.accelerator.unified;
    add_resources();
    add_pools();
    for (const model::Work& work : program.works) {
      prices_.push_back(price_work(machine, work, program.half));
      price_shares_.push_back(shares(prices_.back().shares));
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
    }
    out_.totals.pop_back();
    out_.graph = std::move(builder_).build();
    return std::move(out_);
  }

 private:
  struct BufferState {
    Space space = Space::kGpu;
    std::int64_t bytes = 0;
    std::int64_t fresh = 0;  // bytes whose pages nobody has touched
    bool mapped = false;     // a mapping of its own, given back on free
    engine::TagId tag{};
  };
  using Pending = std::vector<ActivityId>;

  static std::uint8_t cause(Cause c) { return static_cast<std::uint8_t>(c); }
  StepTotals& totals() { return out_.totals.back(); }

  void add_resources() {
    sm_ = builder_.add_resource("gpu.sm", 1.0);
    cores_ = builder_.add_resource("host.cores", machine_.host.cores);
    const machine::Topology& topology = machine_.topology;
    for (const machine::Edge& edge : topology.edges) {
      links_.push_back({builder_.add_resource(edge.name + ".h2d", edge.down.value.value),
                        builder_.add_resource(edge.name + ".d2h", edge.up.value.value),
                        builder_.add_resource(edge.name + ".total", edge.total.value.value)});
      if (edge.name == "dram") {
        dram_ = links_.back().total;
      }
    }
    SIM_ASSERT(dram_.has_value(), "a machine has memory");
    drive_time_ = builder_.add_resource("drive0.time", 1.0);
    queues_ = std::ranges::count(program_.lanes, LaneKind::kIoQueue, &LaneInfo::kind);
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
  }

  std::uint32_t shares(const FigureShares& s) {
    out_.figure_shares.push_back(s);
    return static_cast<std::uint32_t>(out_.figure_shares.size() - 1);
  }
  std::uint32_t share_of(machine::FigureId figure) {
    const auto [found, added] = single_shares_.try_emplace(figure, 0);
    if (added) {
      found->second = shares({{figure, 1.0}});
    }
    return found->second;
  }

  ActivityId add_activity(Lane lane, engine::Activity activity, std::uint32_t rests_on) {
    activity.phase = static_cast<std::uint8_t>(phase_);
    const ActivityId id = builder_.add(activity);
    out_.rests_on.push_back(rests_on);
    out_.lane.push_back(static_cast<std::uint32_t>(lane));
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
      pending = {join};
    }
    return pending.front();
  }

  void append(Lane lane, ActivityId activity) {
    after(pending_[index(lane)], activity);
    pending_[index(lane)] = {activity};
  }

  // The host spends `seconds`; the figure says on what that rests.
  void host_spends(Seconds seconds, std::string_view label, machine::FigureId figure) {
    append(kHost, add_activity(kHost,
                               {.latency = engine::to_picoseconds(seconds),
                                .label = builder_.label(label),
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
    const WorkPrice& price = prices_[index(launch.work)];
    const std::string& name = program_.works[index(launch.work)].name;
    const auto one = launch_seconds();
    const std::int64_t launches = std::max<std::int64_t>(1, price.launches);
    wait_for_queue(launches);
    host_spends(one.value, name, one.figure);
    const ActivityId kernels = add_activity(launch.stream,
                                            {.amount = price.seconds.value,
                                             .demand = kernel_demand(),
                                             .label = builder_.label(name),
                                             .cause = cause(Cause::kGpuCompute)},
                                            price_shares_[index(launch.work)]);
    builder_.edge(pending_[index(kHost)].front(), kernels);
    append(launch.stream, kernels);
    if (launches > 1) {
      host_spends(one.value * static_cast<double>(launches - 1), name, one.figure);
    }
    launched_ += launches;
    in_flight_.emplace_back(launched_, kernels);
    totals().executed += price.flops;
  }

  // The host cannot issue launch c before launch c - queue has been taken by the GPU.
  void wait_for_queue(std::int64_t launches) {
    const std::int64_t oldest = launched_ + launches - machine_.framework.launch_queue;
    std::optional<ActivityId> last;
    while (!in_flight_.empty() && in_flight_.front().first <= oldest) {
      last = in_flight_.front().second;
      in_flight_.pop_front();
    }
    if (last) {
      pending_[index(kHost)].push_back(*last);
    }
  }

  DemandId kernel_demand() {
    const engine::Use use{sm_, 1.0};
    return builder_.demand(1.0, 1.0, std::span(&use, 1));
  }

  void take(const Copy& copy) {
    if (out_.unified) {
      return;
    }
    const bool h2d = copy.to == Space::kGpu;
    const bool pageable = copy.from == Space::kPageable || copy.to == Space::kPageable;
    const auto pieces = static_cast<double>(copy.pieces);
    const auto call = machine_.framework.copy_call;
    host_spends(call.value * pieces, copy.what, call.figure);
    if (copy.into) {  // by the driver, once the stream has come so far
      pending_[index(copy.stream)].push_back(position(kHost));
      touch(copy.stream, *copy.into, 1, copy.what);
    }
    const CopyPrice price = price_copy(machine_, h2d, pageable, Bytes(copy.bytes), copy.pieces);
    const ActivityId transfer = add_activity(copy.stream,
                                             {.amount = static_cast<double>(copy.bytes),
                                              .demand = copy_demand(h2d, pageable, price.rate),
                                              .latency = engine::to_picoseconds(price.latency),
                                              .label = builder_.label(copy.what),
                                              .cause = cause(h2d ? Cause::kH2d : Cause::kD2h)},
                                             share_of(price.figure));
    builder_.edge(pending_[index(kHost)].front(), transfer);
    append(copy.stream, transfer);
    if (copy.blocking || pageable) {
      pending_[index(kHost)].push_back(transfer);
    }
    (h2d ? totals().h2d_bytes : totals().d2h_bytes) += static_cast<double>(copy.bytes);
    totals().dram_bytes += static_cast<double>(copy.bytes) * dram_per_byte(pageable);
  }

  // A pageable byte is read (or written) by the copy through pinned staging as well as by the DMA
  // (the driver copies pageable memory through pinned buffers of its own).
  static double dram_per_byte(bool pageable) { return pageable ? 3.0 : 1.0; }

  DemandId copy_demand(bool h2d, bool pageable, BytesPerSecond rate) {
    const auto key = std::make_tuple(h2d, pageable, rate.value);
    const auto found = copy_demands_.find(key);
    if (found != copy_demands_.end()) {
      return found->second;
    }
    std::vector<engine::Use> uses;
    const auto route =
        h2d ? machine_.topology.route("dram", "gpu0") : machine_.topology.route("gpu0", "dram");
    for (const machine::Hop& hop : route) {
      const LinkResources& link = links_[static_cast<std::size_t>(hop.edge)];
      const double per_byte = link.total == *dram_ ? dram_per_byte(pageable) : 1.0;
      uses.push_back({link.total, per_byte});
      if (link.total != *dram_) {
        uses.push_back({hop.down ? link.h2d : link.d2h, 1.0});
      }
    }
    const DemandId demand = builder_.demand(rate.value, machine_.host.dma_weight.value, uses);
    copy_demands_.emplace(key, demand);
    return demand;
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
      touch(work.thread, *work.into, threads, work.what);
    }
    const machine::CpuWork price = machine::cpu_kernel(machine_, work.kernel, each, threads);
    const auto elements = static_cast<double>(work.elements);
    const std::array<engine::Use, 2> uses{engine::Use{cores_, price.cores / price.rate.value},
                                          engine::Use{*dram_, price.dram_bytes_per_element}};
    const std::size_t use_count = price.dram_bytes_per_element > 0 ? 2 : 1;
    // A DMA byte weighs dma_weight, a CPU kernel's byte 1: one element weighs 1 / its bytes.
    const double weight =
        price.dram_bytes_per_element > 0 ? 1.0 / price.dram_bytes_per_element : 1.0;
    append(work.thread, add_activity(work.thread,
                                     {.amount = elements,
                                      .demand = builder_.demand(price.rate.value, weight,
                                                                std::span(uses).first(use_count)),
                                      .label = builder_.label(work.what),
                                      .cause = cause(cause_of_kernel(work.kernel))},
                                     share_of(price.figure)));
    totals().dram_bytes += elements * price.dram_bytes_per_element;
  }

  void touch(Lane thread, Buffer buffer, int threads, std::string_view what) {
    BufferState& state = buffers_[index(buffer)];
    if (state.fresh == 0) {
      return;
    }
    const machine::Cost cost = machine::fresh_pages(machine_, Bytes(state.fresh), threads);
    append(thread, add_activity(thread,
                                {.latency = engine::to_picoseconds(cost.time),
                                 .label = builder_.label(what),
                                 .cause = cause(Cause::kPageFaults)},
                                share_of(cost.figure)));
    state.fresh = 0;
  }

  // Of a read and a write under way together, a drive does less than of either alone: a program
  // that has both on queues of their own gets `mixed` of the drive's rates.
  void take(const Io& io) {
    SIM_ASSERT(!machine_.drives.empty(), "a plan asks for a drive where there is one");
    const machine::Drive& drive = machine_.drives.front();
    const auto call = machine_.framework.copy_call;
    host_spends(call.value, io.what, call.figure);
    const machine::DriveRate price = io.write ? drive_write(drive, Bytes(io.in_flight), 1)
                                              : drive_read(drive, Bytes(io.in_flight), 1);
    const double rate = price.rate.value * (queues_ > 1 ? drive.mixed.value : 1.0);
    const ActivityId transfer = add_activity(io.queue,
                                             {.amount = static_cast<double>(io.bytes),
                                              .demand = io_demand(io, rate),
                                              .label = builder_.label(io.what),
                                              .cause = cause(Cause::kNvme)},
                                             share_of(price.figure));
    builder_.edge(pending_[index(kHost)].front(), transfer);
    append(io.queue, transfer);
    const auto bytes = static_cast<double>(io.bytes);
    (io.write ? totals().nvme_write_bytes : totals().nvme_read_bytes) += bytes;
    totals().dram_bytes += io.to_gpu ? 0 : bytes;
  }

  // A byte takes 1 / rate of the drive's time, and crosses the links between the drive and where it
  // goes.
  DemandId io_demand(const Io& io, double rate) {
    const std::string_view memory = io.to_gpu ? "gpu0" : "dram";
    const auto route = io.write ? machine_.topology.route(memory, "drive0")
                                : machine_.topology.route("drive0", memory);
    std::vector<engine::Use> uses{{drive_time_, 1 / rate}};
    for (const machine::Hop& hop : route) {
      const machine::Edge& edge = machine_.topology.edges[static_cast<std::size_t>(hop.edge)];
      const LinkResources& link = links_[static_cast<std::size_t>(hop.edge)];
      if (edge.name.starts_with("drive")) {
        continue;
      }
      uses.push_back({link.total, 1.0});
      if (link.total != *dram_) {
        uses.push_back({hop.down ? link.h2d : link.d2h, 1.0});
      }
    }
    return builder_.demand(rate, machine_.host.dma_weight.value, uses);
  }

  machine::Known<Seconds> seconds_of(HostTask task) const {
    const machine::Framework& framework = machine_.framework;
    switch (task) {
      case HostTask::kOptimizerTensor:
        return framework.optimizer_tensor;
      case HostTask::kCheckpoint:
        return framework.checkpoint_call;
      case HostTask::kModuleHook:
        return framework.module_hook;
      case HostTask::kGradientHook:
        return framework.gradient_hook;
    }
    return framework.optimizer_tensor;
  }

  void take(const HostBusy& busy) {
    const auto one = seconds_of(busy.task);
    host_spends(one.value * static_cast<double>(busy.count), busy.what, one.figure);
  }

  void take(const Record& record) { events_[index(record.event)] = {position(record.lane)}; }

  void take(const Wait& wait) {
    Pending& pending = pending_[index(wait.lane)];
    const Pending& event = events_[index(wait.event)];
    SIM_ASSERT(!event.empty(), "an event is recorded before it is waited for");
    pending.insert(pending.end(), event.begin(), event.end());
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

  void change(ActivityId where, const BufferState& buffer, std::int64_t delta) {
    builder_.change(where, At::kFinish, pool_of(buffer.space), buffer.tag, delta);
    if (buffer.space == Space::kPinned) {
      builder_.change(where, At::kFinish, out_.host_pinned, buffer.tag, delta);
    }
  }

  void take(const Allocate& call) {
    BufferState& buffer = buffers_[index(call.buffer)];
    buffer = {.space = call.space, .bytes = call.bytes, .tag = builder_.tag(call.tag)};
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
    change(where, buffer, call.bytes);
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
    change(where, buffer, -buffer.bytes);
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

  struct LinkResources {
    ResourceId h2d, d2h, total;
  };

  const Program& program_;
  const machine::Machine& machine_;
  engine::GraphBuilder builder_;
  Lowered out_;
  std::vector<Pending> pending_;  // by lane: what its next activity comes after
  std::vector<Pending> events_;
  std::vector<BufferState> buffers_;
  std::vector<WorkPrice> prices_;
  std::vector<std::uint32_t> price_shares_;
  std::map<machine::FigureId, std::uint32_t> single_shares_;
  std::map<std::tuple<bool, bool, double>, DemandId> copy_demands_;
  std::vector<LinkResources> links_;
  std::deque<std::pair<std::int64_t, ActivityId>>
      in_flight_;  // kernels launched so far, and the last of them
  std::int64_t launched_ = 0;
  std::int64_t heap_free_bytes_ = 0;
  engine::TagId heap_free_{};
  ResourceId sm_{}, cores_{}, drive_time_{};
  std::ptrdiff_t queues_ = 0;  // of I/O
  std::optional<ResourceId> dram_;
  std::uint32_t no_figure_ = 0;
  ActivityId origin_{};
  Phase phase_ = Phase::kSetup;
};

}  // namespace

Lowered lower(const Program& program, const machine::Machine& machine) {
  return Lowering(program, machine).run();
}

}  // namespace offsim::runtime
