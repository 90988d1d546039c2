#include "sim/study/handicaps.h"

#include <algorithm>

#include "sim/machine/cost.h"

namespace offsim::study {

namespace {

void scale(machine::Known<BytesPerSecond>& figure, double by) { figure.value.value *= by; }

void scale_edges(machine::Topology& topology, std::string_view prefix, double by) {
  for (machine::Edge& edge : topology.edges) {
    if (edge.name.starts_with(prefix)) {
      scale(edge.down, by);
      scale(edge.up, by);
      scale(edge.total, by);
    }
  }
}

// adam_deepspeed_f32 -> adam_torch_loop_f32
std::string loop_of(const std::string& kernel) {
  return kernel.ends_with("_bf16") ? "adam_torch_loop_bf16" : "adam_torch_loop_f32";
}

}  // namespace

plans::Job with_threads(plans::Job job, int threads) {
  const machine::Machine before = job.machine;
  machine::Host& host = job.machine.host;
  for (auto& entry : host.kernels) {
    machine::Curve& curve = entry.second;
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      curve.y[i] = machine::cpu_kernel(before, entry.first, curve.x[i], threads).rate.value;
    }
  }
  host.cores = threads * static_cast<int>(job.workload.gpus);
  return job;
}

plans::Job with_loop_adam(plans::Job job) {
  if (job.options.has("fused")) {
    job.options = job.options.with("fused", "false");
    return job;
  }
  auto& kernels = job.machine.framework.kernels;
  auto& measured = job.machine.host.kernels;
  for (auto& entry : kernels) {
    if (!entry.first.starts_with("adam_") || entry.first.starts_with("adam_torch_loop")) {
      continue;
    }
    entry.second = kernels.at(loop_of(entry.first));
    const auto loop = measured.find(loop_of(entry.first));
    if (loop != measured.end()) {
      measured[entry.first] = machine::Curve(loop->second);
    } else {
      measured.erase(entry.first);
    }
  }
  return job;
}

plans::Job with_dram(plans::Job job, double share) {
  machine::Host& host = job.machine.host;
  const double before = host.dram.value.value;
  scale(host.dram, share);
  scale_edges(job.machine.topology, "dram", share);
  for (auto& entry : host.kernels) {
    const double bytes = job.machine.framework.kernels.at(entry.first).dram_bytes_per_element;
    for (double& rate : entry.second.y) {
      if (rate * bytes <= before) {
        rate = std::min(rate, before * share / bytes);
      }
    }
  }
  return job;
}

plans::Job with_link(plans::Job job, double share) {
  if (!job.machine.link) {
    return job;
  }
  machine::Link& link = *job.machine.link;
  const auto hold = [](machine::Curve& pageable, double most) {
    for (double& rate : pageable.y) {
      rate = std::min(rate, most);
    }
  };
  scale(link.h2d, share);
  scale(link.d2h, share);
  scale(link.total, share);
  hold(link.pageable_h2d, link.h2d.value.value);
  hold(link.pageable_d2h, link.d2h.value.value);
  scale_edges(job.machine.topology, "link", share);
  return job;
}

plans::Job with_pageable_memory(plans::Job job) {
  if (job.options.has("pin_memory")) {
    job.options = job.options.with("pin_memory", "false");
  }
  return job;
}

plans::Job with_drive(plans::Job job, double share) {
  for (machine::Drive& drive : job.machine.drives) {
    scale(drive.read, share);
    scale(drive.write, share);
  }
  scale_edges(job.machine.topology, "drive", share);
  return job;
}

plans::Job with_gpu_clock(plans::Job job, double share) {
  job.machine.accelerator.sustained.value /= share;
  return job;
}

}  // namespace offsim::study
