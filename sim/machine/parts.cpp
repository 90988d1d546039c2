#include "sim/machine/parts.h"

#include <fmt/format.h>

#include "sim/machine/cost.h"

namespace offsim::machine {

namespace {

std::map<std::string, Curve, std::less<>> read_curves(View& parent, std::string_view key,
                                                      const std::vector<std::string>& known,
                                                      FigureReader& figures) {
  std::map<std::string, Curve, std::less<>> out;
  std::optional<View> map = parent.find_map(key);
  if (!map) {
    return out;
  }
  for (const std::string& name : known) {
    if (map->get(name) != nullptr) {
      out[name] = figures.curve(*map, name, parse_count, as_elements);
    }
  }
  map->finish();
  return out;
}

// Of one core, beside the kernel's other values.
ElementsPerSecond read_rate(View& of, std::string_view key) {
  const std::string text = of.text(key);
  const double rate = as_elements(text, of.place_of(key));
  if (rate <= 0) {
    throw InputError(of.place_of(key), fmt::format("{}.{} is '{}'", of.path(), key, text),
                     "expected more than zero");
  }
  return ElementsPerSecond(rate);
}

}  // namespace

Host read_host(View map, FigureReader& figures) {
  Host host;
  host.name = map.text("name");
  host.cores = static_cast<int>(map.integer("cores", 1, 10'000));
  host.avx = map.boolean("avx");
  host.memory = figures.bytes(map, "memory");
  host.dram = figures.bandwidth(map, "dram");
  host.core_bandwidth = figures.bandwidth(map, "core_bandwidth");
  host.core_speed = figures.number(map, "core_speed");
  host.dma_weight = figures.number(map, "dma_weight");
  host.fresh_pages = figures.curve(map, "fresh_pages", parse_count, as_bandwidth);
  host.page_release = figures.bandwidth(map, "page_release");
  host.pinned_alloc = figures.bandwidth(map, "pinned_alloc");
  host.kernels = read_curves(map, "kernels", cpu_kernel_names(), figures);
  host.standins = read_curves(map, "standins", cpu_kernel_names(), figures);
  host.threads = read_curves(map, "threads", {"adam", "stream"}, figures);
  map.finish();
  return host;
}

Link read_link(View map, FigureReader& figures) {
  Link link;
  link.name = map.text("name");
  link.h2d = figures.bandwidth(map, "h2d");
  link.d2h = figures.bandwidth(map, "d2h");
  link.total = figures.bandwidth(map, "total");
  link.latency = figures.time(map, "latency");
  link.pageable_h2d = figures.curve(map, "pageable_h2d", as_bytes, as_bandwidth);
  link.pageable_d2h = figures.curve(map, "pageable_d2h", as_bytes, as_bandwidth);
  if (std::optional<View> coherent = map.find_map("coherent")) {
    link.page_fault = figures.time(*coherent, "page_fault");
    coherent->finish();
  }
  map.finish();
  return link;
}

Uplink read_uplink(View map, FigureReader& figures) {
  Uplink uplink;
  uplink.gpus = static_cast<int>(map.integer("gpus", 1, 64));
  uplink.h2d = figures.bandwidth(map, "h2d");
  uplink.d2h = figures.bandwidth(map, "d2h");
  uplink.total = figures.bandwidth(map, "total");
  map.finish();
  return uplink;
}

Drive read_drive(View map, FigureReader& figures) {
  Drive drive;
  drive.name = map.text("name");
  drive.count = static_cast<int>(map.integer("count", 1, 1'000, 1));
  drive.capacity = figures.bytes(map, "capacity");
  drive.read = figures.bandwidth(map, "read");
  drive.write = figures.bandwidth(map, "write");
  drive.mixed = figures.fraction(map, "mixed");
  drive.latency = figures.time(map, "latency");
  map.finish();
  return drive;
}

Framework read_framework(View map, FigureReader& figures) {
  Framework f;
  f.name = map.text("name");
  f.launch = figures.time(map, "launch");
  f.launch_forward = figures.time(map, "launch_forward");
  f.launch_backward = figures.time(map, "launch_backward");
  f.copy_call = figures.time(map, "copy_call");
  f.optimizer_tensor = figures.time(map, "optimizer_tensor");
  f.checkpoint_call = figures.time(map, "checkpoint_call");
  f.optimizer_object = figures.time(map, "optimizer_object");
  f.distributed_operation = figures.time(map, "distributed_operation");
  f.module_hook = figures.time(map, "module_hook");
  f.module_hook_early = figures.time(map, "module_hook_early");
  f.gradient_hook = figures.time(map, "gradient_hook");
  f.step_tensor = figures.time(map, "step_tensor");
  f.unshard_tensor = figures.time(map, "unshard_tensor");
  f.reduce_tensor = figures.time(map, "reduce_tensor");
  f.collective_call = figures.time(map, "collective_call");
  f.collective = figures.time(map, "collective");
  f.collective_share = figures.fraction(map, "collective_share");
  f.launch_queue = static_cast<int>(map.integer("launch_queue", 1, 1'000'000));
  f.gpu_rounding = figures.bytes(map, "gpu_rounding");
  if (f.gpu_rounding.value > Bytes(kGiB)) {
    throw InputError(map.place_of("gpu_rounding"), "framework.gpu_rounding is above 1 GiB",
                     "expected the size of the smallest block, such as 512 B");
  }
  f.gpu_workspace = figures.bytes(map, "gpu_workspace");
  f.indexed = figures.elements(map, "indexed");
  f.pinned_power_of_two = map.boolean("pinned_power_of_two");
  f.map_threshold = figures.bytes(map, "map_threshold");
  f.process_resident = figures.bytes(map, "process_resident");
  f.gpu_context = figures.bytes(map, "gpu_context");
  View kernels = map.map("kernels");
  for (const std::string& name : cpu_kernel_names()) {
    View of = kernels.map(name);
    CpuKernel& kernel = f.kernels[name];
    kernel.dram_bytes_per_element = static_cast<double>(of.bytes("bytes").value);
    kernel.core_rate = read_rate(of, "core_rate");
    if (of.get("scalar_rate") != nullptr) {
      kernel.scalar_rate = read_rate(of, "scalar_rate");
    }
    kernel.single_core = of.boolean("single_core", false);
    kernel.figure = figures.add(of, kernel.core_rate.value);
  }
  kernels.finish();
  map.finish();
  return f;
}

Price read_price(View map, FigureReader& figures) {
  Price price;
  price.per_gpu = parse_price(map.text("value"), map.place_of("value"));
  price.date = map.text("date");
  price.figure = figures.add(map, price.per_gpu.value);
  return price;
}

}  // namespace offsim::machine
