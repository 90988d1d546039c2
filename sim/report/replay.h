// A replay beside its prediction: a table for people, JSON for scripts (schema offsim.replayed/1),
// and one Chrome trace with two processes, measured and predicted, which begin with the step and
// have the same tracks.
//
// "differs" is predicted over measured, less 1. Classes and kernels of less than a hundredth of the
// step are added up in one row.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "sim/report/text.h"
#include "sim/study/replay.h"

namespace offsim::report {

std::string replay_text(const plans::Job& job, const study::MeasuredReplay& measured,
                        const study::ReplayComparison& comparison, const TextStyle& style = {});
std::string replay_json(const plans::Job& job, const study::MeasuredReplay& measured,
                        const study::ReplayComparison& comparison);
void write_replay_trace(std::ostream& out, const plans::Job& job, const runtime::Program& program,
                        const std::vector<study::ReplaySpan>& measured,
                        const std::vector<study::ReplaySpan>& predicted);

}  // namespace offsim::report
