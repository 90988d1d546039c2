// The reported step as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
// Of several GPUs it is one rank's, as the name of its process says.
//
// Two groups of tracks (processes). In the first a track for each lane of the program: the host
// thread, each worker, each stream; a copy is on the stream it was issued to. In the second the
// same work again, by what it uses of the machine: the link in each direction, the CPU pool (work
// of whichever thread), the drive. What overlaps there takes rows, as many tracks of one name.
//
// A complete event ("X") for everything that takes time, clipped to the step: name = label,
// category = cause, arguments = phase, bytes or elements, and the figure that most of its time
// rests on. Counters ("C"): bytes held by each memory pool (at each point the most until the next),
// and GB/s copied in each direction and to or from the drive. Times are microseconds from the start
// of the step in whole nanoseconds, which is what Perfetto keeps; events of one track never
// overlap. Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
// and what https://perfetto.dev/docs/getting-started/other-formats makes of it. Size: about 200
// bytes an event, and kMostCounterPoints a counter. Left out: joins, what takes less than a
// nanosecond, the steps before, which activity waited for which.
#pragma once

#include <iosfwd>

#include "sim/plans/job.h"
#include "sim/study/predict.h"

namespace offsim::report {

// A counter has at most this many points. Where there would be more, the step is cut into half as
// many slices, which show their largest value and their last.
inline constexpr int kMostCounterPoints = 5000;

// Requires: `run` is of `job` (study::predict).
void write_trace(std::ostream& out, const study::Run& run, const plans::Job& job);

}  // namespace offsim::report
