// What Ratel keeps of the forward and what it computes again: its planner, by itself.
//
// Without it every block is recomputed from its checkpoints. A candidate is what one product of one
// block puts out: kept, it crosses to the host in the forward and back in the backward, and its
// recomputation is saved. Both planners take candidates in a fixed order, so a plan is how many of
// them are kept; A bytes in all, which save S seconds of the GPU.
//
// convex (arXiv 2403.06504, simplified): by saved seconds a byte, the most first; one more is kept
// as long as the iteration predicted becomes shorter. Bytes beyond host_room are spilled to the
// drive. C: bytes of checkpoints, W: of 16-bit weights (so 6 W of masters and states).
//   forward    max(forward, (A + C) / to_host, W / to_gpu, W / read + spilled / write)
//   backward   max(backward - S, (A + C + W) / to_gpu, 2 W / to_host,
//                  (7 W + spilled) / read + 7 W / write)
// ordered (the released code, utils.py): in the order given, until checkpoints at 18 GiB/s and what
// is kept at 20 GiB/s take longer than swap_ratio of the forward. It neither asks what is saved nor
// spills.
// Left out: what the paper measures of the drive while both directions are under way.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/base/units.h"

namespace offsim::plans {

struct SwapCandidate {
  Bytes bytes;
  Seconds saved;  // of recomputation
};

// What iteration 0 measured.
struct SwapProfile {
  Seconds forward, backward;  // of the GPU alone; the backward recomputes everything
  Bytes weights, checkpoints;
  Bytes host_room, drive_room;  // for checkpoints and what is kept
  BytesPerSecond to_host, to_gpu, read, write;
};

// Of forward and backward when `kept` bytes save `saved` seconds.
Seconds predicted_iteration(const SwapProfile& profile, Bytes kept, Seconds saved);

// Indices of the candidates that are kept, in the order in which they were chosen.
// Requires: candidates have bytes.
std::vector<std::size_t> convex_swap(const SwapProfile& profile,
                                     const std::vector<SwapCandidate>& candidates);
std::vector<std::size_t> ordered_swap(const SwapProfile& profile, double swap_ratio,
                                      const std::vector<SwapCandidate>& candidates);

}  // namespace offsim::plans
