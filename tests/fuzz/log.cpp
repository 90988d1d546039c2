// Does every sequence of bytes become figures that are numbers, or one line?
#include "sim/logs/log.h"

#include <cmath>
#include <sstream>

#include "tests/fuzz/document.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    const offsim::logs::Log log = offsim::logs::read_log(in, "fuzz");
    offsim::fuzz::require(log.known > 0 && log.known + log.unknown == log.lines);
    int line = 1;
    for (const offsim::logs::Observation& seen : log.observations) {
      offsim::fuzz::require(std::isfinite(seen.value) && seen.value >= 0 && seen.line >= line);
      offsim::fuzz::require(!offsim::logs::name_of(seen.what).empty());
      line = seen.line;
    }
  } catch (const offsim::InputError& error) {
    offsim::fuzz::check(error);
  }
  return 0;
}
