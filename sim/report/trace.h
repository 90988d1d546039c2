// The reported step as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
// One process; a track for the host thread, each worker and each stream. Copies run on the streams
// of their program, so they have their own tracks where the program uses streams of their own. A
// complete event ("X") for every activity of some length, clipped to the step: name = label,
// category = cause, arguments: phase, bytes of a copy, the figure it mostly rests on. Counters
// ("C") show what each memory pool holds (GiB) and what copies move in each direction (GB/s, a
// copy's bytes spread evenly over its length). Times are microseconds from the start of the step.
// Left out: joins, the step before, which activity waited for which.
#pragma once

#include <iosfwd>

#include "sim/plans/job.h"
#include "sim/study/predict.h"

namespace offsim::report {

// A counter has at most this many points: the last value of each slice of time that has any.
inline constexpr int kMostCounterPoints = 5000;

// Requires: `run` is of `job` (study::predict).
void write_trace(std::ostream& out, const study::Run& run, const plans::Job& job);

}  // namespace offsim::report
