// Executes a recorded program (JSON lines, schema offsim.program/1) on this machine, for real: the
// same order of the host's calls, streams, events, copies of the same bytes from the same kind of
// memory, kernels of the same shapes, CPU work of the same kind on the same number of threads,
// direct I/O of the same bytes.
#pragma once

#include <string>
#include <vector>

namespace offsim::kernels {

struct ReplayOptions {
  std::string program;
  int repeat = 3;                 // the reported step so many times
  std::string file;               // for I/O calls
  std::vector<std::string> busy;  // "module_hook=0.00033": seconds of a host task
};

// Records go to standard output, progress to standard error. Returns the exit code.
int replay(const ReplayOptions& options);

}  // namespace offsim::kernels
