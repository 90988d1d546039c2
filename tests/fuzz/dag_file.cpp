// Does every sequence of bytes become a graph that finishes, or one line?
#include <sys/mman.h>
#include <unistd.h>

#include "sim/engine/dag_file.h"
#include "sim/engine/simulate.h"
#include "tests/fuzz/document.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The reader takes a path, so the bytes become a file that lives in memory.
  const int file = memfd_create("fuzz", 0);
  offsim::fuzz::require(file >= 0);
  offsim::fuzz::require(write(file, data, size) == static_cast<ssize_t>(size));
  try {
    auto dag = offsim::engine::read_dag("/proc/self/fd/" + std::to_string(file));
    const std::size_t activities = dag.ids.size();
    const auto graph = std::move(dag.builder).build();
    offsim::fuzz::require(graph.size() == activities);
    if (activities < 1000) {
      offsim::fuzz::require(offsim::engine::simulate(graph).makespan >= 0);
    }
  } catch (const offsim::InputError& error) {
    offsim::fuzz::require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  close(file);
  return 0;
}
