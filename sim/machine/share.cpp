#include "sim/machine/share.h"

#include <fmt/format.h>

#include <algorithm>

namespace offsim::machine {

namespace {

template <class Unit>
void divide(Known<Unit>& figure, int by) {
  figure.value.value /= by;
}

void divide(std::vector<double>& values, int by) {
  for (double& value : values) {
    value /= by;
  }
}

// How many of the ranks reach the host's memory over each edge.
std::vector<int> users(const Topology& topology, int ranks) {
  std::vector<int> count(topology.edges.size(), 0);
  for (int gpu = 0; gpu < ranks; ++gpu) {
    for (const Hop& hop : topology.route("dram", fmt::format("gpu{}", gpu))) {
      ++count[static_cast<std::size_t>(hop.edge)];
    }
  }
  return count;
}

}  // namespace

Machine share_of(Machine machine, int ranks) {
  SIM_ASSERT(1 <= ranks && ranks <= machine.gpus && ranks <= machine.host.cores,
             "a rank has a GPU and a core");
  const std::vector<int> sharing = users(machine.topology, ranks);
  for (std::size_t i = 0; i < sharing.size(); ++i) {
    Edge& edge = machine.topology.edges[i];
    const int by = edge.name.starts_with("drive") ? ranks : std::max(1, sharing[i]);
    divide(edge.down, by);
    divide(edge.up, by);
    divide(edge.total, by);
  }
  Host& host = machine.host;
  host.cores /= ranks;
  host.memory.value.value = std::max<std::int64_t>(1, host.memory.value.value / ranks);
  divide(host.dram, ranks);
  // Measured by one process on all cores: so much is what all ranks do together, also with fewer
  // threads each. What one core does, it does for its rank alone.
  for (auto& [name, rates] : host.kernels) {
    const auto kernel = machine.framework.kernels.find(name);
    if (kernel != machine.framework.kernels.end() && !kernel->second.single_core) {
      divide(rates.y, ranks);
    }
  }
  for (auto& [kind, rates] : host.threads) {
    divide(rates.x, ranks);
  }
  for (Drive& drive : machine.drives) {
    divide(drive.capacity, ranks);
    divide(drive.read, ranks);
    divide(drive.write, ranks);
  }
  return machine;
}

}  // namespace offsim::machine
