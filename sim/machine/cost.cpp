#include "sim/machine/cost.h"

#include <algorithm>
#include <cmath>

#include "sim/machine/formulas.h"

namespace offsim::machine {

namespace {

const Known<FlopsPerSecond>& peak(const Accelerator& accelerator, Math math) {
  switch (math) {
    case Math::kBf16:
      return accelerator.bf16;
    case Math::kFp16:
      return accelerator.fp16;
    case Math::kTf32:
      return accelerator.tf32;
    case Math::kFp32:
      return accelerator.fp32;
  }
  return accelerator.fp32;
}

double element_bytes(Math math) { return math == Math::kBf16 || math == Math::kFp16 ? 2 : 4; }

Cost at_least_floor(const Machine& machine, double seconds, FigureId figure) {
  const Known<Seconds>& floor = machine.accelerator.kernel_floor;
  return seconds < floor.value.value ? Cost{floor.value, floor.figure}
                                     : Cost{Seconds(seconds), figure};
}

Cost rated(Bytes bytes, double rate, FigureId figure) {
  return {bytes / BytesPerSecond(rate), figure};
}

DriveRate drive_rate(const Drive& drive, const Known<BytesPerSecond>& most, Bytes block,
                     int depth) {
  const Seconds latency = drive.latency.value;
  const BytesPerSecond queued = block * std::max(depth, 1) / latency;
  return queued < most.value ? DriveRate{queued, drive.latency.figure}
                             : DriveRate{most.value, most.figure};
}

}  // namespace

Cost gemm_time(const Machine& machine, const Gemm& gemm) {
  SIM_ASSERT(gemm.m > 0 && gemm.n > 0 && gemm.k > 0, "a product has three sizes");
  const Accelerator& a = machine.accelerator;
  const Known<FlopsPerSecond>& rate = peak(a, gemm.math);
  const Estimate estimate =
      product_estimate({gemm.m, gemm.k, gemm.n}, rate.value.value, a.memory_bandwidth.value.value,
                       element_bytes(gemm.math));
  const double slower = gemm.sustained && !estimate.memory_bound ? a.sustained.value : 1;
  const double seconds =
      estimate.seconds * a.gemm.correction.factor(estimate.features, estimate.where) * slower;
  return at_least_floor(machine, seconds, a.gemm.figure);
}

Cost attention_time(const Machine& machine, const Attention& t) {
  SIM_ASSERT(t.batch > 0 && t.heads > 0 && t.sequence > 0 && t.head_dim > 0,
             "attention has four sizes");
  const Accelerator& a = machine.accelerator;
  const Known<FlopsPerSecond>& rate = peak(a, t.math);
  const Efficiency& efficiency = t.backward ? a.attention_backward : a.attention_forward;
  const Estimate estimate = attention_estimate(
      {t.batch, t.heads, t.sequence, t.head_dim, t.causal, t.backward}, rate.value.value);
  const double seconds = estimate.seconds *
                         efficiency.correction.factor(estimate.features, estimate.where) *
                         (t.sustained ? a.sustained.value : 1);
  return at_least_floor(machine, seconds, efficiency.figure);
}

Cost elementwise_time(const Machine& machine, Bytes moved, double indexed) {
  const Curve& rate = machine.accelerator.elementwise;
  const auto bytes = static_cast<double>(moved.value);
  const double streaming = bytes / rate.at(std::max(bytes, 1.0));
  const Known<ElementsPerSecond>& addresses = machine.framework.indexed;
  const double finding =
      indexed / (addresses.value.value * static_cast<double>(machine.accelerator.multiprocessors));
  return finding > streaming ? at_least_floor(machine, finding, addresses.figure)
                             : at_least_floor(machine, streaming, rate.figure);
}

Cost gpu_adam_time(const Machine& machine, double elements, Bytes element) {
  SIM_ASSERT(element.value == 2 || element.value == 4, "Adam's elements have 2 or 4 bytes");
  const Accelerator& a = machine.accelerator;
  const auto& measured = element.value == 4 ? a.adam_f32 : a.adam_bf16;
  if (measured) {
    return at_least_floor(machine, elements / measured->value.value, measured->figure);
  }
  return elementwise_time(machine, Bytes(std::llround(7 * elements) * element.value));
}

PinnedCopy pinned_copy(const Machine& machine, Direction direction) {
  SIM_ASSERT(machine.link.has_value(), "a unified machine copies nothing");
  const Link& link = *machine.link;
  const Known<BytesPerSecond>& rate = direction == Direction::kH2d ? link.h2d : link.d2h;
  return {link.latency.value, rate.value, rate.figure};
}

Cost pageable_copy(const Machine& machine, Direction direction, Bytes bytes) {
  SIM_ASSERT(machine.link.has_value(), "a unified machine copies nothing");
  const Link& link = *machine.link;
  const Curve& rate = direction == Direction::kH2d ? link.pageable_h2d : link.pageable_d2h;
  return rated(bytes, rate.at(static_cast<double>(bytes.value)), rate.figure);
}

Cost fresh_pages(const Machine& machine, Bytes bytes, int threads) {
  const Curve& rate = machine.host.fresh_pages;
  return rated(bytes, rate.at(std::clamp(threads, 1, machine.host.cores)), rate.figure);
}

Cost release_pages(const Machine& machine, Bytes bytes) {
  const Known<BytesPerSecond>& rate = machine.host.page_release;
  return rated(bytes, rate.value.value, rate.figure);
}

Cost pinned_alloc(const Machine& machine, Bytes bytes) {
  const Known<BytesPerSecond>& rate = machine.host.pinned_alloc;
  return rated(bytes, rate.value.value, rate.figure);
}

DriveRate drive_read(const Drive& drive, Bytes block, int depth) {
  return drive_rate(drive, drive.read, block, depth);
}

DriveRate drive_write(const Drive& drive, Bytes block, int depth) {
  return drive_rate(drive, drive.write, block, depth);
}

}  // namespace offsim::machine
