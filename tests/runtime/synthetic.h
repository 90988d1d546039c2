// A machine of round numbers, made in the test: what happens on it can be computed on paper.
//
// GPU: 1 TB/s for bytes-bound kernels, 1 PFLOPS without loss, kernels as short as they want, 1 TB
// of memory. Host: 4 cores, each 1 G elements a second of any kernel (norms run on one core) at 10
// B an element, in 100 GB/s of DRAM in which a DMA byte weighs as much as a kernel's; new pages at
// 1 GB/s by one thread, 4 by four, given back at 10 GB/s. Link: 10 GB/s each way, 15 both together,
// 5 us; 5 GB/s pageable. Drive: 2 GB/s read, 1 GB/s written, half of both when mixed, 100 us.
// Framework: 10 us a launch (20 in forward, 30 in backward), 10 us a copy,
// 1 us a tensor in the optimizer, 1 ms a checkpoint, 100 kernels ahead, blocks of 1 MiB and more
// mapped afresh; collectives at half of a peer copy's rate, 10 us a call and 5 us on the GPU.
#pragma once

#include <string>
#include <vector>

#include "sim/machine/cost.h"
#include "sim/machine/formulas.h"
#include "sim/machine/machine.h"

namespace offsim::runtime {

template <class T>
machine::Known<T> known(double value) {
  return {T(value), machine::kNoFigure};
}
inline machine::Known<Bytes> known_bytes(std::int64_t value) {
  return {Bytes(value), machine::kNoFigure};
}

inline constexpr double kGiga = 1e9;
inline constexpr double kMicro = 1e-6;

// A correction that changes nothing, of as many features as the formula has.
inline machine::Efficiency perfect(const machine::Estimate& formula) {
  const std::vector<double> zeros(formula.features.size(), 0.0);
  return {{zeros, zeros, zeros, {}}, machine::kNoFigure};
}

inline machine::Accelerator synthetic_accelerator() {
  machine::Accelerator a;
  a.name = "synthetic GPU";
  a.memory = known_bytes(1'000'000'000'000);
  a.memory_bandwidth = known<BytesPerSecond>(1000 * kGiga);
  a.bf16 = a.fp16 = a.tf32 = a.fp32 = known<FlopsPerSecond>(1e15);
  a.multiprocessors = 1;
  a.sustained = known<double>(1);
  a.kernel_floor = known<Seconds>(0);
  a.gemm = perfect(machine::product_estimate({1, 1, 1}, 1, 1, 2));
  a.attention_forward = a.attention_backward =
      perfect(machine::attention_estimate({1, 1, 1, 1, true, false}, 1));
  a.elementwise = {{1}, {1000 * kGiga}, machine::kNoFigure};
  return a;
}

inline machine::Host synthetic_host() {
  machine::Host host;
  host.name = "synthetic host";
  host.memory = known_bytes(1'000'000'000'000);
  host.cores = 4;
  host.avx = true;
  host.dram = known<BytesPerSecond>(100 * kGiga);
  host.core_bandwidth = known<BytesPerSecond>(100 * kGiga);
  host.core_speed = known<double>(1);
  host.dma_weight = known<double>(1);
  host.fresh_pages = {{1, 4}, {1 * kGiga, 4 * kGiga}, machine::kNoFigure};
  host.page_release = host.pinned_alloc = known<BytesPerSecond>(10 * kGiga);
  return host;
}

inline machine::Link synthetic_link() {
  machine::Link link;
  link.name = "synthetic link";
  link.h2d = link.d2h = known<BytesPerSecond>(10 * kGiga);
  link.total = known<BytesPerSecond>(15 * kGiga);
  link.latency = known<Seconds>(5 * kMicro);
  link.pageable_h2d = link.pageable_d2h = {{1}, {5 * kGiga}, machine::kNoFigure};
  return link;
}

inline machine::Framework synthetic_framework() {
  machine::Framework f;
  f.name = "synthetic framework";
  f.launch = known<Seconds>(10 * kMicro);
  f.launch_forward = known<Seconds>(20 * kMicro);
  f.launch_backward = known<Seconds>(30 * kMicro);
  f.copy_call = known<Seconds>(10 * kMicro);
  f.optimizer_tensor = known<Seconds>(1 * kMicro);
  f.checkpoint_call = known<Seconds>(1000 * kMicro);
  f.optimizer_object = known<Seconds>(1 * kMicro);
  f.step_tensor = known<Seconds>(1 * kMicro);
  f.distributed_operation = f.module_hook = f.module_hook_early = f.gradient_hook =
      f.unshard_tensor = f.reduce_tensor = known<Seconds>(0);
  f.collective_call = known<Seconds>(10 * kMicro);
  f.collective = known<Seconds>(5 * kMicro);
  f.collective_share = known<double>(0.5);
  f.launch_queue = 100;
  f.gpu_rounding = known_bytes(512);
  f.gpu_workspace = known_bytes(kMiB);
  f.indexed = known<ElementsPerSecond>(1e15);
  f.pinned_power_of_two = true;
  f.map_threshold = known_bytes(kMiB);
  f.process_resident = known_bytes(2 * kMiB);
  f.gpu_context = known_bytes(3 * kMiB);
  for (const std::string& name : machine::cpu_kernel_names()) {
    machine::CpuKernel& kernel = f.kernels[name];
    kernel.dram_bytes_per_element = 10;
    kernel.core_rate = ElementsPerSecond(1 * kGiga);
    kernel.single_core = name.starts_with("norm");
  }
  return f;
}

// The edges "dram" and "link0" ("link1" ...), with the capacities that the machine's host and link
// have now. And "drive0" where there is a drive.
inline void connect(machine::Machine& m) {
  const machine::Known<BytesPerSecond> dram = m.host.dram;
  m.topology = {};
  const int memory = m.topology.add_node("dram");
  const int socket = m.topology.add_node("socket0");
  m.topology.edges.push_back({"dram", memory, socket, dram, dram, dram});
  for (int i = 0; i < m.gpus; ++i) {
    const std::string number = std::to_string(i);
    const int gpu = m.topology.add_node("gpu" + number);
    if (m.link) {
      m.topology.edges.push_back(
          {"link" + number, socket, gpu, m.link->h2d, m.link->d2h, m.link->total});
    } else {
      m.topology.edges.push_back({"link" + number, socket, gpu, dram, dram, dram});
    }
  }
  for (const machine::Drive& drive : m.drives) {
    m.topology.edges.push_back(
        {"drive0", socket, m.topology.add_node("drive0"), drive.write, drive.read, drive.read});
  }
}

inline machine::Drive synthetic_drive() {
  machine::Drive drive;
  drive.name = "synthetic drive";
  drive.capacity = known_bytes(1'000'000'000'000);
  drive.read = known<BytesPerSecond>(2 * kGiga);
  drive.write = known<BytesPerSecond>(1 * kGiga);
  drive.mixed = known<double>(0.5);
  drive.latency = known<Seconds>(100 * kMicro);
  return drive;
}

inline machine::Machine synthetic_machine() {
  machine::Machine m;
  m.name = "synthetic";
  m.title = "a machine of round numbers";
  m.accelerator = synthetic_accelerator();
  m.host = synthetic_host();
  m.link = synthetic_link();
  m.framework = synthetic_framework();
  m.drives = {synthetic_drive()};
  connect(m);
  return m;
}

// Several GPUs, each with its link, joined at 20 GB/s each way.
inline machine::Machine joined_machine(int gpus) {
  machine::Machine m = synthetic_machine();
  m.gpus = gpus;
  m.peer = known<BytesPerSecond>(20 * kGiga);
  connect(m);
  return m;
}

// CPU and GPU share one memory.
inline machine::Machine unified_machine() {
  machine::Machine m = synthetic_machine();
  m.accelerator.unified = true;
  m.link.reset();
  connect(m);
  return m;
}

}  // namespace offsim::runtime
