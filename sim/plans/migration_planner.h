// Which tensors leave the GPU when, so that a round of operations fits its memory (TERAIO, arXiv
// 2506.06472, section 4): greedy over inactive periods, with timelines of what the ways out carry.
//
// Operations repeat: after the last comes the first. A candidate is one inactive period of one
// tensor. On a target, its write takes the earliest free time from the period's begin on, its read
// the latest before its end; in between the tensor is away. The first target that has time and room
// is taken: the drive, then host memory. Benefit: the area of memory above capacity that this takes
// away, bytes times seconds; cost: seconds of the target. The best benefit a cost is placed,
// timelines are updated, until nothing exceeds. On a target benefits only shrink as others are
// placed, so a candidate is looked at again only when it comes first.
// Targets too slow for that slow the operations: the least stretch of all of them, by doubling and
// halving, for which the greedy plan fits (the paper's kernels wait; it does not say how its
// planner counts on that). The drive has no time left then, so host memory is asked first. What
// operations wait for in the end is the target that is busy longest, not that stretch: twice as
// much, from which host memory takes more, is tried while it is busy for less. What operations
// alone need is left: `excess`.
// Left out: urgency at run time.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"

namespace offsim::plans {

struct InactivePeriod {
  std::size_t tensor;  // whose; the planner does not ask
  Bytes size;
  // Operations from .. to - 1 do not touch the tensor; `to` goes beyond the last operation for a
  // period that goes on in the next round.
  // Requires: 0 <= from < operations, 0 < to - from < operations.
  std::int64_t from = 0, to = 0;
};

struct MigrationTarget {
  BytesPerSecond write, read;
  bool shared = false;  // reads and writes take turns, as on a drive
  Bytes room;
};

struct MemoryDemand {
  std::vector<Seconds> operations;
  std::vector<Bytes> resident;  // during each, when nothing moves
  Bytes capacity;
  std::vector<MigrationTarget> targets;  // in the order in which they are asked
};

// Operations count on beyond the last one as `to` does. The write begins with `begin`, is done
// before `gone`, and the read begins with `back`: away during gone .. back - 1.
struct Migration {
  std::size_t period = 0, target = 0;
  std::int64_t begin = 0, gone = 0, back = 0;
};

struct MigrationPlan {
  std::vector<Migration> moves;  // in the order in which they were chosen
  std::vector<Bytes> held;       // by target: at the most
  double stretch = 1;            // of every operation, for the targets to keep up
  Bytes excess;                  // of the operation that still needs most above the capacity
};

MigrationPlan plan_migrations(const MemoryDemand& demand,
                              const std::vector<InactivePeriod>& periods);

}  // namespace offsim::plans
