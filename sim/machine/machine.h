// A machine as figures: one system file of hardware/ with the accelerator, host and framework files that it names.
//
// Every figure says where it is from (measured, datasheet, published, assumed) and how far it may be off, so that a prediction can
// say what it rests on. A figure without a spread of its own gets the default of its source: measured 3 %, datasheet 5 %,
// published 10 %, assumed 25 %. Curves (log-linear in x, clamped at both ends) and tables count as one figure.
// Rates are per second, sizes in bytes; what a file must hold is in hardware/README.md. Errors: InputError with the file's place for
// a missing or unknown key, a malformed quantity, a figure without source or from, or a name that no file has (with the nearest).
// Left out: caches, clocks and power over time (one sustained factor stands for them), NUMA inside a socket.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/units.h"
#include "sim/machine/gemm_model.h"
#include "sim/machine/topology.h"

namespace offsim::machine {

enum class Source : std::uint8_t { kMeasured, kDatasheet, kPublished, kAssumed };

std::string_view source_name(Source source);   // "measured" ...
double default_spread(Source source);          // 0.03, 0.05, 0.10, 0.25

struct Figure {
  double value = 0;        // in the unit of its place: bytes, bytes a second, seconds, a fraction; of a curve its largest y
  Source source = Source::kAssumed;
  double spread = 0;       // 0.03: the truth is probably within 3 %
  std::string name;        // "link.h2d"
  std::string from;        // a file of hardware/measured/raw, an https address, or the reason of an assumption
  Place place;
};

// A figure as its users read it: the value with its unit type, and which figure it is.
template <class T>
struct Known {
  T value{};
  FigureId figure = kNoFigure;
};

// y(x), linear in log x between the points and constant outside them. Requires: x positive and ascending.
struct Curve {
  std::vector<double> x;
  std::vector<double> y;
  FigureId figure = kNoFigure;

  bool empty() const { return x.empty(); }
  double at(double where) const;
};

struct AttentionPoint {
  double batch = 0, heads = 0, sequence = 0, head_dim = 0;
  double forward_s = 0, backward_s = 0;
};

struct Accelerator {
  std::string name;      // "NVIDIA H200"
  std::string vendor;
  Known<Bytes> memory;                           // usable, as the driver reports it
  Known<BytesPerSecond> memory_bandwidth;        // peak
  Known<FlopsPerSecond> bf16, fp16, tf32, fp32;  // dense peaks; where bf16 is absent it runs at the fp32 rate
  int multiprocessors = 0;
  bool unified = false;                          // CPU and GPU share one pool of memory: no link, no copies
  Known<double> gemm, attention_forward, attention_backward, elementwise;   // efficiency: share of a peak
  Known<double> sustained;                       // long runs are power-limited: time of a dense kernel, 1.047 times
  Known<Seconds> kernel_floor;                   // shortest kernel
  std::vector<GemmPoint> gemm_points;            // bf16
  GemmModel gemm_model;                          // fitted at load to gemm_points, or the formula alone
  std::vector<AttentionPoint> attention_points;  // causal, bf16
  FigureId attention_figure = kNoFigure;
  Curve elementwise_rate;                        // bytes moved a second by bytes moved
  std::optional<Known<ElementsPerSecond>> adam_f32, adam_bf16;   // fused Adam on the GPU; else by bytes moved
};

enum class Simd : std::uint8_t { kNone, kAvx2, kAvx512 };

struct Host {
  std::string name;
  Known<Bytes> memory;                   // what the operating system reports in all
  int cores = 0;
  Simd simd = Simd::kNone;               // DeepSpeed's Adam has vector code for AVX2 and AVX-512 only
  Known<BytesPerSecond> dram;            // what all users of memory share, reads plus writes
  Known<BytesPerSecond> core_bandwidth;  // what one core can move
  Known<ElementsPerSecond> core_rate;    // Adam elements one core updates with vector code
  Known<ElementsPerSecond> scalar_rate;  // the same without
  Known<double> dma_weight;              // a DMA byte's weight in the sharing of `dram`, against 1 for a CPU kernel's byte
  Curve fresh_pages;                     // bytes a second by threads: faulting pages in, on top of the writing
  Known<BytesPerSecond> page_release;    // munmap
  Known<BytesPerSecond> pinned_alloc;    // cudaHostAlloc: faulting and pinning
  std::map<std::string, Curve, std::less<>> kernel_rate;      // by kernel name: elements a second by elements, all cores
  std::map<std::string, Curve, std::less<>> kernel_threads;   // by kernel name ("adam", "stream"): relative speed by threads
};

// One GPU's link to the host. Unified machines have none.
struct Link {
  std::string name;
  Known<BytesPerSecond> h2d, d2h;        // pinned, large, one direction alone
  Known<BytesPerSecond> total;           // pinned, both directions at once, added
  Known<Seconds> latency;                // of one pinned copy on the copy engine, beside the host's call
  Curve pageable_h2d, pageable_d2h;      // bytes a second by bytes
};

// What several GPUs share on their way to the host (a switch, a root port).
struct Uplink {
  int gpus = 0;                          // GPUs below one uplink
  Known<BytesPerSecond> h2d, d2h, total;
};

struct Drive {
  std::string name;
  int count = 1;                         // striped: the figures are of all of them together
  Known<Bytes> capacity;
  Known<BytesPerSecond> read, write;
  Known<double> mixed;                   // read/R + write/W at most this when both run
  Known<Seconds> latency;                // of one request; bandwidth needs depth x block / latency
};

// A CPU kernel as the framework runs it.
struct CpuKernel {
  double dram_bytes_per_element = 0;
  bool single_core = false;
  FigureId figure = kNoFigure;
};

struct Framework {
  std::string name;
  Known<Seconds> launch;                 // host seconds of one bare eager kernel
  Known<Seconds> launch_forward;         // of one kernel inside a Transformers layer, forward
  Known<Seconds> launch_backward;
  Known<Seconds> copy_call;              // host seconds of one asynchronous copy
  int launch_queue = 0;                  // kernels that the host can run ahead
  Known<Bytes> gpu_rounding;             // of the GPU allocator
  bool pinned_power_of_two = false;
  Known<Bytes> map_threshold;            // the C library maps larger blocks afresh: new pages at each use
  Known<Bytes> process_resident;         // host memory of an idle process
  Known<Bytes> gpu_context;              // GPU memory that the context takes
  std::map<std::string, CpuKernel, std::less<>> kernels;
};

struct Price {
  UsdPerHour per_gpu;                    // of the smallest rentable machine, divided by its GPUs
  std::string date;                      // "2026-08"
  FigureId figure = kNoFigure;
};

struct Machine {
  std::string name;                      // "gh200-480gb"
  std::string title;                     // "one GH200 96 GB, Grace 480 GB"
  int gpus = 1;
  Accelerator accelerator;
  Host host;
  std::optional<Link> link;              // absent: unified
  std::optional<Uplink> uplink;
  std::optional<Known<BytesPerSecond>> peer;   // GPU to GPU, one direction
  std::vector<Drive> drives;
  Framework framework;
  std::optional<Price> price;            // absent: owned, a cost needs a price from the user
  Topology topology;
  std::vector<Figure> figures;

  const Figure& figure(FigureId id) const;
};

// Where the files of the catalog are: a folder, or texts compiled into the program.
struct Catalog {
  // The text of a file ("systems/dgx-h100.yaml"); nothing when there is none.
  std::function<std::optional<std::string>(const std::string& path)> read;
  // Names of the files in a folder ("systems"), without ".yaml", sorted.
  std::function<std::vector<std::string>(const std::string& folder)> list;
  // Put before a path in messages: "hardware/".
  std::string prefix;
};

Catalog folder_catalog(const std::string& folder);

// All machines: the files of systems/ and measured/, sorted.
std::vector<std::string> machine_names(const Catalog& catalog);

// `name` is a file of systems/ or measured/, or the path of a file on disk (it has a slash or ends in .yaml), which may name
// accelerators, hosts and frameworks of the catalog. Throws InputError.
Machine load_machine(const Catalog& catalog, const std::string& name, const Place& asked_at = {});

}  // namespace offsim::machine
