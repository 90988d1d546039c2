#include "sim/runtime/price.h"

#include <map>

#include "sim/machine/cost.h"

namespace offsim::runtime {

namespace {

// The width with which heads of one width would take as many operations.
double even_width(const model::Kernel& kernel) {
  const auto q = static_cast<double>(kernel.head_dim), v = static_cast<double>(kernel.value_dim);
  return kernel.backward ? (3 * q + 2 * v) / 5 : (q + v) / 2;
}

machine::Cost price_kernel(const machine::Machine& machine, const model::Kernel& kernel,
                           Half half) {
  const machine::Math narrow = half == Half::kFp16 ? machine::Math::kFp16 : machine::Math::kBf16;
  const machine::Math math = kernel.wide ? machine::Math::kFp32 : narrow;
  switch (kernel.kind) {
    case model::Kernel::Kind::kGemm:
      return machine::gemm_time(machine, {.m = static_cast<double>(kernel.m),
                                          .n = static_cast<double>(kernel.n),
                                          .k = static_cast<double>(kernel.k),
                                          .math = math});
    case model::Kernel::Kind::kAttention:
      return machine::attention_time(machine, {.batch = static_cast<double>(kernel.batch),
                                               .heads = static_cast<double>(kernel.heads),
                                               .sequence = static_cast<double>(kernel.sequence),
                                               .head_dim = even_width(kernel),
                                               .backward = kernel.backward,
                                               .math = math});
    case model::Kernel::Kind::kAdam:
      return machine::gpu_adam_time(machine, static_cast<double>(kernel.elements),
                                    Bytes(kernel.wide ? 4 : 2));
    case model::Kernel::Kind::kElementwise:
      break;
  }
  return machine::elementwise_time(machine, Bytes(kernel.bytes),
                                   static_cast<double>(kernel.indexed));
}

}  // namespace

WorkPrice price_work(const machine::Machine& machine, const model::Work& work, Half half) {
  WorkPrice price;
  std::map<machine::FigureId, double> by_figure;
  for (const model::Kernel& kernel : work.kernels) {
    const machine::Cost cost = price_kernel(machine, kernel, half);
    const Seconds all = cost.time * static_cast<double>(kernel.count);
    price.seconds += all;
    by_figure[cost.figure] += all.value;
  }
  price.launches = work.launches();
  price.flops = work.flops();
  for (const auto& [figure, seconds] : by_figure) {
    if (seconds > 0) {
      price.shares.emplace_back(figure, seconds / price.seconds.value);
    }
  }
  return price;
}

CopyPrice price_copy(const machine::Machine& machine, bool h2d, bool pageable, Bytes bytes,
                     std::int64_t pieces, Mover mover) {
  if (machine.accelerator.unified) {  // within the one memory
    const machine::Known<BytesPerSecond>& dram = machine.host.dram;
    return {Seconds(), BytesPerSecond(dram.value.value / 2), dram.figure};
  }
  const machine::Direction direction = h2d ? machine::Direction::kH2d : machine::Direction::kD2h;
  const machine::PinnedCopy pinned = machine::pinned_copy(machine, direction);
  if (mover == Mover::kFault) {
    SIM_ASSERT(machine.link->page_fault.has_value(), "pages migrate over a coherent link");
    const machine::Known<Seconds>& fault = *machine.link->page_fault;
    return {fault.value * static_cast<double>(pieces), pinned.rate, fault.figure};
  }
  const Seconds latency = pinned.latency * static_cast<double>(pieces);
  if (!pageable) {
    return {latency, pinned.rate, pinned.figure};
  }
  const machine::Cost one = machine::pageable_copy(machine, direction, Bytes(bytes.value / pieces));
  return {latency, Bytes(bytes.value / pieces) / one.time, one.figure};
}

CollectivePrice price_collective(const machine::Machine& machine, Bytes whole, int ranks) {
  SIM_ASSERT(machine.peer.has_value() && ranks > 1, "several GPUs that are joined");
  const machine::Known<double>& share = machine.framework.collective_share;
  const auto spread = [&](machine::FigureId id) {
    return id == machine::kNoFigure ? 0.0 : machine.figure(id).spread;
  };
  const machine::FigureId weaker =
      spread(machine.peer->figure) > spread(share.figure) ? machine.peer->figure : share.figure;
  return {Bytes(whole.value / ranks * (ranks - 1)), machine.framework.collective.value,
          BytesPerSecond(machine.peer->value.value * share.value), weaker};
}

machine::Known<Seconds> host_task(const machine::Framework& framework, HostTask task) {
  switch (task) {
    case HostTask::kOptimizerTensor:
      return framework.optimizer_tensor;
    case HostTask::kOptimizerObject:
      return framework.optimizer_object;
    case HostTask::kDistributedOperation:
      return framework.distributed_operation;
    case HostTask::kCheckpoint:
      return framework.checkpoint_call;
    case HostTask::kModuleHook:
      return framework.module_hook;
    case HostTask::kModuleHookEarly:
      return framework.module_hook_early;
    case HostTask::kGradientHook:
      return framework.gradient_hook;
    case HostTask::kStepTensor:
      return framework.step_tensor;
    case HostTask::kUnshardTensor:
      return framework.unshard_tensor;
    case HostTask::kReduceTensor:
      return framework.reduce_tensor;
  }
  return framework.optimizer_tensor;
}

}  // namespace offsim::runtime
