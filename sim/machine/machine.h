// A machine as figures: one system file of hardware/ with the accelerator, host and framework files
// that it names.
//
// Every figure says where it is from and how far it may be off (figure.h), so that a prediction can
// say what it rests on. Sizes are bytes, rates per second; what a file must hold is in
// hardware/README.md. Errors: InputError with the file's place for a missing or unknown key, a
// malformed quantity, a figure without source or from, or a name that no file has (with the
// nearest). Left out: caches, clocks and power over time (one sustained factor stands for them),
// NUMA inside a socket.
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
#include "sim/machine/correction.h"
#include "sim/machine/figure.h"
#include "sim/machine/topology.h"

namespace offsim::machine {

// A cost model with the figures that it rests on: measured points, or an efficiency.
struct Efficiency {
  Correction correction;
  FigureId figure = kNoFigure;
};

struct Accelerator {
  std::string name;  // "NVIDIA H200"
  std::string vendor;
  Known<Bytes> memory;                           // usable, as the driver reports it
  Known<BytesPerSecond> memory_bandwidth;        // peak
  Known<FlopsPerSecond> bf16, fp16, tf32, fp32;  // dense peaks; a type without units of its own
                                                 // runs at the fp32 rate (bf16 on a V100)
  int multiprocessors = 0;
  bool unified = false;         // CPU and GPU share one pool of memory: no link, no copies
  bool gpudirect = true;        // drives reach its memory without passing the host's
  Known<double> sustained;      // dense kernels in a long run take so many times longer: power
  Known<Seconds> kernel_floor;  // shortest kernel
  Efficiency gemm, attention_forward, attention_backward;
  // What a replay runs in place of fused attention (kernels/gpu/attention.h), where measured.
  std::optional<Efficiency> standin_forward, standin_backward;
  std::optional<Known<ElementsPerSecond>> standin_adam_f32, standin_adam_bf16;
  Curve elementwise;                                            // bytes a second by bytes moved
  std::optional<Known<ElementsPerSecond>> adam_f32, adam_bf16;  // fused, on the GPU
};

struct Host {
  std::string name;
  Known<Bytes> memory;  // what the operating system reports in all
  int cores = 0;
  bool avx = false;                      // AVX2 or AVX-512: DeepSpeed's Adam is scalar without
  Known<BytesPerSecond> dram;            // what all users of memory share, reads plus writes
  Known<BytesPerSecond> core_bandwidth;  // what one core can move
  Known<double> core_speed;              // of one core, against 1 for the framework file's rates
  Known<double> dma_weight;  // of a DMA byte in the sharing of dram, against 1 for a kernel's byte
  Curve fresh_pages;         // bytes a second by threads: faulting pages in, beside writing them
  Known<BytesPerSecond> page_release;                  // munmap
  Known<BytesPerSecond> pinned_alloc;                  // cudaHostAlloc: faulting and pinning
  std::map<std::string, Curve, std::less<>> kernels;   // measured: elements a second by elements,
                                                       // on all cores
  std::map<std::string, Curve, std::less<>> standins;  // those that a replay runs in place
                                                       // of them, where that differs
  std::map<std::string, Curve, std::less<>> threads;   // "adam", "stream": speed by threads, any
                                                       // unit
};

// One GPU's link to the host. Unified machines have none.
struct Link {
  std::string name;
  Known<BytesPerSecond> h2d, d2h;    // pinned, large, one direction alone
  Known<BytesPerSecond> total;       // pinned, both directions at once, added
  Known<Seconds> latency;            // of one pinned copy, beside the host's call
  Curve pageable_h2d, pageable_d2h;  // bytes a second by bytes
  // Coherent: kernels read and write any host memory, and pages of managed memory migrate when the
  // GPU touches them, each after so long. Absent: not coherent.
  std::optional<Known<Seconds>> page_fault;
  bool coherent() const { return page_fault.has_value(); }
};

// What several GPUs share on their way to the host (a switch, a root port).
struct Uplink {
  int gpus = 0;  // below one uplink
  Known<BytesPerSecond> h2d, d2h, total;
};

struct Drive {
  std::string name;
  int count = 1;  // striped: the figures are of all of them together
  Known<Bytes> capacity;
  Known<BytesPerSecond> read, write;
  Known<double> mixed;     // read/R + write/W is at most this when both run
  Known<Seconds> latency;  // of one request; bandwidth needs depth x block / latency
};

// A CPU kernel as the framework runs it. `scalar_rate` replaces `core_rate` on hosts without AVX.
struct CpuKernel {
  double dram_bytes_per_element = 0;
  ElementsPerSecond core_rate;
  std::optional<ElementsPerSecond> scalar_rate;
  bool single_core = false;
  FigureId figure = kNoFigure;
};

struct Framework {
  std::string name;
  Known<Seconds> launch;          // host seconds of one bare eager kernel
  Known<Seconds> launch_forward;  // of one kernel inside a Transformers layer, forward
  Known<Seconds> launch_backward;
  Known<Seconds> copy_call;         // host seconds of one asynchronous copy
  Known<Seconds> optimizer_tensor;  // host seconds a tensor in optimizer.step(), before its kernels
  Known<Seconds>
      checkpoint_call;  // host seconds that checkpointing a layer adds, forward and again backward
  Known<Seconds> optimizer_object;       // host seconds of step() of an optimizer of one tensor
  Known<Seconds> distributed_operation;  // of an operation on a DTensor, beside what it does
  Known<Seconds> module_hook;            // of DeepSpeed's stage 3 at a module's border, in and out
  Known<Seconds> module_hook_early;      // the same before 0.18
  Known<Seconds> gradient_hook;          // of its hook on a gradient, beside what it launches
  Known<Seconds> step_tensor;            // of its step, a parameter
  Known<Seconds> unshard_tensor;         // of FSDP2 before a module, a parameter, beside its calls
  Known<Seconds> reduce_tensor;          // of FSDP2 after a backward, a parameter
  Known<Seconds> collective_call;        // host seconds of a collective of several GPUs
  Known<Seconds> collective;             // of it on the GPU, beside its bytes
  Known<double> collective_share;        // of `peer`, that all-gather and reduce-scatter reach
  int launch_queue = 0;                  // kernels that the host can run ahead
  Known<Bytes> gpu_rounding;             // of the GPU allocator
  Known<Bytes> gpu_workspace;            // of the matrix library, allocated with the first product
  Known<ElementsPerSecond>
      indexed;  // per multiprocessor: kernels that compute an address per element
  bool pinned_power_of_two = false;
  Known<Bytes> map_threshold;     // the C library maps larger blocks afresh: new pages each time;
                                  // of smaller ones it keeps them. Left out: it gives back what is
                                  // free at its heap's end, 13 to 100 % where a model's gradients
                                  // are freed together (raw/h200-heap-2026-11-30.jsonl)
  Known<Bytes> process_resident;  // host memory of an idle process
  Known<Bytes> gpu_context;       // GPU memory that the context takes
  std::map<std::string, CpuKernel, std::less<>> kernels;  // names in cost.h
};

struct Price {
  UsdPerHour per_gpu;
  std::string date;  // "2026-08"
  FigureId figure = kNoFigure;
};

struct Machine {
  std::string name;   // "gh200-480gb"
  std::string title;  // "one GH200 96 GB, Grace 480 GB"
  int gpus = 1;
  Accelerator accelerator;
  Host host;
  std::optional<Link> link;  // absent: unified
  std::optional<Uplink> uplink;
  std::optional<Known<BytesPerSecond>> peer;  // a GPU to the others, each way
  std::vector<Drive> drives;
  Framework framework;
  std::optional<Price> price;  // absent: owned; a cost then needs a price from the user
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

// `name` is a file of systems/ or measured/, or the path of a file on disk (it has a slash or ends
// in .yaml), which may name parts of the catalog. `asked_at` is where the user named it.
// `framework`: a file of frameworks/ in place of the machine's own, whose overrides do not apply.
Machine load_machine(const Catalog& catalog, const std::string& name, const Place& asked_at = {},
                     const std::string& framework = "");

}  // namespace offsim::machine
