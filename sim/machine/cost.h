// What work costs on a machine: pure functions from a machine and a shape to seconds or rates, and
// the figure that decides.
//
// Where a cost rests on several figures, the least certain is named: an efficiency before its peak.
// Nothing here knows of other work that runs at the same time: the engine shares capacities.
// Measured points win; otherwise the formulas that stand at each function. Sources: the machine
// file's figures. Left out: whatever a framework decides (which kernels run), alignment and layout
// of matrices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/machine/machine.h"

namespace offsim::machine {

struct Cost {
  Seconds time;
  FigureId figure = kNoFigure;
};

enum class Math : std::uint8_t { kBf16, kFp16, kTf32, kFp32 };  // what operands are multiplied in

// C[m x n] = A[m x k] B[k x n].
//   roofline = max(2 m n k / peak, element bytes (mk + kn + mn) / (0.85 memory bandwidth))
//   t = max(kernel floor, (2 us + roofline) x correction), features of the correction: 1, 1024 / k;
//       coordinates log m, log k, log n
// On 494 shapes of our H200 records this is right within 3.3 % leaving one out (4.1 % without the
// residuals). Tiles of 128 x 256 in waves over the multiprocessors are 10 % off on an earlier set
// where the roofline is 5 % off: the libraries choose smaller tiles where few would fill them.
struct Gemm {
  double m = 0, n = 0, k = 0;
  Math math = Math::kBf16;
  bool sustained = true;  // inside a training step, where power limits the clock
};
Cost gemm_time(const Machine& machine, const Gemm& gemm);

// Fused (flash) attention without its projections, S x S scores.
//   FLOPs: forward 4 batch heads S^2 head_dim, halved when causal; backward 2.5 times that
//   t = max(kernel floor, (start + FLOPs / peak) x correction), start 10 us forward, 20 backward,
//       features 1, 1024 / S, log2(128 / head_dim); coordinates log S, log head_dim,
//       log (batch heads)
struct Attention {
  double batch = 0, heads = 0, sequence = 0, head_dim = 0;
  bool causal = true;
  bool backward = false;
  Math math = Math::kBf16;
  bool sustained = true;
};
Cost attention_time(const Machine& machine, const Attention& attention);

// A kernel bound by memory, by the bytes it reads and writes, or by the addresses it computes when
// it has `indexed` elements to find (broadcasts, strides, mixed types):
// max(floor, bytes / rate(bytes), indexed / (multiprocessors x framework.indexed)).
Cost elementwise_time(const Machine& machine, Bytes moved, double indexed = 0);

// Fused Adam on the GPU; parameters, gradients and moments all have one type of 4 or 2 bytes. Not
// measured: as an elementwise kernel of 7 times that many bytes an element.
Cost gpu_adam_time(const Machine& machine, double elements, Bytes element);

enum class Direction : std::uint8_t { kH2d, kD2h };

// A pinned copy is latency + bytes / rate; the engine caps both directions together at link.total.
// Requires: the machine has a link.
struct PinnedCopy {
  Seconds latency;
  BytesPerSecond rate;
  FigureId figure = kNoFigure;
};
PinnedCopy pinned_copy(const Machine& machine, Direction direction);

// A copy between the GPU and pageable memory whose pages exist; the host is blocked. Add
// fresh_pages() for a new temporary. Requires: the machine has a link.
Cost pageable_copy(const Machine& machine, Direction direction, Bytes bytes);

// A CPU kernel: at most `rate` elements a second, with `dram_bytes_per_element` of Host::dram and
// `cores` cores.
//   measured      rate(elements on all cores) x speed(threads) / speed(cores)
//   otherwise     min(dram / bytes, threads x core_bandwidth / bytes,
//                     threads x core_rate x core_speed)
// Bytes are lowered where a measured rate beats DRAM: such sizes run from the caches.
// Names: adam_deepspeed_f32, adam_deepspeed_bf16 (fp32 states), adam_torch_fused_f32,
// adam_torch_fused_bf16, adam_torch_loop_f32, adam_torch_loop_bf16, cast_f32_bf16, cast_bf16_f32,
// and mul, copy, add, zero, norm, isinf_any each with _f32 and _bf16. An unknown name throws
// InputError with the nearest. Requires: threads at least 1 (more than the host's cores are all).
struct CpuWork {
  ElementsPerSecond rate;
  double dram_bytes_per_element = 0;
  double cores = 1;
  FigureId figure = kNoFigure;
};
std::vector<std::string> cpu_kernel_names();
CpuWork cpu_kernel(const Machine& machine, std::string_view name, double elements, int threads);

// Faulting new pages in, on top of writing to them.
Cost fresh_pages(const Machine& machine, Bytes bytes, int threads);
// Giving pages back (munmap).
Cost release_pages(const Machine& machine, Bytes bytes);
// cudaHostAlloc: faulting and pinning.
Cost pinned_alloc(const Machine& machine, Bytes bytes);

// Reads or writes of `block` bytes, `depth` of them in flight: min(rate, depth x block / latency).
struct DriveRate {
  BytesPerSecond rate;
  FigureId figure = kNoFigure;
};
DriveRate drive_read(const Drive& drive, Bytes block, int depth);
DriveRate drive_write(const Drive& drive, Bytes block, int depth);

}  // namespace offsim::machine
