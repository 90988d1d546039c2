// What work costs on a machine: pure functions from a machine and a shape to seconds or rates, and the figure that decides.
//
// Where a time rests on several figures, the one with the largest spread is named. Nothing here knows of other work that
// runs at the same time: the engine shares capacities. Measured points win; otherwise the formulas that stand at each function.
// Sources: the machine file's figures; plans.md D for the formulas. Left out: anything a framework decides (which kernels run).
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/machine/machine.h"

namespace offsim::machine {

struct Cost {
  Seconds time;
  FigureId figure = kNoFigure;
};

enum class Math : std::uint8_t { kBf16, kFp16, kTf32, kFp32 };   // what the operands are multiplied in

// C[m x n] = A[m x k] B[k x n], `count` times in one launch (batched, or experts).
struct Gemm {
  double m = 0, n = 0, k = 0;
  double count = 1;
  Math math = Math::kBf16;
  bool sustained = true;      // inside a training step, where power limits the clock
};
Cost gemm_time(const Machine& machine, const Gemm& gemm);

// Fused (flash) attention without its projections. FLOPs: forward 4 B a S^2 p, halved when causal; backward 2.5 times.
struct Attention {
  double batch = 0, heads = 0, kv_heads = 0, sequence = 0, head_dim = 0;
  bool causal = true;
  bool backward = false;
  Math math = Math::kBf16;
  bool sustained = true;
};
Cost attention_time(const Machine& machine, const Attention& attention);
double attention_flops(const Attention& attention);

// A kernel bound by memory, by the bytes it reads and writes: max(floor, bytes / rate(bytes)).
Cost elementwise_time(const Machine& machine, Bytes moved);

// Fused Adam on the GPU; parameters, gradients and moments have one type of 4 or 2 bytes (28 or 14 bytes moved an element).
Cost gpu_adam_time(const Machine& machine, double elements, Bytes element);

enum class Direction : std::uint8_t { kH2d, kD2h };

// A pinned copy is latency + bytes / rate; the engine caps the sum of both directions at link.total.
// Requires: the machine has a link.
struct PinnedCopy {
  Seconds latency;
  BytesPerSecond rate;
  FigureId figure = kNoFigure;
};
PinnedCopy pinned_copy(const Machine& machine, Direction direction);

// A copy between the GPU and pageable memory whose pages exist; the host is blocked. Add fresh_pages for a new temporary.
Cost pageable_copy(const Machine& machine, Direction direction, Bytes bytes);

// A CPU kernel: at most `rate` elements a second, using `dram_bytes_per_element` of Host::dram and `cores` cores.
//   rate = measured(elements) x speed(threads) / speed(all cores), or without measurement
//          min(dram / bytes, threads x core_bandwidth / bytes, and for Adam threads x core_rate)
// Bytes are lowered where the measured rate beats DRAM: such sizes run from the caches.
// Names: adam_deepspeed_f32, adam_deepspeed_bf16, adam_torch_fused_f32, adam_torch_fused_bf16, adam_torch_loop_f32,
// adam_torch_loop_bf16, cast_f32_bf16, cast_bf16_f32, and mul, copy, add, zero, norm, isinf_any each with _f32 and _bf16.
// Requires: threads at least 1 (more than the machine's cores count as all). An unknown name throws InputError with the nearest.
struct CpuWork {
  ElementsPerSecond rate;
  double dram_bytes_per_element = 0;
  double cores = 1;
  FigureId figure = kNoFigure;
};
CpuWork cpu_kernel(const Machine& machine, std::string_view name, double elements, int threads);

// Time of faulting new pages in, on top of writing to them. What releasing them takes. What cudaHostAlloc takes.
Cost fresh_pages(const Machine& machine, Bytes bytes, int threads);
Cost release_pages(const Machine& machine, Bytes bytes);
Cost pinned_alloc(const Machine& machine, Bytes bytes);

// Reads or writes of `block` bytes with `depth` of them in flight: min(drive's rate, depth x block / latency).
struct DriveRate {
  BytesPerSecond rate;
  FigureId figure = kNoFigure;
};
DriveRate drive_read(const Drive& drive, Bytes block, int depth);
DriveRate drive_write(const Drive& drive, Bytes block, int depth);

}  // namespace offsim::machine
