// Executes a program: the calling thread is its host lane and issues the calls in their order; each
// worker and each queue of I/O is a thread of its own with a queue of calls; streams are the
// device's.
//
//   host or worker waits for a stream    it waits for the device's point
//   a stream waits for a stream          the device does, the host goes on
//   a stream waits for a worker          a flag that the worker sets and the device polls
//                                        (cuStreamWaitValue32): no thread and no multiprocessor is
//                                        held, and no host function of CUDA, all of which share one
//                                        thread, can block another
//   a worker waits for a worker          a condition variable
//
// Memory: pageable blocks are allocated, first written and freed as the program says, since their
// pages cost time. GPU and pinned blocks are what caching allocators hand out again: arenas stand
// for them. Left out: a `used_by` of a free, for the same reason.
//
// Every call that takes time gets a span on its lane, and a launch or a copy of pinned memory a
// second one on the host, which issued it. A step ends when every lane has come to its end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/replay/device.h"
#include "kernels/replay/host_work.h"
#include "kernels/replay/program.h"

namespace offsim::kernels {

struct Span {
  std::uint32_t call = 0, lane = 0;
  double begin = 0, end = 0;  // seconds of the host's clock
};

struct Execution {
  std::vector<double> step_ends;  // by step
  std::vector<Span> spans;        // phases are of no length, on the host
};

// `busy`: seconds of a host task by name; tasks without one take none. `issued`: told how many
// steps the host thread has issued, between two of them; it should return at once. Throws what a
// lane throws, when all of them have stopped.
Execution execute(const Program& program, Device& device, HostWork& host,
                  const std::map<std::string, double>& busy,
                  const std::function<void(std::int64_t)>& issued = {});

}  // namespace offsim::kernels
