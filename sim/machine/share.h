// A machine as one of several ranks sees it: processes with one GPU each that do the same at the
// same time.
//
// What GPUs share is divided by how many of them do: cores (bound to ranks), memory and its
// bandwidth, CPU kernels as measured on all cores, an uplink, drives. A rank's own are its GPU and
// its link. What one rank does in that share takes as long as what all do together, as long as they
// are alike: sharing is even, and a rank that waits for another is one that would have waited for
// itself.
// Requires: 1 <= ranks <= machine.gpus, and no more than cores.
// Left out: ranks that drift apart and leave each other more, threads that are not bound, new pages
// of several processes at once (each has its rate whole), sockets (each rank is near its own
// memory).
#pragma once

#include "sim/machine/machine.h"

namespace offsim::machine {

Machine share_of(Machine machine, int ranks);

}  // namespace offsim::machine
