// The price of a call alone on a machine: seconds and rates from machine/cost.h, and the figures
// that they rest on.
#pragma once

#include <utility>
#include <vector>

#include "sim/machine/machine.h"
#include "sim/model/work.h"
#include "sim/runtime/program.h"

namespace offsim::runtime {

struct WorkPrice {
  Seconds seconds;  // of the GPU, kernels one after the other
  std::int64_t launches = 0;
  Flops flops;                                               // as executed
  std::vector<std::pair<machine::FigureId, double>> shares;  // add up to 1 when seconds is positive
};
WorkPrice price_work(const machine::Machine& machine, const model::Work& work,
                     Half half = Half::kBf16);

// Host seconds of one.
machine::Known<Seconds> host_task(const machine::Framework& framework, HostTask task);

// `pieces` copies of equal size in a row. On unified memory a copy reads and writes the one DRAM.
struct CopyPrice {
  Seconds latency;  // of all pieces
  BytesPerSecond rate;
  machine::FigureId figure = machine::kNoFigure;
};
// Pieces that the GPU faults on wait for the driver, one after the other (Link::page_fault).
CopyPrice price_copy(const machine::Machine& machine, bool h2d, bool pageable, Bytes bytes,
                     std::int64_t pieces, Mover mover = Mover::kEngine);

// NCCL between GPUs that are joined: bytes (ranks - 1) / ranks at `collective_share` of a peer
// copy's rate, each way; the share was measured on two GPUs. Left out: multiprocessors that it
// takes (products beside one are 2 to 6 % slower, and it takes half longer:
// raw/h200x2-ranks-2026-11-30.jsonl), trees, NVLink multicast, GPUs without a switch between them.
struct CollectivePrice {
  Bytes crossing;  // of each rank
  Seconds latency;
  BytesPerSecond rate;
  machine::FigureId figure = machine::kNoFigure;
};
// Requires: the machine has `peer`.
CollectivePrice price_collective(const machine::Machine& machine, Bytes whole, int ranks);

}  // namespace offsim::runtime
