// The reported step as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
// One process with a track for the host thread, each worker and each stream; a copy is on the
// stream it was issued to. A complete event ("X") for everything that takes time, clipped to the
// step: name = label, category = cause, arguments = phase, bytes or elements, and the figure that
// most of its time rests on. Counters ("C"): bytes held by each memory pool (at each point the most
// until the next), and GB/s copied in each direction. Times are microseconds from the start of the
// step, exact to the picosecond. Size: about 200 bytes an activity of the step, and
// kMostCounterPoints a counter. Left out: joins, the steps before, which activity waited for which.
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
