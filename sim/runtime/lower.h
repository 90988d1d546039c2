// Prices a Program on a machine: calls become activities with amounts, resources, edges and memory
// changes.
//
// Rules, each in one function of lower.cpp:
//   launch   the host is busy for launches x seconds a launch; the kernels start after the first
//            launch and cannot end a step before the last, so a layer whose launches take longer
//            than its kernels takes as long as its launches; the host cannot be more than
//            `launch_queue` kernels ahead of the streams
//   copy     latency + bytes over the links of the route (each direction, both together, DRAM); the
//            host pays a call a piece, and waits for the stream when the copy is blocking or the
//            memory is pageable; what kernels or page faults move is no call of the host, and a
//            fault a piece takes the place of the latency
//   collective   latency + what crosses of the bytes at NCCL's rate between the GPUs; the host
//            pays a call and goes on; ranks are alike, so none waits for another
//   storage  requests of a queue one at a time: bytes over the drive's rate for what is in flight,
//            beside them DRAM or, with GPUDirect, the GPU's link; a read and a write of two queues
//            at once share the drive's time, of which they have Drive::mixed
//   CPU      elements at the kernel's rate for its size and threads, sharing DRAM and cores with
//            everything else
//   pages    a pageable block of the map threshold or more is new at each allocation: whoever
//            writes it first faults its pages in, and its free gives them back; smaller blocks come
//            from the C library's heap, which grows once and stays resident (32 MiB is the largest
//            threshold that glibc adapts to)
//   background   cores and DRAM that something else takes during the whole program are not there:
//            a CPU kernel of all cores runs as many of its threads at a time as are left
//   memory   changes happen where the issuing lane stands: GPU memory in the host's issue order, as
//            a caching allocator sees it
// On a machine with unified memory both pools are one; a copy there reads and writes that memory.
// Left out: the host thread's own core while it issues, copies that start before the pages they
// read exist, and the DRAM that GPU kernels of a unified machine take from the CPU's.
#pragma once

#include <utility>
#include <vector>

#include "sim/engine/graph.h"
#include "sim/machine/machine.h"
#include "sim/runtime/cause.h"
#include "sim/runtime/program.h"
#include "sim/runtime/resources.h"

namespace offsim::runtime {

// What an activity's time rests on: figures with their shares, which add up to 1.
using FigureShares = std::vector<std::pair<machine::FigureId, double>>;

struct StepTotals {
  double h2d_bytes = 0, d2h_bytes = 0, nvme_read_bytes = 0, nvme_write_bytes = 0, dram_bytes = 0,
         peer_bytes = 0;
  Flops executed;
};

struct Lowered {
  engine::ActivityGraph graph = engine::GraphBuilder().build();
  std::vector<std::uint32_t> rests_on;  // by activity: index into figure_shares
  std::vector<FigureShares> figure_shares;
  std::vector<std::uint32_t> lane;            // by activity: index into Program::lanes
  std::vector<std::uint32_t> call;            // by activity: index into Program::calls
  std::vector<engine::ActivityId> step_ends;  // one a step
  std::vector<StepTotals> totals;             // one a step
  engine::PoolId gpu{}, host{}, host_pinned{},
      nvme{};  // gpu and host are the same pool on a unified machine
  bool unified = false;
};

Lowered lower(const Program& program, const machine::Machine& machine,
              const Background& background = {});

}  // namespace offsim::runtime
