// A machine's resources in a graph, and what each kind of work uses of them.
//
//   gpu.sm       the GPU: a kernel takes all of it, kernels of two streams share
//   host.cores   cores: a CPU kernel takes its threads
//   EDGE.h2d, EDGE.d2h, EDGE.total   bytes a second of every edge of the topology; "dram.total" is
//                the memory that copies, CPU kernels and drives share
//   gpu.peer     the GPU's way to the others: a byte takes 1 / rate of it
//   drive0.time  a byte takes 1 / rate of it, so that reads and writes share one drive; while some
//                of each run, whichever queues they are on, there is Drive::mixed of it
// A pageable byte passes DRAM three times: the driver copies it through pinned buffers of its own.
// A DMA byte weighs Host::dma_weight in the sharing of DRAM, a CPU kernel's byte 1.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "sim/engine/graph.h"
#include "sim/machine/cost.h"
#include "sim/machine/machine.h"
#include "sim/runtime/program.h"

namespace offsim::runtime {

// What other programs take of the host all the time (a data loader's processes). It is taken off
// the capacities: it has its share whatever the rest needs, and never less.
struct Background {
  std::int64_t cores = 0;
  BytesPerSecond dram;
};

class Resources {
 public:
  // Requires: the background leaves something.
  Resources(engine::GraphBuilder& builder, const machine::Machine& machine,
            const Background& background);

  engine::DemandId kernel();
  // A copy that alone moves `rate`. On unified memory it reads and writes the one DRAM.
  engine::DemandId copy(bool h2d, bool pageable, BytesPerSecond rate);
  engine::DemandId cpu(const machine::CpuWork& price);
  engine::DemandId io(const Io& io, BytesPerSecond rate);
  engine::DemandId collective(BytesPerSecond rate);

  // What a byte of a copy takes of DRAM.
  double dram_per_byte(bool pageable) const;

 private:
  struct Link {
    engine::ResourceId h2d, d2h, total;
  };
  std::vector<engine::Use> along(const std::vector<machine::Hop>& route,
                                 double dram_per_byte) const;

  engine::GraphBuilder& builder_;
  const machine::Machine& machine_;
  engine::ResourceId sm_, cores_, drive_time_, peer_time_;
  std::vector<Link> links_;  // by edge
  engine::ResourceId dram_;
  std::optional<engine::DemandId> kernel_;
  // Routes are searched once for each kind of transfer.
  std::map<std::tuple<bool, bool, double>, engine::DemandId> copies_, ios_;
};

}  // namespace offsim::runtime
