// teraio: all on the GPU, and what it does not use for a while on drives, over GPUDirect (TERAIO,
// arXiv 2506.06472; no code is published).
//
// The native loop, piece by piece (tensor_lifetimes.h), with Adam on the GPU. From the loop, priced
// kernel by kernel, come when each tensor is used and what memory holds; the planner
// (migration_planner.h) says which leave when. A round is a step: states may be away across its
// end. What moves, moves out and in once. Planning is done once, offline (31 to 397 s are
// published): no part of a step.
// Execution: a write begins when the operation before it is done, a read when the one before it is;
// an operation waits for its tensors, and for the writes that are to have made room by then. The
// host does not wait.
// path gpudirect: bytes go between drive and GPU and skip host memory. host: cuFile's compatibility
// mode, through a buffer in host memory, one request and one copy after the other.
// host_memory: bytes of it that may hold tensors; used when the drive has no time left.
// The drive's time is shared by reads and writes at Drive::mixed of its rates. It reads what it
// writes, so it takes 1 / (1 / read + 1 / write) of the link in each direction; copies to host
// memory and back get the rest.
// A plan holds no more on the drive than its capacity. What no plan fits does not fit the GPU; the
// step then is that of the plan that comes closest.
// Nobody waits for the last writes of a step: they meet the first reads of the next on the drive.
// Refused: no drive, one memory. Left out: Python between kernels, the drive's endurance, several
// GPUs, a GPUDirect path that is slower or faster than the drive.
#include <algorithm>
#include <optional>

#include "sim/base/quantity.h"
#include "sim/machine/cost.h"
#include "sim/plans/checks.h"
#include "sim/plans/common.h"
#include "sim/plans/plans.h"
#include "sim/plans/tensor_lifetimes.h"
#include "sim/runtime/price.h"

namespace offsim::plans {

using model::Work;
using runtime::Buffer;
using runtime::Event;
using runtime::kCompute;
using runtime::kHost;
using runtime::Lane;
using runtime::Phase;
using runtime::Recorder;
using runtime::Space;

namespace {

constexpr Bytes kInFlight{64 * kMiB};  // enough for a drive's full rate

bool is_direct(const Job& job) {
  const std::string& path = job.options.text("path");
  return path == "auto" ? job.machine.accelerator.gpudirect : path == "gpudirect";
}

// --- planning

enum Target : std::uint8_t { kDrive, kHostMemory };

MigrationTarget drive_target(const Job& job) {
  const machine::Link& link = *job.machine.link;
  const machine::Drive& drive = job.machine.drives.front();
  const auto rate = [&](machine::DriveRate of, BytesPerSecond through) {
    const double alone = of.rate.value * drive.mixed.value;
    return BytesPerSecond(is_direct(job) ? std::min(alone, through.value)
                                         : 1 / (1 / alone + 1 / through.value));
  };
  return {rate(machine::drive_write(drive, kInFlight, 1), link.d2h.value),
          rate(machine::drive_read(drive, kInFlight, 1), link.h2d.value), true,
          drive.capacity.value};
}

// What the drive leaves of the link while both directions are in use; none when that is nothing.
std::optional<MigrationTarget> host_target(const Job& job, const MigrationTarget& drive) {
  const machine::Link& link = *job.machine.link;
  const double taken = 1 / (1 / drive.write.value + 1 / drive.read.value);
  const double down = link.d2h.value.value - taken, up = link.h2d.value.value - taken;
  const double both = link.total.value.value - 2 * taken;
  if (down <= 0 || up <= 0 || both <= 0) {
    return std::nullopt;
  }
  const double share = std::min(1.0, both / (down + up));
  return MigrationTarget{BytesPerSecond(share * down), BytesPerSecond(share * up), false,
                         Bytes(job.options.count("host_memory"))};
}

std::vector<MigrationTarget> targets(const Job& job) {
  std::vector<MigrationTarget> list{drive_target(job)};
  if (const auto host = host_target(job, list.front()); host && host->room > Bytes(0)) {
    list.push_back(*host);
  }
  return list;
}

MemoryDemand demand(const Job& job, const StepLifetimes& step) {
  const machine::Machine& m = job.machine;
  MemoryDemand d;
  d.resident = resident_bytes(step);
  d.capacity = m.accelerator.memory.value - m.framework.gpu_context.value -
               round_up(m.framework.gpu_workspace.value, m.framework.gpu_rounding.value.value);
  d.targets = targets(job);
  for (const Operation& operation : step.operations) {
    Seconds seconds;
    for (const Work& work : operation.works) {
      seconds += runtime::price_work(m, work).seconds;
    }
    d.operations.push_back(seconds);
  }
  return d;
}

// Its time grows a little faster than this sum: some seconds at the most.
void check_size(const std::vector<InactivePeriod>& periods) {
  constexpr std::int64_t kMost = 4'000'000;
  std::int64_t sum = 0;
  for (const InactivePeriod& period : periods) {
    sum += period.to - period.from;
  }
  if (sum > kMost) {
    throw InputError({},
                     fmt::format("teraio's planner needs to look at {} operations during which a "
                                 "tensor is not used",
                                 with_commas(static_cast<double>(sum))),
                     fmt::format("expected at most {}: fewer layers or micro-batches",
                                 with_commas(static_cast<double>(kMost))));
  }
}

MigrationPlan planned(const Job& job, const StepLifetimes& step,
                      const std::vector<InactivePeriod>& periods) {
  check_size(periods);
  return plan_migrations(demand(job, step), periods);
}

// --- the step

class Teraio {
 public:
  Teraio(const Job& job, Recorder& gpu)
      : job_(job),
        gpu_(gpu),
        step_(step_lifetimes(job)),
        periods_(inactive_periods(step_)),
        plan_(planned(job, step_, periods_)),
        direct_(is_direct(job)),
        writes_(gpu.io_queue("writes")),
        reads_(gpu.io_queue("reads")),
        down_(gpu.stream("copies to the host")),
        up_(gpu.stream("copies to the GPU")),
        into_buffer_(gpu.stream("copies to the drive's buffer")),
        from_buffer_(gpu.stream("copies from the drive's buffer")),
        buffers_(step_.tensors.size()),
        arrives_(step_.tensors.size()),
        made_room_(plan_.moves.size()),
        writes_at_(step_.operations.size()),
        room_at_(writes_at_),
        reads_at_(writes_at_) {
    place();
    arrange();
  }

  void step(bool) {
    std::optional<Phase> phase;
    for (std::size_t i = 0; i < step_.operations.size(); ++i) {
      const Operation& operation = step_.operations[i];
      if (phase != operation.phase) {
        phase = operation.phase;
        enter(job_, gpu_, operation.phase);
      }
      write_out(i);
      read_back(i);
      run(static_cast<std::int64_t>(i), operation);
    }
    end_step(job_, gpu_);
  }

 private:
  using Moves = std::vector<std::size_t>;

  std::size_t tensor_of(std::size_t move) const {
    return periods_[plan_.moves[move].period].tensor;
  }
  const TensorLife& life_of(std::size_t move) const { return step_.tensors[tensor_of(move)]; }
  std::size_t at(std::int64_t operation) const {
    return static_cast<std::size_t>(operation) % step_.operations.size();
  }
  Buffer hold(std::size_t tensor, Lane issuer) {
    const TensorLife& life = step_.tensors[tensor];
    return gpu_.allocate(Space::kGpu, life.size, life.tag, issuer);
  }

  void place() {
    place_workspace(job_, gpu_);
    std::vector<bool> away(buffers_.size());
    for (std::size_t move = 0; move < plan_.moves.size(); ++move) {
      const Migration& m = plan_.moves[move];
      const std::int64_t round = std::ssize(step_.operations);
      if (m.begin < round && m.back >= round) {  // when a round begins
        away[tensor_of(move)] = true;
      }
    }
    for (std::size_t tensor = 0; tensor < buffers_.size(); ++tensor) {
      if (step_.tensors[tensor].lasts && !away[tensor]) {
        buffers_[tensor] = hold(tensor, kHost);
      }
    }
    for (std::size_t target = 0; target < plan_.held.size(); ++target) {
      if (plan_.held[target] > Bytes(0)) {
        gpu_.allocate_exact(target == kDrive ? Space::kNvme : Space::kPinned, plan_.held[target],
                            "tensors of the GPU");
      }
    }
    if (!direct_ && plan_.held[kDrive] > Bytes(0)) {
      gpu_.allocate_exact(Space::kPinned, 2 * kInFlight, "buffers of the drive");
    }
  }

  // Each operation's moves, the most urgent first.
  void arrange() {
    for (std::size_t move = 0; move < plan_.moves.size(); ++move) {
      const Migration& m = plan_.moves[move];
      writes_at_[at(m.begin)].push_back(move);
      room_at_[at(m.gone)].push_back(move);
      reads_at_[at(m.back)].push_back(move);
    }
    const auto sort = [](std::vector<Moves>& lists, auto urgency) {
      for (Moves& moves : lists) {
        std::ranges::stable_sort(moves, {}, urgency);
      }
    };
    sort(writes_at_, [&](std::size_t m) { return plan_.moves[m].gone - plan_.moves[m].begin; });
    sort(reads_at_,
         [&](std::size_t m) { return periods_[plan_.moves[m].period].to - plan_.moves[m].back; });
  }

  // Before an operation, once the one before it is done.
  void write_out(std::size_t operation) {
    for (const std::size_t move : writes_at_[operation]) {
      std::optional<Buffer>& buffer = buffers_[tensor_of(move)];
      const Lane last = send(plan_.moves[move].target, life_of(move));
      gpu_.free(buffer.value(), last);
      buffer.reset();
      made_room_[move] = gpu_.record(last);
    }
    for (const std::size_t move : room_at_[operation]) {
      if (made_room_[move]) {  // not yet for what is away from the start
        gpu_.wait(kCompute, *made_room_[move]);
      }
    }
  }

  void read_back(std::size_t operation) {
    for (const std::size_t move : reads_at_[operation]) {
      bring(plan_.moves[move].target, tensor_of(move));
    }
  }

  // Returns the lane that is done last.
  Lane send(std::size_t target, const TensorLife& life) {
    const bool on_drive = target == kDrive;
    const Lane copies = on_drive ? into_buffer_ : down_;
    const bool copied = !on_drive || !direct_;
    gpu_.wait(copied ? copies : writes_, gpu_.record(kCompute));
    if (copied) {
      gpu_.copy_d2h(copies, Space::kPinned, life.size, life.tag);
    }
    if (!on_drive) {
      return copies;
    }
    if (copied) {
      gpu_.wait(writes_, gpu_.record(copies));
    }
    gpu_.write(writes_, life.size, kInFlight, life.tag, direct_);
    if (copied) {  // the buffer is empty
      gpu_.wait(copies, gpu_.record(writes_));
    }
    return writes_;
  }

  void bring(std::size_t target, std::size_t tensor) {
    const TensorLife& life = step_.tensors[tensor];
    const bool on_drive = target == kDrive;
    const Lane copies = on_drive ? from_buffer_ : up_;
    const bool copied = !on_drive || !direct_;
    const Lane first = on_drive ? reads_ : copies;
    gpu_.wait(first, gpu_.record(kCompute));
    buffers_[tensor] = hold(tensor, first);
    if (on_drive) {
      gpu_.read(reads_, life.size, kInFlight, life.tag, direct_);
    }
    if (copied) {
      if (on_drive) {
        gpu_.wait(copies, gpu_.record(reads_));
      }
      gpu_.copy_h2d(copies, Space::kPinned, life.size, life.tag);
      if (on_drive) {  // the buffer is empty
        gpu_.wait(reads_, gpu_.record(copies));
      }
    }
    arrives_[tensor] = gpu_.record(copied ? copies : reads_);
  }

  void run(std::int64_t number, const Operation& operation) {
    for (const std::size_t tensor : operation.uses) {
      if (arrives_[tensor]) {
        gpu_.wait(kCompute, *arrives_[tensor]);
        arrives_[tensor].reset();
      }
      if (!buffers_[tensor]) {
        buffers_[tensor] = hold(tensor, kCompute);
      }
    }
    if (operation.transient > Bytes(0)) {
      gpu_.free(gpu_.allocate(Space::kGpu, operation.transient, "temporaries", kCompute), kCompute);
    }
    for (const Work& work : operation.works) {
      gpu_.launch(work);
    }
    for (const std::size_t tensor : operation.uses) {
      const TensorLife& life = step_.tensors[tensor];
      if (!life.lasts && life.used.back() == number) {
        gpu_.free(*buffers_[tensor], kCompute);
        buffers_[tensor].reset();
      }
    }
  }

  const Job& job_;
  Recorder& gpu_;
  StepLifetimes step_;
  std::vector<InactivePeriod> periods_;
  MigrationPlan plan_;
  bool direct_;
  Lane writes_, reads_, down_, up_, into_buffer_, from_buffer_;
  std::vector<std::optional<Buffer>> buffers_;         // by tensor
  std::vector<std::optional<Event>> arrives_;          // by tensor
  std::vector<std::optional<Event>> made_room_;        // by move: its last write
  std::vector<Moves> writes_at_, room_at_, reads_at_;  // by operation
};

}  // namespace

std::vector<OptionSpec> teraio_options() {
  using Kind = OptionSpec::Kind;
  return {
      {"path",
       Kind::kChoice,
       "auto",
       "",
       "gpudirect: between drive and GPU; host: through a buffer in host memory; auto: gpudirect "
       "where the GPU has it",
       {"auto", "gpudirect", "host"}},
      {"host_memory", Kind::kCount, "0", "bytes",
       "of host memory that may hold tensors when the drive has no time left"},
  };
}

std::vector<std::string> check_teraio(const Job& job) {
  if (!job.machine.link) {
    throw InputError({},
                     fmt::format("teraio needs a GPU with a memory of its own, and {} has one "
                                 "memory: nowhere to go",
                                 job.machine.name),
                     "expected a machine with a link");
  }
  require_drive(job);
  refuse_adapters(job, "its lifetimes are of trained tensors");
  refuse_activation_offload(job, "it migrates activations itself");
  require_precision(job, {Precision::kFp32, Precision::kBf16Mixed, Precision::kBf16},
                    "fp32, bf16-mixed or bf16");
  if (job.options.text("path") == "gpudirect" && !job.machine.accelerator.gpudirect) {
    throw InputError(job.options.place("path"),
                     fmt::format("{} has no GPUDirect", job.machine.accelerator.name),
                     "expected path auto or host");
  }
  std::vector<std::string> warnings;
  if (job.options.count("host_memory") == 0) {
    warn_without_effect(warnings, job, "it allows no bytes", {"host_memory"});
  } else if (!host_target(job, drive_target(job))) {
    warn_without_effect(warnings, job, "the drive alone fills the link", {"host_memory"});
  }
  return warnings;
}

void record_teraio(const Job& job, Recorder& gpu, int steps) {
  record_steps(Teraio(job, gpu), steps);
}

}  // namespace offsim::plans
