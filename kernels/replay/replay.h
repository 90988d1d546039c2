// Executes a recorded program (JSON lines, schema offsim.program/1) on this machine, for real: the
// same order of the host's calls, streams, events, copies of the same bytes from the same kind of
// memory, kernels of the same shapes, CPU work of the same kind on the same number of threads,
// direct I/O of the same bytes.
//
// All steps of the program are executed; of the last `steps` of them the median is reported. As
// JSON lines (schema offsim.replay/1):
//
//   {"record":"env","schema":"offsim.replay/1","date":...,"program":...,"program_hash":"5f0c...",
//    "host":{...},"gpu":{...}}            hash: Program::hash, by which the reader knows its own
//   {"record":"memory","pool":"gpu","bytes":B,"held":B}   worked in, of what the program holds
//   {"record":"step","index":I,"seconds":S}               of the last ones, counted from 0
//   {"record":"reported","index":I}                       the median of these, which follows
//   {"record":"call","call":N,"lane":"compute","begin":S,"end":S}
//                                   N-th of the program's calls, counted from 0; from the beginning
//                                   of the step. On the host lane, of a launch or a copy: issuing,
//                                   which waits where the GPU's queue is full
//   {"record":"end"}
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "kernels/replay/executor.h"

namespace offsim::kernels {

struct ReplayOptions {
  std::string program;
  int steps = 3;
  std::string file;               // for I/O calls
  std::vector<std::string> busy;  // "module_hook=0.00033": seconds of a host task
};

// Records go to standard output, progress to standard error: a line "progress DONE TOTAL NAME"
// before the preparation, and when the host thread begins to issue a step. Throws UserError for a
// mistake in the options or the program.
void replay(const ReplayOptions& options);

// Throws UserError for what is no TASK=SECONDS.
std::map<std::string, double> busy_seconds(const std::vector<std::string>& given);

void write_environment(const Program& program, const std::string& name, std::ostream& out);
// The records from the first step to the end. Requires: the program has a step more than `steps`.
void write_execution(const Program& program, const Execution& execution, int steps,
                     std::ostream& out);

}  // namespace offsim::kernels
