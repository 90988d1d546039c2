// offsim dag: simulates a DAG file (format: sim/engine/dag_file.h) and says how fast that went.
#pragma once

#include <iosfwd>
#include <string>

namespace offsim::cli {

struct DagOptions {
  std::string file;
  std::string
      finish;  // where to write "ID SECONDS" lines: a path, "-" for `out`, or empty for nowhere
};

// One JSON line on `err`: activities, edges, finished, makespan_s, parse_s, build_s, run_s,
// activities_per_s, peak_rss_mib (the high-water mark of the whole process). Returns the exit code.
// Throws InputError for a bad file.
int run_dag(const DagOptions& options, std::ostream& out, std::ostream& err);

}  // namespace offsim::cli
