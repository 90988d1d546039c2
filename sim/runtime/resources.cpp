#include "sim/runtime/resources.h"

#include <array>
#include <span>

#include "sim/base/error.h"

namespace offsim::runtime {

using engine::DemandId;
using engine::Use;

Resources::Resources(engine::GraphBuilder& builder, const machine::Machine& machine,
                     const Background& background)
    : builder_(builder),
      machine_(machine),
      sm_(builder.add_resource("gpu.sm", 1.0)),
      cores_(builder.add_resource("host.cores",
                                  static_cast<double>(machine.host.cores - background.cores))),
      drive_time_(builder.add_resource(
          "drive0.time", 1.0, machine.drives.empty() ? 1.0 : machine.drives.front().mixed.value)),
      peer_time_(builder.add_resource("gpu.peer", 1.0)) {
  SIM_ASSERT(background.cores < machine.host.cores && background.dram < machine.host.dram.value,
             "the background leaves something");
  for (const machine::Edge& edge : machine.topology.edges) {
    const double taken = edge.name == "dram" ? background.dram.value : 0;
    links_.push_back({builder.add_resource(edge.name + ".h2d", edge.down.value.value - taken),
                      builder.add_resource(edge.name + ".d2h", edge.up.value.value - taken),
                      builder.add_resource(edge.name + ".total", edge.total.value.value - taken)});
    if (edge.name == "dram") {
      dram_ = links_.back().total;
    }
  }
}

double Resources::dram_per_byte(bool pageable) const {
  return machine_.accelerator.unified ? 2.0 : (pageable ? 3.0 : 1.0);
}

DemandId Resources::kernel() {
  if (!kernel_) {
    const Use use{sm_, 1.0};
    kernel_ = builder_.demand(1.0, 1.0, std::span(&use, 1));
  }
  return *kernel_;
}

// Memory counts bytes both ways together; a link each way and both.
std::vector<Use> Resources::along(const std::vector<machine::Hop>& route,
                                  double dram_per_byte) const {
  std::vector<Use> uses;
  for (const machine::Hop& hop : route) {
    const machine::Edge& edge = machine_.topology.edges[static_cast<std::size_t>(hop.edge)];
    const Link& link = links_[static_cast<std::size_t>(hop.edge)];
    if (edge.name == "dram") {
      uses.push_back({link.total, dram_per_byte});
    } else if (!edge.name.starts_with("drive")) {  // a drive's rates are those of its requests
      uses.push_back({link.total, 1.0});
      uses.push_back({hop.down ? link.h2d : link.d2h, 1.0});
    }
  }
  return uses;
}

DemandId Resources::copy(bool h2d, bool pageable, BytesPerSecond rate) {
  const auto [found, added] = copies_.try_emplace({h2d, pageable, rate.value}, engine::DemandId{});
  if (!added) {
    return found->second;
  }
  std::vector<machine::Hop> route =
      h2d ? machine_.topology.route("dram", "gpu0") : machine_.topology.route("gpu0", "dram");
  if (machine_.accelerator.unified) {
    route = machine_.topology.route("dram", "socket0");
  }
  found->second = builder_.demand(rate.value, machine_.host.dma_weight.value,
                                  along(route, dram_per_byte(pageable)));
  return found->second;
}

DemandId Resources::cpu(const machine::CpuWork& price) {
  const double bytes = price.dram_bytes_per_element;
  const std::array<Use, 2> uses{Use{cores_, price.cores / price.rate.value}, Use{dram_, bytes}};
  const double weight = bytes > 0 ? 1.0 / bytes : 1.0;  // of an element: 1 a byte
  return builder_.demand(price.rate.value, weight, std::span(uses).first(bytes > 0 ? 2 : 1));
}

DemandId Resources::io(const Io& io, BytesPerSecond rate) {
  const auto [found, added] =
      ios_.try_emplace({io.write, io.to_gpu, rate.value}, engine::DemandId{});
  if (!added) {
    return found->second;
  }
  const std::string_view memory = io.to_gpu ? "gpu0" : "dram";
  const auto route = io.write ? machine_.topology.route(memory, "drive0")
                              : machine_.topology.route("drive0", memory);
  std::vector<Use> uses = along(route, 1.0);
  uses.push_back(
      {drive_time_, 1 / rate.value, io.write ? engine::Way::kBack : engine::Way::kForth});
  found->second = builder_.demand(rate.value, machine_.host.dma_weight.value, uses);
  return found->second;
}

DemandId Resources::collective(BytesPerSecond rate) {
  const Use use{peer_time_, 1 / rate.value};
  return builder_.demand(rate.value, 1.0, std::span(&use, 1));
}

}  // namespace offsim::runtime
